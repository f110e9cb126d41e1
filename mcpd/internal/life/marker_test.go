package life

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"interlock/mcpd/internal/endpoint/private"
)

func TestStopMarker(t *testing.T) {
	dir := t.TempDir()
	at := time.Date(2026, 7, 28, 12, 30, 0, 0, time.UTC)
	check := func(wantAt time.Time, want bool) {
		t.Helper()
		if got, marked, err := StopMarked(dir); err != nil || marked != want || !got.Equal(wantAt) {
			t.Errorf("StopMarked gave %v, %v, %v; want %v, %v", got, marked, err, wantAt, want)
		}
	}
	check(time.Time{}, false)
	if err := ClearStopMarker(dir); err != nil {
		t.Errorf("clearing no marker: %v", err)
	}
	for range 2 {
		if err := SetStopMarker(dir, at.In(time.FixedZone("", 3600))); err != nil {
			t.Fatal(err)
		}
		check(at, true)
	}
	if err := os.Truncate(markerPath(dir), 0); err != nil { // as a full disk leaves it
		t.Fatal(err)
	}
	check(time.Time{}, true)
	if err := ClearStopMarker(dir); err != nil {
		t.Fatal(err)
	}
	check(time.Time{}, false)
}

func TestStopMarkerHostile(t *testing.T) {
	for name, plant := range map[string]func(path, victim string) error{
		"symbolic link": func(path, victim string) error { return os.Symlink(victim, path) },
		"hard link":     func(path, victim string) error { return os.Link(victim, path) },
		"fifo":          func(path, _ string) error { return unix.Mkfifo(path, 0o600) },
		"directory":     func(path, _ string) error { return os.Mkdir(path, 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			victim := filepath.Join(t.TempDir(), "victim")
			if err := os.WriteFile(victim, []byte("precious"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := plant(markerPath(dir), victim); err != nil {
				t.Fatal(err)
			}
			if err := SetStopMarker(dir, time.Now()); !isUnsafe(err) {
				t.Errorf("setting it gave %v", err)
			}
			if _, _, err := StopMarked(dir); !isUnsafe(err) {
				t.Errorf("reading it gave %v", err)
			}
			if content, err := os.ReadFile(victim); err != nil || string(content) != "precious" {
				t.Errorf("the victim is now %q, %v", content, err)
			}
		})
	}
}

func isUnsafe(err error) bool {
	_, ok := errors.AsType[*private.UnsafeError](err)
	return ok
}
