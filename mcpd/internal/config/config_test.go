package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"interlock/status"
)

// load reads text as a configuration file.
func load(t *testing.T, text string) *Config {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := Load(path, true)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// codes returns the codes of problems, with a question mark behind notes.
func codes(problems []Problem) string {
	var out []string
	for _, p := range problems {
		code := string(p.Code)
		if p.Note {
			code += "?"
		}
		out = append(out, code)
	}
	return strings.Join(out, " ")
}

func TestPath(t *testing.T) {
	tests := []struct{ name, xdg, home, flag, want string }{
		{"flag", "/x", "/home/ann", "/etc/i.json", "/etc/i.json"},
		{"XDG_CONFIG_HOME", "/x", "/home/ann", "", "/x/interlock/config.json"},
		{"home", "", "/home/ann", "", "/home/ann/.config/interlock/config.json"},
		{"relative XDG_CONFIG_HOME", "conf", "/home/ann", "", "/home/ann/.config/interlock/config.json"},
		{"nothing", "", "", "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			env := map[string]string{"XDG_CONFIG_HOME": tt.xdg, "HOME": tt.home}
			if got := Path(func(k string) string { return env[k] }, tt.flag); got != tt.want {
				t.Errorf("Path = %q, want %q", got, tt.want)
			}
		})
	}
	t.Run("relative flag", func(t *testing.T) {
		t.Chdir(t.TempDir())
		if got := Path(os.Getenv, "i.json"); !filepath.IsAbs(got) || filepath.Base(got) != "i.json" {
			t.Errorf("Path = %q, want an absolute path", got)
		}
	})
}

func TestLoadMissing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none.json")
	cfg, err := Load(path, false)
	if err != nil || !cfg.Missing || cfg.Broken != nil || len(cfg.Problems) != 0 {
		t.Errorf("Load of a missing default file = %+v, %v", cfg, err)
	}
	if cfg.Limits != Defaults() || cfg.Sync != SyncCrash || cfg.RecoveryPending != PendingWarn || cfg.Peers.Sandboxed != Refuse {
		t.Errorf("a missing file does not give the defaults: %+v", cfg)
	}
	if cfg, err := Load("", false); err != nil || !cfg.Missing {
		t.Errorf("Load without a home = %+v, %v", cfg, err)
	}
	_, err = Load(path, true)
	var p *Problem
	if !errors.Is(err, fs.ErrNotExist) || !errors.As(err, &p) || p.Code != CodeMissing || !strings.Contains(err.Error(), path) {
		t.Errorf("Load of a missing named file: %v", err)
	}
}

func TestLoadUnreadable(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	big := filepath.Join(dir, "big")
	if err := os.WriteFile(big, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(big, maxFileBytes+1); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, fifo, big} {
		cfg, err := Load(path, true)
		if err != nil {
			t.Fatal(err)
		}
		if cfg.Broken == nil || cfg.Broken.Code != CodeUnreadable || cfg.Broken.Place() != path {
			t.Errorf("Load(%q).Broken = %+v", path, cfg.Broken)
		}
	}
}

