package mcpd

import (
	"strings"
	"testing"
	"time"

	"interlock/mcpd/internal/config"
	"interlock/mcpd/internal/proc"
	"interlock/recovery"
)

// TestHalfClose answers what is in flight and waiting, refuses the server's
// questions, and then closes.
func TestHalfClose(t *testing.T) {
	t.Parallel()
	_, c, s := startSession(t, rigOptions{limits: oneAtATime})
	s.say(`{"jsonrpc":"2.0","id":"before","method":"roots/list"}`)
	c.recv()
	c.call("1", "peek")
	c.call("2", "peek")
	first := s.takes("tools/call")
	c.halfClose()
	if got := refusalIn(t, s.recv(), `"before"`); got.Code != "input_ended" {
		t.Errorf("an open question: %+v", got)
	}
	s.say(`{"jsonrpc":"2.0","id":"after","method":"roots/list"}`)
	if got := refusalIn(t, s.recv(), `"after"`); got.Code != "input_ended" {
		t.Errorf("a new question: %+v", got)
	}
	s.answer(first, "{}")
	c.want(`{"jsonrpc":"2.0","id":1,"result":{}}`)
	second := s.takes("tools/call")
	s.say(`{"jsonrpc":"2.0","method":"notifications/message","params":{}}`)
	c.want(`{"jsonrpc":"2.0","method":"notifications/message","params":{}}`)
	s.answer(second, "{}")
	c.want(`{"jsonrpc":"2.0","id":2,"result":{}}`)
	c.wantEnd()
	s.awaitDone()
}

// TestHalfCloseGrace gives calls in flight so much time and no more.
func TestHalfCloseGrace(t *testing.T) {
	t.Parallel()
	_, c, s := startSession(t, rigOptions{limits: func(l *config.Limits) { l.HalfCloseGrace = 10 * time.Millisecond }})
	c.call("1", "peek")
	call := s.takes("tools/call")
	c.halfClose()
	c.wantEnd()
	if m := s.takes("notifications/cancelled"); !strings.Contains(m.raw, `"requestId":`+string(call.ID)+`,`) {
		t.Errorf("the server is told %s", m.raw)
	}
	s.awaitDone()
}

// TestHalfCloseStream does not wait for a stream.
func TestHalfCloseStream(t *testing.T) {
	t.Parallel()
	_, c, s := startSession(t, rigOptions{})
	c.send(`{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen"}`)
	s.takes("subscriptions/listen")
	c.halfClose()
	c.wantEnd()
	s.takes("notifications/cancelled")
}

// TestHalfCloseThenGone does not wait for calls that nobody awaits any more.
func TestHalfCloseThenGone(t *testing.T) {
	t.Parallel()
	_, c, s := startSession(t, rigOptions{})
	c.call("1", "peek")
	s.takes("tools/call")
	c.halfClose()
	s.say(`{"jsonrpc":"2.0","id":"q","method":"roots/list"}`)
	s.recv() // refused: the end of the input has arrived
	c.close()
	s.takes("notifications/cancelled")
	s.awaitDone()
}

// TestClientGone cancels what is in flight upstream, ends the process and frees
// the permits; what may have been done is on record.
func TestClientGone(t *testing.T) {
	t.Parallel()
	r, c, s := startSession(t, rigOptions{limits: func(l *config.Limits) { l.Calls = 1 }})
	c.call("1", "write")
	call := s.takes("tools/call")
	c.call("2", "peek") // waits
	c.send(`{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`)
	s.takes("notifications/roots/list_changed")
	c.close()
	if m := s.takes("notifications/cancelled"); !strings.Contains(m.raw, `"requestId":`+string(call.ID)+`,`) {
		t.Errorf("the server is told %s", m.raw)
	}
	s.awaitDone()
	eventually(t, "the session is over", func() bool { return r.d.Snapshot().UpstreamsTotal == 0 })
	if p := r.d.journal.Pending(); len(p) != 1 || p[0].Tool != "write" || p[0].Outcome != recovery.OutcomeUnknown || p[0].Reason != "client_left" {
		t.Errorf("pending %+v", p)
	}
	next := r.dial()
	ns := next.shakeHands()
	next.call("1", "peek")
	ns.answer(ns.takes("tools/call"), "{}")
	next.want(`{"jsonrpc":"2.0","id":1,"result":{}}`)
}

