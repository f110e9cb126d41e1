package leases_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"interlock/leases"
)

// TestExclusion has calls on several resources at once never meet one of another
// owner, and epochs rise on each of them.
func TestExclusion(t *testing.T) {
	table := leases.New(leases.Options{Clock: func() time.Duration { return time.Duration(time.Now().UnixNano()) }, Now: time.Now, HoldMax: holdMax})
	defer table.Close()
	names := []leases.Resource{"tree:/p", "file:/p/a", "file:/p/b", "tree:/p/c", "file:/p/c/x", "n"}
	var mu sync.Mutex // guards the two below
	inside := make(map[leases.Resource]map[string]int)
	last := make(map[leases.Resource]struct {
		owner string
		epoch uint64
	})
	check := func(owner string, epoch uint64, resources []leases.Resource, by int) {
		mu.Lock()
		defer mu.Unlock()
		for _, r := range resources {
			for other, owners := range inside {
				for who, n := range owners {
					if n > 0 && who != owner && r.Conflicts(other) {
						t.Errorf("%s is at %s while %s is at %s", owner, r, who, other)
					}
				}
			}
			if inside[r] == nil {
				inside[r] = make(map[string]int)
			}
			inside[r][owner] += by
			if by > 0 {
				was := last[r]
				if epoch <= was.epoch && owner != was.owner {
					t.Errorf("epoch %d of %s on %s after %d of %s", epoch, owner, r, was.epoch, was.owner)
				}
				was.owner, was.epoch = owner, max(was.epoch, epoch)
				last[r] = was
			}
		}
	}
	var clients sync.WaitGroup
	for n := range 16 {
		clients.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(n)))
			for i := range 300 {
				owner := fmt.Sprintf("client-%d", n/2) // two goroutines each
				var list []leases.Resource
				for _, r := range random.Perm(len(names))[:1+random.IntN(3)] {
					list = append(list, names[r])
				}
				var u leases.Use
				_, err := table.Enter(&u, leases.Request{Party: party(owner), Resources: list, Hold: time.Duration(random.IntN(2)) * time.Millisecond})
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(random.IntN(20))*time.Millisecond)
				if err == nil {
					err = u.Wait(ctx)
				}
				cancel()
				if err == nil {
					check(owner, u.Epoch(), list, 1)
					check(owner, u.Epoch(), list, -1)
				}
				u.Leave()
				if i%50 == 49 {
					table.ReleaseOwner(owner)
				}
			}
		})
	}
	clients.Wait()
	if w := table.Waiting(); len(w) != 0 {
		t.Errorf("waiting for ever: %+v", w)
	}
}

// TestGreedy lets each of the modest go before what the greedy one asks for later.
func TestGreedy(t *testing.T) {
	inBubble(t, func(b bench) {
		var greedy []*attempt
		for range 500 {
			greedy = append(greedy, b.enter("greedy", 0, "r"))
		}
		var modest []*attempt
		for i := range 15 {
			modest = append(modest, b.enter(fmt.Sprint("modest-", i), 0, "r").waits())
		}
		for range 500 {
			greedy = append(greedy, b.enter("greedy", 0, "r").waits())
		}
		for _, u := range greedy[:500] {
			u.granted().leave() // all at once: they came before
		}
		for _, u := range modest {
			u.granted().leave()
		}
		for _, u := range greedy[500:] {
			u.granted().leave()
		}
	})
}

// TestHoldBounded has a lease that is held end in time though others are, too, that
// end later, and at once if its time has been over.
func TestHoldBounded(t *testing.T) {
	inBubble(t, func(b bench) {
		b.acquire("c", holdMax+time.Second, "s")
		b.enter("a", time.Hour, "r").granted().leave()
		next := b.enter("b", 0, "r").waits()
		time.Sleep(holdMax)
		next.granted().leave()
		b.enter("a", time.Hour, "r").granted().leave()
		time.Sleep(holdMax)
		var u leases.Use
		if granted, err := b.Enter(&u, leases.Request{Party: party("b"), Resources: []leases.Resource{"r"}}); !granted || err != nil {
			t.Errorf("granted: %t, %v", granted, err)
		}
		u.Leave()
	})
}

// TestNoStarvation has calls of one owner that overlap without end keep another one
// waiting for no longer than HoldMax and the calls that run then.
func TestNoStarvation(t *testing.T) {
	const length = 4 * time.Second // of a call
	for name, hold := range map[string]time.Duration{"no hold": 0, "hold": 3 * time.Second, "long hold": time.Hour} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b bench) {
				stop := make(chan struct{})
				var calls sync.WaitGroup
				call := func() {
					var u leases.Use
					if _, err := b.Enter(&u, leases.Request{Party: party("a"), Resources: []leases.Resource{"r"}, Hold: hold}); err != nil {
						t.Error(err)
					}
					if err := u.Wait(context.Background()); err != nil {
						t.Error(err)
					}
					time.Sleep(length)
					u.Leave()
				}
				calls.Go(func() {
					for {
						calls.Go(call)
						select {
						case <-stop:
							return
						case <-time.After(time.Second):
						}
					}
				})
				for range 20 {
					time.Sleep(10 * time.Second)
					began := time.Now()
					var u leases.Use
					if _, err := b.Enter(&u, leases.Request{Party: party("b"), Resources: []leases.Resource{"r"}}); err != nil {
						t.Fatal(err)
					}
					if err := u.Wait(context.Background()); err != nil {
						t.Fatal(err)
					}
					most := length
					if hold > 0 {
						most += holdMax
					}
					if waited := time.Since(began); waited > most {
						t.Errorf("waited %v", waited)
					}
					u.Leave()
				}
				close(stop)
				calls.Wait()
			})
		})
	}
}

// TestHoldOfOneOfTwo does not go on for longer than HoldMax for those, either, who
// wait for something else besides.
func TestHoldOfOneOfTwo(t *testing.T) {
	inBubble(t, func(b bench) {
		long := b.enter("a", time.Hour, "r").granted()
		other := b.enter("c", 0, "s").granted()
		both := b.enter("b", 0, "r", "s").waits()
		time.Sleep(holdMax - 1)
		b.enter("a", time.Hour, "r").granted().leave()
		time.Sleep(time.Nanosecond)
		late := b.enter("a", time.Hour, "r").waits()
		other.leave()
		both.waits()
		long.leave()
		both.granted().leave()
		late.granted().leave()
	})
}

// TestBlockers has each wait for the last of all that it cannot go past.
func TestBlockers(t *testing.T) {
	inBubble(t, func(b bench) {
		var all []*attempt
		enter := func(owner string, resources ...leases.Resource) {
			all = append(all, b.enter(owner, 0, resources...))
		}
		enter("a", "s")
		enter("b", "r")
		enter("c", "r", "s")
		enter("d", "r")
		enter("e", "s")
		enter("f", "r", "s")
		enter("g", "r")
		enter("h", "tree:/p/q")
		enter("i", "file:/p/x")
		enter("j", "tree:/p")
		got := ""
		for _, w := range b.Waiting() {
			got += w.Owner + " for " + w.Blocked.Owner + ", "
		}
		if want := "c for b, d for c, e for c, f for e, g for f, j for i, "; got != want {
			t.Errorf("waiting: %s want %s", got, want)
		}
		for _, u := range all {
			u.granted().leave()
		}
	})
}
