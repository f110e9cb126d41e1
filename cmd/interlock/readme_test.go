package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// root is the directory of the repository.
var root = filepath.Join("..", "..")

func readme(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// fenced returns the blocks of a language in a document.
func fenced(text, language string) []string {
	var blocks []string
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(text, -1) {
		blocks = append(blocks, m[1])
	}
	return blocks
}

// TestReadmeSession runs what the session in the README shows. It must show the
// same, but for numbers of processes, times, and the name of the directory.
func TestReadmeSession(t *testing.T) {
	blocks := fenced(readme(t), "console")
	if len(blocks) != 1 {
		t.Fatalf("the README has %d sessions", len(blocks))
	}
	command, shown, _ := strings.Cut(blocks[0], "\n")
	if command != "$ interlock demo" {
		t.Fatalf("the session begins with %q", command)
	}
	cmd := exec.Command("interlock", "demo")
	cmd.Env = append(cmd.Environ(), "TMPDIR=/tmp")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got, want := strings.Split(blur(string(out)), "\n"), strings.Split(blur(shown), "\n")
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Fatalf("line %d of the session differs:\nREADME: %q\nnow:    %q", i+1, slices.Concat(want, []string{""})[min(i, len(want))], slices.Concat(got, []string{""})[min(i, len(got))])
		}
	}
}

// blur replaces what differs from run to run.
func blur(text string) string {
	text = regexp.MustCompile(`pid [0-9]+`).ReplaceAllString(text, "pid N")
	text = regexp.MustCompile(`interlock-demo-[0-9]+`).ReplaceAllString(text, "interlock-demo-N")
	text = regexp.MustCompile(`The number is [0-9]+, and should be 60: [0-9]+ of`).ReplaceAllString(text, "The number is N, and should be 60: N of")
	text = regexp.MustCompile(` in [0-9.]+m?s\n`).ReplaceAllString(text, " in TIME\n")
	return regexp.MustCompile(` +[0-9]+s\n`).ReplaceAllString(text, " AGE\n") // the last column
}

// TestReadmeConfiguration has the command of the configuration after the change
// be one of this program, and both be JSON for the same server.
func TestReadmeConfiguration(t *testing.T) {
	blocks := fenced(readme(t), "json")
	if len(blocks) != 2 {
		t.Fatalf("the README has %d configurations, not one before and one after", len(blocks))
	}
	var servers []string
	var after []string
	for _, block := range blocks {
		var config struct {
			Servers map[string]struct {
				Command string
				Args    []string
			} `json:"mcpServers"`
		}
		if err := json.Unmarshal([]byte(block), &config); err != nil {
			t.Fatalf("%v in\n%s", err, block)
		}
		for name, server := range config.Servers {
			servers, after = append(servers, name), append([]string{server.Command}, server.Args...)
		}
	}
	if want := []string{"interlock", "connect", servers[0]}; len(servers) != 2 || servers[1] != servers[0] || !slices.Equal(after, want) {
		t.Errorf("the configuration afterwards runs %q, for servers %q", after, servers)
	}
	if c, rest, err := newRoot(streams{}).Find(after[1:]); err != nil || c.Name() != "connect" || c.Args(c, rest) != nil {
		t.Errorf("%q is no command: %v", after, err)
	}
}

// TestReadmeCommands has the two commands that the README begins with exist.
func TestReadmeCommands(t *testing.T) {
	text := readme(t)
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text, "\n    go run ./cmd/interlock demo\n    make test\n") {
		t.Error("the README does not show how to try it")
	}
	for _, target := range regexp.MustCompile("(?m)(?:`|^    )make ([a-z]+)").FindAllStringSubmatch(text, -1) {
		if !strings.Contains(string(makefile), "\n"+target[1]+":") {
			t.Errorf("there is no target %s", target[1])
		}
	}
}

// TestLinks follows every link between the documents: the file must be there,
// and in it the heading.
func TestLinks(t *testing.T) {
	var documents []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/decisions/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		documents = append(documents, found...)
	}
	link := regexp.MustCompile(`\]\(([^)#:]*)(?:#([^)]*))?\)`)
	for _, document := range documents {
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			target := document
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(document), m[1])
			}
			content, err := os.ReadFile(target)
			if info, statErr := os.Stat(target); statErr == nil && info.IsDir() {
				continue
			} else if err != nil {
				t.Errorf("%s: %v", document, err)
				continue
			}
			if m[2] != "" && !slices.Contains(anchors(string(content)), m[2]) {
				t.Errorf("%s: %s has no heading %q", document, target, m[2])
			}
		}
	}
}

// anchors returns the names by which a document's headings are linked to.
func anchors(text string) []string {
	var names []string
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		name := regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		names = append(names, strings.ReplaceAll(name, " ", "-"))
	}
	return names
}
