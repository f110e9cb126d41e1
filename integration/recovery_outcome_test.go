package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// batch is how many calls are in flight when something happens to them.
const batch = 16

// cutOffCalls starts a batch of calls that hang, and waits until the oracle has
// them. It gives their ids and the oracle's process.
func cutOffCalls(c *client, r *rig, round int, mode string) (ids []string, pid int) {
	for n := range batch {
		id := fmt.Sprintf("%s-%d.%d", mode, round, n)
		ids = append(ids, id)
		c.oracleCall(id, "write", mode)
	}
	return ids, r.awaitSeen(ids...)
}

// answeredOnce fails the test if anything came beside what the test took.
func answeredOnce(c *client, id string) {
	c.t.Helper()
	c.oracleCall(id, "read", "")
	if got := textOf(c.t, c.answer(fmt.Sprintf("%q", id))); got != "did "+id {
		c.t.Errorf("the session answers %q", got)
	}
	if left := c.leftover(); left != "" {
		c.t.Errorf("more came than one answer each: %s", left)
	}
}

// wantPending checks that exactly these calls are pending, for this reason, and
// acknowledges them. Runs, if not nil, are what the answers named.
func (r *rig) wantPending(ids, runs []string, reason string) {
	r.t.Helper()
	pending := r.awaitPending(ids...)
	for _, run := range pending {
		if run.Outcome != "unknown" || run.Reason != reason {
			r.t.Fatalf("the record says %+v, want outcome unknown for reason %s", run, reason)
		}
	}
	if runs != nil && !slices.Equal(runs, runIDs(pending)) {
		r.t.Errorf("the answers named the runs %v, and %v are pending", runs, runIDs(pending))
	}
	r.acknowledgeAll()
}

// TestServerKilled kills the server under a batch of calls.
func TestServerKilled(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.servers["oracle"] = r.oracle()
	r.settings.Limits.ClientCalls = batch + 1
	for round := range repeats(10, 100) {
		c := r.open(socket, "oracle").ready()
		read := fmt.Sprintf("read-%d", round)
		c.oracleCall(read, "read", "hang")
		r.awaitSeen(read)
		ids, pid := cutOffCalls(c, r, round, "hang")
		killProcess(t, pid)
		var runs []string
		for _, id := range ids {
			runs = append(runs, cutOff(t, c.answer(fmt.Sprintf("%q", id)), "server_lost"))
		}
		e := notSent(t, c.answer(fmt.Sprintf("%q", read)), "server_lost")
		if e.RetrySafe == nil || !*e.RetrySafe {
			t.Errorf("a read that was cut off is not safe to repeat: %+v", e)
		}
		r.wantPending(ids, runs, "server_lost")
		if round == 0 { // a second process starts a second later
			c.oracleCall("again", "read", "")
			c.answer(`"again"`)
			c.take("notice of the new process", isMethod("notifications/tools/list_changed"))
			answeredOnce(c, "after-the-kill")
		} else if left := c.leftover(); left != "" {
			t.Errorf("more came than one answer each: %s", left)
		}
		c.close()
	}
	r.sentOnce()
}

// TestServerDies has the server die by one of the calls: nobody knows of any of
// them whether it was done.
func TestServerDies(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.servers["oracle"] = r.oracle()
	r.settings.Limits.ClientCalls = batch + 1
	c := r.open(bridge, "oracle").ready()
	ids, _ := cutOffCalls(c, r, 0, "hang")
	c.oracleCall("death", "write", "die")
	ids = append(ids, "death")
	var runs []string
	for _, id := range ids {
		runs = append(runs, cutOff(t, c.answer(fmt.Sprintf("%q", id)), "server_lost"))
	}
	r.wantPending(ids, runs, "server_lost")
	r.sentOnce()
}

