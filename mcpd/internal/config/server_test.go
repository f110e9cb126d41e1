package config

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// readEntry reads one entry called name.
func readEntry(t *testing.T, name, entry string) (Server, []Problem) {
	t.Helper()
	cfg := load(t, fmt.Sprintf(`{"mcpServers": {%q: %s}}`, name, entry))
	if len(cfg.Servers) != 1 {
		t.Fatalf("%d servers, problems %q", len(cfg.Servers), codes(cfg.Problems))
	}
	return cfg.Servers[0], cfg.Problems
}

func TestEntryProblems(t *testing.T) {
	tests := []struct {
		name, entry string
		want        string // the codes of all problems
	}{
		{"plain", `{"command": "npx", "args": ["-y", "x"], "env": {"A": "b"}, "cwd": "/x"}`, ""},
		{"stdio in capitals", `{"type": "STDIO", "command": "x"}`, ""},
		{"null members", `{"command": "x", "args": null, "env": null, "cwd": null, "url": null, "tools": null, "scope": null, "disabled": null}`, ""},
		{"other clients' members", `{"command": "x", "alwaysAllow": ["t"], "autoApprove": [], "timeout": "30", "trust": true, "_note": 1, "//": "c", "description": null, "headers": {}}`, ""},
		{"unknown member", `{"command": "x", "frobnicate": 1}`, "config_unknown_field?"},
		{"envFile", `{"command": "x", "envFile": ".env"}`, "config_field_ignored?"},
		{"disabledTools", `{"command": "x", "disabledTools": ["t"]}`, "config_field_ignored?"},
		{"sandbox", `{"command": "x", "sandboxEnabled": true}`, "config_field_ignored?"},

		{"no command", `{"args": ["x"]}`, "command_missing"},
		{"blank command", `{"command": " "}`, "config_type? command_missing"},
		{"command null beside url", `{"command": null, "url": "https://h"}`, "http_unsupported"},
		{"url", `{"url": "https://h"}`, "http_unsupported"},
		{"serverUrl", `{"serverUrl": "https://h"}`, "http_unsupported"},
		{"sse", `{"type": "sse", "url": "https://h"}`, "http_unsupported"},
		{"unknown type", `{"type": "quic", "url": "quic://h"}`, "http_unsupported"},
		{"empty url", `{"type": "http", "url": ""}`, "command_missing"},
		{"both", `{"command": "x", "url": "https://h"}`, "command_and_url"},
		{"both, type stdio", `{"type": "stdio", "command": "x", "url": "https://h"}`, ""},
		{"both, type http", `{"type": "http", "command": "x", "url": "https://h"}`, "http_unsupported"},
		{"type http with command", `{"type": "http", "command": "x"}`, "config_type?"},
		{"disabled url", `{"url": "https://h", "disabled": true}`, ""},
		{"disabled with a mistake", `{"command": ["x"], "disabled": true}`, ""},
		{"disabled without command", `{"command": "", "disabled": true}`, ""},

		{"command line", `{"command": "npx -y x"}`, "command_has_args"},
		{"command line, empty args", `{"command": "docker run -i x", "args": []}`, "command_has_args"},
		{"command line with path", `{"command": "/usr/bin/env node x"}`, "command_has_args"},
		{"program with a space, and args", `{"command": "C:\\Program Files\\node.exe", "args": ["x"]}`, ""},
		{"Windows program with a space", `{"command": "C:\\Program Files\\node.exe"}`, ""},
		{"variable with a space", `{"command": "${HOME}/My Programs/x"}`, ""},
		{"outer white space", `{"command": " x "}`, "config_type?"},
		{"command list", `{"command": ["npx", "-y"]}`, "config_type"},
		{"command number", `{"command": 7}`, "config_type"},

		{"args text", `{"command": "x", "args": "-y"}`, "config_type"},
		{"args scalars", `{"command": "x", "args": ["a", 1, true]}`, "config_type? config_type?"},
		{"args null element", `{"command": "x", "args": [null]}`, "config_type"},
		{"args NUL", `{"command": "x", "args": ["a\u0000b"]}`, "config_type"},
		{"env list", `{"command": "x", "env": ["A=b"]}`, "config_type"},
		{"env null value", `{"command": "x", "env": {"A": null}}`, "config_type"},
		{"env object value", `{"command": "x", "env": {"A": {}}}`, "config_type"},
		{"env bad name", `{"command": "x", "env": {"A=B": "c"}}`, "config_type"},
		{"env empty name", `{"command": "x", "env": {"": "c"}}`, "config_type"},
		{"env twice", `{"command": "x", "env": {"A": "1", "A": "2"}}`, "config_duplicate"},
		{"command twice", `{"command": "x", "command": "y"}`, "config_duplicate"},
		{"input", `{"command": "x", "env": {"A": "${input:k}"}}`, "variable_unsupported"},

		{"nested", `{"command": "/opt/bin/interlock", "args": ["connect", "git"]}`, "nested_interlock"},
		{"nested with options", `{"command": "interlock", "args": ["--dir", "/x", "connect"]}`, "nested_interlock"},
		{"another program with connect", `{"command": "ssh", "args": ["connect"]}`, ""},
		{"builtin", `{"builtin": "local"}`, ""},
		{"unknown builtin", `{"builtin": "shell"}`, "config_type"},
		{"builtin with command", `{"builtin": "local", "command": "x"}`, "command_and_url"},

		{"scope", `{"command": "x", "scope": "machine"}`, "config_type"},
		{"scope of the wrong type", `{"command": "x", "scope": 1}`, "config_type"},
		{"negative maxRequests", `{"command": "x", "maxRequests": -1}`, "config_range"},
		{"fractional maxRequests", `{"command": "x", "maxRequests": 1.5}`, "config_type"},
		{"leaseHold number", `{"command": "x", "leaseHold": 3}`, "config_type"},
		{"leaseHold too long", `{"command": "x", "leaseHold": "1h"}`, "config_range"},
		{"passEnv with a value", `{"command": "x", "passEnv": ["A=b"]}`, "config_type"},
		{"tool class", `{"command": "x", "tools": {"t": {"class": "write"}}}`, "config_type"},
		{"tool member", `{"command": "x", "tools": {"t": {"resouce": "file:{path}"}}}`, "config_type"},
		{"tool resource", `{"command": "x", "tools": {"t": {"resource": ""}}}`, "config_type"},
		{"tool", `{"command": "x", "tools": {"t": "read"}}`, "config_type"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, problems := readEntry(t, "n", tt.entry)
			if got := codes(problems); got != tt.want {
				t.Errorf("problems %q, want %q: %v", got, tt.want, s.Problem)
			}
			inService := strings.Count(tt.want, "?") == len(strings.Fields(tt.want))
			if (s.Problem == nil) != inService {
				t.Errorf("Problem = %v", s.Problem)
			}
		})
	}
}

