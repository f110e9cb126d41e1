package wire

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"time"
)

// Reason says why a line was discarded.
type Reason uint8

// The reasons.
const (
	TooLarge Reason = iota + 1 // larger than a frame may be
	NoRoom                     // the budget had no room in time
	Stalled                    // no progress in time
)

func (r Reason) String() string {
	switch r {
	case TooLarge:
		return "too large"
	case NoRoom:
		return "no memory left for it"
	case Stalled:
		return "stopped arriving"
	}
	return "unknown reason"
}

// A DiscardedError says that a line was discarded, and whom to tell. A line
// that stopped arriving is reported when that is noticed, and a second time at
// its end if its id, or that it has a method, has come to light since.
type DiscardedError struct {
	Reason    Reason
	ID        []byte // as written; nil if none was found that can be used
	HasMethod bool   // false: a response, or not known
}

func (e *DiscardedError) Error() string {
	return fmt.Sprintf("message discarded (id %s): %s", e.ID, e.Reason)
}

// discard is the state of discarding a line.
type discard struct {
	lexer  idLexer
	reason Reason
	told   *DiscardedError // what Next has returned; nil: not yet
}

func (d *discard) report() *DiscardedError {
	d.told = &DiscardedError{Reason: d.reason, ID: d.lexer.ID(), HasMethod: d.lexer.method}
	return d.told
}

// news reports whether a line that has been reported can now be answered, and
// could not before.
func (d *discard) news() bool {
	return d.lexer.ID() != nil && (d.told.ID == nil || d.lexer.method && !d.told.HasMethod)
}

// reportWhole discards a line that has arrived, and is too large.
func (r *Reader) reportWhole(line []byte) error {
	d := &discard{reason: TooLarge}
	d.lexer.feed(line)
	return d.report()
}

// large reads a frame of which the chunk holds the beginning, and more than it
// can hold is still to come.
func (r *Reader) large() (*Frame, error) {
	defer r.clearDeadline()
	m := &memory{acct: r.acct}
	m.refs.Store(1)
	line, err := r.accumulate(m)
	if err == nil && len(line) <= r.opt.MaxFrame {
		r.frame = Frame{data: line, mem: m}
		return &r.frame, nil
	}
	d := &discard{reason: reasonOf(err)}
	d.lexer.feed(line)
	m.release()
	switch {
	case err == nil:
		return nil, d.report()
	case d.reason == 0:
		return nil, r.ended(err, true)
	}
	r.drop()
	r.discarding = d
	if d.reason == Stalled {
		return nil, d.report()
	}
	return nil, r.skipLine()
}

var errTooLarge = errors.New("frame too large")

// reasonOf returns 0 if reading itself failed. Without an error, the line has
// arrived and is too large.
func reasonOf(err error) Reason {
	switch {
	case err == nil, err == errTooLarge:
		return TooLarge
	case errors.Is(err, ErrNoRoom):
		return NoRoom
	case errors.Is(err, os.ErrDeadlineExceeded):
		return Stalled
	}
	return 0
}

// accumulate reads to the end of the line that the chunk begins with, in m.
// With an error it returns as much of the line as it has.
func (r *Reader) accumulate(m *memory) ([]byte, error) {
	line := r.trimMark(r.chunk[r.start:r.end])
	limit := r.opt.MaxFrame + len("\r\n")
	for {
		if len(line) >= limit {
			return line, errTooLarge
		}
		if len(line) >= cap(m.bytes) {
			if err := r.grow(m, line, limit); err != nil {
				return line, err
			}
			line = m.bytes[:len(line)]
			r.drop()
		}
		r.armDeadline()
		to := m.bytes[len(line):min(len(line)+chunkSize, cap(m.bytes))]
		n, err := r.read(to)
		if err != nil {
			return line, err
		}
		if end := bytes.IndexByte(to[:n], '\n'); end >= 0 {
			r.keepRest(to[end+1 : n])
			return r.trim(line[:len(line)+end]), nil
		}
		line = line[:len(line)+n]
	}
}

// grow gives m about twice the room that line takes, up to limit, and moves
// line there. What is beyond 64 KiB is charged; while both are in use, so are
// both charged. An account of half as much again as the limit is therefore
// enough for the largest frame.
func (r *Reader) grow(m *memory, line []byte, limit int) error {
	size := max(2*len(line), 2*chunkSize)
	if size+chunkSize > limit {
		size = limit
	}
	charge := int64(size - chunkSize)
	if err := r.acct.Reserve(charge, r.opt.RoomTimeout); err != nil {
		return err
	}
	room := make([]byte, size)
	copy(room, line)
	r.acct.Release(m.charge)
	m.bytes, m.charge = room, charge
	return nil
}

// keepRest puts what was read of the next line into the chunk.
func (r *Reader) keepRest(rest []byte) {
	if len(rest) > 0 {
		r.chunk = getChunk(len(rest))
		r.end = copy(r.chunk, rest)
	}
}

// skipLine discards input up to the end of the line. It returns an error when
// there is something to tell; if r.discarding is then still set, the end of
// the line is still to come.
func (r *Reader) skipLine() error {
	d := r.discarding
	for {
		part := r.chunk[r.start:r.end]
		if end := bytes.IndexByte(part, '\n'); end >= 0 {
			d.lexer.feed(part[:end])
			r.start += end + 1
			r.searched = r.start
			r.discarding = nil
			if d.told == nil || d.news() {
				return d.report()
			}
			return nil
		}
		d.lexer.feed(part)
		r.drop()
		if d.told == nil {
			r.armDeadline()
		}
		n, err := r.read(nil)
		if err != nil {
			return r.skipEnded(err)
		}
		r.end = n
	}
}

// skipEnded turns an error of reading within a discarded line into what Next
// returns.
func (r *Reader) skipEnded(err error) error {
	d := r.discarding
	stalled := errors.Is(err, os.ErrDeadlineExceeded)
	if !stalled {
		r.discarding = nil
	}
	if d.told != nil {
		return r.ended(err, false)
	}
	if !stalled {
		r.ended(err, false)
	}
	return d.report()
}

// armDeadline begins to wait for progress. A source that knows no deadlines is
// waited for without limit.
func (r *Reader) armDeadline() { _ = r.src.SetReadDeadline(time.Now().Add(r.opt.StallTimeout)) }

func (r *Reader) clearDeadline() { _ = r.src.SetReadDeadline(time.Time{}) }
