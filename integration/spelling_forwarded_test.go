package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// moreFrames are calls that are odd where those of frames are not: in the id, in what
// is around the message, in a _meta that says more than one thing, and deeper than
// anybody looks.
func moreFrames() (list []string) {
	params := object(keyed{"name", `"write"`}, keyed{"arguments", `{"path":"a"}`})
	plain := `{"jsonrpc":"2.0","id":N,"method":"tools/call","params":` + params + `}`
	for _, place := range []keyed{{"id", "N"}, {"jsonrpc", `"2.0"`}} {
		for _, members := range odd(place, keyed{place.key, `"decoy"`}) {
			rest := []keyed{{"method", `"tools/call"`}, {"params", params}, {"id", "N"}, {"jsonrpc", `"2.0"`}}
			if place.key == "jsonrpc" {
				rest = rest[:3]
			} else {
				rest = append(rest[:2:2], rest[3])
			}
			list = append(list, object(append(members, rest...)...))
		}
	}
	for _, around := range [][2]string{{" \t", " \t"}, {"\ufeff", ""}, {"", "\ufeff"}, {"", "\r"}, {"\r", ""}, {"\u00a0", ""}, {"", "\x00"}, {"", ","}, {"", plain}, {"[", "]"}, {"//\r", ""}} {
		list = append(list, around[0]+plain+around[1])
	}
	for _, between := range []string{"\t", " \r\t ", "\u00a0", "\v", "\x00", "/**/"} {
		list = append(list, strings.ReplaceAll(plain, `":`, `"`+between+":"+between))
	}
	for _, meta := range []string{
		`{"interlock/actor":"x","progressToken":1,"other":{"interlock/actor":"y","progressToken":2}}`,
		`{"other":{"interlock/actor":"y"}}`, `{"interlock":{"actor":"y"}}`, `{"__proto__":{"interlock/actor":"y","progressToken":2}}`,
		`{"interlock/epoch":7}`, `{"interlock/Epoch":7}`, `{"interlock\/epoch":7}`, `{"interlock/epoch":7,"interlock/epoch":8}`, "{\"interloc\u212a/epoch\":7}",
		`{"a":1,"interlock/actor":"x","b":2,"interlock/x":3}`, `{"interlock/actor":"\u0078"}`, `{"interlock/actor":"\ud800"}`, `{"interlock/actor":["x"]}`,
		`{"interlock/actor":1}`, `{"interlock/actor":null}`, `{"interlock/actor":""}`, `{"interlock/actor":"x y"}`, `{"interlock/actor":"x\u0000"}`, `{"interlock/actor":"😀"}`,
		`{"progressToken":1.0}`, `{"progressToken":"\u0031"}`, `{"progressToken":null}`, `{"progressToken":{}}`, `null`, `[]`, `"x"`, `[{"interlock/actor":"y"}]`,
	} {
		list = append(list, strings.Replace(plain, `"params":{`, `"params":{"_meta":`+meta+`,`, 1))
	}
	list = append(list,
		strings.Replace(plain, `"params":`, `"x":{"method":"ping","params":{"name":"peek"}},"params":`, 1),
		strings.Replace(plain, `"params":{`, `"params":{"x":{"name":"peek","NAME":"peek","name":"read"},`, 1),
		strings.Replace(plain, `"params":{`, `"params":[{`, 1)[:len(plain)]+`]}`,
		strings.Replace(plain, `"params":`, `"params":null,"x":`, 1),
		strings.Replace(plain, `{"path":"a"}`, `"{\"path\":\"a\"}"`, 1),
		strings.Replace(plain, `{"path":"a"}`, `{"":"b","path":"a","\ud83d":"c"}`, 1),
		strings.Replace(plain, `{"path":"a"}`, `{"toString":"b","hasOwnProperty":"c","path":"a"}`, 1))
	return list
}

// TestSpellingForwarded is about the bytes that reach the server: whoever reads them,
// with the first or the last of what is there twice, in exact letters or in any, finds
// the tool, the path and the token that interlock has found, and nothing that is
// between interlock and its client. Of what is refused, nothing reaches the server.
func TestSpellingForwarded(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, w way) {
		r := newRig(t)
		s := r.fake()
		s.State = "shared"
		s.Tools = map[string]toolRule{"write": {Class: "mutate", Resource: "name:{path}"}, "peek": {Class: "read"}}
		r.servers["fake"] = s
		c := r.open(w, "fake").ready()
		list := slices.DeleteFunc(append(frames(), moreFrames()...), func(frame string) bool {
			return strings.Contains(frame, `"write\u0000"`) // the fake server repeats it in what is no JSON
		})
		answers := make([]*message, len(list))
		for i, frame := range list {
			id := fmt.Sprintf(`"#%d#"`, i) // which marks the line that the server gets, too
			list[i] = strings.Replace(strings.ReplaceAll(frame, `N`, id), `{`, `{"vendor":`+id+`,`, 1)
			c.send("%s", list[i])
			ping := fmt.Sprintf(`"after %d"`, i) // for what is no request any more, and so has no answer
			if isNotice(list[i]) {
				c.send(`{"jsonrpc":"2.0","id":%s,"method":"ping"}`, ping)
			}
			answers[i] = c.take("answer to "+list[i], func(m *message) bool {
				return isAnswer(id)(m) || isError(-32700)(m) || isError(-32600)(m) || isAnswer(ping)(m)
			})
		}
		calls := recorded(r.history(len(list)))
		received := r.received()
		refused, notices := 0, 0
		for i, frame := range list {
			lines := received[fmt.Sprintf("#%d#", i)]
			switch {
			case isNotice(frame):
				notices++ // without an id it is nobody's call, and nothing that a server may carry out
				if len(lines) > 0 && strings.Contains(lines[0], "tools/call") {
					t.Errorf("%s\nwas sent without an id: %s", frame, lines[0])
				}
			case len(lines) == 0:
				refused++
				if answers[i].Error == nil && ownErrorOf(t, answers[i]).Code == "" {
					t.Errorf("%s\nwas not sent and not refused: %s", frame, answers[i].raw)
				}
			case len(lines) == 1:
				if len(calls) == 0 {
					t.Fatalf("%s\nand what follows is not in the history", frame)
				}
				compareReaders(t, frame, lines[0], calls[0])
				calls = calls[1:]
			default:
				t.Errorf("%s\nwas sent %d times", frame, len(lines))
			}
		}
		if len(calls) > 0 {
			t.Errorf("the history has calls that the server has not: %v", calls)
		}
		alike := len(list) - notices - refused
		t.Logf("%d spellings: %d refused, %d understood alike, %d without an id", len(list), refused, alike, notices)
		if refused < 200 || alike < 150 {
			t.Errorf("%d refused, %d understood alike", refused, alike)
		}
	}, socket)
}