func TestEntryNames(t *testing.T) {
	tests := []struct{ name, entry, want string }{
		{"a b/c.d:e", `{"command": "x"}`, ""},
		{strings.Repeat("n", 128), `{"command": "x"}`, ""},
		{strings.Repeat("n", 129), `{"command": "x"}`, "name_invalid"},
		{"", `{"command": "x"}`, "name_invalid"},
		{" ", `{"command": "x"}`, "name_invalid"},
		{"local", `{"command": "x"}`, "name_reserved"},
		{"local", `{"builtin": "local"}`, ""},
		{"interlock", `{"command": "x"}`, "name_reserved"},
		{"interlock", `{"builtin": "local"}`, "name_reserved"},
		{"Local", `{"command": "x"}`, ""},
	}
	for _, tt := range tests {
		if _, problems := readEntry(t, tt.name, tt.entry); codes(problems) != tt.want {
			t.Errorf("%q: problems %q, want %q", tt.name, codes(problems), tt.want)
		}
	}
	cfg := load(t, `{"mcpServers": {"a\u001bb": {"command": "x"}}}`)
	if codes(cfg.Problems) != "name_invalid" {
		t.Errorf("control character: problems %q", codes(cfg.Problems))
	}
}

func TestEntryDisabled(t *testing.T) {
	tests := []struct {
		entry    string
		disabled bool
		want     string
	}{
		{`{"command": "x", "disabled": true}`, true, ""},
		{`{"command": "x", "disabled": "true"}`, true, "config_type?"},
		{`{"command": "x", "disabled": "false"}`, false, "config_type?"},
		{`{"command": "x", "enabled": false}`, true, ""},
		{`{"command": "x", "enabled": true}`, false, ""},
		{`{"command": "x", "enabled": false, "disabled": false}`, true, ""},
		{`{"command": "x", "disabled": 1}`, false, "config_type"},
	}
	for _, tt := range tests {
		s, problems := readEntry(t, "n", tt.entry)
		if s.Disabled != tt.disabled || codes(problems) != tt.want {
			t.Errorf("%s: disabled %t, problems %q", tt.entry, s.Disabled, codes(problems))
		}
	}
}

