package integration

import (
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// countUp has clients add to one file at the same time, and returns what is lost of
// what the server has acknowledged.
func countUp(t *testing.T, r *rig, clients, rounds int) (lost int) {
	var acknowledged atomic.Int64
	var running sync.WaitGroup
	for n := range clients {
		c := r.open(bridge, "ledger").ready()
		running.Go(func() {
			for i := range rounds {
				o, err := c.try(strconv.Itoa(i), "add", r.on("counter", (i+n)%3))
				if err != nil || o.failed {
					t.Errorf("client %d: %+v, %v", n, o, err)
					return
				}
				acknowledged.Add(1)
			}
		})
	}
	running.Wait()
	return int(acknowledged.Load()) - r.count("counter")
}

// TestLostUpdates loses nothing of what several clients write to one file, each by
// a process of its own.
func TestLostUpdates(t *testing.T) {
	t.Parallel()
	for _, clients := range []int{2, 4} {
		t.Run(strconv.Itoa(clients), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.servers["ledger"] = r.ledger()
			lost := countUp(t, r, clients, repeats(50, 500))
			needNone(t, map[string]int{"lost": lost, "overlaps": r.overlaps()})
		})
	}
	t.Run("without leases", func(t *testing.T) { // so that the test can fail
		t.Parallel()
		r := newRig(t)
		s := r.ledger()
		s.Mutations = "off"
		r.servers["ledger"] = s
		if lost := countUp(t, r, 4, 50); lost == 0 || r.overlaps() == 0 {
			t.Errorf("%d lost, %d overlaps", lost, r.overlaps())
		}
	})
}

// TestTransactions refuses nobody for a transaction that another has open: the
// lease is held from call to call, and the last one ends it.
func TestTransactions(t *testing.T) {
	t.Parallel()
	const rounds, hold = 10, 3 * time.Second
	r := newRig(t)
	s := r.ledger()
	s.LeaseHold = hold.String()
	commit := s.Tools["commit"]
	commit.LeaseHold = "0s"
	s.Tools["commit"] = commit
	r.servers["ledger"] = s
	began := time.Now()
	var running sync.WaitGroup
	for n := range 2 {
		c := r.open(bridge, "ledger").ready()
		running.Go(func() {
			for i := range rounds {
				for j, tool := range []string{"begin", "put", "put", "commit"} {
					o, err := c.try(fmt.Sprint(10*i+j), tool, r.on("db", 1))
					if err != nil || o.failed {
						t.Errorf("client %d, round %d, %s: %+v, %v", n, i, tool, o, err)
						return
					}
				}
			}
		})
	}
	running.Wait()
	if got := r.count("db"); got != 2*2*rounds {
		t.Errorf("the number is %d", got)
	}
	if took := time.Since(began); took > rounds*hold { // a hold is not waited out
		t.Errorf("it took %v", took)
	}
}

