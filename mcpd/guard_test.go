package mcpd

import (
	"net"
	"testing"
	"time"

	"interlock/mcpd/internal/config"
	"interlock/recovery"
)

// TestGuard has a fault end the session that it concerns and nothing else, on
// whatever goroutine it happens.
func TestGuard(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(c *conn, in *instance, s *fakeServer){
		"forwarding": func(c *conn, _ *instance, _ *fakeServer) {
			(&exchange{conn: c, kind: kindToolCall, tool: "write"}).Forward() // it has no frame
		},
		"a deadline": func(_ *conn, in *instance, _ *fakeServer) { in.enter(unendable(in)) },
		"an errand's end": func(_ *conn, in *instance, _ *fakeServer) {
			in.ask(func(int64) []byte { return nil }, func([]byte) error { return nil }, time.Millisecond, func([]byte) { panic("a fault of the test's") })
		},
		"the server's end": func(_ *conn, in *instance, s *fakeServer) {
			x := unendable(in)
			x.kind = kindTaskResult // it has no deadline
			in.enter(x)
			x.kind = kindToolCall
			in.sent(x, 1)
			s.exit(1)
		},
		"a built-in server": func(_ *conn, in *instance, _ *fakeServer) {
			l := &builtinLink{in: in} // it has no session
			l.serving.Add(1)
			l.serve([]byte(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, c, s := startSession(t, rigOptions{limits: func(l *config.Limits) { l.CallTimeout = time.Millisecond }})
			conn, in := r.d.open()[0], r.instance()
			other := r.dial()
			other.alive()
			fail(conn, in, s)
			c.wantEnd()
			if n := r.d.counters.panics.Load(); n != 1 {
				t.Errorf("%d faults counted", n)
			}
			other.alive()
		})
	}
	t.Run("accepting", func(t *testing.T) {
		t.Parallel()
		r := startRig(t, rigOptions{})
		r.d.admit(new(net.UnixConn), nil) // it is of nobody, and refusing it needs a pacer
		if n := r.d.counters.panics.Load(); n != 1 {
			t.Errorf("%d faults counted", n)
		}
		r.dial().alive()
	})
}

// unendable is a call whose record cannot be ended: trying that is a fault.
func unendable(in *instance) *exchange {
	return &exchange{conn: in.up.conn, kind: kindToolCall, run: new(recovery.Run)}
}
