package builtin_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// exchange swaps two names, without a moment when either is missing, over and over until body is done.
func exchange(t *testing.T, a, b string, body func()) {
	t.Helper()
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				return
			default:
			}
			if err := unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE); err != nil {
				t.Errorf("exchanging: %v", err)
				return
			}
		}
	}()
	body()
	close(done)
	<-ended
}

func TestDirectoryExchangedForALinkOut(t *testing.T) {
	base := t.TempDir()
	dir, outside := filepath.Join(base, "project"), filepath.Join(base, "outside")
	put(t, "inside", dir, "sub/file")
	put(t, "secret", outside, "file")
	if err := os.Symlink("../outside", filepath.Join(dir, "trap")); err != nil {
		t.Fatal(err)
	}
	c := openLocal(t, dir)
	wrote := 0
	exchange(t, filepath.Join(dir, "sub"), filepath.Join(dir, "trap"), func() {
		for range 300 {
			if !call(t, c, "write_file", "path", "sub/new", "content", "escaped").Result.IsError {
				wrote++
			}
			if r := call(t, c, "read_file", "path", "sub/file"); strings.Contains(r.text(), "secret") {
				t.Errorf("read the file outside")
			}
			if r := call(t, c, "list_directory", "path", "sub"); !r.Result.IsError && strings.Contains(r.text(), `"secret"`) {
				t.Errorf("listed the directory outside")
			}
		}
	})
	if wrote == 0 {
		t.Error("no write reached the directory inside, so nothing was shown")
	}
	entries, err := os.ReadDir(outside)
	if err != nil || len(entries) != 1 {
		t.Errorf("outside has %v (%v), want its one file", entries, err)
	}
	wantFile(t, "secret", outside, "file")
	err = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if strings.Contains(path, ".interlock-") {
			t.Errorf("a temporary file is left: %s", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestFileExchangedForAFifo would hang if a read, having seen a regular file, opened the fifo that came in its place and waited.
func TestFileExchangedForAFifo(t *testing.T) {
	dir := t.TempDir()
	put(t, "text", dir, "name")
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	c := openLocal(t, dir)
	read := 0
	exchange(t, filepath.Join(dir, "name"), filepath.Join(dir, "fifo"), func() {
		for range 300 {
			r := call(t, c, "read_file", "path", "name")
			if !r.Result.IsError && r.text() != "text" {
				t.Errorf("read %q", r.text())
			}
			if !r.Result.IsError {
				read++
			}
			call(t, c, "list_directory", "path", "name")
			call(t, c, "write_file", "path", "name/x", "content", "x")
		}
	})
	if read == 0 {
		t.Error("no read met the regular file, so nothing was shown")
	}
}
