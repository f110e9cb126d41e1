package wire

import (
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	copyLimit = 32 << 10 // messages up to here are written from one buffer, others from where their parts are
	maxBatch  = 64       // pieces in one write
	maxIOV    = 1024     // the least IOV_MAX of the supported systems
)

var newline = []byte{'\n'}

// message is a frame, edits of it in order, and a newline.
type message struct {
	frame *Frame // nil: data is the sender's
	data  []byte
	edits []Edit
}

func (m *message) len() int { return splicedLen(m.data, m.edits) + len(newline) }

// parts appends to dst what the message consists of: parts of the frame at
// even positions, of edits at odd ones, and the newline at last.
func (m *message) parts(dst [][]byte) [][]byte {
	at := 0
	for i := range m.edits {
		e := &m.edits[i]
		dst = append(dst, m.data[at:e.Start], e.With)
		at = e.End
	}
	return append(dst, m.data[at:], newline)
}

// appendPieces appends what comes after the first n bytes of the message, in
// memory that outlives the call.
func (m *message) appendPieces(dst []piece, seq uint64, n int) []piece {
	size := m.len()
	if m.frame == nil || m.frame.mem == nil || size <= copyLimit {
		all := Splice(make([]byte, 0, size), m.data, m.edits)
		return append(dst, piece{data: append(all, '\n')[n:], seq: seq})
	}
	kept := m.frame.Keep()
	for i, part := range m.parts(nil) {
		if len(part) <= n {
			n -= len(part)
			continue
		}
		if i%2 == 1 {
			part = append([]byte(nil), part...)
		}
		dst = append(dst, piece{data: part[n:], seq: seq})
		n = 0
	}
	dst[len(dst)-1].done = kept
	return dst
}

// writer writes to a sink, for one goroutine at a time; only arm, disarm and
// interrupt may be called meanwhile.
type writer struct {
	dst    Sink
	raw    syscall.RawConn // nil: plain writes
	blocks bool            // the descriptor is in blocking mode

	writeReady func(fd uintptr) bool // writeTo, bound once
	buf        []byte                // what it writes; nil: iov
	iov        [][]byte
	block      bool  // whether to wait when the sink takes nothing
	n          int   // what it wrote
	err        error // or met

	deadline    atomic.Int64 // for a descriptor that blocks: when to give up, in Unix nanoseconds; 0: never
	interrupted atomic.Bool
}

func newWriter(dst Sink) *writer {
	w := &writer{dst: dst}
	w.writeReady = w.writeTo
	c, ok := dst.(syscall.Conn)
	if !ok {
		return w
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return w
	}
	w.raw = raw
	_ = raw.Control(func(fd uintptr) {
		flags, err := unix.FcntlInt(fd, unix.F_GETFL, 0)
		w.blocks = err != nil || flags&unix.O_NONBLOCK == 0
	})
	return w
}

// writeMessage writes of m what the sink takes at once.
func (w *writer) writeMessage(m *message, size int) (int, error) {
	if size > copyLimit {
		w.iov = m.parts(w.iov[:0])
		w.iov = w.iov[:min(len(w.iov), maxIOV)]
		return w.write(false)
	}
	scratch := getChunk(size)
	w.buf = append(Splice(scratch[:0], m.data, m.edits), '\n')
	n, err := w.write(false)
	putChunk(scratch)
	return n, err
}

// direct reports whether it can be known what the sink takes at once.
func (w *writer) direct() bool { return w.raw != nil }

// tryPieces writes what the sink takes at once.
func (w *writer) tryPieces(pieces []piece) (int, error) {
	if !w.direct() {
		return 0, nil
	}
	w.gather(pieces)
	return w.write(false)
}

// awaitPieces waits until the sink takes something.
func (w *writer) awaitPieces(pieces []piece) (int, error) {
	if !w.direct() {
		data := pieces[0].data
		return w.dst.Write(data[:min(len(data), chunkSize)])
	}
	w.gather(pieces)
	return w.write(true)
}

func (w *writer) gather(pieces []piece) {
	if len(pieces) == 1 {
		w.buf = pieces[0].data
		return
	}
	w.iov = w.iov[:0]
	for i := range pieces {
		w.iov = append(w.iov, pieces[i].data)
	}
}

// write writes buf or iov once, and forgets it.
func (w *writer) write(block bool) (int, error) {
	w.block, w.n, w.err = block, 0, nil
	err := w.raw.Write(w.writeReady)
	if err == nil {
		err = w.err
	}
	w.buf = nil
	clear(w.iov)
	w.iov = w.iov[:0]
	return w.n, err
}

// writeTo writes once to the descriptor. It reports false to be called again
// when the descriptor is ready.
func (w *writer) writeTo(fd uintptr) bool {
	if w.blocks {
		w.writeBlocking(int(fd))
		return true
	}
	for {
		n, err := w.once(int(fd))
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			return !w.block
		case err != nil:
			w.err = os.NewSyscallError("write", err)
		default:
			w.n = n
		}
		return true
	}
}

func (w *writer) once(fd int) (int, error) {
	if w.buf != nil {
		return unix.Write(fd, w.buf)
	}
	return unix.Writev(fd, w.iov)
}

// writeBlocking writes to a descriptor in blocking mode, in which it has to
// stay because other processes may share it: it waits with poll, and writes no
// more than is taken without blocking once that says so.
func (w *writer) writeBlocking(fd int) {
	if w.buf == nil {
		w.buf = w.iov[0]
	}
	w.buf = w.buf[:min(len(w.buf), pipeBuf)]
	timeout := 0
	if w.block {
		timeout = 100 // milliseconds until the next look at deadline and interrupted
	}
	for {
		ready, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, timeout)
		if ready > 0 {
			w.n, err = unix.Write(fd, w.buf)
			w.n = max(w.n, 0)
		}
		deadline := w.deadline.Load()
		switch {
		case err == unix.EINTR || err == unix.EAGAIN:
			continue
		case err != nil:
			w.err = os.NewSyscallError("write", err)
		case ready == 0 && w.block:
			if !w.interrupted.Load() && (deadline == 0 || time.Now().UnixNano() < deadline) {
				continue
			}
			w.err = os.ErrDeadlineExceeded
		}
		return
	}
}

// arm sets when to give up waiting; a sink without deadlines waits for ever.
func (w *writer) arm(stall time.Duration) {
	if stall == 0 {
		return
	}
	at := time.Now().Add(stall)
	w.deadline.Store(at.UnixNano())
	_ = w.dst.SetWriteDeadline(at)
}

func (w *writer) disarm() {
	w.deadline.Store(0)
	_ = w.dst.SetWriteDeadline(time.Time{})
}

// interrupt ends waiting now.
func (w *writer) interrupt() {
	w.interrupted.Store(true)
	_ = w.dst.SetWriteDeadline(time.Unix(1, 0))
}
