package session

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func TestBeginDuplicate(t *testing.T) {
	s, j := openSession(t, NewRegistry(limits())), new(journal)
	duplicate := func() error {
		w := &work{key: "a", note: j}
		return s.Begin(&w.Call, w, "a")
	}
	w := begin(t, s, j, "a")
	if err := duplicate(); !errors.Is(err, ErrDuplicate) {
		t.Errorf("of a begun call: %v", err)
	}
	if err := s.Submit(&w.Call); err != nil {
		t.Fatal(err)
	}
	if err := duplicate(); !errors.Is(err, ErrDuplicate) {
		t.Errorf("of a running call: %v", err)
	}
	other := openSession(t, s.registry)
	begin(t, other, j, "a") // ids are a session's own
	finish(t, s, w)
	w = begin(t, s, j, "a")
	s.Abandon(&w.Call)
	s.Abandon(&w.Call)
	begin(t, s, j, "a")
	s.Cancel("a")
	begin(t, s, j, "a")
}

func TestBeginClosed(t *testing.T) {
	s, j := openSession(t, NewRegistry(limits())), new(journal)
	all := []*work{begin(t, s, j, "a"), begin(t, s, j, "b"), begin(t, s, j, "c")}
	s.Close()
	s.Close()
	w := &work{key: "d", note: j}
	for name, err := range map[string]error{
		"begin":  s.Begin(&w.Call, w, "d"),
		"submit": s.Submit(&all[0].Call), "long": s.SubmitLong(&all[1].Call, false), "pass": s.Pass(&all[2].Call),
	} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s: %v, want ErrClosed", name, err)
		}
	}
	wantFates(t, all, "waits", "waits", "waits")
	wantFree(t, s)
}

// TestFastPath has a call forwarded before Submit returns, without being held.
func TestFastPath(t *testing.T) {
	s, j := openSession(t, NewRegistry(limits())), new(journal)
	w := submit(t, s, j, "a")
	if w.forwarded != 1 || w.held != 0 {
		t.Errorf("forwarded %d times and held %d times when Submit returned", w.forwarded, w.held)
	}
	finish(t, s, w)
	wantFree(t, s)
}

func TestLineKeepsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, j := openSession(t, NewRegistry(limits())), new(journal)
		all := submitAll(t, s, j, "c", 5) // 2 run, 3 wait
		synctest.Wait()
		wantFates(t, all, "forwarded", "forwarded", "waits", "waits", "waits")
		if all[2].held != 1 {
			t.Errorf("a waiting call was held %d times", all[2].held)
		}
		finish(t, s, all[1])
		// Whoever comes while others wait goes behind them, though a permit is free.
		all = append(all, submit(t, s, j, "c5"))
		synctest.Wait()
		wantFates(t, all, "forwarded", "forwarded", "forwarded", "waits", "waits", "waits")
		for _, i := range []int{0, 2, 3, 4, 5} {
			finish(t, s, all[i])
			synctest.Wait()
		}
		wantOrder(t, j, "c0", "c1", "c2", "c3", "c4", "c5")
		wantFree(t, s)
		if fast := submit(t, s, j, "again"); fast.held != 0 {
			t.Error("an empty line is not left behind")
		}
	})
}

// TestNoOvertaking has a call come while the one before it is being forwarded.
func TestNoOvertaking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, j := openSession(t, NewRegistry(limits())), new(journal)
		all := submitAll(t, s, j, "c", 2)
		slow, leave := begin(t, s, j, "slow"), make(chan struct{})
		slow.onForward = func() { <-leave }
		if err := s.Submit(&slow.Call); err != nil {
			t.Fatal(err)
		}
		finish(t, s, all[0])
		finish(t, s, all[1])
		synctest.Wait()
		if next := submit(t, s, j, "next"); next.fate() != "waits" {
			t.Error("the next call went out while the one before it was on its way")
		}
		close(leave)
		synctest.Wait()
		wantOrder(t, j, "c0", "c1", "slow", "next")
	})
}

