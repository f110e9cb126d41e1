package mcpd

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"interlock/mcpd/internal/config"
	"interlock/recovery"
)

// oneAtATime lets one call run and the others wait.
func oneAtATime(l *config.Limits) { l.ClientCalls = 1 }

// TestCancelRunning passes a cancellation on under the server's id, with the rest
// as the client wrote it. The client hears no more of the call.
func TestCancelRunning(t *testing.T) {
	t.Parallel()
	_, c, s := startSession(t, rigOptions{})
	c.call(`"a"`, "peek")
	call := s.takes("tools/call")
	c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"reason":"enough","requestId":"\u0061","x":1}}`)
	s.want(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"reason":"enough","requestId":` + string(call.ID) + `,"x":1}}`)
	c.call(`"a"`, "peek") // the id is free at once
	again := s.takes("tools/call")
	s.answer(call, `{"late":1}`)
	s.answer(again, `{"late":0}`)
	c.want(`{"jsonrpc":"2.0","id":"a","result":{"late":0}}`)
	c.cancel(`"a"`) // too late: it is answered
	c.sync(s)
}

// TestCancelWaiting has a call that waits leave the line, unseen by the server.
func TestCancelWaiting(t *testing.T) {
	t.Parallel()
	_, c, s := startSession(t, rigOptions{limits: oneAtATime})
	for _, id := range []string{"1", "2", "3"} {
		c.call(id, "peek")
	}
	first := s.takes("tools/call")
	c.cancel("2")
	c.sync(s)
	s.answer(first, "{}")
	c.want(`{"jsonrpc":"2.0","id":1,"result":{}}`)
	s.answer(s.takes("tools/call"), "{}")
	c.want(`{"jsonrpc":"2.0","id":3,"result":{}}`)
}

// TestCancelWaitingForList cancels a call that waits until its class is known: it
// is never sent, and no permit is held.
func TestCancelWaitingForList(t *testing.T) {
	t.Parallel()
	_, c, s := startSession(t, rigOptions{limits: oneAtATime})
	c.call("1", "mystery")
	list := s.takes("tools/list")
	c.cancel("1")
	c.sync(s)
	s.answer(list, `{"tools":[{"name":"mystery"}]}`)
	c.call("2", "mystery")
	s.answer(s.takes("tools/call"), "{}")
	c.want(`{"jsonrpc":"2.0","id":2,"result":{}}`)
}

// TestCancelHoldsPermits has a cancelled call hold its permits until its server
// answers or the grace is over: it may still be at work.
func TestCancelHoldsPermits(t *testing.T) {
	t.Parallel()
	for name, grace := range map[string]time.Duration{"answer": time.Hour, "grace": time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, c, s := startSession(t, rigOptions{limits: func(l *config.Limits) { l.ClientCalls, l.CancelGrace = 1, grace }})
			c.call("1", "write")
			call := s.takes("tools/call")
			c.call("2", "peek")
			c.cancel("1")
			s.takes("notifications/cancelled")
			if name == "answer" {
				c.sync(s)
				s.answer(call, "{}")
			}
			s.answer(s.takes("tools/call"), "{}")
			c.want(`{"jsonrpc":"2.0","id":2,"result":{}}`)
			if name == "grace" {
				s.answer(call, "{}") // late: dropped
			}
			c.sync(s)
			// What is not answered is not kept for ever.
			if _, inFlight := r.instance().snapshot(); inFlight != 0 {
				t.Errorf("%d requests in flight", inFlight)
			}
			if calls, _, err := r.d.journal.History(1); err != nil || len(calls) != 1 {
				t.Errorf("history %v, %v", calls, err)
			}
			if pending := r.d.journal.Pending(); len(pending) != 0 {
				t.Errorf("pending runs %v: what the client cancels is no incident", pending)
			}
		})
	}
}

// instance returns the only instance that runs.
func (r *rig) instance() *instance {
	r.t.Helper()
	for _, c := range r.d.open() {
		if u := c.upstream.Load(); u != nil {
			u.mu.Lock()
			in := u.current
			u.mu.Unlock()
			if in != nil {
				return in
			}
		}
	}
	r.t.Fatal("no server runs")
	return nil
}

