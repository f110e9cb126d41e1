package builtin_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/sys/unix"

	"interlock/mcpd/internal/builtin"
)

func TestReadRanges(t *testing.T) {
	dir := t.TempDir()
	put(t, "añb€c😀d", dir, "text") // a:0 ñ:1 b:3 €:4 c:7 😀:8 d:12, 13 bytes
	c := openLocal(t, dir)
	tests := []struct {
		offset, limit int
		text, note    string
	}{
		{0, 13, "añb€c😀d", ""},
		{0, 8 << 20, "añb€c😀d", ""},
		{0, 4, "añb", "Bytes 0 to 4 of 13. Continue with offset 4."},
		{0, 5, "añb", "Bytes 0 to 4 of 13. Continue with offset 4."},
		{4, 5, "€c", "Bytes 4 to 8 of 13. Continue with offset 8."},
		{9, 4, "d", "Bytes 12 to 13 of 13."},
		{2, 4, "b", "Bytes 3 to 4 of 13. Continue with offset 4."},
		{13, 4, "", "Bytes 13 to 13 of 13."},
	}
	for _, tt := range tests {
		r := call(t, c, "read_file", "path", "text", "offset", tt.offset, "limit", tt.limit)
		want := tt.text
		if tt.note != "" {
			want += "\n" + tt.note
		}
		if r.text() != want || r.Result.IsError {
			t.Errorf("offset %d limit %d: %q, want %q", tt.offset, tt.limit, r.text(), want)
		}
	}
	wantRefusal(t, call(t, c, "read_file", "path", "text", "offset", 14), "offset 14 is past its end; it has 13 bytes")
}

func TestReadRefusesWhatIsNoText(t *testing.T) {
	dir := t.TempDir()
	put(t, "\x89PNG\r\n\x1a\nrest", dir, "picture")
	put(t, "a\x00b", dir, "nul")
	put(t, "caf\xe9", dir, "latin1")
	put(t, "", dir, "empty")
	c := openLocal(t, dir)
	wantRefusal(t, call(t, c, "read_file", "path", "picture"), "not UTF-8 text (12 bytes, type image/png)")
	wantRefusal(t, call(t, c, "read_file", "path", "nul"), "not UTF-8 text")
	wantRefusal(t, call(t, c, "read_file", "path", "latin1"), "not UTF-8 text")
	wantOK(t, call(t, c, "read_file", "path", "empty"))
}

// TestWriteModes has new files and directories get the permission bits that the client's umask leaves, whatever this process's own is.
func TestWriteModes(t *testing.T) {
	old := unix.Umask(0o077)
	t.Cleanup(func() { unix.Umask(old) })
	server := newLocal(t, builtin.LocalOptions{})
	for umask, want := range map[os.FileMode][2]os.FileMode{0o022: {0o755, 0o644}, 0o002: {0o775, 0o664}, 0o077: {0o700, 0o600}} {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, "kept"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, 0o700|os.ModeSetgid); err != nil {
			t.Fatal(err)
		}
		c, err := server.Open(dir, dir, umask, nil)
		if err != nil {
			t.Fatal(err)
		}
		wantOK(t, call(t, c, "write_file", "path", "new/./../new/er/file", "content", "x"))
		wantOK(t, call(t, c, "write_file", "path", "kept/file", "content", "x"))
		for name, mode := range map[string]os.FileMode{
			"new": want[0] | os.ModeSetgid, "new/er": want[0] | os.ModeSetgid, "new/er/file": want[1], "kept": 0o700, "kept/file": want[1],
		} {
			if info, err := os.Stat(filepath.Join(dir, name)); err != nil {
				t.Error(err)
			} else if got := info.Mode() &^ os.ModeDir; got != mode {
				t.Errorf("under umask %03o %s has mode %v, want %v", umask, name, got, mode)
			}
		}
		c.Close()
	}
}

