package leases_test

import (
	"context"
	"testing"
	"time"

	"interlock/leases"
)

// TestOrder is first come, first served, and an owner excludes itself no more than
// it would without leases.
func TestOrder(t *testing.T) {
	inBubble(t, func(b bench) {
		a1 := b.enter("a", 0, "r").granted()
		a2 := b.enter("a", 0, "r").granted()
		b1, c1 := b.enter("b", 0, "r").waits(), b.enter("c", 0, "r").waits()
		b2 := b.enter("b", 0, "r").waits()
		a3 := b.enter("a", 0, "r").waits() // behind those who wait, though a has it
		other := b.enter("c", 0, "s").granted()
		a1.leave()
		b1.waits()
		a2.leave()
		b1.granted()
		b2.waits() // c1 is before
		b1.leave()
		c1.granted()
		c1.leave()
		b2.granted()
		a3.waits()
		b2.leave()
		a3.granted()
		if waited, first := a3.Waited(); waited != 0 || first.Owner != "b" || !first.Waits || first.Resource != "r" {
			t.Errorf("waited %v for %+v", waited, first)
		}
		a3.leave()
		other.leave()
		b.wantList()
	})
}

// TestTogether grants all that one owner waits for, as far as nobody is between.
func TestTogether(t *testing.T) {
	inBubble(t, func(b bench) {
		a := b.enter("a", 0, "r").granted()
		b1, b2 := b.enter("b", 0, "r").waits(), b.enter("b", 0, "r").waits()
		a.leave()
		b1.granted()
		b2.granted().leave()
		b1.leave()

		a = b.enter("a", 0, "r").granted()
		c := b.enter("c", 0, "s").granted()
		both := b.enter("b", 0, "r", "s").waits()
		one := b.enter("b", 0, "r").waits()
		a.leave()
		one.granted().leave() // it does not wait for its own owner's turn
		c.leave()
		both.granted().leave()
	})
}

// TestAllOrNone has who waits hold nothing meanwhile, and be overtaken by nobody
// whose resources conflict with his.
func TestAllOrNone(t *testing.T) {
	inBubble(t, func(b bench) {
		a := b.enter("a", 0, "y").granted()
		both := b.enter("b", 0, "z", "x", "y").waits()
		b.wantList("y")
		x := b.enter("c", 0, "x").waits() // free, but somebody before needs it
		w := b.enter("c", 0, "w").granted()
		a.leave()
		both.granted()
		b.wantList("w", "x", "y", "z")
		x.waits()
		both.leave()
		x.granted()
		x.leave()
		w.leave()
	})
}

func TestTrees(t *testing.T) {
	inBubble(t, func(b bench) {
		file := b.enter("a", 0, "file:/p/x").granted()
		tree := b.enter("b", 0, "tree:/p").waits()
		behind := b.enter("c", 0, "file:/p/y").waits()
		beside := b.enter("c", 0, "file:/q").granted()
		file.leave()
		tree.granted()
		within := b.enter("b", 0, "file:/p/z").granted()
		after := b.enter("b", 0, "file:/p/y").waits() // c was before
		tree.leave()
		behind.waits() // within uses the lease on the tree
		within.leave()
		behind.granted().leave()
		after.granted().leave()
		beside.leave()
		root := b.enter("a", 0, "tree:/").granted()
		b.enter("b", 0, "file:/x").waits().leave()
		deep := b.enter("b", 0, "tree:/p/q/r").waits()
		root.leave()
		deep.granted().leave()
		b.wantList()
	})
}

// TestCovered takes one lease where one resource is in another.
func TestCovered(t *testing.T) {
	inBubble(t, func(b bench) {
		u := b.enter("a", 0, "file:/p/x", "tree:/p", "tree:/p", "n").granted()
		b.wantList("tree:/p", "n")
		v := b.enter("a", 0, "file:/p/y").granted()
		b.wantList("tree:/p", "n")
		if u.Epoch() != 101 || v.Epoch() != 101 {
			t.Errorf("epochs %d and %d", u.Epoch(), v.Epoch())
		}
		u.leave()
		b.wantList("tree:/p")
		v.leave()
		b.wantList()
	})
}

// TestHold keeps a lease after its call, each further call anew, and as long as
// HoldMax in all while somebody waits.
func TestHold(t *testing.T) {
	const hold = 3 * time.Second
	inBubble(t, func(b bench) {
		for range 10 { // nobody waits: for ever
			b.enter("a", hold, "r").granted().leave()
			time.Sleep(2 * time.Second)
		}
		b.wantList("r")
		next := b.enter("b", 0, "r")
		next.granted() // HoldMax was over long ago
		next.leave()

		began := time.Now()
		b.enter("a", hold, "r").granted().leave()
		next = b.enter("b", 0, "r").waits()
		calls := 0
		for ; time.Since(began) < holdMax; calls++ {
			b.enter("a", hold, "r").granted().leave() // goes before b
			next.waits()
			time.Sleep(time.Second)
		}
		next.granted()
		if calls != 15 {
			t.Errorf("%d calls before somebody else's", calls)
		}
		mine := b.enter("a", hold, "r").waits()
		next.leave()
		mine.granted().leave()
		time.Sleep(hold - time.Millisecond)
		b.wantList("r")
		time.Sleep(time.Millisecond)
		b.wantList()
	})
}

