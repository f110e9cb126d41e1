package mcpd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"interlock/mcpd/internal/endpoint"
	"interlock/mcpd/internal/life"
	"interlock/status"
)

// stopAsk is how long a daemon that was asked to stop may take: its drain, and
// the end of its servers.
const stopAsk = 16 * time.Second

// ErrNotVerified is returned by Stop for a process that is not certainly the
// daemon: nothing was sent to it.
var ErrNotVerified = life.ErrNotVerified

// StopStep is one step of a stop and how long it took.
type StopStep struct {
	Name string
	Took time.Duration
}

// Stop ends the daemon of the place and returns when it is gone: it is asked,
// then terminated, then killed, each only once it is certain which process it
// is. Where no daemon runs the error is ErrNotRunning. Bridges do not start it
// again until a user does.
func Stop(ctx context.Context, place Place, report func(StopStep)) error {
	paths, err := place.paths()
	if err != nil {
		return err
	}
	held, err := endpoint.Held(paths)
	if err != nil {
		return err
	}
	if !held {
		return ErrNotRunning
	}
	if err := life.SetStopMarker(paths.Dir, time.Now()); err != nil {
		return err
	}
	id, err := holder(ctx, paths)
	if errors.Is(err, ErrNotRunning) {
		return nil // it has ended meanwhile
	}
	if err != nil {
		return err
	}
	return life.Stop(ctx, life.StopPlan{
		Identity: id,
		Graces:   life.Graces{Ask: stopAsk},
		Ask: func(ctx context.Context) error {
			// One that does not answer does not stop either.
			ctx, cancel := context.WithTimeout(ctx, answerLimit)
			defer cancel()
			_, err := askOnce[struct{}](ctx, paths, methodStop, nil)
			return err
		},
		Report: func(step life.Step, took time.Duration) {
			if report != nil {
				report(StopStep{Name: string(step), Took: took})
			}
		},
	})
}

// holder finds out which process is the daemon that holds the lock: the one that
// the status file names or, where the file is gone, damaged or of a process that
// has ended, the one that answers at the socket. A daemon that is just starting
// gets a moment to show itself.
func holder(ctx context.Context, p endpoint.Paths) (life.Identity, error) {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	for {
		file, err := status.Read(p.Status)
		if err == nil && !hasEnded(identityOf(&file)) {
			return identityOf(&file), nil
		}
		live, err := askStatus(ctx, p)
		if err == nil {
			return identityOf(live), nil
		}
		if held, heldErr := endpoint.Held(p); heldErr == nil && !held {
			return life.Identity{}, ErrNotRunning
		}
		if pause(ctx, 50*time.Millisecond) != nil {
			return life.Identity{}, fmt.Errorf("finding the daemon to stop: %w: its status file does not name it, and it does not answer: %w", ErrNotVerified, err)
		}
	}
}

// hasEnded reports whether the process is certainly gone.
func hasEnded(id life.Identity) bool {
	process, err := life.Pin(id)
	if err == nil {
		process.Close()
	}
	return errors.Is(err, life.ErrGone)
}