// TestTurns has one session with as many calls as it may have wait at the
// registry's limit, and others get every turn that is theirs.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry(Limits{Sessions: 3, Running: 64, Waiting: 64, Global: 1, WaitLimit: time.Hour})
		j := new(journal)
		running := make(chan *work, 64)
		enqueue := func(s *Session, key string) {
			w := begin(t, s, j, key)
			w.onForward = func() { running <- w }
			if err := s.Submit(&w.Call); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		sessions := map[byte]*Session{'g': openSession(t, r), 'b': openSession(t, r), 'c': openSession(t, r)}
		for i := range 20 {
			enqueue(sessions['g'], fmt.Sprintf("g%d", i))
		}
		for i := range 3 {
			enqueue(sessions['b'], fmt.Sprintf("b%d", i))
			enqueue(sessions['c'], fmt.Sprintf("c%d", i))
		}
		for range 26 {
			w := <-running
			finish(t, sessions[w.key[0]], w)
			synctest.Wait()
		}
		wantOrder(t, j, "g0", "g1", "b0", "c0", "g2", "b1", "c1", "g3", "b2", "c2", "g4", "g5", "g6", "g7", "g8",
			"g9", "g10", "g11", "g12", "g13", "g14", "g15", "g16", "g17", "g18", "g19")
		wantFree(t, sessions['g'])
	})
}

// TestOwnLimit has a session at its own limit leave the registry's to others.
func TestOwnLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, j := NewRegistry(limits()), new(journal)
		a, b := openSession(t, r), openSession(t, r)
		greedy := submitAll(t, a, j, "a", 5)
		other := submitAll(t, b, j, "b", 2)
		synctest.Wait()
		wantFates(t, greedy, "forwarded", "forwarded", "waits", "waits", "waits")
		wantFates(t, other, "forwarded", "forwarded")
		for i := range other {
			finish(t, b, other[i])
			finish(t, a, greedy[i])
		}
		synctest.Wait()
		wantFates(t, greedy, "forwarded", "forwarded", "forwarded", "forwarded", "waits")
		for _, w := range greedy[2:4] {
			finish(t, a, w)
		}
		synctest.Wait()
		finish(t, a, greedy[4])
		wantFree(t, a)
	})
}

func TestWaitLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, j := openSession(t, NewRegistry(limits())), new(journal)
		all := submitAll(t, s, j, "c", 3)
		time.Sleep(4 * time.Second)
		all = append(all, submit(t, s, j, "c3"))
		time.Sleep(6*time.Second - 1)
		synctest.Wait()
		wantFates(t, all, "forwarded", "forwarded", "waits", "waits")
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		wantFates(t, all, "forwarded", "forwarded", "refused", "waits")
		wantBusy(t, all[2].refusal, "no permit became free in time", 10*time.Second)
		var busy *BusyError
		if errors.As(all[2].refusal, &busy); busy.InFlight != 2 || busy.Waiting != 1 {
			t.Errorf("told of %d running and %d waiting, want 2 and 1", busy.InFlight, busy.Waiting)
		}
		begin(t, s, j, "c2") // its id is free
		finish(t, s, all[0])
		synctest.Wait()
		wantFates(t, all, "forwarded", "forwarded", "refused", "forwarded")
		finish(t, s, all[1])
		finish(t, s, all[3])
		wantFree(t, s)
	})
}

// TestRefusedOnce has many calls run out of time at one moment.
func TestRefusedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, j := openSession(t, NewRegistry(limits())), new(journal)
		all := submitAll(t, s, j, "c", 5)
		time.Sleep(time.Minute)
		synctest.Wait()
		wantFates(t, all, "forwarded", "forwarded", "refused", "refused", "refused")
		if got := s.Snapshot().Waiting; got != 0 {
			t.Errorf("%d wait", got)
		}
	})
}

func TestBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, j := openSession(t, NewRegistry(limits())), new(journal)
		all := submitAll(t, s, j, "c", 2+3*burstFactor) // the line is as full as it may ever be
		synctest.Wait()
		w := begin(t, s, j, "x")
		err := s.Submit(&w.Call)
		wantBusy(t, err, lineFull, 0)
		if w.fate() != "waits" || w.held != 0 {
			t.Errorf("a call that Submit has refused: %s, held %d times", w.fate(), w.held)
		}
		begin(t, s, j, "x") // its id is free
		// Four calls settle in time, so seven are served.
		for i := range 4 {
			time.Sleep(burstWait / 8)
			finish(t, s, all[i])
			synctest.Wait()
		}
		time.Sleep(burstWait/2 - 1)
		synctest.Wait()
		for i, w := range all {
			want := "waits"
			if i < 6 {
				want = "forwarded"
			}
			if w.fate() != want {
				t.Errorf("call %d: %s, want %s", i, w.fate(), want)
			}
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		for i, w := range all[6:] {
			if i < 3 {
				if w.fate() != "waits" {
					t.Errorf("call %d, within the limit: %s", 6+i, w.fate())
				}
				continue
			}
			if w.fate() != "refused" {
				t.Fatalf("call %d, beyond the limit: %s", 6+i, w.fate())
			}
			wantBusy(t, w.refusal, lineFull, burstWait)
		}
		for _, w := range all[4:9] {
			finish(t, s, w)
			synctest.Wait()
		}
		wantFree(t, s)
	})
}

func TestNoLine(t *testing.T) {
	l := limits()
	l.Waiting = 0
	s, j := openSession(t, NewRegistry(l)), new(journal)
	submitAll(t, s, j, "c", 2)
	w := begin(t, s, j, "x")
	wantBusy(t, s.Submit(&w.Call), lineFull, 0)
}

// TestNoLineApart has a call be forwarded on the line's goroutine where nobody may
// wait in the line.
func TestNoLineApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limits()
		l.Waiting = 0
		s, j := openSession(t, NewRegistry(l)), new(journal)
		w := begin(t, s, j, "a")
		if err := s.SubmitApart(&w.Call); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		wantFates(t, []*work{w}, "forwarded")
		finish(t, s, w)
	})
}

func TestLong(t *testing.T) {
	s, j := openSession(t, NewRegistry(limits())), new(journal)
	var all []*work
	for i := range 3 {
		w := begin(t, s, j, fmt.Sprint(i))
		err := s.SubmitLong(&w.Call, i == 0)
		if i < 2 && err != nil {
			t.Fatal(err)
		}
		if i == 2 {
			wantBusy(t, err, "the limit of long requests is reached", 0)
		}
		all = append(all, w)
	}
	wantFates(t, all, "forwarded", "forwarded", "waits")
	wantFree(t, s) // a long request takes no permit
	submitAll(t, s, j, "c", 2)
	finish(t, s, all[0])
	again := begin(t, s, j, "2")
	if err := s.SubmitLong(&again.Call, false); err != nil {
		t.Errorf("after one has settled: %v", err)
	}
}

// TestPass has a request go ahead of a full line, and take no permit.
func TestPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, j := openSession(t, NewRegistry(limits())), new(journal)
		all := submitAll(t, s, j, "c", 5)
		w := begin(t, s, j, "ping")
		if err := s.Pass(&w.Call); err != nil || w.fate() != "forwarded" {
			t.Fatalf("%v, %s", err, w.fate())
		}
		if got := s.Snapshot().Running; got != 2 {
			t.Errorf("%d run, want 2: what has no permit does not count", got)
		}
		finish(t, s, w)
		synctest.Wait()
		wantFates(t, all, "forwarded", "forwarded", "waits", "waits", "waits")
	})
}

func TestSettleTwice(t *testing.T) {
	r := NewRegistry(limits())
	s, j := openSession(t, r), new(journal)
	all := submitAll(t, s, j, "c", 2)
	finish(t, s, all[0])
	if s.Settle(&all[0].Call) {
		t.Error("the second Settle wants an answer")
	}
	if got := s.Snapshot().Running; got != 1 {
		t.Errorf("%d run, want 1", got)
	}
	// The id may be another call's by now.
	again := begin(t, s, j, "c0")
	s.Settle(&all[0].Call)
	if w, _ := s.Cancel("c0"); w != again {
		t.Error("a late Settle took the id from its next user")
	}
	waits := begin(t, s, j, "w")
	if s.Settle(&waits.Call) {
		t.Error("a call that was not forwarded was settled")
	}
}

