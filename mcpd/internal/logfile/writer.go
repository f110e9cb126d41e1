package logfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"interlock/mcpd/internal/endpoint/private"
)

// Options bound a log. Zero fields take the defaults.
type Options struct {
	MaxBytes int64 // of one file; default 4 MiB
	Keep     int   // files in all, the current one included; default 5
}

const (
	defaultMaxBytes = 4 << 20
	defaultKeep     = 5
)

// A Writer appends to a rotating log. It is safe for concurrent use, and each
// write ends up whole in one file, in the order of the calls.
type Writer struct {
	path string
	opt  Options

	// mu is held over the writes to the file: their order is what it guards.
	mu      sync.Mutex
	file    *os.File // nil while the log cannot be opened, and after Close
	size    int64
	torn    bool // the file ends in the middle of a write
	closed  bool
	dropped uint64
}

// Open opens the log at path for appending and creates it with mode 0600 if it
// does not exist. What is not a regular file of ours alone is refused with a
// [*private.UnsafeError] and left as it is.
func Open(path string, opt Options) (*Writer, error) {
	if opt.MaxBytes <= 0 {
		opt.MaxBytes = defaultMaxBytes
	}
	if opt.Keep <= 0 {
		opt.Keep = defaultKeep
	}
	w := &Writer{path: path, opt: opt}
	if err := w.open(); err != nil {
		return nil, fmt.Errorf("opening the log: %w", err)
	}
	return w, nil
}

func (w *Writer) open() error {
	f, err := private.Open(w.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return err
	}
	w.file, w.size, w.torn = f, info.Size(), false
	return nil
}

// Write appends p and always reports success: a log that cannot be written, on
// a full disk for example, costs its own lines and nothing else. [Writer.Dropped]
// tells.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.append(p) {
		w.dropped += uint64(len(p))
	}
	return len(p), nil
}

func (w *Writer) append(p []byte) bool {
	if w.closed || int64(len(p)) > w.opt.MaxBytes {
		return false
	}
	if w.size > 0 && w.size+int64(len(p)) > w.opt.MaxBytes && w.rotate() != nil {
		return false
	}
	if w.file == nil && w.open() != nil {
		return false
	}
	if w.torn {
		n, err := w.file.Write([]byte{'\n'})
		w.size += int64(n)
		if err != nil {
			return false
		}
		w.torn = false
	}
	n, err := w.file.Write(p)
	w.size += int64(n)
	w.torn = err != nil && n > 0
	return err == nil
}

// rotate moves every file one place on and leaves the current one missing, for
// append to create. If it fails the log keeps its bound by not growing.
func (w *Writer) rotate() error {
	for i := w.opt.Keep - 1; i > 0; i-- {
		older, newer := numbered(w.path, i), numbered(w.path, i-1)
		if err := os.Rename(newer, older); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if w.opt.Keep == 1 {
		if err := os.Remove(w.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if w.file != nil {
		w.file.Close() // everything was written; nothing is left that could fail
	}
	w.file, w.size, w.torn = nil, 0, false
	return nil
}

func numbered(path string, i int) string {
	if i == 0 {
		return path
	}
	return fmt.Sprintf("%s.%d", path, i)
}

// Dropped is how many bytes could not be written, since Open.
func (w *Writer) Dropped() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dropped
}

// Sync does nothing: a log is worth no wait for the disk. It makes a Writer
// what zap wants.
func (w *Writer) Sync() error { return nil }

// Close closes the log. What is written afterwards is dropped.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	w.closed = true
	if w.file == nil {
		return nil
	}
	f := w.file
	w.file = nil
	if err := f.Close(); err != nil {
		return fmt.Errorf("closing the log %q: %w", w.path, err)
	}
	return nil
}
