package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ErrUnterminated means that the stream ended within a line.
var ErrUnterminated = errors.New("the stream ended before the end of the line")

// A Source is what a Reader reads: a connection or one end of a pipe. One that
// is also a [syscall.Conn] is read through its descriptor, so that no memory
// is held while waiting for input.
type Source interface {
	io.Reader
	SetReadDeadline(time.Time) error
}

// ReaderOptions are the limits of a Reader. A zero field has its default.
type ReaderOptions struct {
	MaxFrame     int           // bytes of a frame without its line ending; 64 MiB
	StallTimeout time.Duration // without progress, inside a frame beyond 64 KiB; 10 s
	RoomTimeout  time.Duration // for room in the budget; 1 s
}

func (o ReaderOptions) withDefaults() ReaderOptions {
	if o.MaxFrame == 0 {
		o.MaxFrame = 64 << 20
	}
	if o.StallTimeout == 0 {
		o.StallTimeout = 10 * time.Second
	}
	if o.RoomTimeout == 0 {
		o.RoomTimeout = time.Second
	}
	return o
}

// A Reader cuts a stream into frames. It is not safe for concurrent use.
//
// Frames of up to 64 KiB are free. What a larger one needs is charged to the
// account; a line that is too large, or finds no room, or stops arriving, is
// discarded, and the Reader goes on with the next line.
//
// A read deadline that the owner has set on the source is honoured and left
// alone: Next returns an error that is [os.ErrDeadlineExceeded], and may be
// called again. Only within a frame beyond 64 KiB the Reader sets deadlines of
// its own, and clears them at its end.
type Reader struct {
	src  Source
	raw  syscall.RawConn // nil: plain reads
	acct *Account
	opt  ReaderOptions

	chunk      []byte // pooled; nil while nothing is left over
	start, end int    // what is left over: chunk[start:end]
	searched   int    // chunk[start:searched] has no line ending
	first      bool   // no line has been completed: there may be a byte order mark
	frame      Frame  // what Next returned last
	discarding *discard
	err        error // final

	readReady func(fd uintptr) bool // readFrom, bound once
	into      []byte                // where it reads to; nil: to a new chunk
	want      int                   // size of a new chunk
	n         int                   // what it read
	readErr   error                 // or met
}

// NewReader returns a Reader of src that charges acct, which may be nil.
func NewReader(src Source, acct *Account, opt ReaderOptions) *Reader {
	r := &Reader{src: src, acct: acct, opt: opt.withDefaults(), first: true, want: smallChunk}
	r.readReady = r.readFrom
	if c, ok := src.(syscall.Conn); ok {
		if raw, err := c.SyscallConn(); err == nil {
			r.raw = raw
		}
	}
	return r
}

// Next returns the next frame, which is valid until the next call. It blocks
// its goroutine only. Errors:
//
//   - *[DiscardedError]: a line was discarded; call Next again.
//   - [os.ErrDeadlineExceeded]: the owner's deadline; Next may be called again.
//   - [ErrUnterminated]: the last line has no ending; [io.EOF] follows.
//   - [io.EOF]: the stream has ended.
//   - any other: reading failed; it stays.
func (r *Reader) Next() (*Frame, error) {
	r.frame.Release()
	for r.err == nil {
		if r.discarding != nil {
			if err := r.skipLine(); err != nil {
				return nil, err
			}
			continue
		}
		if line, ok := r.line(); ok {
			if len(line) > r.opt.MaxFrame {
				return nil, r.reportWhole(line)
			}
			if !isBlank(line) {
				r.frame.data = line
				return &r.frame, nil
			}
			continue
		}
		if r.end-r.start == chunkSize || r.end-r.start > r.opt.MaxFrame+1 {
			return r.large()
		}
		if err := r.fill(); err != nil {
			return nil, r.ended(err, !isBlank(r.trim(r.chunk[r.start:r.end])))
		}
	}
	return nil, r.err
}

