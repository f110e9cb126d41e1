package logfile

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"time"
)

// LineOptions bound what a [LineWriter] lets through. Zero fields take the
// defaults.
type LineOptions struct {
	MaxLine int              // bytes of one line, its end is dropped; default 8 KiB
	Rate    int              // bytes per second in the long run; default 64 KiB
	Burst   int              // bytes at once after a quiet time; default 256 KiB
	Now     func() time.Time // default time.Now
}

// A LineWriter takes the standard error of a server, as it comes, and writes
// it line by line behind the time. Lines beyond the rate are dropped whole. A
// line that says how many bytes were dropped stands in their place. It never
// waits and never fails, so that a server is never stopped by its own noise,
// and holds at most one line of memory. It is safe for concurrent use.
type LineWriter struct {
	out io.Writer
	opt LineOptions

	// mu guards what follows and keeps the lines whole and in order in out.
	mu       sync.Mutex
	line     []byte // begun, at most MaxLine bytes
	tokens   float64
	filled   time.Time // when tokens was last brought up to date
	pending  uint64    // dropped since the last line that said so
	dropped  uint64
	overlong uint64 // bytes beyond MaxLine of the line that is begun
}

// NewLineWriter writes to out, which should not block, as a [Writer] does not.
func NewLineWriter(out io.Writer, opt LineOptions) *LineWriter {
	if opt.MaxLine <= 0 {
		opt.MaxLine = 8 << 10
	}
	if opt.Rate <= 0 {
		opt.Rate = 64 << 10
	}
	if opt.Burst <= 0 {
		opt.Burst = 256 << 10
	}
	opt.Burst = max(opt.Burst, opt.MaxLine+1) // else the longest line never passes
	if opt.Now == nil {
		opt.Now = time.Now
	}
	return &LineWriter{out: out, opt: opt, tokens: float64(opt.Burst), filled: opt.Now()}
}

// Write takes p and always reports success.
func (w *LineWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for rest := p; len(rest) > 0; {
		part, after, ends := bytes.Cut(rest, []byte{'\n'})
		room := min(len(part), w.opt.MaxLine-len(w.line))
		w.line = append(w.line, part[:room]...)
		w.overlong += uint64(len(part) - room)
		if !ends {
			break
		}
		w.endLine()
		rest = after
	}
	return len(p), nil
}

// endLine lets the begun line through, or drops it.
func (w *LineWriter) endLine() {
	now := w.opt.Now()
	w.refill(now)
	w.drop(w.overlong)
	w.overlong = 0
	line := bytes.TrimSuffix(w.line, []byte{'\r'})
	cost := float64(len(w.line) + 1)
	if cost > w.tokens {
		w.drop(uint64(len(w.line) + 1))
	} else {
		w.tokens -= cost
		w.report(now)
		w.emit(now, line)
	}
	w.line = w.line[:0]
}

func (w *LineWriter) refill(now time.Time) {
	if passed := now.Sub(w.filled); passed > 0 {
		w.tokens = min(w.tokens+passed.Seconds()*float64(w.opt.Rate), float64(w.opt.Burst))
	}
	w.filled = now
}

func (w *LineWriter) drop(n uint64) {
	w.pending += n
	w.dropped += n
}

// report writes, once, how much was dropped before the line that follows.
func (w *LineWriter) report(now time.Time) {
	if w.pending > 0 {
		w.emit(now, fmt.Appendf(nil, "dropped %d bytes: more than the log takes", w.pending))
		w.pending = 0
	}
}

func (w *LineWriter) emit(now time.Time, line []byte) {
	stamped := now.UTC().AppendFormat(make([]byte, 0, len(timeFormat)+len(line)+2), timeFormat)
	stamped = append(append(append(stamped, ' '), line...), '\n')
	_, _ = w.out.Write(stamped) // a log that fails must not stop the server
}

// timeFormat is RFC 3339 with milliseconds; times are UTC.
const timeFormat = "2006-01-02T15:04:05.000Z07:00"

// Dropped is how many bytes of the input were dropped so far, ends of lines
// included.
func (w *LineWriter) Dropped() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dropped
}

// Close writes what is left: a last line without its end, and how much was
// dropped. It does not close the writer below.
func (w *LineWriter) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.line) > 0 {
		w.endLine()
	}
	w.report(w.opt.Now())
	return nil
}
