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

	mu      sync.Mutex // guards what follows
	pending []byte
	tail    []byte // up to twice stderrTail, so that trimming is rare
	total   int64
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
	d.mu.Lock()
	d.tail = append(d.tail, p...)
	if len(d.tail) > 2*stderrTail {
		d.tail = append(d.tail[:0], d.tail[len(d.tail)-stderrTail:]...)
	}
	kept := min(len(p), stderrPending-len(d.pending))
	d.pending = append(d.pending, p[:kept]...)
	d.total += int64(len(p))
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

// counts returns how many bytes were read and how many of them were dropped.
func (d *drain) counts() (total, dropped int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.total, d.dropped
}

// last returns the last whole lines, valid UTF-8 and at most stderrTail bytes; of a single longer line, its end.
func (d *drain) last() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	tail := d.tail
	if len(tail) > stderrTail {
		tail = tail[len(tail)-stderrTail:]
	}
	if d.total > int64(len(tail)) {
		if i := bytes.IndexByte(tail, '\n'); i >= 0 && i < len(tail)-1 {
			tail = tail[i+1:]
		}
	}
	return strings.TrimSpace(strings.ToValidUTF8(string(tail), "?"))
}
