package wire

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// TestOwn cuts every combination of members out of _meta.
func TestOwn(t *testing.T) {
	for n := 1; n <= 4; n++ {
		for mask := range 1 << n {
			for _, sep := range []string{",", " , ", ",\t"} {
				var members, kept []string
				for i := range n {
					if mask>>i&1 == 1 {
						members = append(members, fmt.Sprintf(`"interlock/%d":{"a":[1,2]}`, i))
					} else {
						members = append(members, fmt.Sprintf(`"k%d":%d`, i, i))
						kept = append(kept, members[i])
					}
				}
				frame := []byte(`{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{ ` + strings.Join(members, sep) + ` }}}`)
				var env Envelope
				if err := Scan(frame, &env); err != nil {
					t.Fatal(err)
				}
				var edits []Edit
				for _, s := range env.Own {
					edits = append(edits, Edit{Span: s})
				}
				out := Splice(nil, frame, edits)
				var got struct {
					Params struct {
						Meta map[string]int `json:"_meta"`
					}
				}
				if err := json.Unmarshal(out, &got); err != nil {
					t.Fatalf("%s\nbecomes %s: %v", frame, out, err)
				}
				if len(got.Params.Meta) != len(kept) || strings.Contains(string(out), "interlock") {
					t.Errorf("%s\nbecomes %s", frame, out)
				}
				checkInsertion(t, frame, &env, len(kept))
			}
		}
	}
}

// checkInsertion puts a member of the daemon's into _meta in front of those that stay,
// which takes a comma where any do.
func checkInsertion(t *testing.T, frame []byte, env *Envelope, kept int) {
	t.Helper()
	if env.MetaKept != (kept > 0) {
		t.Errorf("%s: MetaKept is %t with %d members kept", frame, env.MetaKept, kept)
	}
	with := `"interlock/epoch":7`
	if env.MetaKept {
		with += ","
	}
	edits := []Edit{{Span: Span{env.Meta.Start + 1, env.Meta.Start + 1}, With: []byte(with)}}
	for _, s := range env.Own {
		edits = append(edits, Edit{Span: s})
	}
	out := Splice(nil, frame, edits)
	var got struct {
		Params struct {
			Meta map[string]int `json:"_meta"`
		}
	}
	if err := json.Unmarshal(out, &got); err != nil || len(got.Params.Meta) != kept+1 || got.Params.Meta["interlock/epoch"] != 7 {
		t.Errorf("%s\nbecomes %s: %v", frame, out, err)
	}
}

// TestMetaKept is about what no member of _meta says.
func TestMetaKept(t *testing.T) {
	for params, want := range map[string]bool{
		`{}`: false, `{"_meta":{}}`: false, `{"_meta":null}`: false, `{"_meta":[1]}`: false, `{"_meta":"x"}`: false, `{"k":1}`: false,
		`{"_meta":{ }}`: false, `{"_meta":{"":null}}`: true, `{"_meta":{"interlock":1}}`: true, `{"_meta":{"interlock/":1}}`: false,
		`{"_meta":{"progressToken":1}}`: true, `{"_meta":{"k":{"interlock/lease":1}}}`: true, `{"x":{"_meta":{"k":1}}}`: false,
		`{"_meta":{"interlock/lease":{"k":1},"interlock/x":[{"k":1}]}}`: false,
	} {
		env := Envelope{MetaKept: true} // of the frame before
		if err := Scan([]byte(`{"jsonrpc":"2.0","id":1,"method":"m","params":`+params+`}`), &env); err != nil || env.MetaKept != want {
			t.Errorf("%s: %v, %v", params, env.MetaKept, err)
		}
	}
	var env Envelope
	if err := Scan([]byte(`{"jsonrpc":"2.0","id":1,"result":{"_meta":{"interlock/x":1,"k":2}}}`), &env); err != nil || !env.MetaKept {
		t.Errorf("of a result: %v, %v", env.MetaKept, err)
	}
}

func TestOwnValues(t *testing.T) {
	frame := `{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"interlock/actor":"me","progressToken":"t","interlock/lease":{"epoch":1}}}}`
	var env Envelope
	if err := Scan([]byte(frame), &env); err != nil {
		t.Fatal(err)
	}
	want := `own<"interlock/actor":"me",> own<,"interlock/lease":{"epoch":1}>`
	if got := text(frame, &env); !strings.Contains(got, want) || !strings.Contains(got, ` lease={"epoch":1} actor="me"`) {
		t.Error(got)
	}
}

