package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

var seeds = []string{
	smallCall,
	`{"jsonrpc":"2.0","id":"\u0061","method":"m","params":{"name":"n","_meta":{"interlock/lease":{"a":[1]},"progressToken":"t","interlock/actor":"x"},"uri":"u"}}`,
	`{"jsonrpc":"2.0","id":1,"result":{"_meta":{"interlock/x":1},"nextCursor":"c","isError":false}}`,
	`{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"\ud800\n"}}`,
	`{"jsonrpc":"2.0","method":"m","params":{"na\u006de":1,"Name":2},"id":5}`,
	`{"jsonrpc":"2.0","method":"m","params":{"progressTo` + "\u212a" + `en":1,"progre` + "\u017f" + `sToken":2},"id":5.0}`,
	`{"jsonrpc":"2.0","method":"m","Id":1,"id":[{}],"x":"\"\\"}`,
	`[{"a":[[],{},null,true,false,-0.5e+3]}]`, "\"a\xff\"", `{"a":"12345678\u1234"} `, `{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}`,
	`{"jsonrpc":"2.0","id":"` + strings.Repeat("i", 1030) + `","method":"m"}`,
}

// refMember is a member as encoding/json sees it.
type refMember struct {
	raw, key string
	value    json.RawMessage
}

// refMembers returns the members of raw, nil if it is no object.
func refMembers(t *testing.T, raw []byte) []refMember {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		return nil
	}
	members := []refMember{}
	for dec.More() {
		from := dec.InputOffset()
		tok, err := dec.Token()
		if err != nil {
			t.Fatal(err)
		}
		m := refMember{raw: strings.TrimLeft(string(raw[from:dec.InputOffset()]), " \t\r\n,"), key: tok.(string)}
		m.raw = m.raw[1 : len(m.raw)-1]
		if err := dec.Decode(&m.value); err != nil {
			t.Fatal(err)
		}
		members = append(members, m)
	}
	return members
}

// refAmbiguous reports whether a policy key among members is.
func refAmbiguous(members []refMember, names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		n, exact := 0, false
		for _, m := range members {
			if strings.EqualFold(strings.NewReplacer("\u0130", "i", "\u0131", "i").Replace(m.key), name) {
				n++
				exact = m.raw == name
			}
		}
		return n > 1 || n == 1 && !exact
	})
}

func refValue(members []refMember, name string) string {
	value := ""
	for _, m := range members {
		if m.key == name {
			value = string(m.value)
		}
	}
	return value
}

