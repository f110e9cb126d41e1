package life

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"interlock/mcpd/internal/endpoint/private"
)

func markerPath(dir string) string { return filepath.Join(dir, "daemon.stopped") }

// SetStopMarker notes in the daemon's directory that a user ended the daemon
// at the given time.
func SetStopMarker(dir string, at time.Time) error {
	f, err := private.Open(markerPath(dir), os.O_WRONLY|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return fmt.Errorf("setting the stop marker: %w", err)
	}
	_, err = fmt.Fprintln(f, at.UTC().Format(time.RFC3339))
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("setting the stop marker: %w", err)
	}
	return nil
}

// ClearStopMarker removes the marker; that there is none is no error.
func ClearStopMarker(dir string) error {
	if err := os.Remove(markerPath(dir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("clearing the stop marker: %w", err)
	}
	return nil
}

// StopMarked reports whether the marker is set, and the time it was set at,
// which is zero if the marker does not tell: a full disk leaves it empty.
func StopMarked(dir string) (at time.Time, marked bool, err error) {
	f, err := private.Open(markerPath(dir), os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return time.Time{}, false, nil
	} else if err != nil {
		return time.Time{}, false, fmt.Errorf("reading the stop marker: %w", err)
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, 64))
	if err != nil {
		return time.Time{}, false, fmt.Errorf("reading the stop marker: %w", err)
	}
	at, err = time.Parse(time.RFC3339, strings.TrimSpace(string(content)))
	if err != nil {
		return time.Time{}, true, nil // its presence is what counts
	}
	return at, true, nil
}
