package mcpd

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"go.uber.org/zap"

	"interlock/mcpd/internal/endpoint"
)

const (
	// homeInterval is how often the daemon looks whether its directory, lock and
	// socket are still its own.
	homeInterval = time.Second
	// homeGrace is how long they may be gone before the daemon ends.
	homeGrace = 10 * time.Second
)

// watchHome looks after the daemon's own files until ctx ends. From the moment
// that one of them is gone or another's, calls that may change something are
// refused: another daemon may serve the same directory. It returns an error when
// that has lasted for the grace, and the daemon is to end. Nothing is unlinked
// then: it would be another's.
func (d *Daemon) watchHome(ctx context.Context, ln *endpoint.Listener) error {
	tick := time.NewTicker(homeInterval)
	defer tick.Stop()
	var since time.Time
	var rest idleness
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		rest.observe(d.counters.calls.Load())
		err := ln.Check()
		if !errors.Is(err, endpoint.ErrLost) {
			// Any other error says nothing about the files.
			if err == nil && d.homeLost.Swap(false) {
				d.log.Info("the daemon's files are its own again")
				d.changed()
			}
			if err == nil {
				since = time.Time{}
			}
			continue
		}
		if !d.homeLost.Swap(true) {
			since = time.Now()
			d.log.Error("calls that may change something are refused", zap.Error(err))
			d.changed()
		}
		if time.Since(since) >= homeGrace {
			return fmt.Errorf("ending, because the daemon's files are no longer its own: %w", err)
		}
	}
}

// idleTicks is how many looks in a row without a call make the daemon idle.
const idleTicks = 10

// idleness gives memory back to the system each time the daemon becomes idle: a
// burst of large messages is no reason to stay large.
type idleness struct {
	calls uint64
	ticks int
}

func (i *idleness) observe(calls uint64) {
	if calls != i.calls {
		i.calls, i.ticks = calls, 0
		return
	}
	if i.ticks++; i.ticks == idleTicks {
		debug.FreeOSMemory()
	}
}
