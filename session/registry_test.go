package session

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func limits() Limits {
	return Limits{Sessions: 4, Running: 2, Waiting: 3, Global: 4, WaitLimit: 10 * time.Second}
}

func TestOpenLimit(t *testing.T) {
	l := limits()
	l.Sessions = 2
	r := NewRegistry(l)
	a := openSession(t, r)
	openSession(t, r)
	var limit *LimitError
	if _, err := r.Open(Info{}); !errors.As(err, &limit) || limit.Limit != 2 {
		t.Fatalf("third session: %v, want a LimitError of 2", err)
	}
	a.Close()
	c := openSession(t, r)
	if c.ID() != "session-3" || c.Owner() != "client-3" {
		t.Errorf("after a close: %s, %s; names must not be used again", c.ID(), c.Owner())
	}
	if open := len(r.All()); open != 2 {
		t.Errorf("%d sessions open, want 2", open)
	}
}

func TestAllIsInOrderOfOpening(t *testing.T) {
	r := NewRegistry(limits())
	for range 4 {
		openSession(t, r)
	}
	all := r.All()
	for i, want := range []string{"session-1", "session-2", "session-3", "session-4"} {
		if all[i].ID != want {
			t.Errorf("session %d is %s, want %s", i, all[i].ID, want)
		}
	}
}

func TestSnapshot(t *testing.T) {
	r := NewRegistry(limits())
	s, err := r.Open(Info{PID: 7, Server: "files", Project: "/p"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got := s.Snapshot(); got.State != Opening || got.Era != EraUnknown {
		t.Errorf("a new session is %v, %v", got.State, got.Era)
	}
	s.Greet(Handshake, Client{Name: "editor", Version: "1"})
	s.Greet(Handshake, Client{}) // a client without a name does not unname itself
	j := new(journal)
	var all []*work
	for _, key := range []string{"a", "b", "c"} {
		all = append(all, submit(t, s, j, key))
	}
	got := s.Snapshot()
	if got.Info != (Info{PID: 7, Server: "files", Project: "/p"}) || got.Client != (Client{"editor", "1"}) || s.Client() != got.Client {
		t.Errorf("snapshot of %+v, %+v", got.Info, got.Client)
	}
	if got.State != Ready || got.Era != Handshake || got.Running != 2 || got.Waiting != 1 {
		t.Errorf("snapshot %v, %v, %d running, %d waiting", got.State, got.Era, got.Running, got.Waiting)
	}
	s.EndInput()
	if got := s.Snapshot().State; got != HalfOpen || !s.InputEnded() {
		t.Errorf("after the end of input: %v", got)
	}
	s.Greet(Handshake, Client{})
	if got := s.Snapshot().State; got != HalfOpen {
		t.Errorf("a late greeting made it %v", got)
	}
	s.Close()
	s.EndInput()
	if got := s.Snapshot(); got.State != Closed || got.Waiting != 0 || !s.InputEnded() {
		t.Errorf("after the close: %v, %d waiting", got.State, got.Waiting)
	}
	for _, w := range all {
		s.Settle(&w.Call)
	}
}

func TestNames(t *testing.T) {
	for want, got := range map[string]string{
		"opening": Opening.String(), "ready": Ready.String(), "half-open": HalfOpen.String(), "closed": Closed.String(),
		"unknown": EraUnknown.String(), "handshake": Handshake.String(), "stateless": Stateless.String(),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry(limits())
		s, j := openSession(t, r), new(journal)
		running := submit(t, s, j, "a")
		begun := begin(t, s, j, "b")

		r.Drain()
		r.Drain()
		if !r.Draining() {
			t.Error("not draining")
		}
		if _, err := r.Open(Info{}); !errors.Is(err, ErrDraining) {
			t.Errorf("open while draining: %v", err)
		}
		late := &work{key: "late", note: j}
		if err := s.Begin(&late.Call, late, "late"); !errors.Is(err, ErrDraining) {
			t.Errorf("begin while draining: %v", err)
		}
		if err := s.Submit(&begun.Call); err != nil {
			t.Errorf("a call that had begun: %v", err)
		}
		finish(t, s, running)
		finish(t, s, begun)
		s.Close()
		if open := r.All(); len(open) != 0 {
			t.Errorf("open after the drain: %+v", open)
		}
	})
}

// TestCountFrom numbers a later registry's sessions on from another one's.
func TestCountFrom(t *testing.T) {
	r := NewRegistry(limits())
	r.CountFrom(41)
	s := openSession(t, r)
	if s.ID() != "session-42" || s.Owner() != "client-42" {
		t.Errorf("%s, %s", s.ID(), s.Owner())
	}
}