func TestEntryFields(t *testing.T) {
	got, problems := readEntry(t, "n", `{
		"command": "npx", "args": ["-y", 8080, "${A}"], "env": {"B": "x", "N": 9007199254740993}, "cwd": "/w",
		"scope": "project", "instances": "one", "state": "shared", "mutations": "explicit", "annotations": "ignore", "guard": "warn",
		"tools": {"write": {"class": "mutate", "resource": "file:{path}"}, "move": {"resource": ["tree:{from}", "r:{a}/x"], "leaseHold": "0s"}, "look": {"class": "read"}},
		"maxRequests": 0, "leaseHold": "3s", "passEnv": ["TOKEN"], "passEpoch": true
	}`)
	if got.Problem != nil {
		t.Fatalf("problems %q: %v", codes(problems), got.Problem)
	}
	none, hold := 0, 3*time.Second
	want := Server{
		Name: "n", Command: "npx", Args: []string{"-y", "8080", "${A}"}, Env: map[string]string{"B": "x", "N": "9007199254740993"}, Dir: "/w",
		Scope: ScopeProject, Instances: InstancesOne, State: StateShared, Mutations: MutationsExplicit, Annotations: AnnotationsIgnore, Guard: GuardWarn,
		Tools: map[string]Tool{
			"write": {Class: ClassMutate, Resources: []Template{{"file:{path}", KindFile, []Part{{Argument: "path"}}}}},
			"move": {LeaseHold: new(time.Duration), Resources: []Template{
				{"tree:{from}", KindTree, []Part{{Argument: "from"}}},
				{"r:{a}/x", KindName, []Part{{Text: "r:"}, {Argument: "a"}, {Text: "/x"}}},
			}},
			"look": {Class: ClassRead},
		},
		MaxRequests: &none, LeaseHold: &hold, PassEnv: []string{"TOKEN"}, PassEpoch: true,
		Line: 1, file: got.file, at: got.at,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if bare, _ := readEntry(t, "n", `{"command": "x"}`); bare.MaxRequests != nil || bare.LeaseHold != nil || bare.Scope != "" || bare.Tools != nil {
		t.Errorf("an entry that says nothing says %+v", bare)
	}
}

func TestTemplatesThatAreNone(t *testing.T) {
	for _, text := range []string{
		"", "file:", "tree:", "a b", `x:\u0007`, "x:{", "x:}", "x:{}", "x:{a{b}}", "x:{a}}", "x:{größe}", "file:relative", "file:a/{b}", "session:1",
	} {
		got, _ := readEntry(t, "n", `{"command": "x", "tools": {"t": {"resource": "`+text+`"}}}`)
		if got.Problem == nil || got.Problem.Code != CodeType {
			t.Errorf("resource %q is taken: %v", text, got.Problem)
		}
	}
	got, _ := readEntry(t, "n", `{"command": "x", "tools": {"t": {"resource": ["file:/etc/{name}", "browser", "tree:/"]}}}`)
	if got.Problem != nil {
		t.Errorf("resources without a fault: %v", got.Problem)
	}
}

func TestCommandThatIsAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "my server")
	if err := os.WriteFile(path, nil, 0o700); err != nil {
		t.Fatal(err)
	}
	if s, problems := readEntry(t, "n", fmt.Sprintf(`{"command": %q}`, path)); s.Problem != nil {
		t.Errorf("problems %q", codes(problems))
	}
}

func TestSuggestions(t *testing.T) {
	for slip, want := range map[string]string{"Command": "command", "ARGS": "args", "max_requests": "maxRequests", "scpe": "scope", "mutation": "mutations"} {
		s, problems := readEntry(t, "n", fmt.Sprintf(`{"command": "x", %q: 1}`, slip))
		if s.Problem != nil || len(problems) != 1 || problems[0].Remedy != fmt.Sprintf("write %q", want) {
			t.Errorf("%s: %+v", slip, problems)
		}
	}
}
