package leases_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"interlock/leases"
)

// TestByHand lasts its time to live from the last use on, and is never over under a
// call.
func TestByHand(t *testing.T) {
	inBubble(t, func(b bench) {
		const ttl = 2 * holdMax
		g := b.acquire("a", ttl, "r")
		if len(g) != 1 || g[0].Owner != "a" || !g[0].ByHand || g[0].Epoch != 100 || !strings.HasPrefix(string(g[0].Handle), "100.") || !g[0].Expires.Equal(time.Now().Add(ttl)) {
			t.Errorf("granted %+v", g)
		}
		next := b.enter("b", 0, "r").waits()
		time.Sleep(ttl - time.Second)
		u := b.enter("a", 0, "r").granted() // goes before b
		time.Sleep(time.Hour)
		next.waits()
		u.leave()
		time.Sleep(ttl - time.Nanosecond)
		next.waits()
		time.Sleep(time.Nanosecond)
		next.granted().leave()
		_, err := b.Renew("a", g[0].Handle, time.Second)
		wantError(t, err, leases.ErrExpired)
	})
}

func TestRenew(t *testing.T) {
	inBubble(t, func(b bench) {
		g := b.acquire("a", time.Second, "r")[0]
		for range 5 {
			time.Sleep(900 * time.Millisecond)
			if l, err := b.Renew("a", g.Handle, time.Second); err != nil || !l.Expires.Equal(time.Now().Add(time.Second)) {
				t.Errorf("renewed: %+v, %v", l, err)
			}
		}
		if _, err := b.Renew("a", g.Handle, time.Minute); err != nil {
			t.Error(err)
		}
		time.Sleep(59 * time.Second)
		b.wantList("r")
		time.Sleep(time.Second)
		b.wantList()
	})
}

// TestHandles are good for their owner and as long as the lease lives.
func TestHandles(t *testing.T) {
	inBubble(t, func(b bench) {
		g := b.acquire("a", time.Minute, "r")[0]
		old := b.acquire("a", time.Second, "old")[0]
		broken := b.acquire("a", time.Minute, "broken")[0]
		released := b.acquire("a", time.Minute, "released")[0]
		if _, err := b.Release("a", released.Handle); err != nil {
			t.Error(err)
		}
		if _, err := b.Break("broken"); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Second)
		epoch, secret, _ := strings.Cut(string(g.Handle), ".")
		forged := leases.Handle(epoch + "." + strings.Repeat("A", len(secret)))
		for _, c := range []struct {
			owner  string
			handle leases.Handle
			want   error
		}{
			{"b", g.Handle, leases.ErrNotOwner},
			{"a/x", g.Handle, leases.ErrNotOwner},
			{"a", forged, leases.ErrNotFound},
			{"b", forged, leases.ErrNotFound},
			{"a", leases.Handle("999." + secret), leases.ErrNotFound},
			{"a", leases.Handle(strings.Split(string(old.Handle), ".")[0] + "." + secret), leases.ErrNotFound},
			{"a", old.Handle, leases.ErrExpired},
			{"a", broken.Handle, leases.ErrExpired},
			{"a", released.Handle, leases.ErrExpired},
			{"a", "", leases.ErrInvalid},
			{"a", "x." + leases.Handle(secret), leases.ErrInvalid},
			{"a", leases.Handle(epoch), leases.ErrInvalid},
			{"a", g.Handle + "A", leases.ErrInvalid},
		} {
			_, err := b.Validate(c.owner, c.handle)
			wantError(t, err, c.want)
			_, err = b.Renew(c.owner, c.handle, time.Second)
			wantError(t, err, c.want)
			_, err = b.Release(c.owner, c.handle)
			wantError(t, err, c.want)
			_, err = b.Enter(new(leases.Use), leases.Request{Party: party(c.owner), Handles: []leases.Handle{c.handle}})
			wantError(t, err, c.want)
		}
		if l, err := b.Validate("a", g.Handle); err != nil || l.Resource != "r" {
			t.Errorf("the right one: %+v, %v", l, err)
		}
		if strings.Contains(fmt.Sprintf("%+v %+v", b.List(), b.Waiting()), secret) {
			t.Error("a list has a secret in it")
		}
	})
}

