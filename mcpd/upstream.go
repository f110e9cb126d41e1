package mcpd

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"time"

	"interlock/mcpd/internal/config"
	"interlock/mcpd/internal/policy"
	"interlock/mcpd/internal/wire"
	"interlock/session"
	"interlock/status"
)

// startPause is the least time between two starts of one upstream.
const startPause = time.Second

// errSessionOver is what a request meets whose session is being taken down.
var errSessionOver = errors.New("session is over")

// upstream is the server of one session: whichever process of it runs now, and
// what a next one must be told first. A process is started when a request needs
// it and there is none.
type upstream struct {
	d       *Daemon
	conn    *conn
	server  config.Server
	policy  *policy.Policy
	place   place
	memory  memory
	classes *classes
	// workplace is what relative paths of calls start from.
	workplace func() policy.Place

	mu       sync.Mutex // guards the fields below
	current  *instance  // the process that runs or starts, nil if there is none
	started  time.Time  // of the last process
	starts   int
	over     error          // why nothing more is taken, nil while it is
	instance sync.WaitGroup // the goroutines of all instances
}

// place is where and in which environment a session's servers run.
type place struct {
	dir   string // working directory; empty: the client has named none
	env   []string
	depth int // how many bridges deep the client runs
	umask uint32
}

// usualUmask is that of servers whose client names none: the daemon's own is
// for its own files.
const usualUmask = 0o022

func newUpstream(c *conn, s config.Server, p *policy.Policy, h Hello) *upstream {
	env := h.Env
	if env == nil {
		env = c.d.baseEnv
	}
	umask := uint32(usualUmask)
	if h.Umask != nil {
		umask = *h.Umask
	}
	u := &upstream{
		d: c.d, conn: c, server: s, policy: p,
		place: place{dir: h.CWD, env: env, depth: h.Depth, umask: umask},
	}
	u.classes = newClasses(p, func(classes map[string]string) { c.d.toolsSeen(s.Name, classes) })
	u.workplace = sync.OnceValue(u.findWorkplace)
	return u
}

// findWorkplace returns where the server works. A configuration that cannot be
// expanded keeps the server from starting, so it matters not what is returned then.
func (u *upstream) findWorkplace() policy.Place {
	env := environment(u.place.env)
	p := policy.Place{Dir: u.place.dir, Home: u.d.home}
	if home := env["HOME"]; filepath.IsAbs(home) {
		p.Home = home
	}
	if u.server.Builtin != "" {
		return p
	}
	if command, err := u.server.Expand(env.lookup); err == nil {
		p.Dir = u.workdir(command.Dir)
	}
	return p
}

// workdir is the working directory of the server's processes, dir being that of
// its configuration.
func (u *upstream) workdir(dir string) string {
	base := u.place.dir
	if base == "" {
		base = u.d.home
	}
	if filepath.IsAbs(dir) {
		return dir
	}
	return filepath.Join(base, dir)
}

// take returns the process that is to have the request, starting one where none
// runs, with the request entered among those the process owes an answer to.
func (u *upstream) take(x *exchange) (*instance, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.over != nil {
		return nil, u.over
	}
	if u.current != nil && u.current.enter(x) {
		return u.current, nil
	}
	u.current = u.startLocked()
	u.current.enter(x)
	return u.current, nil
}

// ensure returns the process, starting one where none runs.
func (u *upstream) ensure() (*instance, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.over != nil {
		return nil, u.over
	}
	if u.current == nil {
		u.current = u.startLocked()
	}
	return u.current, nil
}

// startLocked starts a new instance, whose goroutine begins with the pause that
// is due since the last start.
func (u *upstream) startLocked() *instance {
	pause := time.Duration(0)
	if u.starts > 0 {
		pause = max(0, startPause-time.Since(u.started))
	}
	u.started = time.Now().Add(pause)
	u.starts++
	in := newInstance(u)
	ctx, cancel := context.WithCancel(context.Background())
	in.quit = cancel
	u.instance.Add(1)
	go func() {
		defer u.instance.Done()
		in.run(ctx, pause)
	}()
	return in
}

// running reports whether a process runs or starts.
func (u *upstream) running() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.current != nil
}

// dropped is told by an instance that it takes nothing more.
func (u *upstream) dropped(in *instance) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.current == in {
		u.current = nil
	}
}

// notify passes a notification on to the process, if there is one: it is no
// reason to start one.
func (u *upstream) notify(f *wire.Frame, edits []wire.Edit) {
	u.mu.Lock()
	in := u.current
	u.mu.Unlock()
	if in != nil {
		in.pass(f, edits)
	}
}

// cut answers all that is in flight with the cause, and tells the process that it
// is cancelled. Nothing more is taken: what still waits is refused.
func (u *upstream) cut(cause *refusal) {
	u.mu.Lock()
	if u.over == nil {
		u.over = session.ErrDraining
	}
	in := u.current
	u.mu.Unlock()
	if in != nil {
		in.cut(cause)
	}
}

// close gives up what is in flight, ends the process, and returns when nothing
// of it is left.
func (u *upstream) close() {
	u.mu.Lock()
	u.over = errSessionOver
	in := u.current
	u.mu.Unlock()
	if in != nil {
		in.leave()
	}
	u.instance.Wait()
}

// forgive lets the next start come at once: what ended the last process was a
// probe of ours.
func (u *upstream) forgive() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.starts = 0
}

// snapshot describes the upstream for status; StartedAt is zero while nothing
// has needed it.
func (u *upstream) snapshot() status.Upstream {
	u.mu.Lock()
	in := u.current
	s := status.Upstream{
		Name: u.server.Name, Scope: string(config.ScopeSession), State: "idle",
		StartedAt: u.started, Restarts: max(0, u.starts-1), Sessions: 1,
	}
	u.mu.Unlock()
	if in != nil {
		s.PID, s.InFlight = in.snapshot()
		s.State = "starting"
		if s.PID != 0 || u.server.Builtin != "" {
			s.State = "running"
		}
	}
	return s
}
