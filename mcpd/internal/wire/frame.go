package wire

import "sync/atomic"

// A Frame is one message without its line ending. A frame that Next of a
// [Reader] returned is the reader's, and valid until the next call of Next;
// one that Keep returned is the caller's until Release. A frame is not safe
// for concurrent use, but frames that share memory through Keep are.
type Frame struct {
	data []byte
	mem  *memory // nil: the memory is the reader's chunk, or gone
}

// memory is what frames stand on, counted by reference.
type memory struct {
	refs   atomic.Int32
	bytes  []byte
	acct   *Account
	charge int64
}

// release drops one reference, and gives everything back with the last.
func (m *memory) release() {
	if m.refs.Add(-1) > 0 {
		return
	}
	putChunk(m.bytes)
	m.bytes = nil
	m.acct.Release(m.charge)
}

// NewFrame returns a frame over data, which must not change any more. It is
// the caller's, as if kept, and charged to no account.
func NewFrame(data []byte) *Frame {
	f := &Frame{data: data, mem: &memory{}}
	f.mem.refs.Store(1)
	return f
}

// Bytes returns the message. The slice is valid as long as the frame, and must
// not be changed.
func (f *Frame) Bytes() []byte { return f.data }

// Keep returns a frame with the same bytes that stays valid until its own
// Release. Only a small frame of a reader is copied; a large or kept one is
// shared.
func (f *Frame) Keep() *Frame {
	if f.mem != nil {
		f.mem.refs.Add(1)
		return &Frame{data: f.data, mem: f.mem}
	}
	both := new(struct {
		Frame
		memory
	})
	both.refs.Store(1)
	both.memory.bytes = getChunk(len(f.data))
	both.Frame.data = append(both.memory.bytes[:0], f.data...)
	both.mem = &both.memory
	return &both.Frame
}

// Release gives the frame's memory back to where it came from. Bytes must not
// be used any more. Further calls do nothing.
func (f *Frame) Release() {
	m := f.mem
	f.data, f.mem = nil, nil
	if m != nil {
		m.release()
	}
}
