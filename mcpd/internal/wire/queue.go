package wire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// Errors of a Queue.
var (
	// ErrQueueFull means that the peer does not read fast enough.
	ErrQueueFull = errors.New("too much is waiting to be written")
	// ErrQueueClosed means that the queue was closed, or that writing failed.
	ErrQueueClosed = errors.New("the queue is closed")
)

// A Sink is what a Queue writes to: a connection or one end of a pipe. One
// that is also a [syscall.Conn] is written through its descriptor.
type Sink interface {
	io.Writer
	SetWriteDeadline(time.Time) error
}

// QueueOptions are the limits of a Queue.
type QueueOptions struct {
	Bound int64         // bytes that may wait; one frame may exceed it when nothing else waits
	Stall time.Duration // without any progress of a write, the queue fails; 0: never
	// OnFail is called once when writing fails, on a goroutine of the queue or
	// of a sender, with no lock of the queue held. It may call Close.
	OnFail func(error)
}

// A Queue writes frames to a sink, in the order they were sent, without ever
// blocking who sends. What the kernel takes at once is written on the sender's
// goroutine; the rest waits, up to a bound, for a goroutine of the queue that
// lives while there is something to write. All methods are safe for concurrent
// use.
//
// At any time at most one goroutine writes: the one that set busy. It alone
// uses the writer w and the pieces of its batch, without holding mu.
type Queue struct {
	opt QueueOptions

	mu      sync.Mutex
	w       *writer // nil until Attach
	busy    bool    // somebody writes, or is about to
	wait    []piece // what is to be written, oldest first; empty unless busy or w is nil; while busy only its owner removes
	queued  int64   // bytes of all frames that the kernel has not taken
	sent    uint64  // the last sequence number given
	begun   uint64  // see Begun
	err     error   // why it is closed
	changed chan struct{}
}

// piece is a frame, or part of one, that waits to be written.
type piece struct {
	data []byte
	seq  uint64 // of the frame
	done *Frame // to release once data is written; nil if data is nobody else's
}

// NewQueue returns a queue that holds frames until a sink is attached.
func NewQueue(opt QueueOptions) *Queue { return &Queue{opt: opt} }

// Attach gives the queue its sink, and begins to write. It is called once. The
// sink stays the caller's to close, after Close or a failure of the queue.
func (q *Queue) Attach(dst Sink) {
	w := newWriter(dst)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.w = w
	if len(q.wait) > 0 && q.err == nil {
		q.busy = true
		go q.drain()
	}
}

// Send queues or writes f with edits made, as [Splice] makes them, and a
// newline. It never blocks. The caller keeps f, and may release it at once;
// the edits are not used any more either. The sequence numbers of frames rise
// by one with each frame that Send or SendBytes accepts.
//
// The error is [ErrQueueFull], and seq 0, if the frame was not accepted. It is
// ErrQueueClosed after Close or a failure; if it was this frame's own write
// that failed, seq is not 0 and Begun tells whether part of it was written.
func (q *Queue) Send(f *Frame, edits []Edit) (seq uint64, err error) {
	return q.send(message{frame: f, data: f.data, edits: edits})
}

// SendBytes is Send for a message in b, which the caller keeps.
func (q *Queue) SendBytes(b []byte) (seq uint64, err error) {
	if len(b) <= chunkSize {
		return q.send(message{data: b})
	}
	f := NewFrame(bytes.Clone(b))
	defer f.Release()
	return q.Send(f, nil)
}

func (q *Queue) send(m message) (uint64, error) {
	sortEdits(m.edits)
	size := m.len()
	q.mu.Lock()
	if err := q.admit(int64(size)); err != nil {
		q.mu.Unlock()
		return 0, err
	}
	q.sent++
	seq := q.sent
	q.queued += int64(size)
	if q.busy || q.w == nil || !q.w.direct() {
		q.wait = m.appendPieces(q.wait, seq, 0)
		if q.w != nil && !q.busy {
			q.busy = true
			go q.drain()
		}
		q.mu.Unlock()
		return seq, nil
	}
	q.busy = true
	before := q.begun
	q.begun = seq
	q.mu.Unlock()

	n, err := q.w.writeMessage(&m, size)
	return seq, q.wrote(&m, seq, before, n, size, err)
}

// admit decides, with mu held, whether a frame of size bytes is accepted.
func (q *Queue) admit(size int64) error {
	if q.err != nil {
		return q.err
	}
	if q.queued > 0 && q.queued+size > q.opt.Bound {
		return ErrQueueFull
	}
	return nil
}

// wrote ends a direct write: n of size bytes of m were written.
func (q *Queue) wrote(m *message, seq, before uint64, n, size int, err error) error {
	var rest []piece
	if n < size && err == nil {
		rest = m.appendPieces(nil, seq, n)
	}
	q.mu.Lock()
	if n == 0 {
		q.begun = before
	}
	q.queued -= int64(n)
	if len(rest) > 0 {
		q.wait = append(rest, q.wait...)
	}
	if err != nil || q.err != nil {
		failed := q.fail(err)
		if err = q.err; n == size {
			err = nil
		}
		q.mu.Unlock()
		q.report(failed)
		return err
	}
	more := len(q.wait) > 0
	if !more {
		q.leave()
	}
	q.mu.Unlock()
	if more {
		q.handOver(n == size)
	}
	return nil
}