// TestMustHold wants handles that cover all of a call.
func TestMustHold(t *testing.T) {
	inBubble(t, func(b bench) {
		tree, other := b.acquire("a", time.Minute, "tree:/p")[0], b.acquire("a", time.Minute, "n")[0]
		enter := func(handles []leases.Handle, resources ...leases.Resource) error {
			var u leases.Use
			granted, err := b.Enter(&u, leases.Request{Party: party("a"), Resources: resources, Handles: handles, MustHold: true})
			if err == nil {
				if !granted || u.Epoch() != tree.Epoch && u.Epoch() != other.Epoch {
					t.Errorf("granted: %t, epoch %d", granted, u.Epoch())
				}
				u.Leave()
			}
			return err
		}
		both := []leases.Handle{tree.Handle, other.Handle}
		for _, err := range []error{enter(both[:1], "file:/p/x"), enter(both, "file:/p/x", "tree:/p/q", "n"), enter(both[1:], "n")} {
			if err != nil {
				t.Error(err)
			}
		}
		wantError(t, enter(nil, "file:/p/x"), leases.ErrNotHeld)
		wantError(t, enter(both[:1], "file:/p/x", "n"), leases.ErrNotHeld)
		wantError(t, enter(both, "file:/q"), leases.ErrNotHeld)
		b.wantList("tree:/p", "n")
	})
}

// TestReleaseUnderACall ends the lease with the call.
func TestReleaseUnderACall(t *testing.T) {
	inBubble(t, func(b bench) {
		g := b.acquire("a", time.Minute, "r")[0]
		u := b.enter("a", 0, "r").granted()
		next := b.enter("b", 0, "r").waits()
		if l, err := b.Release("a", g.Handle); err != nil || !l.Ending || l.ByHand {
			t.Errorf("released: %+v, %v", l, err)
		}
		next.waits()
		b.enter("a", 0, "r").waits().leave() // it does not go before any more
		u.leave()
		next.granted().leave()
	})
}

// TestUpgrade makes a lease that was taken for a call one by hand.
func TestUpgrade(t *testing.T) {
	inBubble(t, func(b bench) {
		u := b.enter("a", 0, "r").granted()
		g := b.acquire("a", time.Minute, "r", "s")
		if g[0].Resource != "r" || g[0].Epoch != u.Epoch() || g[1].Epoch != u.Epoch()+1 {
			t.Errorf("granted %+v after epoch %d", g, u.Epoch())
		}
		u.leave()
		b.wantList("r", "s")
		_, err := b.tryAcquire("a", time.Minute, "s")
		if h := held(t, err); !h.Own || h.Resource != "s" || h.Expires != time.Minute {
			t.Errorf("told %+v", h)
		}
		_, err = b.tryAcquire("a", time.Minute, "q", "s")
		held(t, err)
		b.wantList("r", "s") // nothing of it
	})
}

func TestAcquireRefused(t *testing.T) {
	inBubble(t, func(b bench) {
		for _, a := range []leases.Acquisition{
			{Party: party("a"), TTL: time.Second},
			{Party: party("a"), TTL: leases.MinTTL - 1, Resources: []leases.Resource{"r"}},
			{Party: party("a"), TTL: leases.MaxTTL + 1, Resources: []leases.Resource{"r"}},
			{Party: party(""), TTL: time.Second, Resources: []leases.Resource{"r"}},
			{Party: party("a b"), TTL: time.Second, Resources: []leases.Resource{"r"}},
			{Party: party(strings.Repeat("x", 129)), TTL: time.Second, Resources: []leases.Resource{"r"}},
		} {
			_, err := b.Acquire(context.Background(), a)
			wantError(t, err, leases.ErrInvalid)
		}
		g := b.acquire("a", time.Second, "r")[0]
		_, err := b.Renew("a", g.Handle, leases.MaxTTL+1)
		wantError(t, err, leases.ErrInvalid)
		for i := range 255 {
			b.acquire("a", time.Minute, leases.Resource(fmt.Sprint("n", i)))
		}
		_, err = b.tryAcquire("a", time.Minute, "more")
		wantError(t, err, leases.ErrExhausted)
		b.acquire("b", time.Minute, "more")
	})
}

// TestAcquireWaits in the same line as calls.
func TestAcquireWaits(t *testing.T) {
	inBubble(t, func(b bench) {
		a := b.enter("a", 0, "r").granted()
		got := make(chan error, 1)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		go func() {
			g, err := b.Acquire(ctx, leases.Acquisition{Party: party("b"), Resources: []leases.Resource{"r"}, TTL: time.Second})
			if err == nil && (len(g) != 1 || !g[0].Expires.Equal(time.Now().Add(time.Second))) {
				err = fmt.Errorf("granted %+v", g)
			}
			got <- err
		}()
		synctest.Wait()
		c := b.enter("c", 0, "r").waits()
		time.Sleep(30 * time.Second)
		a.leave()
		if err := <-got; err != nil {
			t.Error(err)
		}
		c.waits()
		time.Sleep(time.Second)
		c.granted().leave()
	})
}

