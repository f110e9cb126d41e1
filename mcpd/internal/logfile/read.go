package logfile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"interlock/mcpd/internal/endpoint/private"
)

// tailOf returns the end of a log: at most limit bytes of valid UTF-8, and whether
// something before it was left out. It then begins at the start of a line if it
// holds one. It leaves f at the end of what it returned.
func tailOf(f *os.File, limit int64) (content string, truncated bool, err error) {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return "", false, err
	}
	first := max(size-limit, 0)
	truncated = first > 0
	if _, err := f.Seek(first, io.SeekStart); err != nil {
		return "", false, err
	}
	raw, err := io.ReadAll(io.LimitReader(f, size-first))
	if err != nil {
		return "", false, err
	}
	content = valid(raw)
	if int64(len(content)) > limit { // the marks for invalid bytes take room themselves
		content = content[int64(len(content))-limit:]
		truncated = true
	}
	if truncated {
		content = fromLine(content)
	}
	return content, truncated, nil
}

func valid(raw []byte) string { return strings.ToValidUTF8(string(raw), "\uFFFD") }

// fromLine cuts the rest of a line, or at least of a character, off the front.
func fromLine(s string) string {
	if _, after, found := strings.Cut(s, "\n"); found && after != "" {
		return after
	}
	for s != "" && !utf8.RuneStart(s[0]) {
		s = s[1:]
	}
	return s
}

const (
	followInterval = 200 * time.Millisecond
	// followChunk bounds what Follow reads at once, and how long a line may
	// grow before its beginning is handed on.
	followChunk = 64 << 10
)

// Follow calls fn with the last limit bytes of the log at path, from the
// start of a line, and then
// with every further line as it is written, through rotations, until ctx ends
// or fn fails. Lines come whole, several at once, as valid UTF-8. A log that
// does not exist yet is awaited. A file that came and was rotated away within a
// fifth of a second is passed over. When ctx ends Follow returns nil.
func Follow(ctx context.Context, path string, limit int64, fn func(string) error) error {
	follower := follower{path: path, fn: fn}
	defer follower.close()
	if err := follower.begin(limit); err != nil {
		return fmt.Errorf("following the log: %w", err)
	}
	tick := time.NewTicker(followInterval)
	defer tick.Stop()
	for {
		if err := follower.advance(); err != nil {
			return fmt.Errorf("following the log: %w", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

type follower struct {
	path string
	fn   func(string) error
	file *os.File // nil while there is no log
	rest []byte   // of a line whose end was not written yet
}

func (f *follower) close() {
	if f.file != nil {
		f.file.Close()
		f.file = nil
	}
}

// open leaves file nil if there is no log.
func (f *follower) open() error {
	file, err := private.Open(f.path, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	f.file = file
	return err
}

func (f *follower) begin(limit int64) error {
	if err := f.open(); err != nil || f.file == nil {
		return err
	}
	content, _, err := tailOf(f.file, limit)
	if err != nil || content == "" {
		return err
	}
	return f.fn(content)
}

// advance hands on what was written since, and goes on to the next file when
// the log was rotated.
func (f *follower) advance() error {
	for {
		if f.file == nil {
			if err := f.open(); err != nil || f.file == nil {
				return err
			}
		}
		// Looked at before reading: what the old file got before the rotation
		// is read below, and nothing is written to it afterwards.
		rotated, err := f.rotated()
		if err != nil {
			return err
		}
		if err := f.drain(); err != nil {
			return err
		}
		if !rotated {
			return nil
		}
		f.close()
		if err := f.flush(); err != nil {
			return err
		}
	}
}

// rotated reports whether another file is at the path. A file that was cut
// short is read again from its start.
func (f *follower) rotated() (bool, error) {
	own, err := f.file.Stat()
	if err != nil {
		return false, err
	}
	position, err := f.file.Seek(0, io.SeekCurrent)
	if err != nil {
		return false, err
	}
	if own.Size() < position {
		if _, err := f.file.Seek(0, io.SeekStart); err != nil {
			return false, err
		}
	}
	current, err := os.Lstat(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // between two files; the next is not there yet
	}
	return err == nil && !os.SameFile(own, current), err
}

func (f *follower) drain() error {
	buf := make([]byte, followChunk)
	for {
		n, err := f.file.Read(buf)
		f.rest = append(f.rest, buf[:n]...)
		if err := f.handOn(); err != nil {
			return err
		}
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func (f *follower) handOn() error {
	whole := bytes.LastIndexByte(f.rest, '\n') + 1
	if whole == 0 && len(f.rest) >= followChunk {
		whole = len(f.rest)
	}
	if whole == 0 {
		return nil
	}
	lines := valid(f.rest[:whole])
	f.rest = append(f.rest[:0], f.rest[whole:]...)
	return f.fn(lines)
}

// flush hands on a last line that will not get its end any more.
func (f *follower) flush() error {
	if len(f.rest) == 0 {
		return nil
	}
	last := valid(f.rest) + "\n"
	f.rest = f.rest[:0]
	return f.fn(last)
}
