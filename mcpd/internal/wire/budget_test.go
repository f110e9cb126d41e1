package wire

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestBudget(t *testing.T) {
	b := NewBudget(4*chunkSize + 100)
	one, two := b.Account(3*chunkSize), b.Account(1<<40)
	for _, step := range []struct {
		acct  *Account
		n     int64
		err   error
		inUse int64
	}{
		{one, 0, nil, 0},
		{one, 1, nil, chunkSize},
		{one, 2*chunkSize + 1, ErrNoRoom, chunkSize}, // its own limit
		{one, 4 * chunkSize, ErrNoRoom, chunkSize},   // can never be
		{two, 2*chunkSize - 1, nil, 3 * chunkSize},
		{two, 2 * chunkSize, ErrNoRoom, 3 * chunkSize}, // the total
		{one, chunkSize, nil, 4 * chunkSize},
		{two, 5 * chunkSize, ErrNoRoom, 4 * chunkSize},
	} {
		if err := step.acct.Reserve(step.n, 0); err != step.err || b.InUse() != step.inUse {
			t.Errorf("reserving %d: %v, in use %d", step.n, err, b.InUse())
		}
	}
	one.Release(1)
	one.Release(chunkSize)
	two.Release(2*chunkSize - 1)
	if b.InUse() != 0 {
		t.Errorf("in use %d", b.InUse())
	}
	if err := two.Reserve(4*chunkSize, 0); err != nil {
		t.Errorf("failed reservations have left something behind: %v", err)
	}
	var none *Account
	if err := none.Reserve(1<<60, 0); err != nil {
		t.Error(err)
	}
	none.Release(1 << 60)
}

func TestBudgetWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(4 * chunkSize)
		holder := b.Account(4 * chunkSize)
		if err := holder.Reserve(3*chunkSize, 0); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		first := make(chan error)
		go func() { first <- b.Account(4*chunkSize).Reserve(2*chunkSize, time.Second) }()
		synctest.Wait()
		// The second would fit, but is not served before the first.
		if err := b.Account(4*chunkSize).Reserve(chunkSize, 300*time.Millisecond); err != ErrNoRoom {
			t.Errorf("overtook: %v", err)
		}
		if waited := time.Since(began); waited != 300*time.Millisecond {
			t.Errorf("waited %v", waited)
		}
		holder.Release(3 * chunkSize)
		if err := <-first; err != nil {
			t.Error(err)
		}
		if err := holder.Reserve(4*chunkSize, time.Second); err != ErrNoRoom {
			t.Error(err)
		}
		if waited := time.Since(began); waited != 1300*time.Millisecond {
			t.Errorf("waited %v", waited)
		}
	})
}
