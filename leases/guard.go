package leases

import (
	"sync"
	"time"
)

// Bounds of what a guard remembers: the resources written last, and those that one
// session has seen last. What is forgotten is not warned of.
const (
	maxWritten = 8192
	maxSeen    = 1024
)

// Guard notices stale writes: a session read something, somebody else changed it,
// and the session is about to write over that. The zero value is ready. Its methods
// may be called concurrently.
type Guard struct {
	mu      sync.Mutex // guards the fields below
	version uint64     // of the last write
	written memory[Write]
	seen    map[string]*memory[uint64] // by session: the version it has seen last
}

// Write is the last change of a resource.
type Write struct {
	Party
	Resource Resource
	Epoch    uint64 // of the lease it was made under, 0 if there was none
	At       time.Time
	version  uint64
}

// Version stands for all that has been written up to a moment.
type Version uint64

// Version is to be asked for before a read is sent, and given to [Guard.Read] when
// it has been answered: what is written meanwhile may not have been read.
func (g *Guard) Version() Version {
	g.mu.Lock()
	defer g.mu.Unlock()
	return Version(g.version)
}

// Read records that the session has read the resources.
func (g *Guard) Read(session string, resources []Resource, before Version) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.seesLocked(session, resources, uint64(before))
}

func (g *Guard) seesLocked(session string, resources []Resource, version uint64) {
	m := g.seen[session]
	if m == nil {
		if g.seen == nil {
			g.seen = make(map[string]*memory[uint64])
		}
		m = &memory[uint64]{bound: maxSeen}
		g.seen[session] = m
	}
	for _, r := range resources {
		m.put(r, max(version, m.of[r]))
	}
}

// Stale returns the latest change by another session of what this one is about to
// write, if it is newer than what this one has seen. Of what it has never seen it
// says nothing.
func (g *Guard) Stale(session string, resources []Resource) (Write, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	m := g.seen[session]
	if m == nil {
		return Write{}, false
	}
	var latest Write
	for _, r := range resources {
		var version uint64
		known := false
		m.covering(r, func(v uint64) { version, known = max(version, v), true })
		if !known {
			continue
		}
		g.written.conflicting(r, func(w Write) {
			if w.Session != session && w.version > max(version, latest.version) {
				latest = w
			}
		})
	}
	return latest, latest.version > 0
}

// Wrote records that a call may have changed the resources. It has seen what it
// wrote.
func (g *Guard) Wrote(p Party, resources []Resource, epoch uint64, at time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.version++
	for _, r := range resources {
		g.written.bound = maxWritten
		g.written.put(r, Write{Party: p, Resource: r, Epoch: epoch, At: at, version: g.version})
	}
	g.seesLocked(p.Session, resources, g.version)
}

// Forget drops what an ended session has seen.
func (g *Guard) Forget(session string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.seen, session)
}

// memory keeps a value for each of a bounded number of resources; the one that came
// first goes first.
type memory[T any] struct {
	bound int
	of    map[Resource]T
	order []Resource
}

func (m *memory[T]) put(r Resource, value T) {
	if m.of == nil {
		m.of = make(map[Resource]T)
	}
	if _, ok := m.of[r]; !ok {
		if len(m.of) == m.bound {
			delete(m.of, m.order[0])
			m.order = m.order[1:]
		}
		m.order = append(m.order, r)
	}
	m.of[r] = value
}

// covering calls f with the values of r and of all trees around it.
func (m *memory[T]) covering(r Resource, f func(T)) {
	if value, ok := m.of[r]; ok {
		f(value)
	}
	r.trees(func(tree Resource) bool {
		if value, ok := m.of[tree]; ok && tree != r {
			f(value)
		}
		return true
	})
}

// conflicting calls f with the values of all resources that conflict with r.
func (m *memory[T]) conflicting(r Resource, f func(T)) {
	m.covering(r, f)
	if !r.isTree() {
		return
	}
	for other, value := range m.of {
		if other != r && r.Covers(other) {
			f(value)
		}
	}
}
