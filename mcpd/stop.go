package mcpd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"interlock/mcpd/internal/endpoint"
	"interlock/mcpd/internal/life"
	"interlock/mcpd/internal/proc"
	"interlock/status"
)

const (
	// endMargin is what the end of a daemon may take beside its drain: the answers
	// for what was cut off, its servers' ends, its files.
	endMargin = 6 * time.Second
	// leftLimit is how long a daemon's processes may outlive it: a helper whose
	// daemon was killed ends them.
	leftLimit = 5 * time.Second
)

// endLimit is how long a daemon with this drain time-out may take to end.
func endLimit(drain time.Duration) time.Duration { return drain + endMargin }

// ErrNotVerified is returned by Stop for a process that is not certainly the
// daemon: nothing was sent to it.
var ErrNotVerified = life.ErrNotVerified

// StopStep is one step of a stop and how long it took.
type StopStep struct {
	Name string
	Took time.Duration
}

// StopOptions say how Stop ends a daemon.
type StopOptions struct {
	// Force ends processes of the daemon's servers, too, that outlive it.
	Force bool
	// Report is called after each step. It may be nil.
	Report func(StopStep)
}

// LeftError is returned by Stop where the daemon is gone and processes of its
// servers are not.
type LeftError struct{ PIDs []int }

func (e *LeftError) Error() string {
	pids := strings.Join(texts(e.PIDs), " ")
	return fmt.Sprintf("the daemon has ended, and processes of its servers have not; end them with: kill -KILL %s", pids)
}

// Stop ends the daemon of the place and returns when it is gone: it is asked,
// then terminated, then killed, each only once it is certain which process it
// is. Where no daemon runs the error is ErrNotRunning. Bridges do not start it
// again until a user does, nor one that has crashed. The error is a *LeftError
// if processes of its servers have not ended with it.
func Stop(ctx context.Context, place Place, o StopOptions) error {
	paths, err := place.paths()
	if err != nil {
		return err
	}
	// A marker that cannot be set is no reason to let the daemon run.
	marked := life.SetStopMarker(paths.Dir, time.Now())
	if errors.Is(marked, fs.ErrNotExist) {
		return ErrNotRunning // there is no directory
	}
	held, err := endpoint.Held(paths)
	if err != nil {
		return err
	}
	if !held {
		return errors.Join(ErrNotRunning, marked)
	}
	running, err := holder(ctx, paths)
	if errors.Is(err, ErrNotRunning) {
		return marked // it has ended meanwhile
	}
	if err != nil {
		return err
	}
	if err := end(ctx, paths, running, o.Report); err != nil {
		return err
	}
	return errors.Join(accountFor(ctx, running.Identity.Instance, o.Force), marked)
}

// end ends the daemon.
func end(ctx context.Context, paths endpoint.Paths, running *status.Snapshot, report func(StopStep)) error {
	return life.Stop(ctx, life.StopPlan{
		Identity: identityOf(running),
		Graces:   life.Graces{Ask: endLimit(time.Duration(running.Limits.DrainTimeoutMs) * time.Millisecond)},
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

// accountFor waits for the end of the processes that carry the marker of a daemon
// that has ended. Those that stay are ended with force, or named.
func accountFor(ctx context.Context, instance string, force bool) error {
	waiting, cancel := context.WithTimeout(ctx, leftLimit)
	defer cancel()
	for {
		left, err := proc.FindMarked(instance)
		if instance == "" || err != nil || len(left) == 0 {
			return nil // or nobody can tell, as on macOS
		}
		if force {
			if _, err := proc.EndMarked(waiting, instance, nil); err != nil {
				return fmt.Errorf("ending what the daemon has left behind: %w", err)
			}
			return nil
		}
		if pause(waiting, 50*time.Millisecond) != nil {
			e := &LeftError{}
			for _, p := range left {
				e.PIDs = append(e.PIDs, p.PID)
			}
			return e
		}
	}
}

// holder finds out which process is the daemon that holds the lock: the one that
// the status file names or, where the file is gone, damaged or of a process that
// has ended, the one that answers at the socket. A daemon that is just starting
// gets a moment to show itself.
func holder(ctx context.Context, p endpoint.Paths) (*status.Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	for {
		file, err := status.Read(p.Status)
		if err == nil && !hasEnded(identityOf(&file)) {
			return &file, nil
		}
		live, err := askStatus(ctx, p)
		if err == nil {
			return live, nil
		}
		if held, heldErr := endpoint.Held(p); heldErr == nil && !held {
			return nil, ErrNotRunning
		}
		if pause(ctx, 50*time.Millisecond) != nil {
			return nil, fmt.Errorf("finding the daemon to stop: %w: its status file does not name it, and it does not answer: %w", ErrNotVerified, err)
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
