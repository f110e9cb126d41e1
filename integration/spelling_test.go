package integration

import (
	"encoding/json"
	"fmt"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// keyed is a key of an object as written between its quotes, and its value.
type keyed struct{ key, value string }

func object(members ...keyed) string {
	parts := make([]string, len(members))
	for i, m := range members {
		parts[i] = `"` + m.key + `":` + m.value
	}
	return "{" + strings.Join(parts, ",") + "}"
}

// spellings are ways to write a key that some program takes for it.
func spellings(key string) []string {
	list := []string{
		strings.ToUpper(key), strings.ToUpper(key[:1]) + key[1:], fmt.Sprintf(`\u%04x%s`, key[0], key[1:]), fmt.Sprintf(`\u%04X%s`, strings.ToUpper(key)[0], key[1:]),
		key + `\u0000`, key + " ", " " + key, `\ufeff` + key, key + `\u200b`,
	}
	for letter, alike := range map[string]string{"k": "\u212a", "s": "\u017f", "i": "\u0131"} {
		if i := strings.Index(key, letter); i >= 0 {
			list = append(list, key[:i]+alike+key[i+1:])
		}
	}
	return list
}

// odd has a key of a call written in all ways, instead of the right one, before it
// and after it, with a value that would mean something else.
func odd(right, decoy keyed) (lists [][]keyed) {
	lists = append(lists, []keyed{right}, []keyed{right, {right.key, decoy.value}}, []keyed{{right.key, decoy.value}, right})
	for _, key := range spellings(right.key) {
		other := keyed{key, decoy.value}
		lists = append(lists, []keyed{other}, []keyed{right, other}, []keyed{other, right})
	}
	return lists
}

// frames are calls of a tool, each odd in one place. N is for the id.
func frames() (list []string) {
	name, path := keyed{"name", `"write"`}, keyed{"path", `"a"`}
	arguments := keyed{"arguments", object(path)}
	add := func(params string) {
		list = append(list, `{"jsonrpc":"2.0","id":N,"method":"tools/call","params":`+params+`}`)
	}
	for _, members := range odd(name, keyed{"name", `"peek"`}) {
		add(object(append(members, arguments)...))
	}
	for _, members := range odd(arguments, keyed{"arguments", `{"path":"b"}`}) {
		add(object(append([]keyed{name}, members...)...))
	}
	for _, members := range odd(path, keyed{"path", `"b"`}) {
		add(object(name, keyed{"arguments", object(members...)}))
	}
	for _, members := range odd(keyed{"_meta", `{}`}, keyed{"_meta", `{"interlock/actor":"somebody"}`}) {
		add(object(append(members, name, arguments)...))
	}
	for _, key := range []string{"interlock/actor", "interlock/lease", "progressToken"} {
		for _, members := range odd(keyed{key, `"x"`}, keyed{key, `"y"`}) {
			add(object(name, arguments, keyed{"_meta", object(members...)}))
		}
	}
	for _, members := range odd(keyed{"params", object(name, arguments)}, keyed{"params", object(keyed{"name", `"peek"`}, arguments)}) {
		list = append(list, object(append([]keyed{{"jsonrpc", `"2.0"`}, {"id", "N"}, {"method", `"tools/call"`}}, members...)...))
	}
	for _, members := range odd(keyed{"method", `"tools/call"`}, keyed{"method", `"ping"`}) {
		list = append(list, object(append([]keyed{{"jsonrpc", `"2.0"`}, {"id", "N"}, {"params", object(name, arguments)}}, members...)...))
	}
	for _, value := range []string{`"wr\u0069te"`, `"write\u0000"`, `"Write"`, `" write"`, `"write "`, `"\ud800"`, `"wr\/ite"`, `1`, `null`, `["write"]`, `{"name":"write"}`} {
		add(object(keyed{"name", value}, arguments))
	}
	for _, value := range []string{
		`"\u0061"`, `"a\/b"`, `"\ud83d\ude00"`, `"😀"`, `"\ud83d"`, `"\ude00"`, `"a\u0000"`, `" a"`, `"%61"`, `""`, `"é"`, `"e\u0301"`,
		`1`, `1.0`, `1e0`, `-0`, `9007199254740993`, `1e400`, `true`, `null`, `["a"]`, `["a","b"]`, `{"path":"a"}`, `[]`,
	} {
		add(object(name, keyed{"arguments", object(keyed{"path", value})}))
	}
	add(object(name, keyed{"arguments", `{"__proto__":{"path":"b"}}`}))
	add(object(name, keyed{"arguments", `{"__proto__":{"path":"b"},"path":"a"}`}))
	add(object(name, keyed{"arguments", `{"constructor":{"prototype":{"path":"b"}},"inner":{"path":"b","Path":"c"},"path":"a"}`}))
	add(object(name, keyed{"arguments", `["path"]`}))
	add(object(name, keyed{"arguments", `null`}))
	return list
}

// TestSpelling is about who would show interlock one call and the server another:
// whatever the spelling, it is refused, or both have understood the same.
func TestSpelling(t *testing.T) {
	t.Parallel()
	bin := filepath.Dir(programs.fakeserver)
	if err := goBuild(bin, "interlock/integration/mirror"); err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]server{
		"Go":         {Command: filepath.Join(bin, "mirror")},
		"JavaScript": {Command: "node", Args: []string{node(t, filepath.Join("..", "mirror", "mirror.mjs"))}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			s.State = "shared"
			s.Tools = map[string]toolRule{"write": {Class: "mutate", Resource: "name:{path}"}, "peek": {Class: "read"}}
			r.servers["mirror"] = s
			c := r.open(socket, "mirror").ready()
			var served []understood
			refused, list := 0, frames()
			for i, frame := range list {
				id := strconv.Itoa(i)
				c.send("%s", strings.Replace(frame, `"id":N`, `"id":`+id, 1))
				m := c.take("answer to "+frame, func(m *message) bool {
					return isAnswer(id)(m) || m.Error != nil && string(m.ID) == "null"
				})
				seen, ok := understandingOf(m)
				if !ok {
					refused++
					continue
				}
				seen.frame = frame
				served = append(served, seen)
			}
			history := r.history(len(list))
			if len(history) < len(served) {
				t.Fatalf("%d calls in the history, %d served", len(history), len(served))
			}
			history = recorded(history)
			if len(history) != len(served) {
				t.Fatalf("%d calls in the history, %d served", len(history), len(served))
			}
			for i, seen := range served {
				seen.compare(t, history[i])
			}
			t.Logf("%d spellings: %d refused, %d understood alike", len(list), refused, len(served))
			if refused < 100 || len(served) < 50 {
				t.Errorf("%d refused, %d served", refused, len(served))
			}
		})
	}
}

