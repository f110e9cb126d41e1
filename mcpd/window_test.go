package mcpd

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"interlock/mcpd/internal/wire"
)

// hookedLink is a way to a server on which something happens at the moment that a
// request is sent.
type hookedLink struct {
	in   *instance
	hook func(in *instance, n int64) (seq uint64, err error)

	mu  sync.Mutex // guards own
	own []string   // messages of the daemon's
}

func (l *hookedLink) run(context.Context, *instance) error { return nil }
func (l *hookedLink) flush(context.Context)                {}
func (l *hookedLink) begun() uint64                        { return 1 }

func (l *hookedLink) send(_ *wire.Frame, edits []wire.Edit) (uint64, error) {
	n, _ := wire.ParseOwnID(edits[0].With)
	return l.hook(l.in, n)
}

func (l *hookedLink) sendOwn(message []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.own = append(l.own, string(message))
	return nil
}

// hooked has a session whose server is behind a link with the hook.
func hooked(t *testing.T, hook func(in *instance, n int64) (uint64, error)) (*rig, *client, *hookedLink) {
	r := startRig(t, rigOptions{})
	c := r.dial()
	c.alive()
	up := r.d.open()[0].upstream.Load()
	in := newInstance(up)
	l := &hookedLink{in: in, hook: hook}
	in.link, in.quit = l, func() {}
	up.mu.Lock()
	up.current = in
	up.mu.Unlock()
	return r, c, l
}

// TestLostWhileSending has the server end while a call is being sent. Who sends it
// knows better than who ends the server what became of it.
func TestLostWhileSending(t *testing.T) {
	t.Parallel()
	for _, end := range []struct {
		name, outcome string
		seq           uint64
		err           error
		pending       int
	}{
		{"not queued", "not_sent", 0, wire.ErrQueueClosed, 0},
		{"queued and dropped", "not_sent", 2, nil, 0},
		{"write failed in the middle", "unknown", 1, wire.ErrQueueClosed, 1},
		{"sent", "unknown", 1, nil, 1},
		{"no room", "not_sent", 0, wire.ErrQueueFull, 0},
	} {
		t.Run(end.name, func(t *testing.T) {
			t.Parallel()
			r, c, _ := hooked(t, func(in *instance, _ int64) (uint64, error) {
				in.up.dropped(in)
				in.lost(errors.New("gone"))
				return end.seq, end.err
			})
			c.call("1", "write")
			if got := c.refusal("1"); got.Outcome != end.outcome {
				t.Errorf("%+v", got)
			}
			if p := r.d.journal.Pending(); len(p) != end.pending {
				t.Errorf("pending %+v", p)
			}
			if active, _ := r.d.journal.Active(1); len(active) != 0 {
				t.Errorf("active %+v", active)
			}
			if s := r.d.Snapshot().Sessions[0]; s.InFlight != 0 {
				t.Errorf("%d in flight", s.InFlight)
			}
		})
	}
}

// TestCancelledWhileSending has the client cancel a call while it is being sent:
// the server is told once, and not before it has the call.
func TestCancelledWhileSending(t *testing.T) {
	t.Parallel()
	_, c, l := hooked(t, func(in *instance, n int64) (uint64, error) {
		if n > 1 {
			return 2, nil
		}
		in.mu.Lock()
		x := in.pending[n]
		in.mu.Unlock()
		in.up.conn.session.Cancel("n1")
		x.withdrawn.Store(true)
		if in.withdraw(x) {
			t.Error("the server would be told before it has the call")
		}
		return 1, nil
	})
	c.call("1", "write")
	l.wait(t, "notifications/cancelled")
	if l.in.find([]byte("1")) != nil {
		t.Error("the call is still wanted")
	}
	c.cancel("1") // it is not in flight any more
	c.send(`{"jsonrpc":"2.0","id":2,"method":"ping"}`)
	eventually(t, "the ping is in flight", func() bool { _, n := l.in.snapshot(); return n == 2 })
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.own) != 1 || !strings.Contains(l.own[0], `"requestId":1,`) {
		t.Errorf("the server was told %q", l.own)
	}
}

// wait waits until the daemon has sent a message of its own with the text.
func (l *hookedLink) wait(t *testing.T, text string) {
	t.Helper()
	eventually(t, "a message with "+text, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return slices.ContainsFunc(l.own, func(m string) bool { return strings.Contains(m, text) })
	})
}
