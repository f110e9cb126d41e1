package mcpd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"interlock/mcpd/internal/endpoint"
	"interlock/mcpd/internal/life"
	"interlock/recovery"
)

// Selection names the runs to acknowledge.
type Selection = recovery.Selection

// SetError says that a selection is not exactly what is pending, and what is.
type SetError = recovery.SetError

// Call is one finished call.
type Call = recovery.Call

// HistoryAnswer is what history answers.
type HistoryAnswer struct {
	// Calls are finished calls, oldest first.
	Calls []recovery.Call `json:"calls"`
	// Dropped counts calls that could not be written in time, since the daemon
	// started.
	Dropped uint64 `json:"dropped"`
}

// historyParams are what a client of the method history says.
type historyParams struct {
	N int `json:"n"`
}

// recordLimit bounds a question about the record: another process may hold the
// directory meanwhile, for one of its own.
const recordLimit = 10 * time.Second

// Recovery returns the runs of the place that wait to be acknowledged, and what is
// wrong with the record, whether a daemon runs or not.
func Recovery(ctx context.Context, place Place) (recovery.State, error) {
	return aboutRecord(ctx, place, methodRecovery, nil, inspect)
}

// Acknowledge takes the selected runs out of the pending ones, whether a daemon
// runs or not. A selection that is not exactly the pending set gives a
// *[SetError], which names it, and changes nothing.
func Acknowledge(ctx context.Context, place Place, s Selection) (recovery.Ack, error) {
	return aboutRecord(ctx, place, methodAck, s, func(p endpoint.Paths, o recovery.Options) (recovery.Ack, error) {
		ack, err := locked(p, func() (recovery.Ack, error) { return recovery.AcknowledgeOffline(o, s) })
		if errors.Is(err, fs.ErrNotExist) { // no directory, and so no runs
			return recovery.Ack{Status: recovery.StatusClear, Path: p.Recovery}, nil
		}
		return ack, err
	})
}

// RepairRecovery takes over what is intact in damaged files of the record, and
// lets calls that change something go on, whether a daemon runs or not.
func RepairRecovery(ctx context.Context, place Place) (recovery.Repaired, error) {
	done, err := aboutRecord(ctx, place, methodRepair, nil, func(p endpoint.Paths, o recovery.Options) (recovery.Repaired, error) {
		done, err := locked(p, func() (recovery.Repaired, error) { return recovery.Repair(o) })
		if errors.Is(err, fs.ErrNotExist) {
			return recovery.Repaired{}, nil
		}
		return done, err
	})
	done.Files = append([]string{}, done.Files...) // never null in JSON
	return done, err
}

// History returns the last n finished calls.
func History(ctx context.Context, place Place, n int) (HistoryAnswer, error) {
	answer, err := aboutRecord(ctx, place, methodHistory, historyParams{n}, func(_ endpoint.Paths, o recovery.Options) (HistoryAnswer, error) {
		calls, err := recovery.ReadHistory(o, n)
		return HistoryAnswer{Calls: calls}, err
	})
	answer.Calls = append([]recovery.Call{}, answer.Calls...) // never null in JSON
	return answer, err
}

// aboutRecord asks the daemon of the place by the method. Where none runs, alone
// answers; if that finds one running after all, the daemon is asked again.
func aboutRecord[T any](ctx context.Context, place Place, method string, params any, alone func(endpoint.Paths, recovery.Options) (T, error)) (answer T, err error) {
	paths, err := place.paths()
	if err != nil {
		return answer, err
	}
	if err := endpoint.Verify(paths); err != nil {
		return answer, err
	}
	identity, err := life.Self(Version())
	if err != nil {
		return answer, err
	}
	ctx, cancel := context.WithTimeout(ctx, recordLimit)
	defer cancel()
	for {
		answer, err := askOnce[T](ctx, paths, method, params)
		if errors.Is(err, os.ErrDeadlineExceeded) || err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return answer, unresponsive(place, paths, recordLimit)
		}
		if !noAnswer(err) {
			return answer, err
		}
		answer, err = alone(paths, recoveryOptions(place, paths, nil, identity))
		if !errors.Is(err, ErrRunning) {
			return answer, err
		}
		if pause(ctx, 20*time.Millisecond) != nil {
			return answer, fmt.Errorf("the daemon does not answer; see: %s daemon doctor: %w", place.Command(), err)
		}
	}
}

func askOnce[T any](ctx context.Context, p endpoint.Paths, method string, params any) (answer T, err error) {
	r, err := dialControl(ctx, p)
	if err != nil {
		return answer, err
	}
	defer r.close()
	err = r.call(ctx, method, params, &answer)
	return answer, err
}

// noAnswer reports whether the error says that no daemon is there, or that it
// ended before it answered.
func noAnswer(err error) bool {
	return errors.Is(err, endpoint.ErrAbsent) || errors.Is(err, io.EOF) ||
		errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}

// inspect reads the record of a place without a daemon.
func inspect(p endpoint.Paths, o recovery.Options) (recovery.State, error) {
	state, err := recovery.Inspect(o)
	// Under a daemon, what is in flight would seem to be pending.
	if held, heldErr := endpoint.Held(p); heldErr == nil && held {
		return state, ErrRunning
	}
	return state, err
}

// locked acts in the daemon's place. A daemon that starts meanwhile finds the lock
// taken.
func locked[T any](p endpoint.Paths, act func() (T, error)) (answer T, err error) {
	lock, err := endpoint.Acquire(p)
	if err != nil {
		return answer, err
	}
	defer lock.Close()
	return act()
}
