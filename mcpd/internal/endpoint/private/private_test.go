package private

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestOpen(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	path := filepath.Join(t.TempDir(), "file")
	if _, err := Open(path, os.O_RDWR); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("a missing file gave %v", err)
	}
	write := func(flag int, s, want string) {
		t.Helper()
		f, err := Open(path, flag)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := io.WriteString(f, s); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("the file holds %q, %v; want %q", got, err, want)
		}
	}
	write(os.O_WRONLY|os.O_CREATE, "one", "one")
	write(os.O_WRONLY|os.O_APPEND, "two", "onetwo")
	write(os.O_WRONLY|os.O_TRUNC, "three", "three")
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("under umask 000 it was made with mode %v, %v", info.Mode(), err)
	}
	if _, err := Open(path, os.O_RDWR|os.O_CREATE|os.O_EXCL); !errors.Is(err, fs.ErrExist) {
		t.Errorf("an existing file gave %v", err)
	}
}

// What is refused is not truncated.
func TestOpenTruncatesNothingOfOthers(t *testing.T) {
	dir := t.TempDir()
	path, name := filepath.Join(dir, "file"), filepath.Join(dir, "name")
	if err := errors.Join(os.WriteFile(path, []byte("precious"), 0o600), os.Link(path, name)); err != nil {
		t.Fatal(err)
	}
	_, err := Open(name, os.O_WRONLY|os.O_TRUNC)
	if refused, ok := errors.AsType[*UnsafeError](err); !ok || refused.Code != CodeHardLinked {
		t.Errorf("a hard link gave %v", err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "precious" {
		t.Errorf("the file holds %q, %v", got, err)
	}
}

// The command that an error prints does what it says.
func TestRemedyCanBePasted(t *testing.T) {
	dir := filepath.Join(t.TempDir(), `it's $HOME "q" é`)
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	refused, ok := errors.AsType[*UnsafeError](CheckDir(dir))
	if !ok {
		t.Fatal("a directory that others may read is not refused")
	}
	command, found := strings.CutPrefix(refused.Remedy, "run: ")
	if !found {
		t.Fatalf("no command: %q", refused.Remedy)
	}
	if out, err := exec.Command("sh", "-c", command).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := CheckDir(dir); err != nil {
		t.Errorf("after the command: %v", err)
	}
}

func TestQuote(t *testing.T) {
	for _, word := range []string{"", "plain", "/a/b-c_d.e", "a b", "it's", "$x`y`", "a\nb", "~", "é", "*", "'"} {
		out, err := exec.Command("sh", "-c", "printf %s "+Quote(word)).Output()
		if err != nil || string(out) != word {
			t.Errorf("the shell reads %q as %q, %v", word, out, err)
		}
	}
	if got := Quote("/plain/path-1"); got != "/plain/path-1" {
		t.Errorf("a plain path is quoted: %s", got)
	}
}

// Where missing parents are made they are private too, whatever the umask.
func TestMakeDir(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	base := t.TempDir()
	if err := os.Chmod(base, 0o700); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(base, "a", "b", "c")
	for range 2 {
		if err := MakeDir(dir); err != nil {
			t.Fatal(err)
		}
	}
	for path := dir; path != base; path = filepath.Dir(path) {
		if info, err := os.Stat(path); err != nil || info.Mode() != fs.ModeDir|0o700 {
			t.Errorf("%s was made with mode %v, %v", path, info.Mode(), err)
		}
	}
	if err := CheckDir(filepath.Join(base, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing directory gave %v", err)
	}
}
