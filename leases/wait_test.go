package leases_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"interlock/leases"
)

// acquireLater acquires in a goroutine of its own, which waits if it has to.
func (b bench) acquireLater(owner string, ttl time.Duration, resources ...leases.Resource) *acquisition {
	b.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	a := &acquisition{t: b.t, cancel: cancel, done: make(chan error, 1)}
	go func() {
		var err error
		a.grants, err = b.Acquire(ctx, leases.Acquisition{Party: party(owner), Resources: resources, TTL: ttl})
		a.done <- err
	}()
	synctest.Wait()
	return a
}

// acquisition is what becomes of an Acquire.
type acquisition struct {
	t      testing.TB
	cancel context.CancelFunc
	done   chan error
	grants []leases.Grant // once it is done
}

// over returns the error of an acquisition that does not wait any more.
func (a *acquisition) over() error {
	a.t.Helper()
	synctest.Wait()
	select {
	case err := <-a.done:
		a.cancel()
		return err
	default:
		a.t.Fatal("it waits")
		return nil
	}
}

// waits has the acquisition be waiting still.
func (a *acquisition) waits() *acquisition {
	a.t.Helper()
	synctest.Wait()
	select {
	case err := <-a.done:
		a.t.Fatalf("it does not wait: %v", err)
	default:
	}
	return a
}

// refused returns the error of a use that waited and was not granted.
func (a *attempt) refused() error {
	a.t.Helper()
	synctest.Wait()
	select {
	case err := <-a.done:
		if err == nil {
			a.t.Fatal("it is granted")
		}
		return err
	default:
		a.t.Fatal("it waits")
		return nil
	}
}

// TestHandleEndsWhileWaiting looks at the handles of a call again when it has
// waited for something else: nobody may rely on what is another's by then.
func TestHandleEndsWhileWaiting(t *testing.T) {
	for name, end := range map[string]func(b bench, g leases.Grant){
		"ran out": func(bench, leases.Grant) { time.Sleep(time.Second) },
		"ran out, is another's": func(b bench, _ leases.Grant) {
			time.Sleep(time.Second)
			b.enter("c", 0, "r").granted()
		},
		"released": func(b bench, g leases.Grant) {
			if _, err := b.Release("a", g.Handle); err != nil {
				b.t.Error(err)
			}
		},
		"broken": func(b bench, g leases.Grant) {
			if _, err := b.Break("r"); err != nil {
				b.t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b bench) {
				g := b.acquire("a", time.Second, "r")[0]
				other := b.enter("b", 0, "s").granted()
				u := b.request(leases.Request{Party: party("a"), Resources: []leases.Resource{"r", "s"}, Handles: []leases.Handle{g.Handle}}).waits()
				end(b, g)
				before := fmt.Sprintf("%+v", b.List()[1:])
				next := b.enter("d", 0, "s").waits()
				u.waits()
				other.leave()
				wantError(t, u.refused(), leases.ErrExpired)
				next.granted().leave() // it was behind
				u.leave()
				if after := fmt.Sprintf("%+v", b.List()); before != after {
					t.Errorf("others' leases were %s and are %s", before, after)
				}
			})
		})
	}
}

// TestLastMoment has a wait that is given up find out what it has come to: nobody had
// looked at the clock.
func TestLastMoment(t *testing.T) {
	for name, ttl := range map[string]time.Duration{"granted": time.Minute, "refused": time.Second} {
		var h hands
		b := bench{leases.New(leases.Options{Clock: h.read, Now: time.Now, HoldMax: holdMax}), t}
		g := b.acquire("a", ttl, "r")[0]
		b.acquire("b", time.Second, "s")
		var u leases.Use
		granted, err := b.Enter(&u, leases.Request{Party: party("a"), Resources: []leases.Resource{"r", "s"}, Handles: []leases.Handle{g.Handle}})
		if granted || err != nil {
			t.Fatalf("granted: %t, %v", granted, err)
		}
		h.advance(time.Second)
		switch err := u.Wait(cancelled); name {
		case "granted":
			if err != nil {
				t.Error(err)
			}
		case "refused":
			wantError(t, err, leases.ErrExpired)
		}
		u.Leave()
		b.Close()
	}
}