func TestTransferLimit(t *testing.T) {
	const limit = 8 << 20
	dir := t.TempDir()
	put(t, strings.Repeat("x", limit), dir, "most")
	put(t, strings.Repeat("x", limit+1), dir, "more")
	c := openLocal(t, dir)
	if r := call(t, c, "read_file", "path", "most"); len(r.text()) != limit {
		t.Errorf("read %d bytes of a file of the largest size", len(r.text()))
	}
	wantRefusal(t, call(t, c, "read_file", "path", "more"), "it has 8388609 bytes; read it in parts")
	if r := call(t, c, "read_file", "path", "more", "offset", limit); r.text() != "x\nBytes 8388608 to 8388609 of 8388609." {
		t.Errorf("the last byte: %.100q", r.text())
	}
	wantRefusal(t, call(t, c, "write_file", "path", "new", "content", strings.Repeat("x", limit+1)), "8388609 bytes, more than the 8388608")
	if _, err := os.Lstat(filepath.Join(dir, "new")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the refused write left a file: %v", err)
	}
}

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	modes := map[string]os.FileMode{"private": 0o600, "shared": 0o666} // more and less than an ordinary umask leaves
	for name, mode := range modes {
		if err := os.Chmod(put(t, "old", dir, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	c := openLocal(t, dir)

	if r := call(t, c, "write_file", "path", "private", "content", "new"); r.text() != "Replaced private (3 bytes)." {
		t.Errorf("replacing: %q", r.text())
	}
	if r := call(t, c, "write_file", "path", "deep/er/file", "content", "ñ"); r.text() != "Created deep/er/file (2 bytes)." {
		t.Errorf("creating: %q", r.text())
	}
	if r := call(t, c, "write_file", "path", filepath.Join(dir, "absolute"), "content", "here"); r.Result.IsError {
		t.Errorf("an absolute path inside: %s", r.text())
	}
	wantOK(t, call(t, c, "write_file", "path", "shared", "content", "new"))
	wantFile(t, "new", dir, "private")
	wantFile(t, "ñ", dir, "deep/er/file")
	wantFile(t, "here", dir, "absolute")
	for name, mode := range modes {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		} else if info.Mode().Perm() != mode {
			t.Errorf("%s now has mode %v, want %v", name, info.Mode(), mode)
		}
	}
	if r := call(t, c, "list_directory"); strings.Contains(r.text(), ".interlock-") {
		t.Errorf("a temporary file is left: %s", r.text())
	}
}

func TestWriteRefusals(t *testing.T) {
	dir := t.TempDir()
	put(t, "kept", dir, "file")
	put(t, "kept", dir, "sub/file")
	put(t, "kept", dir, "linked")
	put(t, "kept", dir, "readonly")
	for _, err := range []error{
		os.Link(filepath.Join(dir, "linked"), filepath.Join(dir, "sub/other-name")),
		os.Symlink("file", filepath.Join(dir, "inside-link")),
		os.Symlink("nowhere", filepath.Join(dir, "dangling-link")),
		os.Chmod(filepath.Join(dir, "readonly"), 0o444),
		unix.Mkfifo(filepath.Join(dir, "fifo"), 0o644),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	c := openLocal(t, dir)
	for path, saying := range map[string]string{
		"linked":        "hard links",
		"inside-link":   "symlink",
		"dangling-link": "symlink",
		"readonly":      "read-only",
		"fifo":          "fifo",
		"fifo/x":        "not a directory",
		"file/x":        "not a directory",
		"sub":           "directory",
		"sub/":          "names a directory",
		".":             "names a directory",
		"sub/..":        "names a directory",
		"nul\x00":       "invalid argument",
	} {
		wantRefusal(t, call(t, c, "write_file", "path", path, "content", "changed"), saying)
	}
	for _, path := range []string{"file", "sub/file", "linked", "sub/other-name", "readonly"} {
		wantFile(t, "kept", dir, path)
	}
	if info, err := os.Lstat(filepath.Join(dir, "inside-link")); err != nil || info.Mode().Type() != os.ModeSymlink {
		t.Errorf("the link was replaced: %v %v", info, err)
	}
}

func TestNoWayOut(t *testing.T) {
	base := t.TempDir()
	dir, outside := filepath.Join(base, "project"), filepath.Join(base, "outside")
	put(t, "secret", outside, "file")
	put(t, "inside", dir, "real/file")
	for link, target := range map[string]string{
		"file-link":     "../outside/file",
		"absolute-link": filepath.Join(outside, "file"),
		"dir-link":      "../outside",
		"chain-1":       "chain-2",
		"chain-2":       "real/../dir-link",
		"proc":          "/proc/self/root",
		"loop":          "loop",
		"up":            "..",
	} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	c := openLocal(t, dir)
	for _, path := range []string{
		"../outside/file", "real/../../outside/file", filepath.Join(outside, "file"), "/etc/passwd", dir + "/../outside/file", dir + "-other/file",
		"file-link", "absolute-link", "dir-link/file", "chain-1/file", "proc/etc/passwd", "loop", "loop/x", "up/outside/file", "dir-link/new",
	} {
		for _, r := range []response{
			call(t, c, "read_file", "path", path),
			call(t, c, "write_file", "path", path, "content", "overwritten"),
			call(t, c, "list_directory", "path", filepath.Dir(path)+"/"+filepath.Base(path)),
		} {
			if !r.Result.IsError || strings.Contains(r.text(), "secret") {
				t.Errorf("%s: %s", path, r.text())
			}
		}
	}
	for _, path := range []string{"..", "dir-link", "chain-1", "up", "/", base} {
		if r := call(t, c, "list_directory", "path", path); !r.Result.IsError {
			t.Errorf("listed %s: %s", path, r.text())
		}
	}
	wantRefusal(t, call(t, c, "read_file", "path", "file-link"), "leads out of the session's directory "+dir)
	wantRefusal(t, call(t, c, "read_file", "path", "/etc/passwd"), "is outside the session's directory "+dir)
	wantFile(t, "secret", outside, "file")
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 1 {
		t.Errorf("outside has %v (%v), want its one file", entries, err)
	}
}

func TestLinksInsideAreReadThrough(t *testing.T) {
	dir := t.TempDir()
	put(t, "text", dir, "real/file")
	for link, target := range map[string]string{"link": "real/file", "dir": "real"} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	c := openLocal(t, dir)
	for _, path := range []string{"link", "dir/file", "real/../link"} {
		if r := call(t, c, "read_file", "path", path); r.text() != "text" {
			t.Errorf("%s: %q", path, r.text())
		}
	}
	wantOK(t, call(t, c, "list_directory", "path", "dir"))
	wantOK(t, call(t, c, "write_file", "path", "dir/new", "content", "x"))
	wantFile(t, "x", dir, "real/new")
}

// TestSpecialFiles would hang if a fifo were opened the ordinary way.
func TestSpecialFiles(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	device := filepath.Join(dir, "device")
	devices := unix.Mknod(device, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))) == nil
	c := openLocal(t, dir)
	wantRefusal(t, call(t, c, "read_file", "path", "fifo"), "it is a fifo, not a regular file")
	wantRefusal(t, call(t, c, "list_directory", "path", "fifo"), "not a directory")
	wantRefusal(t, call(t, c, "read_file", "path", "fifo/x"), "not a directory")
	wantRefusal(t, call(t, c, "read_file", "path", "sub"), "it is a directory, not a regular file")
	wantRefusal(t, call(t, c, "read_file", "path", "missing"), "does not exist in the session's directory; list_directory shows")
	if devices {
		wantRefusal(t, call(t, c, "read_file", "path", "device"), "it is a device, not a regular file")
		wantRefusal(t, call(t, c, "write_file", "path", "device", "content", "x"), "it is a device, not a regular file")
	}
}

