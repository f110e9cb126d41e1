package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

var update = flag.Bool("update", false, "write testdata/help anew")

// TestHelp compares the help of every command with testdata/help, so that a
// change of the command line shows in review.
func TestHelp(t *testing.T) {
	var want []string
	for _, path := range commandPaths(newRoot(streams{}), nil) {
		name := strings.Join(append([]string{"interlock"}, path...), "_") + ".txt"
		want = append(want, name)
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			root := newRoot(streams{})
			root.SetOut(&out)
			root.SetArgs(append(path, "--help"))
			if err := root.Execute(); err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", "help", name)
			if *update {
				if err := os.WriteFile(golden, out.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			expected, err := os.ReadFile(golden)
			if err != nil {
				t.Fatalf("%v\nwrite it with: make generate", err)
			}
			if !bytes.Equal(out.Bytes(), expected) {
				t.Errorf("%s differs; look at it, and write it with: make generate\n%s", golden, out.String())
			}
			for line := range strings.Lines(out.String()) {
				if len(line) > 101 { // with its newline
					t.Errorf("a line is longer than 100 bytes: %s", line)
				}
			}
		})
	}
	files, err := os.ReadDir(filepath.Join("testdata", "help"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !slices.Contains(want, f.Name()) {
			t.Errorf("testdata/help/%s is the help of no command; delete it", f.Name())
		}
	}
}

// commandPaths returns the words that lead to each command, the root first.
func commandPaths(c *cobra.Command, path []string) [][]string {
	paths := [][]string{path}
	for _, sub := range c.Commands() {
		if !sub.Hidden && sub.Name() != "help" && sub.Name() != "completion" {
			paths = append(paths, commandPaths(sub, append(slices.Clone(path), sub.Name()))...)
		}
	}
	return paths
}

// TestCommandsHaveHelp has every command say what it does and which arguments it
// takes, and finds it in the documentation.
func TestCommandsHaveHelp(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "cli.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range commandPaths(newRoot(streams{}), nil) {
		c, _, err := newRoot(streams{}).Find(path)
		if err != nil {
			t.Fatal(err)
		}
		if c.Short == "" || strings.HasSuffix(c.Short, ".") {
			t.Errorf("%s: its summary is %q", c.CommandPath(), c.Short)
		}
		if c.Args == nil {
			t.Errorf("%s does not say which arguments it takes", c.CommandPath())
		}
		if len(path) > 0 && !strings.Contains(string(doc), "\n## `"+c.CommandPath()+"`\n") {
			t.Errorf("docs/cli.md has no section about %s", c.CommandPath())
		}
	}
}