// TestDeadlock refuses at once who would wait for somebody who waits for him.
func TestDeadlock(t *testing.T) {
	inBubble(t, func(b bench) {
		b.acquire("a", time.Minute, "x")
		b.acquire("b", time.Minute, "y")
		b.acquire("c", time.Minute, "z")
		waiting := b.enter("a", 0, "y").waits()
		behind := b.enter("d", 0, "y").waits()
		_, err := b.tryAcquire("b", time.Minute, "x")
		if h := held(t, err); !h.Deadlock || h.Holder.Owner != "a" || h.WaitsFor == nil || h.WaitsFor.Resource != "y" || h.WaitsFor.Owner != "b" {
			t.Errorf("told %+v", h)
		}
		_, err = b.Enter(new(leases.Use), leases.Request{Party: party("b"), Resources: []leases.Resource{"x"}})
		if h := held(t, err); !h.Deadlock {
			t.Errorf("told %+v", h)
		}
		// Over three: b waits for z, c would wait for x, whose owner waits for b.
		third := b.enter("b", 0, "z").waits()
		_, err = b.Enter(new(leases.Use), leases.Request{Party: party("c"), Resources: []leases.Resource{"x"}})
		if h := held(t, err); !h.Deadlock {
			t.Errorf("told %+v", h)
		}
		if n := len(b.Waiting()); n != 3 {
			t.Errorf("%d wait", n)
		}
		for _, u := range []*attempt{waiting, behind, third} {
			u.leave()
		}
	})
}

// TestNoDeadlock is none where a lease ends with the call that it was taken for.
func TestNoDeadlock(t *testing.T) {
	inBubble(t, func(b bench) {
		x, y := b.enter("a", 0, "x").granted(), b.enter("b", 0, "y").granted()
		ay, bx := b.enter("a", 0, "y").waits(), b.enter("b", 0, "x").waits()
		x.leave()
		bx.granted().leave()
		y.leave()
		ay.granted().leave()

		b.acquire("a", time.Minute, "x")
		y = b.enter("b", 0, "y").granted() // ends by itself
		ay = b.enter("a", 0, "y").waits()
		bx = b.enter("b", 0, "x").waits()
		y.leave()
		ay.granted().leave()
		bx.leave()
	})
}

// TestGraves forgets the oldest of the leases that have ended.
func TestGraves(t *testing.T) {
	inBubble(t, func(b bench) {
		first := b.acquire("a", time.Second, "r")[0]
		for i := range 1024 {
			time.Sleep(time.Second)
			b.acquire("a", time.Second, "r")
			_, err := b.Validate("a", first.Handle)
			if i < 1023 && !errors.Is(err, leases.ErrExpired) {
				t.Fatalf("after %d others: %v", i+1, err)
			}
		}
		time.Sleep(time.Second)
		_, err := b.Validate("a", first.Handle)
		wantError(t, err, leases.ErrNotFound)
	})
}

// TestGraveOfTwo remembers a lease that was given by hand twice as long as others.
func TestGraveOfTwo(t *testing.T) {
	inBubble(t, func(b bench) {
		u := b.enter("a", 0, "r").granted()
		var last leases.Grant
		for range 2 {
			last = b.acquire("a", time.Second, "r")[0]
			if _, err := b.Release("a", last.Handle); err != nil {
				t.Error(err)
			}
		}
		u.leave()
		for range 1023 {
			b.acquire("a", time.Second, "r")
			time.Sleep(time.Second)
		}
		_, err := b.Validate("a", last.Handle)
		wantError(t, err, leases.ErrExpired)
	})
}

// TestWaitsFor says what the holder has waited for the longest.
func TestWaitsFor(t *testing.T) {
	inBubble(t, func(b bench) {
		b.acquire("c", time.Minute, "x", "y", "z")
		b.acquire("a", time.Minute, "r")
		var line []*attempt
		for _, r := range []leases.Resource{"y", "x", "z"} {
			line = append(line, b.enter("a", 0, r).waits())
		}
		_, err := b.tryAcquire("b", time.Minute, "r")
		if w := held(t, err).WaitsFor; w == nil || *w != (leases.Blocker{Resource: "y", Owner: "c", Client: "client of c"}) {
			t.Errorf("waits for %+v", w)
		}
		for _, u := range line {
			u.leave()
		}
	})
}
