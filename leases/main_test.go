package leases_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"interlock/leases"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const holdMax = 15 * time.Second

// bench is a table whose clock is that of a synctest bubble.
type bench struct {
	*leases.Table
	t testing.TB
}

// inBubble runs a test on a table of its own, in a bubble.
func inBubble(t *testing.T, test func(b bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		b := bench{leases.New(leases.Options{
			Clock: func() time.Duration { return time.Since(began) }, Now: time.Now, First: 100, HoldMax: holdMax,
		}), t}
		defer b.Close()
		test(b)
	})
}

func party(owner string) leases.Party {
	return leases.Party{Owner: owner, Session: "of " + owner, Client: "client of " + owner}
}

// attempt is a use that was entered, and what becomes of it.
type attempt struct {
	leases.Use
	t      testing.TB
	cancel context.CancelFunc
	done   chan error // of Wait
}

// request enters a use, which waits in a goroutine of its own if it has to.
func (b bench) request(r leases.Request) *attempt {
	b.t.Helper()
	a := &attempt{t: b.t, done: make(chan error, 1)}
	granted, err := b.Enter(&a.Use, r)
	if err != nil {
		b.t.Fatalf("entering %+v: %v", r, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	a.cancel = cancel
	if granted {
		a.done <- nil
		return a
	}
	go func() { a.done <- a.Wait(ctx) }()
	return a
}

// enter is request for an owner's call on resources, with a hold.
func (b bench) enter(owner string, hold time.Duration, resources ...leases.Resource) *attempt {
	b.t.Helper()
	return b.request(leases.Request{Party: party(owner), Resources: resources, Hold: hold})
}

// granted has the use be granted by now.
func (a *attempt) granted() *attempt {
	a.t.Helper()
	synctest.Wait()
	select {
	case err := <-a.done:
		if err != nil {
			a.t.Fatalf("waiting: %v", err)
		}
	default:
		a.t.Fatal("it is not granted")
	}
	return a
}

// waits has the use be waiting still.
func (a *attempt) waits() *attempt {
	a.t.Helper()
	synctest.Wait()
	select {
	case err := <-a.done:
		a.t.Fatalf("it does not wait: %v", err)
	default:
	}
	return a
}

// gives up the wait, and returns the error.
func (a *attempt) givesUp() error {
	a.t.Helper()
	a.waits()
	a.cancel()
	err := <-a.done
	if err == nil {
		a.t.Fatal("it was granted at last")
	}
	return err
}

// leave ends the use.
func (a *attempt) leave() {
	a.Leave()
	a.cancel()
	synctest.Wait()
}

// acquire gets leases by hand, at once.
func (b bench) acquire(owner string, ttl time.Duration, resources ...leases.Resource) []leases.Grant {
	b.t.Helper()
	grants, err := b.tryAcquire(owner, ttl, resources...)
	if err != nil {
		b.t.Fatalf("acquiring %v for %s: %v", resources, owner, err)
	}
	return grants
}

func (b bench) tryAcquire(owner string, ttl time.Duration, resources ...leases.Resource) ([]leases.Grant, error) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return b.Acquire(ctx, leases.Acquisition{Party: party(owner), Resources: resources, TTL: ttl})
}

// wantError has err be the target.
func wantError(t testing.TB, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("error %v, want %v", err, target)
	}
}

// held returns err as the error that says who has what.
func held(t testing.TB, err error) *leases.HeldError {
	t.Helper()
	var h *leases.HeldError
	if !errors.As(err, &h) || !errors.Is(err, leases.ErrHeld) {
		t.Fatalf("error %v, want one that says who has it", err)
	}
	return h
}

// wantList has the table hold leases on exactly these resources.
func (b bench) wantList(resources ...leases.Resource) {
	b.t.Helper()
	var got []leases.Resource
	for _, l := range b.List() {
		got = append(got, l.Resource)
	}
	slices.Sort(got)
	slices.Sort(resources)
	if !slices.Equal(got, resources) {
		b.t.Errorf("there are leases on %v, want %v", got, resources)
	}
	if len(got) == 0 && len(b.Waiting()) == 0 && !b.Empty() {
		b.t.Error("the table remembers what is over")
	}
}
