package policy_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"interlock/mcpd/internal/config"
	"interlock/mcpd/internal/policy"
	"interlock/mcpd/internal/wire"
)

// targets are what a call is about, as texts with their kinds.
func targets(t testing.TB, p policy.Place, arguments string, templates ...string) (texts []string, complete bool, err error) {
	t.Helper()
	var parsed []config.Template
	for _, text := range templates {
		template, err := config.ParseTemplate(text)
		if err != nil {
			t.Fatalf("template %q: %v", text, err)
		}
		parsed = append(parsed, template)
	}
	all, complete, err := p.Targets(parsed, []byte(arguments))
	for _, target := range all {
		text := target.Text
		if target.Kind != config.KindName {
			text = string(target.Kind) + ":" + text
		}
		texts = append(texts, text)
	}
	return texts, complete, err
}

func TestValues(t *testing.T) {
	p := policy.Place{Dir: "/nowhere", Home: "/nobody"}
	many := strings.Repeat(`"x",`, 300)
	for _, c := range []struct {
		template, arguments string
		want                string // joined; an ! at the end if it is not complete
	}{
		{"r:{a}", `{"a":"x"}`, "r:x"},
		{"r:{a}/{b}", `{"b":"y","a":"x"}`, "r:x/y"},
		{"r:{a}", `{"a":["x","y"]}`, "r:x r:y"},
		{"r:{a}/{b}", `{"a":["x","y"],"b":[1,2]}`, "r:x/1 r:x/2 r:y/1 r:y/2"},
		{"r:{a}", `{"a":1}`, "r:1"},
		{"r:{a}", `{"a":1.0}`, "r:1"},
		{"r:{a}", `{"a":1e0}`, "r:1"},
		{"r:{a}", `{"a":100e-2}`, "r:1"},
		{"r:{a}", `{"a":[0,-0,0.0,-0e5,1e-999]}`, "r:0 r:0 r:0 r:0 r:0"},
		{"r:{a}", `{"a":1e999}`, "!"},
		{"r:{a}", `{"a":-0.50}`, "r:-0.5"},
		{"r:{a}", `{"a":9007199254740993}`, "r:9007199254740992"}, // as JavaScript reads it
		{"r:{a}", `{"a":"\u0041\ud83d\ude00"}`, "r:A😀"},
		{"r:{a}", `{"a":""}`, "r:"},
		{"r", `{}`, "r"},
		{"r", ``, "r"},
		{"r:{a}", ``, "!"},
		{"r:{a}", `{}`, "!"},
		{"r:{a}", `{"a":null}`, "!"},
		{"r:{a}", `{"a":true}`, "!"},
		{"r:{a}", `{"a":{"b":1}}`, "!"},
		{"r:{a}", `{"a":[]}`, "!"},
		{"r:{a}", `{"a":["x",null]}`, "!"},
		{"r:{a}", `{"a":[["x"]]}`, "!"},
		{"r:{a}", `{"a":[` + many + `"x"]}`, "!"},
		{"r:{a}/{b}", `{"a":[` + strings.Repeat(`"x",`, 20) + `"x"],"b":[` + strings.Repeat(`"x",`, 20) + `"x"]}`, "!"},
		{"r:{a}", `{"a":[` + strings.Repeat(`"x",`, 255) + `"x"]}`, strings.TrimSpace(strings.Repeat("r:x ", 256))},
		{"r:{a}{b}{c}{d}", `{"a":[` + many[:800] + `"x"],"b":[` + many[:800] + `"x"],"c":[` + many[:800] + `"x"],"d":[` + many[:800] + `"x"]}`, "!"},
		{"r:{a}", `[{"a":"x"}]`, "!"},
		{"r:{a}", `{"b":{"a":"x"}}`, "!"},
		{"r:{a}", `{"__proto__":{"a":"x"}}`, "!"},
		{"file:{a}", `{"a":"x"}`, "file:/nowhere/x"},
		{"file:{a}", `{"a":"/x/../y/./z/"}`, "file:/y/z"},
		{"file:{a}", `{"a":"~/x"}`, "file:/nobody/x"},
		{"file:{a}", `{"a":"~"}`, "file:/nobody"},
		{"file:{a}", `{"a":"~/../x"}`, "file:/x"},
		{"file:{a}", `{"a":"x/~/y"}`, "file:/nowhere/x/~/y"},
		{"file:{a}", `{"a":"./x//y/"}`, "file:/nowhere/x/y"},
		{"file:{a}", `{"a":"x/..y/...z"}`, "file:/nowhere/x/..y/...z"},
		{"file:{a}", `{"a":7}`, "file:/nowhere/7"},
		{"file:{a}", `{"a":"~x"}`, "file:/nowhere/~x"},
		{"file:{a}", `{"a":"../../.."}`, "file:/"},
		{"file:{a}", `{"a":""}`, "file:/nowhere"},
		{"file:{a}", `{"a":"x\u0000y"}`, "!"},
		{"file:{a}", `{}`, "!"},
		{"tree:{a}", `{}`, "tree:/nowhere"},
		{"tree:{a}", `{"a":null}`, "tree:/nowhere"},
		{"tree:{a}", `{"a":""}`, "tree:/nowhere"},
		{"tree:{a}", `{"a":true}`, "!"}, // given, but not so that it says where
		{"tree:{a}", `{"a":{}}`, "!"},
		{"tree:{a}", `{"a":[]}`, "!"},
		{"tree:{a}", `{"a":["x",{}]}`, "!"},
		{"tree:{a}", `{"a":[` + many + `"x"]}`, "!"},
		{"tree:{a}/sub", `{}`, "!"},
		{"tree:/srv/{a}", `{"a":"../x"}`, "tree:/x"},
	} {
		texts, complete, err := targets(t, p, c.arguments, c.template)
		got := strings.Join(texts, " ")
		if !complete {
			got += "!"
		}
		if got != c.want || err != nil {
			t.Errorf("%s of %.60s is %q, %v; want %q", c.template, c.arguments, got, err, c.want)
		}
	}
	if texts, _, _ := targets(t, policy.Place{Dir: "/nowhere"}, `{"a":"~/x"}`, "file:{a}"); !slices.Equal(texts, []string{"file:/nowhere/~/x"}) {
		t.Errorf("below no home: %v", texts)
	}
	if texts, complete, _ := targets(t, policy.Place{}, `{"a":"x"}`, "file:{a}"); len(texts) != 0 || complete {
		t.Errorf("a relative path from nowhere is %v, %t", texts, complete)
	}
	if texts, complete, _ := targets(t, p, `{"a":"x"}`, "file:{a}", "r:{b}", "s"); complete || !slices.Equal(texts, []string{"file:/nowhere/x", "s"}) {
		t.Errorf("of three templates: %v, %t", texts, complete)
	}
}

