package logfile

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A full disk costs the lines that do not fit, and those after it start anew.
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a small file system needs root")
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=16k"); err != nil {
		t.Skipf("no file system can be mounted here: %v", err)
	}
	defer syscall.Unmount(dir, syscall.MNT_DETACH)
	path := filepath.Join(dir, "daemon.log")
	w, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	filler := filepath.Join(dir, "filler")
	if err := os.WriteFile(filler, make([]byte, 8<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	line := strings.Repeat("x", 2999) + "\n"
	for range 4 {
		write(t, w, line)
	}
	if got := w.Dropped(); got != 2*3000 {
		t.Errorf("%d bytes are counted as dropped", got)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	write(t, w, "after\n")
	got := content(t, path)
	if !strings.HasPrefix(got, line+line) || !strings.HasSuffix(got, "x\nafter\n") {
		t.Errorf("the log ends with %q", got[max(0, len(got)-20):])
	}
}