// TestClientGoneSettles takes the answer that a server gives while it is ended.
func TestClientGoneSettles(t *testing.T) {
	t.Parallel()
	r := startRig(t, rigOptions{})
	r.servers.behave(manner{stays: true})
	c := r.dial()
	s := c.shakeHands()
	c.call("1", "write")
	call := s.takes("tools/call")
	c.close()
	s.takes("notifications/cancelled")
	s.wantEnd()
	s.answer(call, "{}")
	s.exit(0)
	eventually(t, "the session is over", func() bool { return len(r.d.open()) == 0 })
	if active, _ := r.d.journal.Active(10); len(active) != 0 || len(r.d.journal.Pending()) != 0 {
		t.Errorf("active %+v, pending %+v", active, r.d.journal.Pending())
	}
}

// TestClientGoneLargeFrames gives back the memory of frames that waited, for a
// permit or for a process, when their client left.
func TestClientGoneLargeFrames(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("x", 1<<20)
	large := func(c *client, id string) {
		c.send(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"peek","arguments":"%s"}}`, id, big)
	}
	left := func(t *testing.T, r *rig, c *client, used int64) {
		t.Helper()
		eventually(t, "the frames are held", func() bool { return r.d.budget.InUse() >= used })
		c.close()
		eventually(t, "the session is over", func() bool { return len(r.d.open()) == 0 })
		if got := r.d.budget.InUse(); got != 0 {
			t.Errorf("%d bytes of the budget are still in use", got)
		}
	}
	t.Run("in line", func(t *testing.T) {
		t.Parallel()
		r, c, s := startSession(t, rigOptions{limits: oneAtATime})
		c.call("1", "peek")
		s.takes("tools/call")
		large(c, "2")
		large(c, "3")
		left(t, r, c, 2<<20)
	})
	t.Run("in a pause", func(t *testing.T) {
		t.Parallel()
		r, c, s := startSession(t, rigOptions{})
		s.exit(0)
		r.awaitLost(s)
		large(c, "1")
		large(c, "2")
		left(t, r, c, 2<<20)
	})
	t.Run("before a server that does not read", func(t *testing.T) {
		t.Parallel()
		r := startRig(t, rigOptions{})
		r.servers.behave(manner{deaf: true})
		c := r.dial()
		large(c, "1")
		r.servers.take()
		large(c, "2")
		left(t, r, c, 2<<20)
	})
}

// TestDrain lets calls in flight end, refuses new ones, and then closes.
func TestDrain(t *testing.T) {
	t.Parallel()
	r, c, s := startSession(t, rigOptions{})
	idle := r.dial()
	idle.alive()
	c.call("1", "peek")
	call := s.takes("tools/call")
	r.stop()
	idle.wantEnd()
	c.call("2", "peek")
	if got := c.refusal("2"); got.Code != "draining" || !got.isTool {
		t.Errorf("%+v", got)
	}
	c.send(`{"jsonrpc":"2.0","id":3,"method":"ping"}`)
	if got := c.refusal("3"); got.Code != "draining" || got.number != int(codeDraining) {
		t.Errorf("%+v", got)
	}
	if s := r.d.Snapshot().State; s != "draining" {
		t.Errorf("state %s", s)
	}
	s.answer(call, "{}")
	c.want(`{"jsonrpc":"2.0","id":1,"result":{}}`)
	c.wantEnd()
	r.awaitEnd()
}

// TestDrainEnds ends a drain at its limit, or at once in a hurry; what was in
// flight is on record, and answered so.
func TestDrainEnds(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]time.Duration{"limit": 10 * time.Millisecond, "hurry": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, c, s := startSession(t, rigOptions{limits: func(l *config.Limits) { l.DrainTimeout = limit }})
			c.call("1", "write")
			s.takes("tools/call")
			r.stop()
			if name == "hurry" {
				eventually(t, "it drains", r.d.sessions.Draining)
				close(r.hurry)
			}
			cut := c.refusal("1")
			c.wantEnd()
			if name == "limit" { // in a hurry its input may be closed before it is told
				if m := s.takes("notifications/cancelled"); !strings.Contains(m.raw, "stopping") {
					t.Errorf("the server is told %s", m.raw)
				}
			}
			r.awaitEnd()
			if p := r.d.journal.Pending(); len(p) != 1 || p[0].Reason != "draining" || p[0].RequestID != cut.Run {
				t.Errorf("pending %+v, answered %+v", p, cut)
			}
		})
	}
}

// TestHurry ends the daemon at once when it is told a second time, though its
// servers heed neither the end of their input nor SIGTERM: in the drain and after
// it, and whether it was a signal or the socket that told it first.
func TestHurry(t *testing.T) {
	t.Parallel()
	const deaf = `trap "" TERM; while read line; do echo "$line" >&2; done; while :; do sleep 0.1; done`
	for name, test := range map[string]struct {
		ends, hurry func(*rig)
		busy        bool // a call is in flight
	}{
		"in the drain":          {ends: func(r *rig) { r.stop() }, hurry: func(r *rig) { close(r.hurry) }, busy: true},
		"after the drain":       {ends: func(r *rig) { r.stop() }, hurry: func(r *rig) { close(r.hurry) }},
		"asked over the socket": {ends: func(r *rig) { r.d.Stop() }, hurry: func(r *rig) { r.stop() }, busy: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startRig(t, rigOptions{
				spawner: proc.Direct{}, limits: func(l *config.Limits) { l.DrainTimeout, l.CancelGrace = time.Hour, 10*time.Millisecond },
				config: `{"mcpServers": {"deaf": {"command": "/bin/sh", "args": ["-c", ` + string(quote(deaf)) + `], "tools": {"write": {"class": "mutate"}}}}}`,
			})
			c := r.dial()
			c.call("1", "write")
			eventually(t, "the server has the call", func() bool { return strings.Contains(r.server.String(), "write") })
			if !test.busy {
				c.cancel("1")
				eventually(t, "nothing is in flight", func() bool { return r.d.Snapshot().Sessions[0].InFlight == 0 })
			}
			test.ends(r)
			eventually(t, "it drains", r.d.sessions.Draining)
			if !test.busy {
				c.wantEnd()
			}
			began := time.Now()
			test.hurry(r)
			r.awaitEnd()
			took := time.Since(began)
			t.Logf("gone %v after the second signal", took.Round(time.Millisecond))
			if took > 2*time.Second { // both graces of the server are four
				t.Errorf("it has taken %v", took)
			}
		})
	}
}

// TestDrainEndsTheLine answers calls that still wait when a drain ends, and starts
// no process for them.
func TestDrainEndsTheLine(t *testing.T) {
	t.Parallel()
	r, c, s := startSession(t, rigOptions{limits: func(l *config.Limits) {
		l.ClientCalls, l.DrainTimeout = 1, 50*time.Millisecond
	}})
	c.call("1", "write")
	s.takes("tools/call")
	c.call("2", "write")
	c.call("3", "mystery")
	s.takes("tools/list")
	c.sync(s)
	r.stop()
	if got := c.refusal("1"); got.Code != "draining" || got.Outcome != "unknown" {
		t.Errorf("the call that ran: %+v", got)
	}
	for range 2 {
		m := c.recv()
		if got := refusalIn(t, m, string(m.ID)); got.Code != "draining" || !strings.Contains(got.message, "nothing was sent") {
			t.Errorf("a call that waited: %+v", got)
		}
	}
	c.wantEnd()
	r.awaitEnd()
	r.servers.none()
	if p := r.d.journal.Pending(); len(p) != 1 || p[0].Tool != "write" {
		t.Errorf("pending %+v", p)
	}
}