// TestHoldEnds has a call end what those before it have held.
func TestHoldEnds(t *testing.T) {
	inBubble(t, func(b bench) {
		b.enter("a", time.Minute, "r").granted().leave()
		b.wantList("r")
		b.enter("a", 0, "r").granted().leave()
		b.wantList()
	})
}

// TestHoldUnderACall lets calls of the owner in while HoldMax lasts, and then waits
// for those that run.
func TestHoldUnderACall(t *testing.T) {
	inBubble(t, func(b bench) {
		long := b.enter("a", time.Second, "r").granted()
		next := b.enter("b", 0, "r").waits()
		time.Sleep(holdMax - time.Second)
		b.enter("a", time.Second, "r").granted().leave()
		time.Sleep(time.Second)
		late := b.enter("a", time.Second, "r").waits()
		time.Sleep(time.Hour) // under a call it never ends
		next.waits()
		long.leave()
		next.granted().leave()
		late.granted().leave()
	})
}

func TestGiveUp(t *testing.T) {
	inBubble(t, func(b bench) {
		a := b.enter("a", 0, "r").granted()
		second := b.enter("b", 0, "r").waits()
		time.Sleep(5 * time.Second)
		third, fourth := b.enter("c", 0, "r").waits(), b.enter("d", 0, "r").waits()
		time.Sleep(time.Second)
		h := held(t, third.givesUp())
		if h.Resource != "r" || h.Holder != party("b") || !h.Waits || h.Age != 6*time.Second || h.Waited != time.Second || h.Own || h.Deadlock {
			t.Errorf("told %+v", h)
		}
		if h.WaitsFor == nil || h.WaitsFor.Owner != "a" || h.WaitsFor.Resource != "r" || h.WaitsFor.Waits {
			t.Errorf("told that the holder waits for %+v", h.WaitsFor)
		}
		h = held(t, second.givesUp())
		if h.Holder != party("a") || h.Waits || h.Age != 6*time.Second || h.Calls != 1 || h.Expires != 0 || h.WaitsFor != nil || h.Waited != 6*time.Second {
			t.Errorf("told %+v", h)
		}
		third.Leave()                         // it is over already
		if l := b.List()[0]; l.Waiting != 1 { // the fourth
			t.Errorf("%d wait for it", l.Waiting)
		}
		fourth.waits()
		a.leave()
		fourth.granted().leave()
		b.wantList()
	})
}

// TestLeaveWhileWaiting is how a call that nobody wants any more gives up its place.
func TestLeaveWhileWaiting(t *testing.T) {
	inBubble(t, func(b bench) {
		a := b.enter("a", 0, "x").granted()
		both := b.enter("b", 0, "x", "y").waits()
		y := b.enter("c", 0, "y").waits()
		both.leave()
		y.granted()
		if err := <-both.done; err == nil {
			t.Error("it was granted")
		}
		a.leave()
		y.leave()
		y.Leave()
		b.wantList()
	})
}

// TestGrantedAtTheLastMoment keeps a grant that comes together with the end of the
// wait.
func TestGrantedAtTheLastMoment(t *testing.T) {
	inBubble(t, func(b bench) {
		a := b.enter("a", 0, "r").granted()
		var u leases.Use
		granted, err := b.Enter(&u, leases.Request{Party: party("b"), Resources: []leases.Resource{"r"}})
		if granted || err != nil {
			t.Fatalf("entered: %t, %v", granted, err)
		}
		a.leave()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := u.Wait(ctx); err != nil {
			t.Errorf("waiting: %v", err)
		}
		b.wantList("r")
		u.Leave()
		b.wantList()
	})
}

func TestEpochs(t *testing.T) {
	inBubble(t, func(b bench) {
		var last uint64
		for range 3 {
			u := b.enter("a", 0, "r", "s").granted()
			if u.Epoch() <= last+1 {
				t.Errorf("epoch %d after %d", u.Epoch(), last)
			}
			last = u.Epoch()
			u.leave()
		}
	})
	table := leases.New(leases.Options{Clock: func() time.Duration { return 0 }, Now: time.Now, First: 7, Last: 8})
	defer table.Close()
	enter := func(resources ...leases.Resource) error {
		var u leases.Use
		granted, err := table.Enter(&u, leases.Request{Party: party("a"), Resources: resources})
		if err == nil && (!granted || u.Epoch() != 7) {
			t.Errorf("granted: %t, epoch %d", granted, u.Epoch())
		}
		return err
	}
	wantError(t, enter("r", "s"), leases.ErrExhausted)
	if err := enter("r"); err != nil {
		t.Error(err)
	}
	wantError(t, enter("s"), leases.ErrExhausted)
}