func TestList(t *testing.T) {
	dir := t.TempDir()
	put(t, "12345", dir, "file")
	put(t, "", dir, "sub/empty")
	for _, err := range []error{
		os.Symlink("/etc/passwd", filepath.Join(dir, "link")),
		unix.Mkfifo(filepath.Join(dir, "fifo"), 0o644),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	server := newLocal(t, builtin.LocalOptions{})
	c := open(t, server, "session-1", dir, nil)
	want := `{"entries":[{"name":"fifo","type":"fifo"},{"name":"file","type":"file","size":5},{"name":"link","type":"symlink"},{"name":"sub","type":"directory"}],"truncated":false}`
	r := call(t, c, "list_directory")
	if string(r.Result.StructuredContent) != want || r.text() != want {
		t.Errorf("got %s\nand text %s\nwant %s", r.Result.StructuredContent, r.text(), want)
	}
	if err := outputSchema(t, c, "list_directory").Validate(value(t, r.Result.StructuredContent)); err != nil {
		t.Errorf("the listing does not fit the tool's own schema: %v", err)
	}
	if r := call(t, c, "list_directory", "path", "sub"); r.text() != `{"entries":[{"name":"empty","type":"file","size":0}],"truncated":false}` {
		t.Errorf("sub: %s", r.text())
	}
}

func outputSchema(t *testing.T, c *builtin.Session, tool string) *jsonschema.Schema {
	t.Helper()
	var r struct {
		Result struct {
			Tools []struct {
				Name         string          `json:"name"`
				OutputSchema json.RawMessage `json:"outputSchema"`
			} `json:"tools"`
		} `json:"result"`
	}
	if err := json.Unmarshal(c.Handle(t.Context(), []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)), &r); err != nil {
		t.Fatal(err)
	}
	for _, listed := range r.Result.Tools {
		if listed.Name != tool {
			continue
		}
		compiler := jsonschema.NewCompiler()
		if err := compiler.AddResource("tool.json", value(t, listed.OutputSchema)); err != nil {
			t.Fatal(err)
		}
		return compiler.MustCompile("tool.json")
	}
	t.Fatalf("no tool %s", tool)
	return nil
}

func value(t *testing.T, raw json.RawMessage) any {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return v
}
