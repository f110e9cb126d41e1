package wire

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

// ErrNoRoom means that a budget had no room in the time given.
var ErrNoRoom = errors.New("no memory left in the budget for frames")

// A Budget bounds the memory of frames, or of parts of them, beyond the first
// 64 KiB of each. It is divided in chunks of 64 KiB. Who waits is served in
// order. All methods are safe for concurrent use.
type Budget struct {
	total int64
	sem   *semaphore.Weighted
	inUse atomic.Int64
}

// NewBudget returns a budget of total bytes, rounded down to whole chunks.
func NewBudget(total int64) *Budget {
	return &Budget{total: total / chunkSize, sem: semaphore.NewWeighted(total / chunkSize)}
}

// InUse returns how many bytes are reserved now.
func (b *Budget) InUse() int64 { return b.inUse.Load() * chunkSize }

// Account returns an account that draws on b, at most limit bytes at a time,
// rounded down to whole chunks. Each direction of a session has its own.
func (b *Budget) Account(limit int64) *Account {
	limit = min(limit/chunkSize, b.total)
	return &Account{budget: b, limit: limit, sem: semaphore.NewWeighted(limit)}
}

// An Account is one user's share of a Budget. The nil Account is without
// bounds and counts nothing.
type Account struct {
	budget *Budget
	limit  int64
	sem    *semaphore.Weighted
}

// chunks returns how many chunks n bytes take.
func chunks(n int64) int64 { return (n + chunkSize - 1) / chunkSize }

// Reserve takes n bytes, rounded up to whole chunks, and waits up to wait for
// room; without it the error is [ErrNoRoom] and nothing is taken.
func (a *Account) Reserve(n int64, wait time.Duration) error {
	if a == nil || n <= 0 {
		return nil
	}
	c := chunks(n)
	if c > a.limit {
		return ErrNoRoom
	}
	if !a.try(c) && !a.await(c, wait) {
		return ErrNoRoom
	}
	a.budget.inUse.Add(c)
	return nil
}

func (a *Account) try(c int64) bool {
	if !a.sem.TryAcquire(c) {
		return false
	}
	if a.budget.sem.TryAcquire(c) {
		return true
	}
	a.sem.Release(c)
	return false
}

func (a *Account) await(c int64, wait time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	if a.sem.Acquire(ctx, c) != nil {
		return false
	}
	if a.budget.sem.Acquire(ctx, c) != nil {
		a.sem.Release(c)
		return false
	}
	return true
}

// Release gives back what Reserve took for n bytes.
func (a *Account) Release(n int64) {
	if a == nil || n <= 0 {
		return
	}
	c := chunks(n)
	a.budget.inUse.Add(-c)
	a.budget.sem.Release(c)
	a.sem.Release(c)
}
