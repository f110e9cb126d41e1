package integration

import (
	"bytes"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestPackageComments has every package say what it is for, once, in doc.go.
func TestPackageComments(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.PackageClauseOnly|parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			if file.Doc.Text() != "" && name != "doc.go" {
				t.Errorf("%s: the package comment is in %s, and belongs into doc.go", p.ImportPath, name)
			}
			if name != "doc.go" {
				continue
			}
			opening := regexp.MustCompile("^Package " + file.Name.Name + " ")
			if file.Name.Name == "main" {
				opening = regexp.MustCompile("(?i)^(command )?" + filepath.Base(p.ImportPath) + " ")
			}
			if !opening.MatchString(file.Doc.Text()) {
				t.Errorf("%s: doc.go does not begin with the name of what it describes", p.ImportPath)
			}
		}
		if len(p.GoFiles) > 0 && !slices.Contains(p.GoFiles, "doc.go") {
			t.Errorf("%s has no doc.go", p.ImportPath)
		}
	}
}

// repositoryFiles lists the files under version control, and those about to be.
func repositoryFiles(t *testing.T) []string {
	t.Helper()
	cmd := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", "-z")
	cmd.Dir = ".."
	out, err := cmd.Output()
	if err != nil {
		t.Skipf("this is no work tree of git: %v", err)
	}
	var files []string
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		if info, err := os.Lstat(filepath.Join("..", name)); err == nil && info.Mode().IsRegular() {
			files = append(files, name)
		}
	}
	return files
}

// TestFileSizes keeps files to what can be read at once.
func TestFileSizes(t *testing.T) {
	t.Parallel()
	for _, name := range repositoryFiles(t) {
		limit := 500
		switch {
		case strings.HasSuffix(name, "_test.go"):
			limit = 800
		case !strings.HasSuffix(name, ".go"):
			continue
		}
		text, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		if lines := bytes.Count(text, []byte("\n")); lines > limit {
			t.Errorf("%s has %d lines, more than %d", name, lines, limit)
		}
	}
}

// TestNoMachinePaths keeps the paths of the machine that a file was written on
// out of it: those below the home directory, and where work trees usually are.
func TestNoMachinePaths(t *testing.T) {
	t.Parallel()
	places := []string{"/root", "/work", "/workspace"}
	if home, err := os.UserHomeDir(); err == nil && home != "/" {
		places = append(places, home)
	}
	var quoted []string
	for _, place := range places {
		quoted = append(quoted, regexp.QuoteMeta(place))
	}
	// A path that begins here, not one that goes on, as in a URL.
	paths := regexp.MustCompile(`(?:^|[^A-Za-z0-9_.$}/-])(?:` + strings.Join(quoted, "|") + `)/[A-Za-z0-9_.]`)
	for _, name := range repositoryFiles(t) {
		text, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(places, func(place string) bool { return bytes.Contains(text, []byte(place+"/")) }) {
			continue // most files, without the price of the expression
		}
		n := 0
		for line := range bytes.Lines(text) {
			n++
			if found := paths.Find(line); found != nil {
				t.Errorf("%s:%d has the path %s", name, n, found)
			}
		}
	}
}
