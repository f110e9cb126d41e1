package wire

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestQueueOrder(t *testing.T) {
	for _, how := range kinds {
		t.Run(how, func(t *testing.T) {
			dst, src := sinkAndReader(t, how)
			q := NewQueue(QueueOptions{Bound: 1 << 30, OnFail: func(err error) { t.Errorf("failed: %v", err) }})
			sendMixed(t, q, 0, 30)
			q.Attach(dst)
			got := make(chan error)
			go func() { got <- checkMixed(src, 4, 330) }()
			var senders sync.WaitGroup
			for s := 1; s < 4; s++ {
				senders.Go(func() { sendMixed(t, q, s, 100) })
			}
			senders.Wait()
			if err := <-got; err != nil {
				t.Error(err)
			}
			if err := q.Flush(context.Background()); err != nil {
				t.Error(err)
			}
			if q.Begun() != 330 || q.Queued() != 0 {
				t.Errorf("begun %d, queued %d", q.Begun(), q.Queued())
			}
			q.Close()
		})
	}
}

// kinds of sinks: pollable, of a descriptor that blocks, without a descriptor.
var kinds = []string{"socket", "pipe", "blocking pipe", "plain"}

type sink interface {
	Sink
	io.Closer
}

func sinkAndReader(t *testing.T, how string) (sink, io.Reader) {
	switch how {
	case "socket":
		a, b := socketPair(t)
		return a, b
	case "pipe":
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close(); w.Close() })
		return w, r
	}
	if how == "blocking pipe" {
		var fds [2]int
		if err := unix.Pipe(fds[:]); err != nil {
			t.Fatal(err)
		}
		r, w := os.NewFile(uintptr(fds[0]), "r"), os.NewFile(uintptr(fds[1]), "w")
		t.Cleanup(func() { r.Close(); w.Close() })
		return w, r
	}
	a, b := net.Pipe()
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

// sendMixed sends n frames of all sizes and kinds, numbered, in the name of s.
func sendMixed(t *testing.T, q *Queue, s, n int) {
	for i := range n {
		size := []int{10, 2000, 40000, 300, 200000}[i%5]
		body := fmt.Sprintf("%d %d ", s, i) + strings.Repeat("x", size)
		var err error
		switch i % 4 {
		case 0:
			_, err = q.SendBytes([]byte(body))
		case 1: // a frame of a reader, with an edit
			f := &Frame{data: []byte("?" + body[1:])}
			_, err = q.Send(f, []Edit{{Span{0, 1}, []byte(body[:1])}})
			clear(f.data)
		case 2:
			f := NewFrame([]byte("head" + body + "cut"))
			with := []byte("!")
			n := len(f.data)
			_, err = q.Send(f, []Edit{{Span{n - 3, n}, with}, {Span{0, 4}, nil}})
			clear(with)
			f.Release()
		case 3:
			f := NewFrame([]byte(body))
			_, err = q.Send(f, nil)
			f.Release()
		}
		if err != nil {
			t.Errorf("sending: %v", err)
		}
	}
}

// checkMixed reads n frames of several senders, each sender's in order.
func checkMixed(src io.Reader, senders, n int) error {
	in := bufio.NewReader(src)
	next := make([]int, senders)
	for range n {
		line, err := in.ReadString('\n')
		if err != nil {
			return err
		}
		var s, i int
		if _, err := fmt.Sscanf(line[:min(20, len(line))], "%d %d ", &s, &i); err != nil {
			return fmt.Errorf("%.40q: %w", line, err)
		}
		body := strings.TrimPrefix(strings.TrimSuffix(line, "\n"), fmt.Sprintf("%d %d ", s, i))
		if i%4 == 2 {
			body = strings.TrimSuffix(body, "!")
		}
		size := []int{10, 2000, 40000, 300, 200000}[i%5]
		if body != strings.Repeat("x", size) || next[s] != i {
			return fmt.Errorf("got %.40q (%d bytes) from %d, want number %d", line, len(line), s, next[s])
		}
		next[s]++
	}
	return nil
}

// hookedConn is a connection that calls hook at the beginning of each write.
type hookedConn struct {
	*net.UnixConn
	hook func()
}

type hookedRaw struct {
	syscall.RawConn
	hook func()
}

func (c hookedConn) SyscallConn() (syscall.RawConn, error) {
	raw, err := c.UnixConn.SyscallConn()
	return hookedRaw{raw, c.hook}, err
}

func (c hookedRaw) Write(f func(uintptr) bool) error {
	c.hook()
	return c.RawConn.Write(f)
}

// TestQueueSendDuringSend: what others send while a sender writes comes after
// its frame, whether the sink takes that at once or not, and is written.
func TestQueueSendDuringSend(t *testing.T) {
	for _, size := range []int{10, 1 << 20} {
		dst, src := socketPair(t)
		var q *Queue
		calls := 0
		q = NewQueue(QueueOptions{Bound: 1 << 30})
		q.Attach(hookedConn{dst, func() {
			if calls++; calls <= 3 {
				if _, err := q.SendBytes(fmt.Append(nil, "later ", calls)); err != nil {
					t.Error(err)
				}
				if calls == 1 && q.Begun() != 1 {
					t.Errorf("begun %d", q.Begun())
				}
			}
		}})
		if _, err := q.SendBytes(bytes.Repeat([]byte("x"), size)); err != nil {
			t.Fatal(err)
		}
		in := bufio.NewReader(src)
		for i := range 4 {
			line, err := in.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			want := fmt.Sprintf("later %d\n", i)
			if i == 0 {
				want = strings.Repeat("x", size) + "\n"
			}
			if line != want {
				t.Errorf("line %d: %d bytes %.20q", i, len(line), line)
			}
		}
		if err := q.Flush(context.Background()); err != nil {
			t.Error(err)
		}
		q.Close()
	}
}

