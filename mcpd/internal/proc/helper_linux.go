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
	opts    HelperOptions
	closing chan struct{} // closed by Close: shut down
	force   chan struct{} // closed by Close: no more waiting
	done    chan struct{} // closed by run

	mu      sync.Mutex // guards what follows
	closed  bool
	forced  bool
	link    *link         // nil while there is no helper
	changed chan struct{} // closed, and replaced, when link changes
}

// StartHelper starts a spawn helper from this process's own image, whose main must consult IsHelper before anything else. ctx bounds
// the start only. The caller must Close the Helper. On a system without helpers the error is errors.ErrUnsupported.
func StartHelper(ctx context.Context, opts HelperOptions) (*Helper, error) {
	if opts.Marker == "" {
		return nil, errors.New("starting the spawn helper: it was given no instance marker")
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
	h := &Helper{
		opts: opts, link: first,
		closing: make(chan struct{}), force: make(chan struct{}), done: make(chan struct{}), changed: make(chan struct{}),
	}
	go h.run(first)
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
		case <-h.closing:
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
	h.mu.Lock()
	if !h.closed {
		h.closed = true
		close(h.closing)
	}
	h.mu.Unlock()
	select {
	case <-h.done:
		return nil
	case <-ctx.Done():
	}
	h.mu.Lock()
	if !h.forced {
		h.forced = true
		close(h.force)
	}
	h.mu.Unlock()
	<-h.done
	return fmt.Errorf("shutting down the spawn helper: it was killed because it had not ended in time: %w", context.Cause(ctx))
}

// run keeps a helper running until Close.
func (h *Helper) run(l *link) {
	defer close(h.done)
	var restarted time.Time
	for l != nil {
		select {
		case <-l.lost:
		case <-h.closing:
			h.shutdown(l)
		}
		h.set(nil)
		err := l.finish()
		closing := isClosed(h.closing)
		if closing && err == nil {
			return
		}
		h.sweep()
		if closing {
			return
		}
		err = errors.Join(ErrHelperLost, err)
		h.opts.Log.Error("the spawn helper was lost; all its servers were ended", zap.Error(err))
		if h.opts.OnLost != nil {
			h.opts.OnLost(err)
		}
		l = h.restart(time.Until(restarted.Add(restartEvery)))
		restarted = time.Now()
		h.set(l)
	}
}

// shutdown asks the helper to end and waits until it has, or until there is to be no more waiting.
func (h *Helper) shutdown(l *link) {
	l.send(message{kind: kindShutdown})
	select {
	case <-l.lost:
	case <-h.force:
		l.kill()
		<-l.lost
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

// restart waits for the given time and starts a new helper, again and again until that succeeds; nil means that Close came first.
func (h *Helper) restart(wait time.Duration) *link {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for {
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-h.closing:
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

func (h *Helper) set(l *link) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.link = l
	close(h.changed)
	h.changed = make(chan struct{})
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
