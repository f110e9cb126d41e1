package config

import (
	"fmt"
	"strings"
	"testing"
)

// render writes a template's parts so that text and arguments can be told apart.
func render(t Template) string {
	var b strings.Builder
	b.WriteString(string(t.Kind))
	for _, p := range t.Parts {
		if p.Argument != "" {
			fmt.Fprintf(&b, " <%s>", p.Argument)
		} else {
			fmt.Fprintf(&b, " %s", p.Text)
		}
	}
	return b.String()
}

func TestTemplate(t *testing.T) {
	for text, want := range map[string]string{
		"file:{path}":           "file <path>",
		"tree:{repo_path}":      "tree <repo_path>",
		"tree:{root}/.git":      "tree <root> /.git",
		"file:/srv/{name}.json": "file /srv/ <name> .json",
		"tree:/":                "tree /",
		"repo:{owner}/{repo}":   " repo: <owner> / <repo>",
		"issue:{a}/{b}/{c}":     " issue: <a> / <b> / <c>",
		"{a}{b}":                " <a> <b>",
		"database":              " database",
		"files:{path}":          " files: <path>",
		"file":                  " file",
		"FILE:{path}":           " FILE: <path>",
		"tree:{file:x}":         "tree <file:x>",
		"x:tree:{a}":            " x:tree: <a>",
		"key:{interlock/x}":     " key: <interlock/x>",
		"sessions:{id}":         " sessions: <id>",
	} {
		got, err := ParseTemplate(text)
		if err != nil || got.Text != text || render(got) != want {
			t.Errorf("%s is %q of text %q, %v; want %q", text, render(got), got.Text, err, want)
		}
	}
}

func TestTemplateMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"":                  "names nothing",
		"file:":             "names nothing",
		"tree:":             "names nothing",
		"file:{path} ":      "white space",
		" file:{path}":      "white space",
		"x\u00a0y":          "white space",
		"x\ny":              "white space",
		"x\x00y":            "control character",
		"x\u0085y":          "white space or a control character",
		"session:{id}":      "belongs to a session",
		"session:":          "belongs to a session",
		"x}":                "a } without a {",
		"x:{a}}":            "a } without a {",
		"}{":                "a } without a {",
		"x:{":               "not followed",
		"x:{a":              "not followed",
		"x:{}":              "not followed",
		"x:{a{b}}":          "not followed",
		"x:{{a}}":           "not followed",
		"file:path":         "neither absolute nor an argument",
		"file:./{path}":     "neither absolute nor an argument",
		"tree:~/{path}":     "neither absolute nor an argument",
		"file:file:{path}":  "neither absolute nor an argument",
		"tree:file:{path}":  "neither absolute nor an argument",
		"tree:session:{id}": "neither absolute nor an argument",
	} {
		if got, err := ParseTemplate(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is %q, %v; want an error with %q", text, render(got), err, want)
		}
	}
}

// TestToolResources reads templates where the configuration has them.
func TestToolResources(t *testing.T) {
	for _, tt := range []struct {
		resource, want string
		mistake        bool
	}{
		{`"file:{path}"`, "file:{path}", false},
		{`["tree:{from}", "tree:{to}"]`, "tree:{from} tree:{to}", false},
		{`[]`, "", false},
		{`7`, "", true},
		{`{}`, "", true},
		{`["file:{path}", 7]`, "", true},
		{`["file:{path}", ""]`, "", true},
		{`"file:path"`, "", true},
	} {
		s, problems := readEntry(t, "n", `{"command": "x", "tools": {"t": {"resource": `+tt.resource+`}}}`)
		var texts []string
		for _, template := range s.Tools["t"].Resources {
			texts = append(texts, template.Text)
		}
		got := codes(problems)
		if tt.mistake != strings.Contains(got, "config_type") || !tt.mistake && strings.Join(texts, " ") != tt.want {
			t.Errorf("%s is %q with problems %q", tt.resource, texts, got)
		}
	}
}