// TestAcquiredMeanwhile has the first of two acquisitions of one owner win, and its
// handle stay good.
func TestAcquiredMeanwhile(t *testing.T) {
	inBubble(t, func(b bench) {
		u := b.enter("b", 0, "r").granted()
		first, second := b.acquireLater("a", time.Minute, "r").waits(), b.acquireLater("a", time.Minute, "r").waits()
		time.Sleep(time.Second)
		u.leave()
		if err := first.over(); err != nil {
			t.Fatal(err)
		}
		if h := held(t, second.over()); !h.Own || h.Resource != "r" || h.Expires != time.Minute || h.Waited != time.Second {
			t.Errorf("told %+v", h)
		}
		if _, err := b.Release("a", first.grants[0].Handle); err != nil {
			t.Error(err)
		}
		b.wantList()
	})
}

// TestLastEpochs are not gone beyond by those who wait for them.
func TestLastEpochs(t *testing.T) {
	inBubble(t, func(b bench) {
		b.Table.Close()
		b.Table = leases.New(leases.Options{Clock: func() time.Duration { return 0 }, Now: time.Now, First: 1, Last: 3})
		u := b.enter("a", 0, "r").granted()
		v, w, x := b.enter("b", 0, "r").waits(), b.enter("c", 0, "r").waits(), b.enter("d", 0, "r").waits()
		u.leave()
		v.granted().leave()
		wantError(t, w.refused(), leases.ErrExhausted)
		wantError(t, x.refused(), leases.ErrExhausted)
		_, err := b.Enter(new(leases.Use), leases.Request{Party: party("e"), Resources: []leases.Resource{"r"}})
		wantError(t, err, leases.ErrExhausted)
		b.Close()
	})
}

// TestAcquireUnderHold waits for those who wait: only a call goes before them under
// a lease that is held after another.
func TestAcquireUnderHold(t *testing.T) {
	inBubble(t, func(b bench) {
		b.enter("a", time.Minute, "r").granted().leave()
		next := b.enter("b", 0, "r").waits()
		a := b.acquireLater("a", leases.MaxTTL, "r").waits()
		b.enter("a", time.Minute, "r").granted().leave()
		time.Sleep(holdMax)
		next.granted()
		a.waits()
		next.leave()
		if err := a.over(); err != nil {
			t.Error(err)
		}
	})
}

// TestByHandGoesFirst though the owner has another lease, of a call, that does not.
func TestByHandGoesFirst(t *testing.T) {
	inBubble(t, func(b bench) {
		u := b.enter("a", 0, "file:/p/x").granted()
		b.acquire("a", time.Minute, "tree:/p")
		next := b.enter("b", 0, "file:/p/x").waits()
		v := b.enter("a", 0, "file:/p/x").granted()
		u.leave()
		time.Sleep(time.Hour) // the tree is in use
		v.leave()
		time.Sleep(time.Minute - 1)
		next.waits()
		time.Sleep(time.Nanosecond)
		next.granted().leave()
	})
}

// TestEndingLeases end with their last call, whatever hold it asks for, unless they
// are acquired again.
func TestEndingLeases(t *testing.T) {
	inBubble(t, func(b bench) {
		g := b.acquire("a", time.Minute, "r")[0]
		u := b.enter("a", 0, "r").granted()
		if _, err := b.Release("a", g.Handle); err != nil {
			t.Error(err)
		}
		v := b.enter("a", time.Hour, "r").granted()
		again := b.acquire("a", time.Minute, "r")[0]
		if again.Epoch != g.Epoch || again.Ending || again.Handle == g.Handle {
			t.Errorf("acquired again %+v", again)
		}
		_, err := b.Validate("a", g.Handle)
		wantError(t, err, leases.ErrExpired)
		if l, err := b.Release("a", again.Handle); err != nil || !l.Ending {
			t.Errorf("released %+v, %v", l, err)
		}
		_, err = b.Validate("a", again.Handle)
		wantError(t, err, leases.ErrExpired)
		w := b.enter("a", time.Hour, "r").granted()
		u.leave()
		v.leave()
		b.wantList("r")
		w.leave()
		b.wantList()
	})
}