// line takes the next line from the chunk, if all of it is there.
func (r *Reader) line() (line []byte, ok bool) {
	n := bytes.IndexByte(r.chunk[r.searched:r.end], '\n')
	if n < 0 {
		r.searched = r.end
		return nil, false
	}
	line = r.chunk[r.start : r.searched+n]
	r.start = r.searched + n + 1
	r.searched = r.start
	return r.trim(line), true
}

var byteOrderMark = []byte("\ufeff")

// trim takes off a line what does not belong to its frame.
func (r *Reader) trim(line []byte) []byte {
	line = r.trimMark(line)
	return bytes.TrimSuffix(line, []byte{'\r'})
}

// trimMark takes the byte order mark off the first line, of which b is the
// beginning.
func (r *Reader) trimMark(b []byte) []byte {
	if r.first {
		r.first = false
		b = bytes.TrimPrefix(b, byteOrderMark)
	}
	return b
}

func isBlank(line []byte) bool {
	for _, c := range line {
		if !isSpace(c) {
			return false
		}
	}
	return true
}

// fill reads once, to the free end of the chunk, which it gets, moves or
// enlarges as needed. It must not be called with 64 KiB left over.
func (r *Reader) fill() error {
	if r.start == r.end {
		r.drop()
		n, err := r.read(nil)
		r.end = n
		return err
	}
	if r.end == len(r.chunk) {
		r.makeSpace()
	}
	n, err := r.read(r.chunk[r.end:])
	r.end += n
	return err
}

// makeSpace moves what is left over to the beginning of the chunk, or of a
// larger one if it is more than half of this one.
func (r *Reader) makeSpace() {
	old, rest := r.chunk, r.chunk[r.start:r.end]
	if len(rest) > len(old)/2 && len(old) < chunkSize {
		r.chunk = getChunk(chunkSize)
		defer putChunk(old)
	}
	r.searched -= r.start
	r.start, r.end = 0, copy(r.chunk, rest)
}

// drop gives the chunk back, with whatever is in it.
func (r *Reader) drop() {
	putChunk(r.chunk)
	r.chunk = nil
	r.start, r.end, r.searched = 0, 0, 0
}

// read waits for input and reads at least one byte, to a new chunk if to is nil.
func (r *Reader) read(to []byte) (int, error) {
	r.into = to
	err := r.readOnce()
	if err == nil {
		err = r.readErr
	}
	if err == nil && r.n == 0 {
		err = io.EOF
	}
	if err != nil {
		return 0, err
	}
	return r.n, nil
}

// readOnce leaves in r.n and r.readErr what a read said. Its own error is from
// waiting.
func (r *Reader) readOnce() error {
	if r.raw != nil {
		return r.raw.Read(r.readReady)
	}
	to := r.into
	if to == nil {
		r.chunk = getChunk(r.want)
		to = r.chunk
	}
	r.n, r.readErr = r.src.Read(to)
	if r.n > 0 || r.readErr == io.EOF {
		r.readErr = nil // an error that comes along with data comes again
	}
	return nil
}

// readFrom reads once from the descriptor, and reports false if there is
// nothing yet: only when something may be there a new chunk is taken.
func (r *Reader) readFrom(fd uintptr) bool {
	to := r.into
	if to == nil {
		to = getChunk(r.want)
	}
	r.n, r.readErr = readFD(int(fd), to)
	if r.readErr == unix.EAGAIN {
		if r.into == nil {
			putChunk(to)
		}
		return false
	}
	if r.into == nil {
		r.chunk = to
	}
	r.want = smallChunk
	if r.n >= smallChunk {
		r.want = chunkSize
	}
	return true
}

func readFD(fd int, to []byte) (int, error) {
	for {
		n, err := unix.Read(fd, to)
		if err == unix.EINTR {
			continue
		}
		return max(n, 0), err
	}
}

// ended turns an error of reading into what Next returns; partial says that a
// line has begun.
func (r *Reader) ended(err error, partial bool) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("reading a frame: %w", err)
	}
	r.drop()
	r.err = err
	if err != io.EOF {
		r.err = fmt.Errorf("reading a frame: %w", err)
	} else if partial {
		return ErrUnterminated
	}
	return r.err
}