// TestOwnBounded: finding duplicates among the daemon's own members takes time
// that grows with their square, so that their number has to have a bound.
func TestOwnBounded(t *testing.T) {
	members := make([]string, maxOwn+1)
	for i := range members {
		members[i] = fmt.Sprintf(`"interlock/%d":1`, i)
	}
	var env Envelope
	frame := func(n int) []byte {
		return []byte(`{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{` + strings.Join(members[:n], ",") + `}}}`)
	}
	if err := Scan(frame(maxOwn), &env); err != nil || len(env.Own) != maxOwn {
		t.Errorf("%v, %d members", err, len(env.Own))
	}
	if err, ok := Scan(frame(maxOwn+1), &env).(*RequestError); !ok || !err.HasID {
		t.Errorf("one too many: %v", err)
	}
}

func TestSplice(t *testing.T) {
	frame := []byte("0123456789")
	for _, tt := range []struct {
		edits []Edit
		want  string
	}{
		{nil, "0123456789"},
		{[]Edit{{Span{2, 4}, []byte("ab")}}, "01ab456789"},
		{[]Edit{{Span{0, 10}, nil}}, ""},
		{[]Edit{{Span{10, 10}, []byte("!")}, {Span{0, 0}, []byte("?")}}, "?0123456789!"},
		{[]Edit{{Span{8, 9}, nil}, {Span{4, 4}, []byte("x")}, {Span{4, 4}, []byte("y")}, {Span{0, 1}, []byte("long")}}, "long123xy45679"},
	} {
		if n := splicedLen(frame, tt.edits); n != len(tt.want) {
			t.Errorf("splicedLen(%v) = %d, want %d", tt.edits, n, len(tt.want))
		}
		if got := string(Splice([]byte("> "), frame, tt.edits)); got != "> "+tt.want {
			t.Errorf("Splice(%v) = %q, want %q", tt.edits, got, tt.want)
		}
	}
}

func TestIDs(t *testing.T) {
	for _, tt := range []struct{ raw, key string }{
		{`0`, "n0"}, {`-0`, "n0"}, {`-1`, "n-1"}, {`1`, "n1"}, {`"1"`, "s1"}, {`9007199254740993`, "n9007199254740993"},
		{`"a"`, "sa"}, {`"\u0061"`, "sa"}, {`"\n\/\\\"\t\b\f\r"`, "s\n/\\\"\t\b\f\r"},
		{`"😀"`, "s😀"}, {`"\uD83D\uDE00"`, "s😀"}, {`"\ud83d"`, "s\xed\xa0\xbd"}, {`"\ude00"`, "s\xed\xb8\x80"},
		{`"\ud83dx\ude00"`, "s\xed\xa0\xbdx\xed\xb8\x80"}, {`"\ud83d\u0041"`, "s\xed\xa0\xbdA"}, {`"\ud83d\ud83d\ude00"`, "s\xed\xa0\xbd😀"}, {`"\ufffd"`, "s\ufffd"},
		{`""`, "s"},
	} {
		if got := string(AppendIDKey([]byte("+"), []byte(tt.raw))); got != "+"+tt.key {
			t.Errorf("AppendIDKey(%s) = %q, want %q", tt.raw, got[1:], tt.key)
		}
	}
	for raw, want := range map[string]int64{
		`1`: 1, `17`: 17, `999999999999999999`: 999999999999999999, `5.0`: 5, `5.00`: 5,
		``: 0, `0`: 0, `-1`: 0, `01`: 0, `1000000000000000000`: 0, `1.5`: 0, `1.`: 0, `1e1`: 0, `"1"`: 0, `null`: 0, `1x`: 0,
	} {
		got, ok := ParseOwnID([]byte(raw))
		if ok != (want > 0) || ok && got != want {
			t.Errorf("ParseOwnID(%s) = %d, %v", raw, got, ok)
		}
	}
}

