package config

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

func lookupIn(env map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, ok := env[name]
		return value, ok
	}
}

func TestExpandText(t *testing.T) {
	env := map[string]string{"A": "aa", "EMPTY": "", "_X1": "x", "NEST": "${A}"}
	tests := []struct{ text, want string }{
		{"plain", "plain"},
		{"${A}", "aa"},
		{"pre${A}mid${_X1}post", "preaamidxpost"},
		{"${env:A}", "aa"},
		{"${A:-d}", "aa"},
		{"${NO:-d e}", "d e"},
		{"${NO:-}", ""},
		{"${env:NO:-d}", "d"},
		{"${NO:-http://h:1/p?q=1}", "http://h:1/p?q=1"},
		{"${NO:-a}b}", "ab}"},
		{"${EMPTY}", ""},
		{"${EMPTY:-d}", ""},
		{"${NEST}", "${A}"},
		{"$A $$A $ $$ %A% {env:A} $(id) `id`", "$A $$A $ $$ %A% {env:A} $(id) `id`"},
		{"${", "${"},
		{"${}", "${}"},
		{"${A", "${A"},
		{"${1X}${a-b}${a%x}${a:+y}${/}${{ secrets.A }}", "${1X}${a-b}${a%x}${a:+y}${/}${{ secrets.A }}"},
		{"$${A}", "${A}"},
		{"$$${A}", "$${A}"},
		{"${A}$${A}${A}", "aa${A}aa"},
		{`\${A}`, `\aa`},
	}
	for _, tt := range tests {
		cmd, err := Server{Command: "x", Args: []string{tt.text}}.Expand(lookupIn(env))
		if err != nil || cmd.Args[0] != tt.want {
			t.Errorf("%q expands to %q, %v; want %q", tt.text, cmd.Args, err, tt.want)
		}
	}
}

func TestExpandServer(t *testing.T) {
	s, _ := readEntry(t, "n", `{
		"command": "${BIN}/srv", "args": ["-d", "${DIR:-/d}"],
		"env": {"PATH": "${PATH}:/opt", "${K}": "${B}"}, "cwd": "${DIR:-/w}"}`)
	got, err := s.Expand(lookupIn(map[string]string{"BIN": "/b", "PATH": "/p", "B": "b", "OTHER": "o"}))
	want := Command{
		Program: "/b/srv", Args: []string{"-d", "/d"}, Dir: "/w",
		Env: map[string]string{"PATH": "/p:/opt", "${K}": "b"},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("Expand = %+v, %v\nwant %+v", got, err, want)
	}
}

func TestExpandUnset(t *testing.T) {
	cfg := load(t, `{"mcpServers": {
  "git hub": {
    "command": "x",
    "env": {
      "TOKEN": "${GITHUB_TOKEN}",
      "ALSO": "${OTHER} ${GITHUB_TOKEN}",
      "FINE": "${NONE:-}"
    }
  },
  "editor": {"command": "x", "cwd": "${workspaceFolder}/a"}
}}`)
	_, err := cfg.Servers[0].Expand(lookupIn(nil))
	var p *Problem
	if !errors.As(err, &p) {
		t.Fatalf("Expand = %v, want a Problem", err)
	}
	if p.Code != CodeVariable || p.File != cfg.Path || p.Line != 6 || p.Col != 15 || p.Server != "git hub" {
		t.Errorf("problem %+v", p)
	}
	for _, want := range []string{"config.json:6:15", `"git hub"`, "OTHER, GITHUB_TOKEN", "${OTHER:-…}"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
	if _, err := cfg.Servers[1].Expand(lookupIn(nil)); err == nil || !strings.Contains(err.Error(), "${CLAUDE_PROJECT_DIR:-.}") {
		t.Errorf("workspaceFolder: %v", err)
	}
}
