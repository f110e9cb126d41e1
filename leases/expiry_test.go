package leases_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"interlock/leases"
)

// TestExpiryUnderACall is A9: however a call that has outlived its lease's time to
// live is over, the next owner's begins after that.
func TestExpiryUnderACall(t *testing.T) {
	const cancelGrace, lockDelay = 5 * time.Second, 15 * time.Second
	for name, settles := range map[string]time.Duration{
		"ends": 5 * time.Second, "cancelled and answered": 3 * time.Second,
		"the server ends": 4 * time.Second, "hangs": 2*time.Second + cancelGrace + lockDelay,
	} {
		t.Run(name, func(t *testing.T) {
			overlaps := 0
			for i := range 50 {
				inBubble(t, func(b bench) {
					b.acquire("a", time.Second, "r")
					call := b.enter("a", 0, "r").granted()
					time.Sleep(time.Duration(i) * 10 * time.Millisecond)
					next := b.enter("b", 0, "r").waits()
					b.ReleaseOwner("a") // its client leaves
					time.Sleep(settles - time.Nanosecond)
					select {
					case <-next.done:
						overlaps++
						next.done <- nil
					default:
					}
					call.leave()
					next.granted().leave()
				})
			}
			if overlaps != 0 {
				t.Errorf("%d of 50 overlap", overlaps)
			}
		})
	}
}

// hands is a clock that the test moves by hand, while timers do what they like.
type hands struct{ at atomic.Int64 }

func (h *hands) read() time.Duration     { return time.Duration(h.at.Load()) }
func (h *hands) advance(d time.Duration) { h.at.Add(int64(d)) }
func byHands(h *hands, wall *atomic.Int64) *leases.Table {
	return leases.New(leases.Options{
		Clock: h.read, Now: func() time.Time { return time.Unix(wall.Load(), 0) }, HoldMax: holdMax,
	})
}

// TestSuspend ends leases by a clock that has gone on while timers slept: whoever
// comes first finds them ended.
func TestSuspend(t *testing.T) {
	var h hands
	var wall atomic.Int64
	table := byHands(&h, &wall)
	b := bench{table, t}
	defer b.Close()
	g := b.acquire("a", time.Minute, "r")[0]
	b.acquire("b", 2*time.Minute, "s")
	h.advance(time.Minute - 1)
	if _, err := b.Validate("a", g.Handle); err != nil {
		t.Errorf("before: %v", err)
	}
	h.advance(1)
	b.acquire("c", time.Minute, "r")
	_, err := b.Validate("a", g.Handle)
	wantError(t, err, leases.ErrExpired)
	b.wantList("r", "s")
	h.advance(time.Hour)
	b.wantList()
}

// TestWallClock has steps of the wall clock change nothing but what is shown.
func TestWallClock(t *testing.T) {
	const year = 365 * 24 * 3600
	var h hands
	var wall atomic.Int64
	wall.Store(10 * year)
	b := bench{byHands(&h, &wall), t}
	defer b.Close()
	g := b.acquire("a", time.Minute, "r")[0]
	for _, step := range []int64{year, -2 * year} {
		wall.Add(step)
		l, err := b.Validate("a", g.Handle)
		if err != nil || !l.Expires.Equal(time.Unix(wall.Load()+60, 0)) {
			t.Errorf("after a step of %d s: %+v, %v", step, l, err)
		}
		if u := b.acquire("b", time.Minute, leases.Resource(time.Duration(step).String())); u[0].Epoch <= g.Epoch {
			t.Errorf("epoch %d after %d", u[0].Epoch, g.Epoch)
		}
	}
	h.advance(time.Minute)
	b.wantList()
}

// TestEarlyTimer has a timer that fires before the clock says so wait again.
func TestEarlyTimer(t *testing.T) {
	inBubble(t, func(b bench) {
		began := time.Now()
		slow := leases.New(leases.Options{ // half as fast as timers
			Clock: func() time.Duration { return time.Since(began) / 2 }, Now: time.Now, HoldMax: holdMax,
		})
		defer slow.Close()
		s := bench{slow, t}
		s.acquire("a", 10*time.Second, "r")
		next := s.enter("b", 0, "r").waits()
		time.Sleep(20*time.Second - time.Millisecond)
		next.waits()
		time.Sleep(10 * time.Millisecond)
		next.granted().leave()
	})
}

// TestExpiredFound is told of leases that somebody found ended before the timer did.
func TestExpiredFound(t *testing.T) {
	inBubble(t, func(bench) {
		var h hands
		var told atomic.Int64
		b := bench{leases.New(leases.Options{
			Clock: h.read, Now: time.Now, HoldMax: holdMax, Expired: func() { told.Add(1) },
		}), t}
		defer b.Close()
		b.acquire("a", time.Minute, "r")
		h.advance(time.Minute)
		b.wantList()
		b.wantList()
		synctest.Wait()
		if n := told.Load(); n != 1 {
			t.Errorf("told %d times", n)
		}
		b.enter("a", time.Hour, "r").granted().leave()
		h.advance(holdMax)
		b.enter("b", 0, "r").granted().leave() // which ends what is held
		synctest.Wait()
		if n := told.Load(); n != 2 {
			t.Errorf("told %d times", n)
		}
		b.acquire("a", time.Minute, "r")
		time.Sleep(time.Minute) // the timer fires too early
		synctest.Wait()
		if n := told.Load(); n != 2 {
			t.Errorf("told %d times, the last of nothing", n)
		}
	})
}

// TestExpired is told of leases that end by themselves, and of nothing else.
func TestExpired(t *testing.T) {
	inBubble(t, func(bench) {
		began := time.Now()
		var told atomic.Int64
		var b bench
		table := leases.New(leases.Options{
			Clock: func() time.Duration { return time.Since(began) }, Now: time.Now, HoldMax: holdMax,
			Expired: func() { told.Add(1); b.List() }, // no lock is held
		})
		b = bench{table, t}
		defer b.Close()
		b.acquire("a", time.Second, "r")
		b.enter("b", time.Minute, "s").granted().leave()
		time.Sleep(999 * time.Millisecond)
		if n := told.Load(); n != 0 {
			t.Errorf("told %d times too early", n)
		}
		time.Sleep(time.Millisecond)
		b.wantList("s")
		time.Sleep(time.Hour)
		if n := told.Load(); n != 2 {
			t.Errorf("told %d times", n)
		}
		b.enter("b", time.Second, "r").granted().leave()
		g := b.acquire("a", time.Minute, "s")[0]
		b.enter("a", 0, "r").waits().leave()
		if _, err := b.Release("a", g.Handle); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if n := told.Load(); n != 2 {
			t.Errorf("told %d times, the last of nothing that ended by itself", n)
		}
	})
}
