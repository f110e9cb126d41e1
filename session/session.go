package session

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

// State is a session's place in its life.
type State uint8

const (
	Opening   State = iota // connected; no handshake has been completed
	Ready                  // the handshake is done, or the era needs none
	HalfOpen               // the client has ended its input and waits for answers
	Closed                 // over; every call has been given up
	numStates = iota
)

func (s State) String() string {
	return [numStates]string{"opening", "ready", "half-open", "closed"}[s]
}

// Era is a generation of the MCP revisions, by how a session begins.
type Era uint8

const (
	EraUnknown Era = iota // nothing has been said yet
	Handshake             // initialize: 2024-11-05 to 2025-11-25
	Stateless             // version and capabilities in every request: 2026-07-28
	numEras    = iota
)

func (e Era) String() string {
	return [numEras]string{"unknown", "handshake", "stateless"}[e]
}

// Session is one client's session. Its methods may be called concurrently.
type Session struct {
	registry *Registry
	n        uint64
	id       string // session-<n>
	owner    string // client-<n>
	info     Info
	opened   time.Time
	permits  *semaphore.Weighted // of this session

	mu       sync.Mutex // guards the fields below; never held over a callback
	state    State
	era      Era
	client   Client
	inFlight map[string]*Call   // by the key of the client's id
	running  int                // calls that hold permits, cancelled ones included
	long     int                // long requests in flight
	owed     int                // running calls whose answers have not been handed on
	line     []*Call            // waiting for permits, first come first
	aside    []*Call            // waiting for something else, likewise
	served   bool               // a goroutine serves the line
	idle     chan struct{}      // replaced and closed whenever the last call settles
	giveUp   context.CancelFunc // ends the line's wait for permits; set while served
	serving  sync.WaitGroup     // the goroutine that serves the line
	closing  chan struct{}      // closed by Close
}

// Client is how a client names itself in its handshake or in its requests.
type Client struct{ Name, Version string }

func newSession(r *Registry, n uint64, info Info) *Session {
	return &Session{
		registry: r,
		n:        n,
		id:       fmt.Sprintf("session-%d", n),
		owner:    fmt.Sprintf("client-%d", n),
		info:     info,
		opened:   time.Now(),
		permits:  semaphore.NewWeighted(int64(info.running(r.limits))),
		inFlight: make(map[string]*Call),
		closing:  make(chan struct{}),
	}
}

// ID names the session for people: session-<n>.
func (s *Session) ID() string { return s.id }

// Owner is the identity for leases and runs: client-<n>. It is never reused by
// the daemon that gave it.
func (s *Session) Owner() string { return s.owner }

// Greet records what the client's handshake, or the first request of a
// stateless one, said of it.
func (s *Session) Greet(era Era, c Client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.era = era
	if c.Name != "" {
		s.client = c
	}
	if s.state == Opening {
		s.state = Ready
	}
}

// Era returns the era in which the client speaks.
func (s *Session) Era() Era {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.era
}

// Client returns how the client named itself.
func (s *Session) Client() Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.client
}

// EndInput records that the client sends nothing more.
func (s *Session) EndInput() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state < HalfOpen {
		s.state = HalfOpen
	}
}

// InputEnded reports whether the client sends nothing more.
func (s *Session) InputEnded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state >= HalfOpen
}

// WaitIdle returns when no answer is owed to the client, or when the session
// closes, or with the context's error.
func (s *Session) WaitIdle(ctx context.Context) error {
	for {
		s.mu.Lock()
		if s.state == Closed || s.busyLocked() == 0 {
			s.mu.Unlock()
			return nil
		}
		if s.idle == nil {
			s.idle = make(chan struct{})
		}
		idle := s.idle
		s.mu.Unlock()
		select {
		case <-idle:
		case <-s.closing:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// busyLocked counts the calls that an answer is owed to.
func (s *Session) busyLocked() int { return s.owed + len(s.line) + len(s.aside) }

func (s *Session) wakeIdleLocked() {
	if s.idle != nil && s.busyLocked() == 0 {
		close(s.idle)
		s.idle = nil
	}
}

// Close ends the session: nothing new begins, and calls in the line are dropped.
// Its line's goroutine has ended when Close returns. Calls that are running are
// still to be settled by the caller.
func (s *Session) Close() {
	s.mu.Lock()
	if s.state == Closed {
		s.mu.Unlock()
		return
	}
	s.state = Closed
	close(s.closing)
	dropped := append(s.aside, s.line...)
	s.line, s.aside = nil, nil
	for _, c := range dropped {
		s.endLocked(c)
	}
	if s.served {
		s.giveUp()
	}
	s.wakeIdleLocked()
	s.mu.Unlock()
	for _, c := range dropped {
		c.work.Drop()
	}
	s.serving.Wait()
	s.registry.remove(s)
}

// Snapshot describes a session for status.
type Snapshot struct {
	ID, Owner string
	Info      Info
	Client    Client
	State     State
	Era       Era
	Opened    time.Time
	Running   int
	Waiting   int
}

// Snapshot returns the session's description at this moment.
func (s *Session) Snapshot() Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Snapshot{
		ID: s.id, Owner: s.owner, Info: s.info, Client: s.client,
		State: s.state, Era: s.era, Opened: s.opened,
		Running: s.running + s.long, Waiting: len(s.line) + len(s.aside),
	}
}