func TestScanTools(t *testing.T) {
	for _, tt := range []struct{ result, want string }{
		{`{"tools":[{"name":"a","annotations":{"readOnlyHint":true}},{"annotations":{"destructiveHint":false,"readOnlyHint":false},"name":"b"}]}`, "a 1 0 false;b 2 2 false;"},
		{` { "x":[1], "tools" : [ {"name":"n\u0061","inputSchema":{"name":"z","Name":1}} ] , "nextCursor":"c"} `, "na 0 0 false;"},
		{`{"tools":[{"name":"a","name":"b"},{"Name":"c","name":"d"},{"n\u0061me":"e"}]}`, "b 0 0 true;d 0 0 true;e 0 0 true;"},
		{`{"tools":[{"name":"a","annotations":{"readOnlyHint":true,"readonlyhint":false}},{"name":"b","annotations":{},"annotations":{}}]}`, "a 2 0 true;b 0 0 true;"},
		{`{"tools":[{"name":"a","annotations":{"readOnlyHint":"true","destructiveHint":null}},7,{"name":8}]}`, "a 0 0 false; 0 0 false; 0 0 false;"},
		{`{"tools":{"name":"x"}}`, ""}, {`{}`, ""}, {`[]`, ""}, {`null`, ""}, {`{"tools":[]}`, ""},
		{`{"tools":[{"name":"a"}],"Tools":[]}`, "a 0 0 false;key"},
		{`{"tools":[{"name":"a"}`, "a 0 0 false;syntax"},
		{`{"tools":[{"name":"a"]}`, "syntax"},
	} {
		var got strings.Builder
		err := ScanTools([]byte(tt.result), func(tool Tool) bool {
			fmt.Fprintf(&got, "%s %d %d %v;", tool.Name, tool.ReadOnly, tool.Destructive, tool.Ambiguous)
			return true
		})
		switch err.(type) {
		case *KeyError:
			got.WriteString("key")
		case *SyntaxError:
			got.WriteString("syntax")
		}
		if got.String() != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.result, got.String(), tt.want)
		}
	}
	n := 0
	if err := ScanTools([]byte(`{"tools":[{"name":"a"},{"name":"b"}]}`), func(Tool) bool { n++; return false }); err != nil || n != 1 {
		t.Errorf("stopping early: %v after %d", err, n)
	}
}

func TestElements(t *testing.T) {
	for array, want := range map[string]string{
		`[]`: "", ` [ ] `: "", `[1]`: "1|", " [ 1 ,\t\"a,]\" , [2,[3]] , {\"k\":[4]} , null ] ": `1|"a,]"|[2,[3]]|{"k":[4]}|null|`,
		`{"a":[1]}`: "", `"[1]"`: "", `1`: "", `null`: "", ``: "",
		`[1,2`: "1|2|", `[1,}`: "1|", `[x]`: "", `[1 2]`: "1|", // as far as it is JSON
	} {
		got := ""
		Elements([]byte(array), func(raw []byte) bool { got += string(raw) + "|"; return true })
		if got != want {
			t.Errorf("Elements(%s) = %s, want %s", array, got, want)
		}
	}
	n := 0
	Elements([]byte(`[1,2,3,4]`), func([]byte) bool { n++; return n < 2 })
	if n != 2 {
		t.Errorf("stopped after %d", n)
	}
}

func TestMember(t *testing.T) {
	for _, tt := range []struct{ object, want string }{
		{`{"a":1,"path":"x","b":2}`, `"x"`}, {`{"paths":1}`, ""}, {`[]`, ""}, {`{}`, ""},
		{`{"path":1,"path":1}`, "error"}, {`{"Path":1}`, "error"}, {`{"p\u0061th":1}`, "error"}, {`{"path":}`, "error"},
		{`{"path":1,"PATH":1}`, "error"}, {`{"PATH":1,"path":1}`, "error"}, {`{"path":1,"\u0050ath":1}`, "error"}, {`{"path":1,"path\u0000":2}`, "1"},
		{`{"x":{"path":1,"Path":2},"path":3}`, "3"}, {`{"__proto__":{"path":1}}`, ""}, {` {"path" : null } `, "null"}, {``, ""},
	} {
		span, err := Member([]byte(tt.object), "path")
		got := string(span.Of([]byte(tt.object)))
		if err != nil {
			got = "error"
		}
		if got != tt.want {
			t.Errorf("Member(%s) = %q, want %q", tt.object, got, tt.want)
		}
	}
}