// isNotice says that a message has no id, for whoever reads it exactly.
func isNotice(frame string) bool {
	return json.Valid([]byte(frame)) && frame[0] == '{' && exactReader(false)(frame, "id") == ""
}

// received are the lines that the fake server has received, by their marks.
func (r *rig) received() map[string][]string {
	lines := map[string][]string{}
	for _, e := range r.events("in") {
		var m struct{ Vendor string }
		json.Unmarshal([]byte(e.detail), &m) // the handshake has no mark
		lines[m.Vendor] = append(lines[m.Vendor], e.detail)
	}
	return lines
}

// reading is what a program makes of a call: nil is what it does not find.
type reading struct{ method, name, path, token any }

// compareReaders has all kinds of readers take the line for the call that the history has.
func compareReaders(t *testing.T, frame, line string, call finishedCall) {
	t.Helper()
	exact := readWith(exactReader(false), line)
	for how, other := range map[string]reading{"takes the first": readWith(exactReader(true), line), "folds letters": foldingReader(line)} {
		if !reflect.DeepEqual(other, exact) {
			t.Errorf("%s\nbecomes %s\na reader that %s sees %v, another %v", frame, line, how, other, exact)
		}
	}
	if name, isText := exact.name.(string); exact.method != "tools/call" || isText && call.Tool != name || !isText && call.Tool != "" {
		t.Errorf("%s\nis %v for the server, %q for interlock", frame, exact, call.Tool)
	}
	if path, isText := exact.path.(string); isText && call.Tool == "write" {
		understood{frame: frame, Name: call.Tool, Path: path}.compare(t, call)
	}
	params := exactReader(false)(line, "params")
	for _, key := range keysOf(exactReader(false)(params, "_meta")) {
		if runes := []rune(key); len(runes) >= 10 && strings.EqualFold(string(runes[:10]), "interlock/") {
			t.Errorf("%s\nhas the server get %s", frame, key)
		}
	}
	var actor any
	meta := exactReader(false)(exactReader(false)(frame, "params"), "_meta")
	json.Unmarshal([]byte(exactReader(false)(meta, "interlock/actor")), &actor)
	_, owner, _ := strings.Cut(call.OwnerID, "/")
	if name, isText := actor.(string); isText && name != owner || !isText && owner != "" {
		t.Errorf("%s\nis on behalf of %v, and for interlock of %q", frame, actor, call.OwnerID)
	}
}

// readWith reads a call by the members of its objects.
func readWith(member func(object, key string) string, line string) (got reading) {
	params := member(line, "params")
	for text, value := range map[string]*any{
		member(line, "method"):                           &got.method,
		member(params, "name"):                           &got.name,
		member(member(params, "arguments"), "path"):      &got.path,
		member(member(params, "_meta"), "progressToken"): &got.token,
	} {
		json.Unmarshal([]byte(text), value)
	}
	return got
}

// exactReader finds a member by its exact key, escapes decoded: the first of several, or
// the last, as JavaScript does.
func exactReader(first bool) func(object, key string) string {
	return func(object, key string) (value string) {
		eachMember(object, func(k, v string) {
			if k == key && (value == "" || !first) {
				value = v
			}
		})
		return value
	}
}

func keysOf(object string) (keys []string) {
	eachMember(object, func(key, _ string) { keys = append(keys, key) })
	return keys
}

// eachMember goes through the members of an object; what is none has none.
func eachMember(object string, fn func(key, value string)) {
	d := json.NewDecoder(strings.NewReader(object))
	if start, err := d.Token(); err != nil || start != json.Delim('{') {
		return
	}
	for d.More() {
		key, err := d.Token()
		var value json.RawMessage
		if err != nil || d.Decode(&value) != nil {
			return
		}
		fn(key.(string), string(bytes.TrimSpace(value)))
	}
}

// foldingReader reads as programs in Go do: keys in any letter case, the last of several.
func foldingReader(line string) reading {
	var m struct {
		Method any `json:"method"`
		Params struct {
			Name      any `json:"name"`
			Arguments struct {
				Path any `json:"path"`
			} `json:"arguments"`
			Meta struct {
				Token any `json:"progressToken"`
			} `json:"_meta"`
		} `json:"params"`
	}
	json.Unmarshal([]byte(line), &m) // what does not fit stays unsaid
	return reading{m.Method, m.Params.Name, m.Params.Arguments.Path, m.Params.Meta.Token}
}
