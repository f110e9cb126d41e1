package builtin_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"interlock/mcpd/internal/builtin"
)

func TestUnusableDirectory(t *testing.T) {
	dir := t.TempDir()
	file := put(t, "x", dir, "file")
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o644); err != nil {
		t.Fatal(err)
	}
	for path, saying := range map[string]string{
		"":                            "this session has no working directory",
		"relative":                    "not an absolute path",
		filepath.Join(dir, "missing"): "no such file or directory",
		file:                          "not a directory",
		fifo:                          "not a directory",
	} {
		c := openLocal(t, path)
		wantRefusal(t, call(t, c, "list_directory"), saying)
		wantRefusal(t, call(t, c, "write_file", "path", "x", "content", "x"), saying)
	}
}

func TestNoWriteInHome(t *testing.T) {
	home := filepath.Join(t.TempDir(), "users", "ada")
	project := filepath.Join(home, "project")
	beside := filepath.Join(filepath.Dir(home), "bob")
	for _, dir := range []string{project, beside} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(home, link); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		options builtin.LocalOptions
		dir     string
		refused bool
	}{
		{builtin.LocalOptions{Home: home}, home, true},
		{builtin.LocalOptions{Home: home}, home + "/project/..", true},
		{builtin.LocalOptions{Home: home}, link, true},
		{builtin.LocalOptions{Home: link}, home, true},
		{builtin.LocalOptions{Home: home}, filepath.Dir(home), true},
		{builtin.LocalOptions{Home: home}, project, false},
		{builtin.LocalOptions{Home: home}, beside, false},
		{builtin.LocalOptions{Home: home, AllowAnywhere: true}, home, false},
		{builtin.LocalOptions{}, home, false},
	}
	for _, tt := range tests {
		c := open(t, newLocal(t, tt.options), "session-1", tt.dir, nil)
		r := call(t, c, "write_file", "path", "x", "content", "x")
		if r.Result.IsError != tt.refused {
			t.Errorf("home %q, directory %q, anywhere %v: %s", tt.options.Home, tt.dir, tt.options.AllowAnywhere, r.text())
		}
		if tt.refused {
			wantRefusal(t, r, "start the client in a project directory")
			wantOK(t, call(t, c, "list_directory"))
		}
	}

	root := open(t, newLocal(t, builtin.LocalOptions{}), "session-1", "/", nil)
	wantRefusal(t, call(t, root, "write_file", "path", "no-such-directory/x", "content", "x"), "nothing is written")
	if _, err := builtin.NewLocal(builtin.LocalOptions{Home: "relative"}); err == nil {
		t.Error("a relative home directory was accepted")
	}
}

func TestMovedDirectory(t *testing.T) {
	base := t.TempDir()
	dir, elsewhere := filepath.Join(base, "project"), filepath.Join(base, "elsewhere")
	put(t, "mine", dir, "file")
	c := openLocal(t, dir)
	if err := os.Rename(dir, elsewhere); err != nil {
		t.Fatal(err)
	}
	put(t, "another's", dir, "file")

	note := "no longer at " + dir
	r := call(t, c, "read_file", "path", "file")
	if !strings.HasPrefix(r.text(), "mine\n") || !strings.Contains(r.text(), note) {
		t.Errorf("read %q, want the moved file and a note", r.text())
	}
	wantOK(t, call(t, c, "write_file", "path", "file", "content", "changed"))
	wantFile(t, "changed", elsewhere, "file")
	wantRefusal(t, call(t, c, "write_file", "path", filepath.Join(dir, "file"), "content", "changed"), note)
	wantFile(t, "another's", dir, "file")

	if err := os.RemoveAll(elsewhere); err != nil {
		t.Fatal(err)
	}
	wantRefusal(t, call(t, c, "write_file", "path", "file", "content", "x"), note)
}

func TestReadersSeeWholeContent(t *testing.T) {
	dir := t.TempDir()
	contents := []string{strings.Repeat("a", 20_000), strings.Repeat("b", 10_000)}
	put(t, contents[0], dir, "file")
	c := openLocal(t, dir)
	written := make(chan struct{})
	go func() {
		defer close(written)
		for i := range 40 {
			if r := call(t, c, "write_file", "path", "file", "content", contents[i%2]); r.Result.IsError {
				t.Errorf("writing: %s", r.text())
			}
		}
	}()
	for reading := true; reading; {
		select {
		case <-written:
			reading = false
		default:
		}
		got, err := os.ReadFile(filepath.Join(dir, "file"))
		if err != nil || string(got) != contents[0] && string(got) != contents[1] {
			t.Fatalf("read %d bytes (%v), neither the one content nor the other", len(got), err)
		}
	}
}