// TestLeaseDeadlock refuses at once who would close a circle of waiting.
func TestLeaseDeadlock(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.servers["ledger"] = r.ledger()
	a, b := r.openWith("ledger"), r.openWith("ledger")
	a.acquire("1", "one", "")
	b.acquire("1", "two", "")
	a.sendCall("2", "interlock__lease_acquire", `{"resource":"two","waitMs":20000}`)
	r.awaitWaiting(1)
	began := time.Now()
	o, err := b.try("2", "interlock__lease_acquire", `{"resource":"one","waitMs":20000}`)
	if err != nil || o.refused == nil || o.refused.Code != "lease_held" || !o.refused.Deadlock {
		t.Fatalf("got %+v, %v", o, err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("refused after %v", took)
	}
	b.close()
	if got := textOf(t, a.answer("2")); got == "" {
		t.Error("no lease")
	}
}

// TestHolderNeverReturns tells others who it is when they have waited enough, and
// lets them read meanwhile.
func TestHolderNeverReturns(t *testing.T) {
	t.Parallel()
	const limit = 6 * time.Second
	r := newRig(t)
	r.settings.Limits.WaitLimit = limit.String()
	r.servers["ledger"] = r.ledger()
	a, b := r.open(bridge, "ledger").ready(), r.open(bridge, "ledger").ready()
	a.sendCall("1", "hang", r.on("x", 0))
	r.awaitBegun("hang", 1)
	began := time.Now()
	for i := range 16 {
		b.sendCall(strconv.Itoa(i), "add", r.on("x", 0))
	}
	r.awaitWaiting(16)
	for i := range 50 {
		if o, err := b.try(strconv.Itoa(100+i), "peek", r.on("x", 0)); err != nil || o.failed {
			t.Fatalf("reading: %+v, %v", o, err)
		}
		if o, err := a.try(strconv.Itoa(100+i), "peek", r.on("x", 0)); err != nil || o.failed {
			t.Fatalf("reading: %+v, %v", o, err)
		}
	}
	if waiting := len(r.leaseState().Waiting); waiting != 16 {
		t.Errorf("after a hundred reads %d wait", waiting)
	}
	for i := range 16 {
		e := notSent(t, b.answer(strconv.Itoa(i)), "lease_held")
		if e.Holder == nil || e.Holder.OwnerID != "client-1" || e.Holder.Client != "bare" || e.RetryAfterMs == 0 {
			t.Errorf("told %+v", e)
		}
	}
	if took := time.Since(began); took > limit+10*time.Second {
		t.Errorf("refused after %v", took)
	}
	if o, err := b.try("200", "add", r.on("y", 0)); err != nil || o.failed {
		t.Errorf("another file: %+v, %v", o, err)
	}
	a.vanish() // who asks would wait for the answer
}

// TestQuestionUnderALease lets a person take the time that an answer takes; others
// wait for that.
func TestQuestionUnderALease(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.servers["ledger"] = r.ledger()
	a, b := r.open(bridge, "ledger").ready(), r.open(bridge, "ledger").ready()
	a.sendCall("1", "ask", r.on("x", 0))
	question := a.take("question", isMethod("elicitation/create"))
	b.sendCall("1", "add", r.on("x", 0))
	r.awaitWaiting(1)
	if o, err := b.try("2", "peek", r.on("x", 0)); err != nil || o.failed {
		t.Errorf("reading: %+v, %v", o, err)
	}
	a.send(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept","content":{}}}`, question.ID)
	a.answer("1")
	if got := textOf(t, b.answer("1")); got != "1" {
		t.Errorf("the number is %s", got)
	}
	needNone(t, map[string]int{"overlaps": r.overlaps()})
}

// TestLeaseSettles is A9 with real servers: however a call is over, the next owner's
// begins after it has settled.
func TestLeaseSettles(t *testing.T) {
	t.Parallel()
	const grace, delay = 200 * time.Millisecond, 500 * time.Millisecond
	for name, c := range map[string]struct {
		tool    string
		end     func(r *rig, a *client, pid int)
		atLeast time.Duration // that the next owner waits
		pending bool
	}{
		"ends":     {tool: "add", end: func(*rig, *client, int) {}},
		"answered": {tool: "late", end: func(_ *rig, a *client, _ int) { a.cancel("1") }},
		"killed":   {tool: "hang", end: func(r *rig, _ *client, pid int) { killProcess(r.t, pid) }, pending: true},
		"hangs":    {tool: "hang", end: func(_ *rig, a *client, _ int) { a.cancel("1") }, atLeast: grace + delay},
		"left":     {tool: "hang", end: func(_ *rig, a *client, _ int) { a.vanish() }, pending: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range repeats(4, 40) {
				r := newRig(t)
				r.settings.Limits.CancelGrace, r.settings.Limits.LockDelay = grace.String(), delay.String()
				r.servers["ledger"] = r.ledger()
				a, b := r.open(bridge, "ledger").ready(), r.open(bridge, "ledger").ready()
				a.sendCall("1", c.tool, r.on("x", 1000))
				r.awaitBegun(c.tool, 1)
				pid, err := strconv.Atoi(r.entries()[0].pid)
				if err != nil {
					t.Fatal(err)
				}
				b.sendCall("1", "add", r.on("x", 0))
				r.awaitWaiting(1)
				began := time.Now()
				c.end(r, a, pid)
				if got := textOf(t, b.answer("1")); got == "" {
					t.Error("no answer")
				}
				if waited := time.Since(began); waited < c.atLeast {
					t.Errorf("the next began after %v", waited)
				}
				if gone := alive(strconv.Itoa(pid)) == nil; c.pending && !gone {
					t.Errorf("the next began while process %d was there", pid)
				}
				runs := 0
				if c.pending {
					runs = len(r.awaitPendingRuns(1))
				}
				needNone(t, map[string]int{"overlaps": r.overlaps(), "pending": runs - map[bool]int{true: 1}[c.pending]})
			}
		})
	}
}

// TestEpochsOverRestarts has the epochs of a daemon be larger than all of those
// before it, however they ended; what was held is held no more.
func TestEpochsOverRestarts(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.servers["ledger"] = r.ledger()
	var last uint64
	for i := range 5 {
		c := r.openWith("ledger")
		if n := len(r.leaseState().Leases); n != 0 {
			t.Errorf("daemon %d begins with %d leases", i, n)
		}
		for j := range 3 {
			l := c.acquire(strconv.Itoa(j), "name-"+strconv.Itoa(j), `,"ttlMs":600000`)
			if l.Epoch <= last {
				t.Errorf("epoch %d after %d", l.Epoch, last)
			}
			last = l.Epoch
		}
		if o, err := c.try("9", "add", r.on("x", 0)); err != nil || o.failed {
			t.Errorf("%+v, %v", o, err)
		}
		if i%2 == 0 {
			r.kill()
		} else {
			r.stop()
		}
		c.exitCode()
	}
}