// TestReleaseOwner ends what is idle at once, and the rest with its calls.
func TestReleaseOwner(t *testing.T) {
	inBubble(t, func(b bench) {
		b.acquire("client-1", time.Minute, "hand")
		b.acquire("client-1/x", time.Minute, "actor")
		b.acquire("client-10", time.Minute, "other")
		b.enter("client-1", time.Minute, "hold").granted().leave()
		call := b.enter("client-1/x", time.Minute, "call").granted()
		used := b.acquire("client-1", time.Minute, "used")
		under := b.enter("client-1", 0, "used").granted()
		next := b.enter("b", 0, "call", "hand").waits()
		b.ReleaseOwner("client-1")
		b.wantList("other", "call", "used")
		for _, l := range b.List() {
			if l.Ending != (l.Resource != "other") || l.ByHand != (l.Resource == "other") {
				t.Errorf("lease %+v", l)
			}
		}
		_, err := b.Validate("client-1", used[0].Handle)
		wantError(t, err, leases.ErrExpired)
		next.waits()
		call.leave()
		next.granted().leave()
		under.leave()
		b.wantList("other")
	})
}

func TestBreak(t *testing.T) {
	inBubble(t, func(b bench) {
		_, err := b.Break("r")
		wantError(t, err, leases.ErrNotFound)
		a := b.enter("a", 0, "r").granted()
		next := b.enter("b", 0, "r").waits()
		if err := a.Valid(); err != nil {
			t.Errorf("before: %v", err)
		}
		was, err := b.Break("r")
		if err != nil || was.Owner != "a" || was.Calls != 1 || was.Waiting != 1 || was.Resource != "r" || was.Epoch != 100 {
			t.Errorf("broken was %+v, %v", was, err)
		}
		next.granted()
		wantError(t, a.Valid(), leases.ErrBroken)
		a.leave() // and does not end what is another's now
		b.wantList("r")
		if err := next.Valid(); err != nil {
			t.Error(err)
		}
		next.leave()
		b.enter("a", time.Minute, "r").granted().leave()
		if _, err := b.Break("r"); err != nil {
			t.Error(err)
		}
		b.wantList()
	})
}

// TestClose grants nothing more, and lets who waits give up.
func TestClose(t *testing.T) {
	inBubble(t, func(b bench) {
		a := b.enter("a", 0, "r").granted()
		next := b.enter("b", 0, "r").waits()
		b.Close()
		a.leave()
		held(t, next.givesUp())
		_, err := b.Enter(new(leases.Use), leases.Request{Party: party("c"), Resources: []leases.Resource{"s"}})
		wantError(t, err, leases.ErrExhausted)
	})
}

func TestList(t *testing.T) {
	inBubble(t, func(b bench) {
		b.acquire("a", time.Minute, "tree:/p")
		time.Sleep(time.Second)
		u := b.enter("b", 0, "r").granted()
		w1 := b.enter("c", 0, "file:/p/x", "r").waits()
		time.Sleep(time.Second)
		w2 := b.enter("d", 0, "r").waits()
		list := b.List()
		want := leases.Lease{Resource: "tree:/p", Party: party("a"), Epoch: 100, ByHand: true, Granted: time.Now().Add(-2 * time.Second), Expires: time.Now().Add(58 * time.Second)}
		if len(list) != 2 || list[0].Waiting+list[1].Waiting != 1 || list[1].Calls != 1 || list[1].Owner != "b" || list[1].ByHand {
			t.Errorf("leases %+v", list)
		}
		want.Waiting = list[0].Waiting
		if list[0] != want {
			t.Errorf("lease %+v, want %+v", list[0], want)
		}
		waiting := b.Waiting()
		if len(waiting) != 2 || waiting[0].Owner != "c" || len(waiting[0].Resources) != 2 || !waiting[0].Since.Equal(time.Now().Add(-time.Second)) ||
			waiting[1].Owner != "d" || waiting[1].Blocked != (leases.Blocker{Resource: "r", Owner: "c", Client: "client of c", Waits: true}) {
			t.Errorf("waiting %+v", waiting)
		}
		for r, owner := range map[leases.Resource]string{"tree:/p": "a", "file:/p/x/y": "a", "r": "b", "file:/q": "", "s": ""} {
			if l, ok := b.Owner(r); ok != (owner != "") || l.Owner != owner {
				t.Errorf("%s is %+v's, %t", r, l, ok)
			}
		}
		w1.leave()
		w2.leave()
		u.leave()
	})
}
