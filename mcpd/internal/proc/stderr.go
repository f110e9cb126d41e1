package proc

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
)

const (
	stderrChunk   = 8 << 10   // one read
	stderrPending = 256 << 10 // read but not yet taken by the writer
	stderrTail    = 4 << 10   // kept for messages
)

// drain moves what a server writes to stderr into a writer and keeps the last of it. Its reader never waits for its writer: what
// the writer does not take in time is dropped, counted, and marked in the output.
type drain struct {
	wake chan struct{} // capacity 1; the reader tells the writer that something changed
	tail tail

	mu      sync.Mutex // guards what follows
	pending []byte
	dropped int64
	lost    int64 // dropped since the writer last looked
	ended   bool
}

func newDrain() *drain { return &drain{wake: make(chan struct{}, 1)} }

// read takes everything from r until its end or an error, which a deadline on r may bring about.
func (d *drain) read(r io.Reader) {
	buf := make([]byte, stderrChunk)
	for {
		n, err := r.Read(buf)
		d.add(buf[:n], err != nil)
		if err != nil {
			return
		}
	}
}

func (d *drain) add(p []byte, ended bool) {
	_, _ = d.tail.Write(p) // never fails
	d.mu.Lock()
	kept := min(len(p), stderrPending-len(d.pending))
	d.pending = append(d.pending, p[:kept]...)
	d.dropped += int64(len(p) - kept)
	d.lost += int64(len(p) - kept)
	d.ended = d.ended || ended
	d.mu.Unlock()
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// write passes on to w what read has taken, until read has ended. What w refuses is dropped.
func (d *drain) write(w io.Writer) {
	var batch []byte
	for range d.wake {
		d.mu.Lock()
		batch, d.pending = d.pending, batch[:0]
		lost, ended := d.lost, d.ended
		d.lost = 0
		d.mu.Unlock()

		if len(batch) > 0 {
			n, err := w.Write(batch)
			if err != nil {
				d.drop(int64(len(batch) - min(max(n, 0), len(batch))))
			}
		}
		if lost > 0 {
			// A failure to say so is a failure of the same writer; the count has it already.
			_, _ = fmt.Fprintf(w, "\ninterlock: %d bytes of stderr were dropped here\n", lost)
		}
		if ended {
			return
		}
		if cap(batch) > stderrPending/4 {
			batch = nil // after a flood, do not keep two large buffers for a server that has gone quiet
		}
	}
}

func (d *drain) drop(n int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dropped += n
	d.lost += n
}

// lostBytes returns how many bytes were dropped so far.
func (d *drain) lostBytes() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.dropped
}

// tail is a writer that keeps the end of what is written to it.
type tail struct {
	mu    sync.Mutex // guards what follows
	kept  []byte     // up to twice stderrTail, so that trimming is rare
	total int64
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.total += int64(len(p))
	t.kept = append(t.kept, p...)
	if len(t.kept) > 2*stderrTail {
		t.kept = append(t.kept[:0], t.kept[len(t.kept)-stderrTail:]...)
	}
	return len(p), nil
}

// last returns the last whole lines, valid UTF-8 and at most stderrTail bytes; of a single longer line, its end.
func (t *tail) last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	kept := t.kept[max(0, len(t.kept)-stderrTail):]
	if t.total > int64(len(kept)) {
		if i := bytes.IndexByte(kept, '\n'); i >= 0 && i < len(kept)-1 {
			kept = kept[i+1:]
		}
	}
	return strings.TrimSpace(strings.ToValidUTF8(string(kept), "?"))
}
