package logfile

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"interlock/mcpd/internal/endpoint/private"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t testing.TB, path string, opt Options) *Writer {
	t.Helper()
	w, err := Open(path, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func write(t testing.TB, w *Writer, s string) {
	t.Helper()
	if n, err := w.Write([]byte(s)); n != len(s) || err != nil {
		t.Fatalf("Write gave %d, %v", n, err)
	}
}

func content(t testing.TB, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "daemon.log")
	w := open(t, path, Options{MaxBytes: 10, Keep: 3})
	for i := range 9 {
		write(t, w, fmt.Sprintf("line%d\n", i)) // 6 bytes: one line a file
	}
	for name, want := range map[string]string{path: "line8\n", path + ".1": "line7\n", path + ".2": "line6\n"} {
		if got := content(t, name); got != want {
			t.Errorf("%s holds %q, want %q", filepath.Base(name), got, want)
		}
		if info, err := os.Stat(name); err != nil || info.Mode() != 0o600 {
			t.Errorf("%s has mode %v, %v", filepath.Base(name), info.Mode(), err)
		}
	}
	if files, _ := filepath.Glob(path + "*"); len(files) != 3 {
		t.Errorf("%d files are kept: %q", len(files), files)
	}
	write(t, w, strings.Repeat("x", 11))
	if got := w.Dropped(); got != 11 {
		t.Errorf("%d bytes were dropped of one write above the bound", got)
	}
}

func TestRotationKeepsOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "daemon.log")
	w := open(t, path, Options{MaxBytes: 10, Keep: 1})
	write(t, w, "line0\n")
	write(t, w, "line1\n")
	if files, _ := filepath.Glob(path + "*"); len(files) != 1 || content(t, path) != "line1\n" {
		t.Errorf("%q hold %q", files, content(t, path))
	}
}

// A new daemon goes on where the last one stopped.
func TestReopen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "daemon.log")
	first := open(t, path, Options{MaxBytes: 10})
	write(t, first, "one\n")
	first.Close()
	write(t, first, "late\n")
	if got := first.Dropped(); got != 5 {
		t.Errorf("%d bytes dropped after Close", got)
	}
	second := open(t, path, Options{MaxBytes: 10})
	write(t, second, "two\n")
	write(t, second, "three\n")
	if old, now := content(t, path+".1"), content(t, path); old != "one\ntwo\n" || now != "three\n" {
		t.Errorf("the files hold %q and %q", old, now)
	}
}

// Lines of many writers come whole, each writer's in order, none lost.
func TestConcurrentWrites(t *testing.T) {
	const writers, lines = 8, 500
	path := filepath.Join(t.TempDir(), "daemon.log")
	w := open(t, path, Options{MaxBytes: 4096, Keep: 100})
	var all sync.WaitGroup
	for id := range writers {
		all.Go(func() {
			for i := range lines {
				_, _ = fmt.Fprintf(w, "%d %d %s\n", id, i, strings.Repeat("x", i%50))
			}
		})
	}
	all.Wait()
	files, err := filepath.Glob(path + ".*")
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	for i := len(files); i >= 0; i-- {
		part := content(t, numbered(path, i))
		if len(part) > 4096 {
			t.Errorf("a file has %d bytes", len(part))
		}
		log.WriteString(part)
	}
	next := make([]int, writers)
	for line := range strings.Lines(log.String()) {
		var id, i int
		if _, err := fmt.Sscanf(line, "%d %d", &id, &i); err != nil || next[id] != i {
			t.Fatalf("the line %q is not writer %d's number %d (%v)", line, id, next[id], err)
		}
		next[id]++
	}
	for id, n := range next {
		if n != lines {
			t.Errorf("writer %d has %d lines", id, n)
		}
	}
}

func TestOpenHostile(t *testing.T) {
	for name, plant := range map[string]func(path, victim string) error{
		"symbolic link": func(path, victim string) error { return os.Symlink(victim, path) },
		"hard link":     func(path, victim string) error { return os.Link(victim, path) },
		"fifo":          func(path, _ string) error { return unix.Mkfifo(path, 0o600) },
		"directory":     func(path, _ string) error { return os.Mkdir(path, 0o700) },
		"open to all":   func(path, _ string) error { return errors.Join(os.WriteFile(path, nil, 0o600), os.Chmod(path, 0o666)) },
	} {
		t.Run(name, func(t *testing.T) {
			victim := filepath.Join(t.TempDir(), "victim")
			path := filepath.Join(t.TempDir(), "daemon.log")
			if err := errors.Join(os.WriteFile(victim, []byte("precious"), 0o600), plant(path, victim)); err != nil {
				t.Fatal(err)
			}
			if _, err := Open(path, Options{}); !isUnsafe(err) {
				t.Errorf("Open gave %v", err)
			}
			if err := Follow(t.Context(), path, 100, nil); !isUnsafe(err) {
				t.Errorf("Follow gave %v", err)
			}
			if got := content(t, victim); got != "precious" {
				t.Errorf("the victim holds %q", got)
			}
		})
	}
}

func isUnsafe(err error) bool {
	_, ok := errors.AsType[*private.UnsafeError](err)
	return ok
}