// TestSpellings refuses every argument that another parser could read differently.
func TestSpellings(t *testing.T) {
	for _, arguments := range []string{
		`{"path":"a","path":"b"}`, `{"path":"a","Path":"b"}`, `{"PATH":"a"}`, `{"p\u0061th":"a"}`, `{"path":"a","p\u0061th":"b"}`,
		`{"tas\u212a":"a"}`, `{"ta\u017fk":"a"}`, `{"task":"a","Task":1}`,
	} {
		_, _, err := targets(t, policy.Place{Dir: "/"}, arguments, "r:{path}", "r:{task}")
		var key *wire.KeyError
		if !errors.As(err, &key) {
			t.Errorf("%s: %v", arguments, err)
		}
	}
	for _, arguments := range []string{`{"path":"\ud800"}`, `{"path":"\udc00x"}`, `{"path":["a","\ud83d"]}`} {
		if _, _, err := targets(t, policy.Place{Dir: "/"}, arguments, "r:{path}"); !errors.Is(err, policy.ErrUnreadable) {
			t.Errorf("%s: %v", arguments, err)
		}
	}
	// What decides nothing is nobody's business.
	if texts, _, err := targets(t, policy.Place{Dir: "/"}, `{"other":1,"Other":2,"\ud800":3,"path":"x"}`, "r:{path}"); err != nil || texts[0] != "r:x" {
		t.Errorf("got %v, %v", texts, err)
	}
}