func TestCancel(t *testing.T) {
	t.Run("unknown", func(t *testing.T) {
		s := openSession(t, NewRegistry(limits()))
		if w, running := s.Cancel("a"); w != nil || running {
			t.Errorf("got %v, %v", w, running)
		}
	})
	t.Run("begun", func(t *testing.T) {
		s, j := openSession(t, NewRegistry(limits())), new(journal)
		submits := map[string]func(*Call) error{
			"line": s.Submit, "free": s.Pass, "long": func(c *Call) error { return s.SubmitLong(c, false) },
		}
		for key, submit := range submits {
			w := begin(t, s, j, key)
			if got, running := s.Cancel(key); got != w || running {
				t.Errorf("%s: got %v, %v", key, got, running)
			}
			if err := submit(&w.Call); !errors.Is(err, ErrCancelled) || w.fate() != "waits" {
				t.Errorf("%s: submitted all the same: %v, %s", key, err, w.fate())
			}
		}
		wantFree(t, s)
	})
	t.Run("waiting", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, j := openSession(t, NewRegistry(limits())), new(journal)
			all := submitAll(t, s, j, "c", 5)
			synctest.Wait()
			if got, running := s.Cancel("c3"); got != all[3] || running {
				t.Errorf("got %v, %v", got, running)
			}
			if s.Settle(&all[3].Call) {
				t.Error("a cancelled call wants an answer")
			}
			s.Cancel("c2") // the one that the line's goroutine waits for
			finish(t, s, all[0])
			synctest.Wait()
			wantFates(t, all, "forwarded", "forwarded", "waits", "waits", "forwarded")
			finish(t, s, all[1])
			finish(t, s, all[4])
			wantFree(t, s)
		})
	})
	t.Run("the last one waiting", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, j := openSession(t, NewRegistry(limits())), new(journal)
			all := submitAll(t, s, j, "c", 3)
			synctest.Wait()
			s.Cancel("c2")
			finish(t, s, all[0])
			finish(t, s, all[1])
			synctest.Wait()
			wantFree(t, s)
			if w := submit(t, s, j, "next"); w.fate() != "forwarded" {
				t.Errorf("the next call: %s", w.fate())
			}
		})
	})
	t.Run("running", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, j := openSession(t, NewRegistry(limits())), new(journal)
			all := submitAll(t, s, j, "c", 3)
			if got, running := s.Cancel("c0"); got != all[0] || !running {
				t.Errorf("got %v, %v", got, running)
			}
			if got, _ := s.Cancel("c0"); got != nil {
				t.Error("cancelled twice")
			}
			begin(t, s, j, "c0") // its id is free at once
			synctest.Wait()
			wantFates(t, all, "forwarded", "forwarded", "waits") // its permits are not
			if s.Settle(&all[0].Call) {
				t.Error("a cancelled call wants an answer")
			}
			synctest.Wait()
			wantFates(t, all, "forwarded", "forwarded", "forwarded")
			if got, running := s.Cancel("c0"); got == nil || running {
				t.Error("settling a cancelled call took the id from its next user")
			}
		})
	})
}

// TestConcurrentEnds has a cancellation meet an answer: whoever comes first,
// the permits are given back once.
func TestConcurrentEnds(t *testing.T) {
	for range 200 {
		s, j := openSession(t, NewRegistry(limits())), new(journal)
		w := submit(t, s, j, "a")
		wanted := make(chan bool)
		go func() { wanted <- s.Settle(&w.Call) }()
		_, running := s.Cancel("a")
		if <-wanted {
			s.Answered(&w.Call)
			if running {
				t.Fatal("cancelled and answered")
			}
		}
		wantFree(t, s)
		s.Close()
	}
}

// TestSubmitApart forwards a call on another goroutine though its permits are free.
func TestSubmitApart(t *testing.T) {
	s, j := openSession(t, NewRegistry(limits())), new(journal)
	release := make(chan struct{})
	w := &work{key: "1", note: j, onForward: func() { <-release }}
	if err := s.Begin(&w.Call, w, "1"); err != nil {
		t.Fatal(err)
	}
	if err := s.SubmitApart(&w.Call); err != nil {
		t.Fatal(err)
	}
	close(release) // not before SubmitApart has returned
	s.Close()
}