// understood is what a server has taken a call for.
type understood struct {
	frame string
	Name  any
	Path  any
}

// understandingOf reads a mirror's answer; it is not ok for another answer.
func understandingOf(m *message) (u understood, ok bool) {
	var result struct {
		IsError bool
		Content []struct{ Text string }
	}
	if m.Error != nil || json.Unmarshal(m.Result, &result) != nil || result.IsError || len(result.Content) == 0 {
		return u, false
	}
	return u, json.Unmarshal([]byte(result.Content[0].Text), &u) == nil
}

// recorded leaves of the history what was sent.
func recorded(all []finishedCall) (sent []finishedCall) {
	for _, c := range all {
		if c.Outcome != "not_sent" {
			sent = append(sent, c)
		}
	}
	return sent
}

// compare has the daemon have understood the call as its server has.
func (u understood) compare(t *testing.T, call finishedCall) {
	t.Helper()
	name, _ := u.Name.(string)
	if call.Tool != name && !(u.Name == nil && call.Tool == "") {
		if _, isText := u.Name.(string); isText || call.Tool != "" {
			t.Errorf("%s\nthe server calls %v, the daemon %q", u.frame, u.Name, call.Tool)
		}
	}
	if call.Tool != "write" {
		return // nothing else is leased by its path
	}
	path, isText := u.Path.(string)
	text, isName := strings.CutPrefix(call.Resource, "name:")
	plain, err := url.PathUnescape(text)
	switch {
	case err != nil:
		t.Errorf("resource %q: %v", call.Resource, err)
	case isText && (!isName || plain != path):
		t.Errorf("%s\nthe server's path is %q, the daemon's resource %q", u.frame, path, call.Resource)
	case !isText && isName:
		switch u.Path.(type) {
		case float64, []any: // numbers and lists have names, too
		default:
			t.Errorf("%s\nthe server's path is %v, the daemon's resource %q", u.frame, u.Path, call.Resource)
		}
	}
}