// TestLinks finds one name for what links and folders lead to.
func TestLinks(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	ok(os.MkdirAll(at("real/sub"), 0o700))
	ok(os.MkdirAll(at("elsewhere/deep"), 0o700))
	ok(os.WriteFile(at("elsewhere/file"), nil, 0o600))
	ok(os.Symlink("../elsewhere/deep", at("real/far")))
	ok(os.Symlink("../new", at("elsewhere/deep/dangling")))
	ok(os.Symlink("one", at("two")))
	ok(os.Symlink("nothing", at("one")))
	ok(os.Symlink("b", at("a")))
	ok(os.Symlink("a", at("b")))
	for i := range 60 {
		ok(os.Symlink(fmt.Sprint("chain", i+1), at(fmt.Sprint("chain", i))))
	}
	ok(os.WriteFile(at("real/file"), nil, 0o600))
	ok(os.WriteFile(at("real/x (deleted)"), nil, 0o600))
	ok(os.Symlink("real", at("link")))
	ok(os.Symlink(at("real/file"), at("real/absolute")))
	ok(os.Symlink("../real/none", at("real/dangling")))
	ok(os.Symlink("loop", at("loop")))
	for path, want := range map[string]string{
		"real/file": "real/file", "link/file": "real/file", "link/absolute": "real/file", "link/sub/../file": "real/file",
		"link/new": "real/new", "link/new/deep/er": "real/new/deep/er", "link/dangling": "real/none", "real/dangling": "real/none",
		"real/far/dangling": "elsewhere/new", "link/far/new": "elsewhere/deep/new", "two": "nothing", "two/x": "nothing/x", "a": "a", "b/x": "b/x",
		"chain21": "chain60", "chain0": "chain0", // no further than the kernel goes
		"link/sub/": "real/sub", "link/file/": "real/file", "link/loop": "real/loop", "link/file/x": "real/file/x",
		"link/sub": "real/sub", "loop": "loop", "loop/x": "loop/x", "real/file/x": "real/file/x", "link/x (deleted)": "real/x (deleted)",
	} {
		arguments, err := json.Marshal(map[string]string{"path": path})
		ok(err)
		texts, complete, err := targets(t, policy.Place{Dir: dir}, string(arguments), "file:{path}")
		if err != nil || !complete || texts[0] != "file:"+at(want) {
			t.Errorf("%s is %v, %v; want %s", path, texts, err, at(want))
		}
	}
	// Programs that clean a path first and those that do not open different files.
	for path, want := range map[string][]string{
		"link/far/../file":                  {"real/file", "elsewhere/file"},
		"real/far/../new":                   {"real/new", "elsewhere/new"},
		"real/far/../../link/sub/../file":   {"real/file"},
		"real/far/../../real/far/../../new": {"new"},
		"none/../link/file":                 {"real/file"},
		"real/far/dangling/../file":         {"elsewhere/deep/file", "elsewhere/file"},
	} {
		texts, complete, err := targets(t, policy.Place{Dir: dir}, `{"path":"`+path+`"}`, "file:{path}")
		for i := range want {
			want[i] = "file:" + at(want[i])
		}
		if err != nil || !complete || !slices.Equal(texts, want) {
			t.Errorf("%s is %v, %v; want %v", path, texts, err, want)
		}
	}
	for _, long := range []string{strings.Repeat("x/", 3000), strings.Repeat("x", 300) + "/", strings.Repeat("x/../", 3000), strings.Repeat("x/", 1<<20), strings.Repeat("../", 1<<19)} {
		if texts, _, err := targets(t, policy.Place{Dir: dir}, `{"path":"`+long+`y"}`, "file:{path}"); err != nil || len(texts) != 1 {
			t.Errorf("a path of %d bytes: %.100q, %v", len(long), texts, err)
		}
	}
}

// FuzzTargets never fails otherwise than by its errors, and finds the same in what
// another encoder has made of the arguments.
func FuzzTargets(f *testing.F) {
	for _, seed := range []string{`{"path":"x"}`, `{"path":["x",1,"~/y"]}`, `{"path":"a","Path":"b"}`, `{"path":"\ud800"}`, `{"path":1e2}`, `[]`, `{"path":"../\u0000"}`,
		`{"path":[-0,0.0],"task":"k"}`, `{"path":null,"tas\u212a":1}`, "{\"ta\u017fk\":1,\"path\":{}}"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, arguments string) {
		if !json.Valid([]byte(arguments)) {
			return
		}
		p := policy.Place{Dir: "/nowhere", Home: "/nobody"}
		before, complete, err := targets(t, p, arguments, "r:{path}", "file:{path}", "tree:{path}", "r:{path}/{task}")
		if err != nil {
			return
		}
		decoder := json.NewDecoder(strings.NewReader(arguments))
		decoder.UseNumber()
		var value any
		if decoder.Decode(&value) != nil {
			return
		}
		again, encodeErr := json.Marshal(value)
		if encodeErr != nil {
			return
		}
		after, completeAfter, err := targets(t, p, string(again), "r:{path}", "file:{path}", "tree:{path}", "r:{path}/{task}")
		if err != nil || complete != completeAfter || fmt.Sprint(before) != fmt.Sprint(after) {
			t.Errorf("%s is %v, %t; encoded again as %s it is %v, %t, %v", arguments, before, complete, again, after, completeAfter, err)
		}
	})
}
