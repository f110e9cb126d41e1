package session

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestWaitIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, j := openSession(t, NewRegistry(limits())), new(journal)
		if !idle(s) {
			t.Error("a new session is not idle")
		}
		begin(t, s, j, "begun")
		if !idle(s) {
			t.Error("a call that was not submitted is waited for")
		}
		all := submitAll(t, s, j, "c", 3)
		woken := make(chan error, 1)
		go func() { woken <- s.WaitIdle(context.Background()) }()
		for i, w := range all {
			synctest.Wait()
			if !s.Settle(&w.Call) {
				t.Fatalf("call %d is not wanted", i)
			}
			if idle(s) {
				t.Errorf("idle before the answer to call %d was handed on", i)
			}
			s.Answered(&w.Call)
		}
		if err := <-woken; err != nil || !idle(s) {
			t.Errorf("WaitIdle: %v", err)
		}
	})
}

func TestWaitIdleContext(t *testing.T) {
	s, j := openSession(t, NewRegistry(limits())), new(journal)
	w := submit(t, s, j, "a")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.WaitIdle(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("WaitIdle: %v", err)
	}
	finish(t, s, w)
}

// TestIdleWithoutAnswer has calls end in every way in which nothing is answered.
func TestIdleWithoutAnswer(t *testing.T) {
	ends := map[string]func(t *testing.T, s *Session, running, waiting *work){
		"cancelled": func(t *testing.T, s *Session, running, waiting *work) {
			s.Cancel("w")
			s.Cancel("r")
			if idle(s) {
				t.Error("idle while the server may still be at work")
			}
			s.Settle(&running.Call)
		},
		"refused": func(t *testing.T, s *Session, running, waiting *work) {
			time.Sleep(time.Hour)
			finish(t, s, running)
		},
		"closed": func(t *testing.T, s *Session, running, waiting *work) { s.Close() },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := NewRegistry(Limits{Sessions: 2, Running: 2, Waiting: 2, Global: 2, WaitLimit: time.Minute})
				s, j := openSession(t, r), new(journal)
				neighbour := openSession(t, r)
				other := submit(t, neighbour, j, "other")
				running, waiting := submit(t, s, j, "r"), submit(t, s, j, "w")
				woken := make(chan error, 1)
				go func() { woken <- s.WaitIdle(context.Background()) }()
				synctest.Wait()
				end(t, s, running, waiting)
				if err := <-woken; err != nil {
					t.Error(err)
				}
				s.Settle(&running.Call)
				s.Settle(&waiting.Call)
				finish(t, neighbour, other)
				synctest.Wait()
				wantFree(t, s)
			})
		})
	}
}

// slowRefusal is a call whose refusal takes as long as the test likes.
type slowRefusal struct {
	work
	refuse chan struct{}
}

func (w *slowRefusal) Refuse(error) { <-w.refuse }

// TestIdleAfterRefusal has a session stay busy until a refusal, which is an
// answer too, has been handed on.
func TestIdleAfterRefusal(t *testing.T) {
	for name, waited := range map[string]time.Duration{"time-out": 10 * time.Second, "burst": burstWait} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := limits()
				if name == "burst" {
					l.WaitLimit = time.Hour
				} else {
					l.Waiting = 10
				}
				s, j := openSession(t, NewRegistry(l)), new(journal)
				running := submitAll(t, s, j, "c", 2)
				var line []*slowRefusal
				for i := range 4 {
					w := &slowRefusal{work: work{key: string(rune('w' + i)), note: j}, refuse: make(chan struct{})}
					line = append(line, w)
					if err := s.Begin(&w.Call, w, w.key); err != nil {
						t.Fatal(err)
					}
					if err := s.Submit(&w.Call); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(waited)
				synctest.Wait()
				for _, w := range running {
					finish(t, s, w)
				}
				synctest.Wait()
				for _, w := range line {
					if w.fate() == "forwarded" {
						finish(t, s, &w.work)
						synctest.Wait()
					}
				}
				if idle(s) {
					t.Error("idle before the refusal was handed on")
				}
				for _, w := range line {
					close(w.refuse)
				}
				synctest.Wait()
				for _, w := range line {
					if w.fate() == "forwarded" && s.Settle(&w.Call) {
						s.Answered(&w.Call)
						synctest.Wait()
					}
				}
				if !idle(s) {
					t.Error("not idle afterwards")
				}
			})
		})
	}
}

// TestEndless has a stream that lasts as long as the client likes not be waited
// for, but another long request.
func TestEndless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, j := openSession(t, NewRegistry(limits())), new(journal)
		stream, long := begin(t, s, j, "stream"), begin(t, s, j, "long")
		if err := s.SubmitLong(&stream.Call, true); err != nil {
			t.Fatal(err)
		}
		if !idle(s) {
			t.Error("a stream is waited for")
		}
		if err := s.SubmitLong(&long.Call, false); err != nil {
			t.Fatal(err)
		}
		if idle(s) {
			t.Error("a long request is not waited for")
		}
		finish(t, s, stream)
		if idle(s) {
			t.Error("the end of a stream counted as another's answer")
		}
		finish(t, s, long)
		if !idle(s) {
			t.Error("not idle when all is answered")
		}
	})
}

// TestClose has a session with calls in every stage end.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, j := openSession(t, NewRegistry(limits())), new(journal)
		all := submitAll(t, s, j, "c", 2+3+2) // two of them in the burst
		all = append(all, begin(t, s, j, "begun"))
		synctest.Wait()
		s.Close()
		// Close has waited for the line's goroutine: nothing is forwarded after it.
		time.Sleep(time.Hour)
		synctest.Wait()
		wantFates(t, all, "forwarded", "forwarded", "dropped", "dropped", "dropped", "dropped", "dropped", "waits")
		for _, w := range all {
			if s.Settle(&w.Call) {
				t.Errorf("%s wants an answer of a closed session", w.key)
			}
		}
		wantFree(t, s)
		if len(s.registry.All()) != 0 {
			t.Error("the session is still open")
		}
	})
}

// TestCloseAtTheRegistrysLimit closes a session whose line waits for a permit of
// all, and one that is forwarding a call.
func TestCloseAtTheRegistrysLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry(Limits{Sessions: 3, Running: 2, Waiting: 2, Global: 1, WaitLimit: time.Hour})
		j := new(journal)
		a, b, c := openSession(t, r), openSession(t, r), openSession(t, r)
		first := submit(t, a, j, "a")
		waits := submit(t, b, j, "b")
		slow := begin(t, c, j, "c")
		entered, leave := make(chan struct{}), make(chan struct{})
		slow.onForward = func() { close(entered); <-leave }
		if err := c.Submit(&slow.Call); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		b.Close()
		finish(t, a, first)
		<-entered // b's place at the semaphore is c's
		closed := make(chan struct{})
		go func() { defer close(closed); c.Close() }()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("Close did not wait for the call that is being forwarded")
		default:
		}
		close(leave)
		<-closed
		c.Settle(&slow.Call)
		wantFates(t, []*work{first, waits, slow}, "forwarded", "dropped", "forwarded")
		wantFree(t, a)
	})
}