// refClass says how Scan has to judge a frame, by encoding/json.
func refClass(t *testing.T, frame []byte) string {
	if !json.Valid(frame) || !utf8.Valid(frame) {
		return "syntax"
	}
	top := refMembers(t, frame)
	if top == nil {
		return "request"
	}
	params, result := refMembers(t, []byte(refValue(top, "params"))), refMembers(t, []byte(refValue(top, "result")))
	meta := refMembers(t, []byte(refValue(params, "_meta")))
	resultMeta := refMembers(t, []byte(refValue(result, "_meta")))
	names := metaKeys[:]
	for _, m := range slices.Concat(meta, resultMeta) {
		if len(m.key) >= len(ownPrefix) && strings.EqualFold(m.key[:len(ownPrefix)], ownPrefix) || strings.ContainsAny(m.key, "\u212a\u0130\u0131") {
			return "unsure" // covered by a table
		}
	}
	if refAmbiguous(top, topKeys[:]) || refAmbiguous(params, paramsKeys[:]) || refAmbiguous(result, resultKeys[:]) ||
		refAmbiguous(meta, names) || refAmbiguous(resultMeta, names) {
		return "key"
	}
	id, method := refValue(top, "id"), refValue(top, "method")
	res, e := refValue(top, "result"), refValue(top, "error")
	plainID := id != "" && (id[0] == '"' && len(id) <= maxID+2 || (id[0] == '-' || id[0] >= '0' && id[0] <= '9') && len(id) <= maxID)
	integer := plainID && (id[0] == '"' || !strings.ContainsAny(id, ".eE"))
	switch {
	case refValue(top, "jsonrpc") != `"2.0"`:
	case method != "" && (res != "" || e != ""), method == "" && (res == "") == (e == ""):
	case method != "" && (method[0] != '"' || strings.Contains(method, `\`)):
	case method != "" && id != "" && !integer:
	case res != "" && !plainID, e != "" && !plainID && id != "null":
	case method == "" && refValue(top, "params") != "":
	default:
		return "ok"
	}
	return "request"
}

func class(err error) string {
	switch err.(type) {
	case nil:
		return "ok"
	case *SyntaxError:
		return "syntax"
	case *KeyError:
		return "key"
	case *RequestError:
		return "request"
	}
	return err.Error()
}

// checkScan compares Scan with encoding/json, and returns the class of frame.
func checkScan(t *testing.T, frame []byte) string {
	t.Helper()
	var env Envelope
	err := Scan(frame, &env)
	want := refClass(t, frame)
	if got := class(err); got != want && want != "unsure" {
		t.Fatalf("Scan(%q): %v, want class %q", frame, err, want)
	}
	if err != nil || want == "unsure" {
		return want
	}
	top := refMembers(t, frame)
	params, result := refMembers(t, env.Params.Of(frame)), refMembers(t, env.Result.Of(frame))
	meta := refMembers(t, env.Meta.Of(frame))
	for _, c := range []struct {
		in   []refMember
		key  string
		span Span
	}{
		{top, "id", env.ID}, {top, "method", env.Method}, {top, "params", env.Params}, {top, "result", env.Result}, {top, "error", env.Error},
		{params, "name", env.Name}, {params, "uri", env.URI}, {params, "requestId", env.RequestID}, {params, "progressToken", env.ProgressToken},
		{params, "arguments", env.Arguments}, {params, "task", env.Task}, {params, "protocolVersion", env.ProtocolVersion},
		{params, "capabilities", env.Capabilities}, {params, "cursor", env.Cursor}, {params, "level", env.Level},
		{meta, "progressToken", env.MetaToken}, {meta, metaKeys[metaProtocolVersion], env.MetaVersion}, {meta, metaKeys[metaSubscriptionID], env.SubscriptionID},
	} {
		if got, want := string(c.span.Of(frame)), refValue(c.in, c.key); got != want {
			t.Errorf("%s: %q, want %q", c.key, got, want)
		}
	}
	if raw := refValue(slices.Concat(params, result), "_meta"); strings.HasPrefix(raw, "{") && raw != string(env.Meta.Of(frame)) {
		t.Errorf("_meta: %q, want %q", env.Meta.Of(frame), raw)
	}
	return want
}

// FuzzScan compares Scan with encoding/json.
func FuzzScan(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, frame []byte) { checkScan(t, frame) })
}

// decode returns the value of a JSON text, numbers as written.
func decode(t *testing.T, text []byte) map[string]any {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var v map[string]any
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return v
}

// FuzzSplice edits a frame the way the daemon does, and compares with editing
// the decoded value.
func FuzzSplice(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s), uint64(1))
	}
	f.Fuzz(func(t *testing.T, frame []byte, seed uint64) {
		var env Envelope
		if !json.Valid(frame) || Scan(frame, &env) != nil {
			return
		}
		want := decode(t, frame)
		params, _ := want["params"].(map[string]any)
		meta, _ := params["_meta"].(map[string]any)
		if env.Result.Present() {
			result, _ := want["result"].(map[string]any)
			meta, _ = result["_meta"].(map[string]any)
		}
		var edits []Edit
		replace := func(span Span, in map[string]any, key string) {
			if span.Present() {
				edits = append(edits, Edit{span, []byte(`"edited"`)})
				in[key] = "edited"
			}
		}
		replace(env.ID, want, "id")
		replace(env.Name, params, "name")
		replace(env.MetaToken, meta, "progressToken")
		for _, span := range env.Own {
			edits = append(edits, Edit{Span: span})
		}
		maps.DeleteFunc(meta, func(key string, _ any) bool { return strings.HasPrefix(key, ownPrefix) })
		rand.New(rand.NewPCG(seed, 0)).Shuffle(len(edits), func(i, j int) { edits[i], edits[j] = edits[j], edits[i] })
		out := Splice(nil, frame, edits)
		if err := Scan(out, &env); err != nil || len(env.Own) > 0 {
			t.Fatalf("%q becomes %q: %v", frame, out, err)
		}
		if got := decode(t, out); !reflect.DeepEqual(got, want) {
			t.Errorf("%q becomes %q", frame, out)
		}
	})
}

// pieces is a Source that returns its input in pieces of random sizes.
type pieces struct {
	source
	rest []byte
	rnd  *rand.Rand
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.rest) == 0 {
		return 0, io.EOF
	}
	n := min(len(b), len(p.rest), 1+p.rnd.IntN(1<<p.rnd.IntN(18)))
	copy(b, p.rest[:n])
	p.rest = p.rest[n:]
	return n, nil
}

// refRead says what a Reader has to return for input.
func refRead(input []byte, limit int) []string {
	input = bytes.TrimPrefix(input, byteOrderMark)
	lines := bytes.Split(input, []byte("\n"))
	var want []string
	for _, line := range lines[:len(lines)-1] {
		if line = bytes.TrimSuffix(line, []byte("\r")); len(line) > limit {
			var l idLexer
			l.feed(line)
			want = append(want, fmt.Sprintf("discarded %q %q %v", TooLarge, l.ID(), l.method))
		} else if !isBlank(line) {
			r := Reader{frame: Frame{data: line}}
			want = append(want, describe(&r.frame, nil))
		}
	}
	last := lines[len(lines)-1]
	switch {
	case len(last) >= limit+2:
		var l idLexer
		l.feed(last)
		want = append(want, fmt.Sprintf("discarded %q %q %v", TooLarge, l.ID(), l.method))
	case len(last) > limit && len(last) < chunkSize: // noticed or not, by where the pieces end
		return nil
	case !isBlank(last) || len(last) >= chunkSize:
		want = append(want, ErrUnterminated.Error())
	}
	return append(want, "EOF")
}

// FuzzReader: what a Reader returns does not depend on how the input arrives.
// Bytes 1 in the input stand for 30,000 others.
func FuzzReader(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s+"\n\r\n"+s+"\r\n\x01\n"+s), uint64(1))
		f.Add([]byte("\ufeff"+strings.Replace(s, `,`, ",\"\x01\x01\x01\x01\",", 1)+"\nx\n"), uint64(2))
	}
	f.Fuzz(func(t *testing.T, input []byte, seed uint64) {
		if bytes.Count(input, []byte{1}) > 20 {
			return
		}
		const limit = 100000
		input = bytes.ReplaceAll(input, []byte{1}, bytes.Repeat([]byte("x"), 30000))
		want := refRead(input, limit)
		if want == nil {
			return
		}
		budget := NewBudget(1 << 20)
		src := &pieces{rest: input, rnd: rand.New(rand.NewPCG(seed, 1))}
		r := NewReader(src, budget.Account(1<<20), ReaderOptions{MaxFrame: limit})
		if got := all(r); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if budget.InUse() != 0 || r.chunk != nil {
			t.Errorf("%d bytes reserved, chunk of %d", budget.InUse(), len(r.chunk))
		}
	})
}

// FuzzDiscardID: the lexer for discarded lines, fed in pieces, agrees with
// itself fed at once, and with Scan.
func FuzzDiscardID(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s), uint64(1))
	}
	f.Fuzz(func(t *testing.T, line []byte, seed uint64) {
		var whole, parts idLexer
		whole.feed(line)
		rnd := rand.New(rand.NewPCG(seed, 2))
		for rest := line; len(rest) > 0; {
			n := min(len(rest), 1+rnd.IntN(1<<rnd.IntN(8)))
			parts.feed(rest[:n])
			rest = rest[n:]
		}
		if !bytes.Equal(whole.ID(), parts.ID()) || whole.method != parts.method {
			t.Fatalf("at once: %q %v, in pieces: %q %v", whole.ID(), whole.method, parts.ID(), parts.method)
		}
		if id := whole.ID(); id != nil && (!json.Valid(id) || !utf8.Valid(id)) {
			t.Fatalf("invalid id %q", id)
		}
		var env Envelope
		err := Scan(line, &env)
		var syntax *SyntaxError
		if errors.As(err, &syntax) {
			return
		}
		want := env.ID.Of(line)
		if formOfID(want) != idOpaque {
			want = nil
		}
		if !bytes.Equal(whole.ID(), want) {
			t.Errorf("id %q, want %q (%v)", whole.ID(), want, err)
		}
		if err == nil && whole.method != env.Method.Present() {
			t.Errorf("method: %v", whole.method)
		}
	})
}