// TestLimitWhileWaiting counts what a session waits for.
func TestLimitWhileWaiting(t *testing.T) {
	inBubble(t, func(b bench) {
		u := b.enter("b", 0, "r").granted()
		names := func(from, n int) (list []leases.Resource) {
			for i := range n {
				list = append(list, leases.Resource(fmt.Sprint("n", from+i)))
			}
			return list
		}
		first := b.acquireLater("a", time.Minute, append(names(0, 200), "r")...).waits()
		call := b.enter("a", 0, "r").waits() // does not count
		_, err := b.tryAcquire("a", time.Minute, names(200, 56)...)
		wantError(t, err, leases.ErrExhausted)
		b.acquire("a", time.Minute, names(200, 55)...)
		u.leave()
		if err := first.over(); err != nil {
			t.Error(err)
		}
		call.granted().leave()
	})
}

// TestLateDeadlocks are found when they come about, be it long after all who are
// part of one began to wait.
func TestLateDeadlocks(t *testing.T) {
	t.Run("a call before it", func(t *testing.T) {
		inBubble(t, func(b bench) {
			b.acquire("a", leases.MaxTTL, "p")
			c := b.enter("c", 0, "q").granted()
			w1 := b.enter("w", 0, "p").waits()
			w2 := b.acquireLater("w", leases.MaxTTL, "q").waits()
			a := b.enter("a", 0, "q").waits() // behind w2, which waits for a call
			time.Sleep(time.Second)
			c.leave()
			if err := w2.over(); err != nil {
				t.Error(err)
			}
			if h := held(t, a.refused()); !h.Deadlock || h.Holder.Owner != "w" || h.Resource != "q" || h.WaitsFor == nil || h.WaitsFor.Resource != "p" || h.Waited != time.Second {
				t.Errorf("told %+v", h)
			}
			w1.leave()
		})
	})
	t.Run("its own turn", func(t *testing.T) {
		inBubble(t, func(b bench) {
			c := b.enter("c", 0, "q").granted()
			v1 := b.acquireLater("v", leases.MaxTTL, "q").waits()
			u := b.enter("u", 0, "q", "p").waits()
			v2 := b.enter("v", 0, "p").waits() // behind u
			c.leave()
			if err := v1.over(); err != nil {
				t.Error(err)
			}
			if h := held(t, u.refused()); !h.Deadlock || h.Holder.Owner != "v" {
				t.Errorf("told %+v", h)
			}
			v2.granted().leave()
		})
	})
}

// TestOwnTurn has what an owner waits for go before others' turns once it has been
// given the lease, by hand or for a while; what it goes on to wait for is told.
func TestOwnTurn(t *testing.T) {
	for name, give := range map[string]func(b bench) func(){
		"by hand": func(b bench) func() {
			a := b.acquireLater("a", time.Minute, "r").waits()
			return func() {
				if err := a.over(); err != nil {
					b.t.Error(err)
				}
			}
		},
		"held": func(b bench) func() {
			a := b.enter("a", time.Minute, "r").waits()
			return func() { a.granted().leave() }
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b bench) {
				r, s := b.enter("c", 0, "r").granted(), b.enter("c", 0, "s").granted()
				given := give(b)
				other := b.enter("b", 0, "r").waits()
				call, both := b.enter("a", time.Minute, "r").waits(), b.enter("a", time.Minute, "r", "s").waits()
				r.leave()
				given()
				call.granted()
				other.waits()
				if w := b.Waiting()[1]; w.Blocked.Resource != "s" || w.Blocked.Owner != "c" {
					t.Errorf("waits for %+v", w.Blocked)
				}
				s.leave()
				both.granted().leave()
				call.leave()
				other.leave()
			})
		})
	}
}

// TestFirstCome grants in the order of arrival, however many leases end at once.
func TestFirstCome(t *testing.T) {
	for range 20 {
		inBubble(t, func(b bench) {
			all := []leases.Resource{"a", "b", "c", "d", "e", "f"}
			b.acquire("x", time.Minute, all...)
			var line []*attempt
			for i := range all {
				line = append(line, b.enter(fmt.Sprint("y", i), 0, all[len(all)-1-i]).waits())
			}
			b.ReleaseOwner("x")
			for i, u := range line {
				if u.granted(); u.Epoch() != uint64(106+i) {
					t.Errorf("epoch %d of the one that came as number %d", u.Epoch(), i)
				}
				u.leave()
			}
		})
	}
}
