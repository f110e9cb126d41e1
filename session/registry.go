package session

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

// Limits bounds the sessions of a registry and their calls. All are counts
// except WaitLimit.
type Limits struct {
	Sessions  int           // open at once
	Running   int           // calls of one session that hold a permit
	Waiting   int           // calls of one session that wait for one
	Global    int           // calls of all sessions that hold a permit
	WaitLimit time.Duration // how long a call waits for its permits before it is refused
}

// ErrClosed is returned for a session or registry that takes nothing new.
var ErrClosed = errors.New("session is closed")

// ErrDraining is returned for new calls while the registry drains.
var ErrDraining = errors.New("daemon is stopping and takes no new calls")

// LimitError says that a registry has as many sessions open as it may.
type LimitError struct{ Limit int }

func (e *LimitError) Error() string {
	return fmt.Sprintf("limit of %d sessions is reached", e.Limit)
}

// Info is what is known of a session's client when it opens.
type Info struct {
	PID     int32  // of the peer, 0 if it is not known
	Server  string // the server the session is
	Project string // root of the client's project, if it has one
	// Running bounds the calls that hold a permit more tightly than the registry
	// does, because the server takes fewer at a time; 0 is no bound.
	Running int
}

// running is how many calls of a session may hold a permit.
func (i Info) running(l Limits) int {
	if i.Running > 0 {
		return min(i.Running, l.Running)
	}
	return l.Running
}

// Registry is the set of open sessions and the permits they share.
type Registry struct {
	limits Limits
	global *semaphore.Weighted

	draining atomic.Bool // set under mu; read without it on the way of every call

	mu     sync.Mutex // guards the fields below
	opened uint64
	open   map[uint64]*Session
}

// NewRegistry returns an empty registry.
func NewRegistry(l Limits) *Registry {
	return &Registry{
		limits: l,
		global: semaphore.NewWeighted(int64(l.Global)),
		open:   make(map[uint64]*Session),
	}
}

// CountFrom numbers the sessions from the one after last, so that their owners are
// others than those of an earlier registry. It is called before the first Open.
func (r *Registry) CountFrom(last uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.opened = last
}

// Open adds a session. It returns a *LimitError when the registry is full and
// ErrDraining when it drains. The caller owns the session and must Close it.
func (r *Registry) Open(info Info) (*Session, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.draining.Load() {
		return nil, ErrDraining
	}
	if len(r.open) >= r.limits.Sessions {
		return nil, &LimitError{Limit: r.limits.Sessions}
	}
	r.opened++
	s := newSession(r, r.opened, info)
	r.open[r.opened] = s
	return s, nil
}

func (r *Registry) remove(s *Session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, s.n)
}

// All returns a description of every open session, in the order of opening.
func (r *Registry) All() []Snapshot {
	r.mu.Lock()
	open := make([]*Session, 0, len(r.open))
	for _, s := range r.open {
		open = append(open, s)
	}
	r.mu.Unlock()
	slices.SortFunc(open, func(a, b *Session) int { return int(a.n) - int(b.n) })
	all := make([]Snapshot, len(open))
	for i, s := range open {
		all[i] = s.Snapshot()
	}
	return all
}

// Drain refuses new sessions and new calls from now on. Calls in flight go on.
func (r *Registry) Drain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.draining.Store(true)
}

// Draining reports whether Drain has been called.
func (r *Registry) Draining() bool { return r.draining.Load() }