// deadlineConn is a connection that remembers its write deadline.
type deadlineConn struct {
	*net.UnixConn
	deadline atomic.Pointer[time.Time]
}

func (c *deadlineConn) SetWriteDeadline(at time.Time) error {
	c.deadline.Store(&at)
	return c.UnixConn.SetWriteDeadline(at)
}

// TestQueueLeavesNoDeadline: a deadline for one wait must not fail a write that
// comes long after it.
func TestQueueLeavesNoDeadline(t *testing.T) {
	a, src := socketPair(t)
	dst := &deadlineConn{UnixConn: a}
	q := NewQueue(QueueOptions{Bound: 1, Stall: time.Hour})
	q.Attach(dst)
	if _, err := q.SendBytes(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	for q.w.deadline.Load() == 0 { // until the queue waits for the sink
		runtime.Gosched()
	}
	if _, err := io.CopyN(io.Discard, src, 1<<20+1); err != nil {
		t.Fatal(err)
	}
	if err := q.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}
	if at := dst.deadline.Load(); !at.IsZero() {
		t.Errorf("deadline %v", at)
	}
	q.Close()
}

func TestQueueBound(t *testing.T) {
	q := NewQueue(QueueOptions{Bound: 100})
	if _, err := q.SendBytes(make([]byte, 500)); err != nil {
		t.Errorf("one frame over the bound: %v", err)
	}
	if seq, err := q.SendBytes([]byte("x")); !errors.Is(err, ErrQueueFull) || seq != 0 {
		t.Error(seq, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := q.Flush(ctx); err != context.Canceled {
		t.Error(err)
	}
	a, b := socketPair(t)
	go func() { _, _ = io.Copy(io.Discard, b) }()
	q.Attach(a)
	if err := q.Flush(context.Background()); err != nil {
		t.Error(err)
	}
	if seq, err := q.SendBytes([]byte("x")); err != nil || seq != 2 {
		t.Error(seq, err)
	}
	q.Close()
	if _, err := q.SendBytes([]byte("x")); !errors.Is(err, ErrQueueClosed) {
		t.Error(err)
	}
	if err := q.Flush(context.Background()); !errors.Is(err, ErrQueueClosed) {
		t.Error(err)
	}
}

// TestQueueStall: a peer that never reads fails the queue, and the last frames
// are known not to have begun.
func TestQueueStall(t *testing.T) {
	for _, how := range kinds {
		t.Run(how, func(t *testing.T) {
			dst, _ := sinkAndReader(t, how)
			failed := make(chan error, 2)
			var q *Queue
			q = NewQueue(QueueOptions{Bound: 1 << 20, Stall: 50 * time.Millisecond, OnFail: func(err error) { q.Close(); failed <- err }})
			q.Attach(dst)
			budget := NewBudget(1 << 30)
			r := NewReader(source{strings.NewReader(strings.Repeat("x", 700000) + "\n")}, budget.Account(1<<30), ReaderOptions{})
			f, err := r.Next()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := q.Send(f, nil); err != nil {
				t.Fatal(err)
			}
			f.Release()
			if budget.InUse() == 0 {
				t.Error("the memory of a frame that waits was given back")
			}
			seq, err := q.SendBytes([]byte("never"))
			if err != nil {
				t.Fatal(err)
			}
			if err := <-failed; !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error(err)
			}
			if q.Begun() >= seq {
				t.Error("the second frame counts as begun")
			}
			if _, err := q.SendBytes([]byte("x")); !errors.Is(err, ErrQueueClosed) {
				t.Error(err)
			}
			if budget.InUse() != 0 {
				t.Error("the frame was not released")
			}
		})
	}
}

func TestQueueCloseBreaksOff(t *testing.T) {
	for _, how := range kinds {
		t.Run(how, func(t *testing.T) {
			dst, _ := sinkAndReader(t, how)
			q := NewQueue(QueueOptions{Bound: 1 << 20, Stall: time.Hour, OnFail: func(err error) { t.Error(err) }})
			q.Attach(dst)
			for range 10 {
				if _, err := q.SendBytes(make([]byte, 100000)); err != nil {
					t.Fatal(err)
				}
			}
			for q.w.deadline.Load() == 0 { // until the queue waits for the sink
				runtime.Gosched()
			}
			q.Close()
			q.Close()
			if q.Queued() != 0 {
				t.Error(q.Queued())
			}
		})
	}
}

func TestQueuePeerGone(t *testing.T) {
	for _, how := range kinds {
		t.Run(how, func(t *testing.T) {
			dst, src := sinkAndReader(t, how)
			src.(io.Closer).Close()
			failed := make(chan error, 2)
			q := NewQueue(QueueOptions{Bound: 1 << 20, OnFail: func(err error) { failed <- err }})
			q.Attach(dst)
			seq, err := q.SendBytes([]byte("x"))
			if seq != 1 || err != nil && !errors.Is(err, ErrQueueClosed) {
				t.Error(seq, err)
			}
			if err := <-failed; err == nil {
				t.Error("no reason")
			}
			if q.Begun() != 0 {
				t.Error("nothing was written")
			}
			q.Close()
		})
	}
}

func TestQueueCloseBeforeAttach(t *testing.T) {
	q := NewQueue(QueueOptions{Bound: 100})
	if _, err := q.SendBytes([]byte("x")); err != nil {
		t.Fatal(err)
	}
	q.Close()
	a, _ := socketPair(t)
	q.Attach(a)
	if q.Queued() != 0 || q.Begun() != 0 {
		t.Error("something is left")
	}
}
