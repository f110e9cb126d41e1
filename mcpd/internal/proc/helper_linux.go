package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// restartEvery is the shortest time between two restarts of a lost helper.
const restartEvery = 10 * time.Second

// Helper is the Spawner whose processes are children of a spawn helper. A helper that is lost takes its processes with it, with
// StatusLost, and is replaced, at once the first time and at most every ten seconds. Its goroutine, run, ends with Close.
type Helper struct {
	opts     HelperOptions
	shutdown context.CancelFunc // tells run to end the helper
	force    context.CancelFunc // tells run to wait no longer for that
	done     chan struct{}      // closed by run

	mu      sync.Mutex // guards what follows
	closed  bool
	link    *link         // nil while there is no helper
	changed chan struct{} // closed, and replaced, when link or closed changes
}

// StartHelper starts a spawn helper from this process's own image, whose main must consult IsHelper before anything else. ctx bounds
// the start only. The caller must Close the Helper. On a system without helpers the error is errors.ErrUnsupported.
func StartHelper(ctx context.Context, opts HelperOptions) (*Helper, error) {
	if opts.Marker == "" {
		return nil, errors.New("starting the spawn helper: it was given no instance marker")
	}
	if IsHelper(os.Args) {
		return nil, errors.New("starting the spawn helper: this process is one itself, but its main has not called HelperMain")
	}
	if opts.Log == nil {
		opts.Log = zap.NewNop()
	}
	if opts.Cgroup != "" {
		if err := unix.Access(filepath.Join(opts.Cgroup, "cgroup.kill"), unix.W_OK); err != nil {
			return nil, fmt.Errorf("starting the spawn helper: control group %q cannot be killed by us: %w", opts.Cgroup, err)
		}
	}
	first, err := startLink(ctx, opts.Marker, opts.Cgroup)
	if err != nil {
		return nil, fmt.Errorf("starting the spawn helper: %w", err)
	}
	h := &Helper{opts: opts, link: first, done: make(chan struct{}), changed: make(chan struct{})}
	closing, shutdown := context.WithCancel(context.Background())
	forced, force := context.WithCancel(context.Background())
	h.shutdown, h.force = shutdown, force
	go h.run(closing, forced, first)
	return h, nil
}

// Spawn implements Spawner. Between the loss of a helper and the start of the next it waits.
func (h *Helper) Spawn(ctx context.Context, s Spec, stdio [3]*os.File) (Process, error) {
	s.Env = withMarker(s.Env, h.opts.Marker)
	for {
		h.mu.Lock()
		l, changed, closed := h.link, h.changed, h.closed
		h.mu.Unlock()
		switch {
		case closed:
			return nil, s.failed(ErrHelperClosed)
		case ctx.Err() != nil:
			return nil, s.failed(context.Cause(ctx))
		case l != nil:
			p, err := l.spawn(ctx, s, stdio)
			if err != errNotSent {
				return p, err
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// PID is that of the present helper, or 0 while there is none.
func (h *Helper) PID() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.link == nil {
		return 0
	}
	return h.link.cmd.Process.Pid
}

// Close makes the helper end every process below it, at once, and exit, and waits for that. When ctx ends first, the helper is killed
// and the groups are ended from here; the error says so. Close may be called again.
func (h *Helper) Close(ctx context.Context) error {
	h.change(func() { h.closed = true })
	h.shutdown()
	defer h.force()
	select {
	case <-h.done:
		return nil
	case <-ctx.Done():
	}
	h.force()
	<-h.done
	return fmt.Errorf("shutting down the spawn helper: it was killed because it had not ended in time: %w", context.Cause(ctx))
}

// run keeps a helper running until closing ends, and then ends it: as it should, until forced ends too.
func (h *Helper) run(closing, forced context.Context, l *link) {
	defer close(h.done)
	var restarted time.Time
	for l != nil {
		select {
		case <-l.lost:
		case <-closing.Done():
			l.shutdown(forced)
		}
		h.change(func() { h.link = nil })
		err := l.finish()
		if closing.Err() != nil && err == nil {
			return
		}
		h.sweep()
		if closing.Err() != nil {
			return
		}
		err = errors.Join(ErrHelperLost, err)
		h.opts.Log.Error("the spawn helper was lost; all its servers were ended", zap.Error(err))
		if h.opts.OnLost != nil {
			h.opts.OnLost(err)
		}
		l = h.restart(closing, time.Until(restarted.Add(restartEvery)))
		restarted = time.Now()
		h.change(func() { h.link = l })
	}
}

// sweep ends what a lost helper had below it and nobody has a pidfd of.
func (h *Helper) sweep() {
	if h.opts.Cgroup != "" {
		if err := killCgroup(h.opts.Cgroup); err != nil {
			h.opts.Log.Warn("the control group of the servers could not be killed", zap.Error(err))
		}
	}
	ended, err := EndMarked(context.Background(), h.opts.Marker, nil)
	if err != nil {
		h.opts.Log.Warn("processes of the lost spawn helper may be left", zap.Error(err))
	}
	if len(ended) > 0 {
		h.opts.Log.Info("ended processes of the lost spawn helper", zap.Ints("pids", ended))
	}
}

// restart waits for the given time and starts a new helper, again and again until that succeeds; nil means that ctx ended first.
func (h *Helper) restart(ctx context.Context, wait time.Duration) *link {
	for {
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
		l, err := startLink(ctx, h.opts.Marker, h.opts.Cgroup)
		if err == nil {
			h.opts.Log.Info("started a new spawn helper", zap.Int("pid", l.cmd.Process.Pid))
			return l
		}
		h.opts.Log.Error("no new spawn helper could be started; no server can start until one can", zap.Error(err), zap.Duration("retry", restartEvery))
		wait = restartEvery
	}
}

// change makes a change that Spawn may be waiting for.
func (h *Helper) change(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
	close(h.changed)
	h.changed = make(chan struct{})
}