func TestLoadWritable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(path, []byte(`{"mcpServers": {}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for mode, want := range map[fs.FileMode]string{0o600: "", 0o664: "", 0o666: "config_writable?"} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		cfg, err := Load(path, true)
		if err != nil || codes(cfg.Problems) != want {
			t.Errorf("mode %o: problems %q, %v; want %q", mode, codes(cfg.Problems), err, want)
		}
	}
}

func TestOneBadEntryCostsItselfOnly(t *testing.T) {
	cfg := load(t, `{"mcpServers": {
		"z": {"command": "a"}, "text": "npx", "null": null, "list": [], "empty": {}, "blank": {"command": ""},
		"args": {"command": "a", "args": "-x"}, "url": {"url": "https://h"}, "line": {"command": "npx -y x"},
		"local": {"command": "a"}, "scope": {"command": "a", "scope": "everybody"}, "a/b.c d·日本": {"command": "b"},
		"A": {"command": "a"}, "a": {"command": "a"}
	}}`)
	if cfg.Broken != nil {
		t.Fatal(cfg.Broken)
	}
	var order, good []string
	for _, s := range cfg.Servers {
		order = append(order, s.Name)
		if s.Problem == nil {
			good = append(good, s.Name)
		} else if s.Problem.Server != s.Name || s.Problem.Line == 0 || s.Problem.Remedy == "" {
			t.Errorf("%s: incomplete problem %+v", s.Name, s.Problem)
		}
	}
	if want := []string{"z", "text", "null", "list", "empty", "blank", "args", "url", "line", "local", "scope", "a/b.c d·日本", "A", "a"}; !slices.Equal(order, want) {
		t.Errorf("servers %q, want %q", order, want)
	}
	if want := []string{"z", "a/b.c d·日本", "A", "a"}; !slices.Equal(good, want) {
		t.Errorf("in service %q, want %q", good, want)
	}
}

func TestServersKey(t *testing.T) {
	tests := []struct {
		name, text, servers, problems string
		broken                        bool
	}{
		{"ours", `{"mcpServers": {"a": {"command": "x"}}}`, "a", "", false},
		{"VS Code", `{"servers": {"a": {"command": "x"}}, "inputs": []}`, "a", "config_wrong_key?", false},
		{"both", `{"servers": {"b": {"command": "x"}}, "mcpServers": {"a": {"command": "x"}}}`, "a", "config_wrong_key?", false},
		{"Codex", `{"mcp_servers": {"a": {"command": "x"}}}`, "", "config_wrong_key?", false},
		{"case", `{"McpServers": {"a": {"command": "x"}}}`, "", "config_wrong_key?", false},
		{"opencode", `{"mcp": {"a": {"command": "x"}}}`, "", "config_wrong_key?", false},
		{"Zed", `{"context_servers": {"a": {"command": "x"}}}`, "", "config_wrong_key?", false},
		{"Gemini", `{"mcp": {"allowed": []}, "mcpServers": {"a": {"command": "x"}}, "theme": "dark"}`, "a", "", false},
		{"none", `{"theme": "dark"}`, "", "config_no_servers?", false},
		{"null", `{"mcpServers": null}`, "", "", false},
		{"list", `{"mcpServers": [{"name": "a", "command": "x"}]}`, "", "config_type", true},
		{"root null", `null`, "", "config_type", true},
		{"root list", `[]`, "", "config_type", true},
		{"merged", `{"mcpServers": {"a": {"command": "x"}}, "mcpServers": {"b": {"command": "x"}}}`, "a b", "config_duplicate?", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := load(t, tt.text)
			var names []string
			for _, s := range cfg.Servers {
				names = append(names, s.Name)
			}
			if got := strings.Join(names, " "); got != tt.servers || codes(cfg.Problems) != tt.problems || (cfg.Broken != nil) != tt.broken {
				t.Errorf("servers %q, problems %q, broken %v", got, codes(cfg.Problems), cfg.Broken)
			}
		})
	}
}

func TestDuplicateServer(t *testing.T) {
	cfg := load(t, `{"mcpServers": {
		"a": {"command": "x"},
		"b": {"command": "y"},
		"\u0061": {"command": "z"}
	}}`)
	if len(cfg.Servers) != 2 || cfg.Servers[0].Problem == nil || cfg.Servers[1].Problem != nil {
		t.Fatalf("servers %+v", cfg.Servers)
	}
	if p := cfg.Servers[0].Problem; p.Code != CodeDuplicate || p.Line != 4 || !strings.Contains(p.Message, "line 2") {
		t.Errorf("problem %v", p)
	}
}

func TestTextFormat(t *testing.T) {
	const plain = "{\n// who\n\"mcpServers\": {\"a\": {\"command\": \"x\", /* no */ \"args\": [\"//\", \"/* */\",],},},\n} // end"
	for name, text := range map[string]string{
		"comments and trailing commas": plain,
		"BOM":                          "\ufeff" + plain,
		"CRLF":                         strings.ReplaceAll(plain, "\n", "\r\n"),
		"BOM and CRLF":                 "\ufeff" + strings.ReplaceAll(plain, "\n", "\r\n"),
	} {
		t.Run(name, func(t *testing.T) {
			cfg := load(t, text)
			if len(cfg.Problems) != 0 || len(cfg.Servers) != 1 || cfg.Servers[0].Line != 3 {
				t.Fatalf("problems %q, servers %+v", codes(cfg.Problems), cfg.Servers)
			}
			if got := cfg.Servers[0].Args; !slices.Equal(got, []string{"//", "/* */"}) {
				t.Errorf("args %q", got)
			}
		})
	}
}

func TestSyntaxProblems(t *testing.T) {
	tests := []struct {
		name, text string
		line, col  int
		want       string
	}{
		{"empty", "", 1, 1, "empty"},
		{"white space", "\n \n", 1, 1, "empty"},
		{"comments only", "// {\n/* } */\n", 1, 1, "nothing but comments"},
		{"UTF-16", "\xff\xfe{\x00", 1, 1, "UTF-16"},
		{"UTF-16 without mark", "\x00{\x00}", 1, 1, "UTF-16"},
		{"Latin-1", "{\"caf\xe9\": 1}", 1, 6, "not UTF-8"},
		{"NUL", "{\"a\": 1}\x00\x00", 1, 9, "NUL"},
		{"conflict", "{\n<<<<<<< HEAD\n\"a\": 1\n=======\n>>>>>>> b\n}", 2, 1, "merge conflict"},
		{"hash comment", "{\n  # no\n}", 2, 3, "begin comments with //"},
		{"single quotes", "{'a': 1}", 1, 2, "straight double quote"},
		{"curly quotes", "{“a”: 1}", 1, 2, "straight double quote"},
		{"bare name", "{\n  mcpServers: {}}", 2, 3, "bare word"},
		{"bare value", `{"a": yes}`, 1, 7, "bare word"},
		{"missing comma", "{\n\"a\": \"b\"\n\"c\": 1}", 3, 1, "comma is missing"},
		{"missing comma after number", "[1\n2]", 2, 1, "comma is missing"},
		{"missing comma after object", `{"a": {} "b": 1}`, 1, 10, "comma is missing"},
		{"missing colon", `{"a" "b"}`, 1, 6, "colon is missing"},
		{"equals sign", `{"a" = "b"}`, 1, 6, "colon is missing"},
		{"missing value", `{"a": }`, 1, 7, "value is missing"},
		{"two commas", `{"a": 1,, "b": 2}`, 1, 9, "no value before this comma"},
		{"wrong bracket", `{"a": [1}`, 1, 9, "closes nothing"},
		{"open string", "{\"a\": \"b,\n\"c\": 1}", 1, 7, "not closed on its line"},
		{"Windows path", `{"a": "C:\Users\x"}`, 1, 7, `backslash`},
		{"number", `{"a": 0x10}`, 1, 7, "not a number"},
		{"open comment", "{}\n/* ", 2, 1, "comment here is not closed"},
		{"truncated", "{\"a\": {\n", 1, 8, "ends too early"},
		{"second value", "{}\n{}", 2, 1, "ended before this"},
		{"column counts characters", `{"日本": x}`, 1, 8, "bare word"},
		{"byte order mark has no column", "\ufeff{x}", 1, 2, "bare word"},
		{"nesting", strings.Repeat("[", maxNesting+1), 1, maxNesting + 1, "nest deeper"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := load(t, tt.text)
			p := cfg.Broken
			if p == nil || p.Code != CodeSyntax || len(cfg.Servers) != 0 || len(cfg.Problems) != 1 {
				t.Fatalf("Broken = %+v", p)
			}
			if p.Line != tt.line || p.Col != tt.col || !strings.Contains(p.Message+"; "+p.Remedy, tt.want) || p.Remedy == "" {
				t.Errorf("got %v, want %d:%d and %q", p, tt.line, tt.col, tt.want)
			}
		})
	}
}

// secretFile has a canary wherever a configuration has a secret.
const secretFile = `{
  "mcpServers": {
    "a": {"command": "CANARY1 CANARY2", "env": {"TOKEN": "CANARY3", "N": 1}, "cwd": "CANARY4"},
    "b": {"command": "x", "args": ["--token", "CANARY5", "${CANARY_NOT}", "${input:CANARY6}", null, {"k": "CANARY7"}]},
    "c": {"url": "https://u:CANARY8@h/?k=CANARY9", "headers": {"Authorization": "CANARY10"}},
    "d": {"command": ["CANARY11"], "type": "CANARY12", "scope": "CANARY13", "tools": {"t": {"resource": 7, "class": "CANARY14"}}},
    "e": "CANARY15", "f": {"command": "x", "env": "CANARY16", "passEnv": ["TOKEN=CANARY17"], "leaseHold": "CANARY18"},
    "g": {"command": "x", "env": {"A": {"B": "CANARY19"}, "C": "CANARY20\u0000"}, "disabled": "CANARY21", "enabled": "true"}
  },
  "limits": {"sessions": "CANARY22", "waitLimit": "CANARY23", "frame": "CANARY24"}, "sync": "CANARY25"
}`

// TestProblemsQuoteNoSecrets reads the file whole, and cut or damaged at every
// byte: nothing of a value may show up in a message, and nothing may panic.
func TestProblemsQuoteNoSecrets(t *testing.T) {
	read := func(text string) {
		cfg := Config{Path: "config.json", Limits: Defaults()}
		cfg.parse([]byte(text))
		for i := range cfg.Problems {
			if message := cfg.Problems[i].Error(); strings.Contains(message, "CANARY") {
				t.Fatalf("reading %q: %s", text, message)
			}
		}
	}
	read(secretFile)
	for i := range len(secretFile) {
		read(secretFile[:i])
		for _, c := range []string{"", "\"", "}", "\\", "\x00"} {
			read(secretFile[:i] + c + secretFile[i+1:])
		}
	}
}

func TestManyServers(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"mcpServers": {`)
	for i := range 500 {
		fmt.Fprintf(&b, "%q: {\"command\": \"npx\", \"args\": [\"-y\", \"server-%d\"], \"env\": {\"K\": \"${K:-v}\"}},\n", fmt.Sprintf("server %d", i), i)
	}
	b.WriteString("}}")
	begin := time.Now()
	cfg := load(t, b.String())
	if took := time.Since(begin); took > 2*time.Second {
		t.Errorf("loading took %v", took)
	}
	if len(cfg.Servers) != 500 || len(cfg.Problems) != 0 || cfg.Servers[499].Line != 500 {
		t.Errorf("%d servers, problems %q", len(cfg.Servers), codes(cfg.Problems))
	}
}

// TestCodesAreRegistered holds the codes of problems to those of findings.
func TestCodesAreRegistered(t *testing.T) {
	known := make(map[status.Code]bool)
	for _, info := range status.Codes() {
		known[info.Code] = true
	}
	for _, c := range Codes() {
		if !known[status.Code(c)] {
			t.Errorf("no finding has the code %q", c)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(secretFile))
	f.Add([]byte("\ufeff{\"servers\": {\"a\": {\"command\": \"x\"}}} // end"))
	f.Fuzz(func(t *testing.T, text []byte) {
		cfg := Config{Path: "config.json", Limits: Defaults()}
		cfg.parse(text)
		if cfg.Broken != nil && len(cfg.Servers) > 0 {
			t.Error("a broken file has servers")
		}
		if err := cfg.Limits.Validate(); err != nil {
			t.Errorf("limits out of bounds: %v", err)
		}
		for _, s := range cfg.Servers {
			if s.Problem == nil {
				_, _ = s.Expand(os.LookupEnv)
			}
		}
	})
}