// leave gives up the right to write, with mu held and nothing left to write.
func (q *Queue) leave() {
	q.wait = nil
	q.busy = false
	q.signal()
}

// handOver ends a sender's right to write while something is waiting. If the
// sink is ready, a few batches that others sent meanwhile are cheaper to write
// here than to start a goroutine for.
func (q *Queue) handOver(ready bool) {
	for i := 0; ready && i < 4; i++ {
		n, busy := q.step(false)
		if !busy {
			return
		}
		ready = n > 0
	}
	go q.drain()
}

// drain writes what waits until nothing does. It has the right to write when
// it begins, and has given it up at its end.
func (q *Queue) drain() {
	for busy := true; busy; {
		_, busy = q.step(true)
	}
}

// step writes a batch of what waits, or gives up the right to write, which it
// has, when there is nothing or the queue is closed. If wait, it writes at
// least one byte, else what the sink takes at once.
func (q *Queue) step(wait bool) (n int, busy bool) {
	q.mu.Lock()
	if q.err != nil || len(q.wait) == 0 {
		if q.err != nil {
			q.drop()
		}
		q.leave()
		q.mu.Unlock()
		return 0, false
	}
	var batch [maxBatch]piece
	pieces := batch[:copy(batch[:], q.wait)]
	before := q.begun
	q.begun = pieces[len(pieces)-1].seq
	q.mu.Unlock()

	n, err := q.w.tryPieces(pieces)
	if n == 0 && err == nil && wait {
		n, err = q.awaitPieces(pieces)
	}

	q.mu.Lock()
	q.consume(n, before)
	q.signal()
	var failed error
	if err != nil {
		failed = q.fail(err)
	}
	q.mu.Unlock()
	q.report(failed)
	return n, err == nil
}

// awaitPieces waits until the sink takes something, or has not for too long.
func (q *Queue) awaitPieces(pieces []piece) (int, error) {
	q.mu.Lock()
	if q.err == nil { // else Close has interrupted, which must stand
		q.w.arm(q.opt.Stall)
	}
	q.mu.Unlock()
	defer q.w.disarm()
	return q.w.awaitPieces(pieces)
}

// consume takes n written bytes off the front, with mu held. before is what
// begun was before they were written.
func (q *Queue) consume(n int, before uint64) {
	q.begun = before
	q.queued -= int64(n)
	i := 0
	for n > 0 {
		p := &q.wait[i]
		q.begun = p.seq
		if n < len(p.data) {
			p.data = p.data[n:]
			break
		}
		n -= len(p.data)
		if p.done != nil {
			p.done.Release()
		}
		*p = piece{}
		i++
	}
	q.wait = q.wait[i:]
}

// fail closes the queue for err unless it is closed, with mu held and the
// right to write, which it gives up. It returns what is to be reported, if
// anything.
func (q *Queue) fail(err error) (failed error) {
	if q.err == nil {
		failed = err
		q.err = fmt.Errorf("%w: %w", ErrQueueClosed, err)
	}
	q.drop()
	q.leave()
	return failed
}

func (q *Queue) report(failed error) {
	if failed != nil && q.opt.OnFail != nil {
		q.opt.OnFail(failed)
	}
}

// drop forgets all that waits, with mu held and nobody writing.
func (q *Queue) drop() {
	for i := range q.wait {
		if done := q.wait[i].done; done != nil {
			done.Release()
		}
	}
	q.wait, q.queued = nil, 0
}

// signal wakes who waits for a change, with mu held.
func (q *Queue) signal() {
	if q.changed != nil {
		close(q.changed)
		q.changed = nil
	}
}

// await waits until done, called with mu held, says so.
func (q *Queue) await(ctx context.Context, done func() (bool, error)) error {
	for {
		q.mu.Lock()
		ok, err := done()
		if ok || err != nil {
			q.mu.Unlock()
			return err
		}
		if q.changed == nil {
			q.changed = make(chan struct{})
		}
		changed := q.changed
		q.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Flush waits until all that was sent is written. The error is ctx's, or
// ErrQueueClosed.
func (q *Queue) Flush(ctx context.Context) error {
	return q.await(ctx, func() (bool, error) { return q.queued == 0, q.err })
}

// Begun returns the highest sequence number of which the first byte may have
// been handed to the kernel. While a write is under way that counts all its
// frames; once the queue has failed or Close has returned, it is exact.
func (q *Queue) Begun() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.begun
}

// Queued returns how many bytes the kernel has not taken yet.
func (q *Queue) Queued() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.queued
}

// Close ends the queue now: a write under way is broken off, what waits is
// dropped, and when Close returns nothing of the queue uses the sink any more.
// OnFail is not called for it.
func (q *Queue) Close() {
	q.mu.Lock()
	if q.err == nil {
		q.err = ErrQueueClosed
	}
	if q.busy {
		q.w.interrupt()
	} else {
		q.drop()
	}
	q.signal()
	q.mu.Unlock()
	_ = q.await(context.Background(), func() (bool, error) { return !q.busy, nil })
	if q.w != nil {
		q.w.disarm()
	}
}