// TestClientLeaves has the client leave under a batch of calls, some of which the
// server answers when it hears of it: those have settled.
func TestClientLeaves(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.servers["oracle"] = r.oracle()
	for round := range repeats(10, 100) {
		w := socket
		if round%5 == 4 {
			w = bridge
		}
		c := r.open(w, "oracle").ready()
		ids, _ := cutOffCalls(c, r, round, "hang")
		c.vanish()
		r.wantPending(ids, nil, "client_left")
	}
	c := r.open(socket, "oracle").ready()
	cutOffCalls(c, r, 0, "late")
	c.vanish()
	r.awaitHistory(batch, "write", "ok")
	r.clear()
	r.sentOnce()
}

// awaitHistory waits until the last n calls of the history ended like that.
func (r *rig) awaitHistory(n int, tool, outcome string) {
	r.t.Helper()
	eventually(r.t, fmt.Sprintf("%d calls ended %s", n, outcome), func() error {
		calls := r.history(n)
		if len(calls) < n {
			return fmt.Errorf("%d calls have ended", len(calls))
		}
		for _, call := range calls {
			if call.Tool != tool || call.Outcome != outcome || call.RequestID == "" {
				return fmt.Errorf("one ended as %+v", call)
			}
		}
		return nil
	})
}

// TestDeadline lets a deadline pass under a batch of calls. The server hears that
// they are cancelled; what it answers then comes too late.
func TestDeadline(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.servers["oracle"] = r.oracle()
	r.settings.Limits.CallTimeout = "400ms"
	c := r.open(socket, "oracle").ready()
	for round := range repeats(10, 100) {
		ids, _ := cutOffCalls(c, r, round, []string{"hang", "late"}[round%2])
		var runs []string
		for _, id := range ids {
			runs = append(runs, cutOff(t, c.answer(fmt.Sprintf("%q", id)), "call_deadline"))
		}
		answeredOnce(c, fmt.Sprintf("after-%d", round))
		r.wantPending(ids, runs, "call_deadline")
	}
	r.sentOnce()
}

// TestCancelIsNoIncident has the client cancel a batch of calls. Whatever the server
// makes of that, the calls are cancelled, not pending, and not answered.
func TestCancelIsNoIncident(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.servers["oracle"] = r.oracle()
	r.settings.Limits.CancelGrace = "50ms"
	c := r.open(socket, "oracle").ready()
	for round := range repeats(10, 100) {
		mode := []string{"hang", "late"}[round%2]
		ids, _ := cutOffCalls(c, r, round, mode)
		for _, id := range ids {
			c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%q}}`, id)
		}
		r.awaitHistory(batch, "write", "cancelled")
		answeredOnce(c, fmt.Sprintf("after-%d", round))
		r.clear()
	}
	r.sentOnce()
}

// TestDeathUnderCancelledCalls kills the server while it has calls that the client
// has cancelled and that have not settled: that is no incident either.
func TestDeathUnderCancelledCalls(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.servers["oracle"] = r.oracle()
	r.settings.Limits.CancelGrace = "1h"
	c := r.open(socket, "oracle").ready()
	ids, pid := cutOffCalls(c, r, 0, "hang")
	for _, id := range ids {
		c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%q}}`, id)
	}
	c.send(`{"jsonrpc":"2.0","id":"told","method":"ping"}`)
	c.answer(`"told"`) // what was sent before has been taken in
	killProcess(t, pid)
	r.awaitHistory(batch, "write", "cancelled")
	r.clear()
	r.sentOnce()
}

// TestAnsweredOutcomes has the server answer in each way: nothing is pending, and
// the history tells them apart.
func TestAnsweredOutcomes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.servers["oracle"] = r.oracle()
	c := r.open(socket, "oracle").ready()
	for mode, want := range map[string]string{"": "ok", "error": "error", "fail": "error"} {
		id := "answered-" + mode
		c.oracleCall(id, "write", mode)
		m := c.answer(fmt.Sprintf("%q", id))
		if strings.Contains(m.raw, "interlock") {
			t.Errorf("the server's own answer came as %s", m.raw)
		}
		r.awaitHistory(1, "write", want)
	}
	r.clear()
}