// TestCancelAnywhere sends each cancellation right behind its call. Wherever it
// meets it, the server sees neither or both, in order, and no permit is lost.
func TestCancelAnywhere(t *testing.T) {
	t.Parallel()
	r, c, s := startSession(t, rigOptions{limits: func(l *config.Limits) {
		l.ClientCalls, l.ClientWaiting, l.CancelGrace = 2, 1000, time.Hour
	}})
	const n = 600
	done := make(chan struct{})
	go func() { // the server: it answers what is not cancelled, and what is
		defer close(done)
		open := make(map[string]bool)
		for line := range s.ch {
			m := parse(t, line)
			switch m.Method {
			case "tools/call":
				open[string(m.ID)] = true
				s.say(`{"jsonrpc":"2.0","method":"notifications/message","params":{}}`)
				s.answer(m, "{}")
			case "notifications/cancelled":
				if id := requestID(t, m); !open[id] {
					t.Errorf("cancelled before its call: %s", line)
				}
			case "ping":
				s.answer(m, "{}")
				return
			}
		}
	}()
	for i := range n {
		c.call(fmt.Sprint(i), "peek")
		c.cancel(fmt.Sprint(i))
	}
	eventually(t, "all calls are settled", func() bool {
		s := r.d.Snapshot().Sessions[0]
		return s.InFlight == 0 && s.Waiting == 0
	})
	c.send(`{"jsonrpc":"2.0","id":"last","method":"ping"}`)
	<-done
	for { // some calls were answered before they were cancelled
		if m := c.recv(); string(m.ID) == `"last"` {
			break
		}
	}
	if _, inFlight := r.instance().snapshot(); inFlight != 0 {
		t.Errorf("%d requests are still in flight", inFlight)
	}
}

// requestID returns the id that a cancellation names.
func requestID(t testing.TB, m message) string {
	t.Helper()
	var params struct {
		RequestID json.RawMessage `json:"requestId"`
	}
	if err := json.Unmarshal(m.Params, &params); err != nil {
		t.Fatalf("%v in %s", err, m.raw)
	}
	return string(params.RequestID)
}

// TestCallTimeout gives a call up that neither is answered nor reports progress.
func TestCallTimeout(t *testing.T) {
	t.Parallel()
	r, c, s := startSession(t, rigOptions{limits: func(l *config.Limits) { l.CallTimeout = 600 * time.Millisecond }})
	c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"write","_meta":{"progressToken":"t"}}}`)
	call := s.takes("tools/call")
	began := time.Now()
	for range 3 {
		<-time.After(200 * time.Millisecond) // no event: the deadline itself is what passes
		s.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s}}`, call.ID)
		if got := c.recv(); got.Method != "notifications/progress" {
			t.Fatalf("got %s", got.raw)
		}
	}
	got := c.refusal("1")
	if got.Code != "call_deadline" || got.Outcome != "unknown" || got.Run == "" || time.Since(began) < 1200*time.Millisecond {
		t.Errorf("after %v: %+v", time.Since(began), got)
	}
	if m := s.takes("notifications/cancelled"); !strings.Contains(m.raw, `"requestId":`+string(call.ID)) {
		t.Errorf("the server is told %s", m.raw)
	}
	if p := r.d.journal.Pending(); len(p) != 1 || p[0].RequestID != got.Run || p[0].Outcome != recovery.OutcomeUnknown {
		t.Errorf("pending %+v", p)
	}
	s.answer(call, "{}")
	c.sync(s)
}

// TestBusy refuses calls for which no permit becomes free in time.
func TestBusy(t *testing.T) {
	t.Parallel()
	r, c, s := startSession(t, rigOptions{limits: func(l *config.Limits) {
		l.ClientCalls, l.ClientWaiting, l.WaitLimit = 1, 1, 900*time.Millisecond
	}})
	c.call("1", "peek")
	call := s.takes("tools/call")
	for i := range 5 { // four may wait for a moment
		c.call(fmt.Sprint(2+i), "write")
	}
	got := c.refusal("6")
	if got.Code != "busy" || !got.isTool || got.Outcome != "not_sent" || !*got.RetrySafe || got.RetryAfterMs == 0 || got.InFlight != 1 {
		t.Errorf("a full line: %+v", got)
	}
	c.sync(s) // a ping passes the line
	for i := range 4 {
		if got := c.refusal(fmt.Sprint(2 + i)); got.Code != "busy" || got.Limit == "" {
			t.Errorf("out of time: %+v", got)
		}
	}
	s.answer(call, "{}")
	c.want(`{"jsonrpc":"2.0","id":1,"result":{}}`)
	c.sync(s)
	if got := r.d.counters.refusedBusy.Load(); got != 5 {
		t.Errorf("%d busy refusals counted, want 5", got)
	}
}
