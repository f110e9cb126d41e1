package leases

import (
	"container/heap"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"
)

// maxByHand bounds the leases that one session holds by hand.
const maxByHand = 256

// Options are what a table is made of.
type Options struct {
	// Clock reads the time since some moment: it counts the time that the machine is
	// suspended, never goes back, and takes no part in steps of the wall clock.
	Clock func() time.Duration
	// Now is the wall clock, for display.
	Now func() time.Time
	// First and Last bound the epochs that the table gives out. The caller sees to
	// it that First is larger than Last of every earlier table. A Last of 0 is none.
	First, Last uint64
	// HoldMax is how long a lease that was taken for a call lasts in all while
	// somebody waits for it and no call uses it.
	HoldMax time.Duration
	// Expired is called, with no lock held, when leases have ended by themselves; nil
	// is nobody.
	Expired func()
}

// Table holds the leases there are and who waits for them. Its methods may be
// called concurrently; none waits but [Table.Acquire] and [Use.Wait].
type Table struct {
	clock   func() time.Duration
	wall    func() time.Time
	last    uint64
	holdMax time.Duration
	expired func()

	mu      sync.Mutex // guards the fields below, and all of lease and node
	now     time.Duration
	closed  bool
	epoch   uint64             // of the next lease
	arrived uint64             // uses so far
	nodes   map[Resource]*node // those with a lease or a waiter
	trees   int                // nodes of trees
	byHand  map[uint64]*lease  // by epoch
	waiting map[*Use]struct{}
	idle    idleHeap
	retry   useHeap // waiters whose blocker is gone
	past    graveyard
	lapsed  bool          // leases have ended by themselves of which expired has not told
	timer   *time.Timer   // runs until the first idle lease ends
	wakes   time.Duration // when; 0 if it does not run
}

// node is what there is about one resource.
type node struct {
	lease   *lease // nil if nobody has it
	waiting []*Use // first come first
}

// line is who waits for one blocker, first come first.
type line struct{ waiting []*Use }

// lease is a live lease, or one that was broken under a call.
type lease struct {
	Party
	line
	resource Resource
	epoch    uint64
	byHand   bool
	secret   secret
	keep     time.Duration // how long it lasts idle: the time to live, or the hold
	granted  time.Duration
	expires  time.Duration // while it is idle
	uses     int
	ending   bool // for display: it was released while it was in use
	broken   bool
	place    int // in the heap of idle leases, -1 outside
}

// New returns an empty table.
func New(o Options) *Table {
	t := &Table{
		clock: o.Clock, wall: o.Now, last: o.Last, holdMax: o.HoldMax, expired: o.Expired,
		epoch:   max(o.First, 1),
		nodes:   make(map[Resource]*node),
		byHand:  make(map[uint64]*lease),
		waiting: make(map[*Use]struct{}),
	}
	if t.last == 0 {
		t.last = math.MaxUint64
	}
	t.timer = time.AfterFunc(time.Hour, t.wake)
	t.timer.Stop()
	return t
}

// Close stops the table's timer; nothing is granted or ends by itself any more.
func (t *Table) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	t.timer.Stop()
}

// lock takes the mutex, reads the clock, and ends what has run out.
func (t *Table) lock() {
	t.mu.Lock()
	t.now = t.clock()
	for len(t.idle) > 0 && t.idle[0].expires <= t.now {
		t.endLocked(t.idle[0], ErrExpired)
		t.lapsed = true
	}
	if len(t.retry) > 0 {
		t.settleLocked()
	}
}

// unlock lets those go on whose way has become free, sets the timer and gives the
// mutex back.
func (t *Table) unlock() {
	if len(t.retry) > 0 {
		t.settleLocked()
	}
	t.armLocked()
	t.mu.Unlock()
}

// wake is called by the timer.
func (t *Table) wake() {
	t.mu.Lock()
	t.wakes = 0
	closed := t.closed
	t.mu.Unlock()
	if closed {
		return
	}
	t.lock()
	tell := t.lapsed && t.expired != nil
	t.lapsed = false
	t.unlock()
	if tell {
		t.expired()
	}
}

// armLocked sets the timer to when the next idle lease ends, or to now if it has to
// be told of some that have.
func (t *Table) armLocked() {
	switch {
	case t.closed:
	case t.lapsed && t.expired != nil:
		t.wakes = t.now
		t.timer.Reset(0)
	case len(t.idle) == 0:
		if t.wakes != 0 {
			t.wakes = 0
			t.timer.Stop()
		}
	case t.wakes != t.idle[0].expires:
		t.wakes = t.idle[0].expires
		t.timer.Reset(t.wakes - t.now)
	}
}

// node returns the resource's node, made if it is not there.
func (t *Table) nodeLocked(r Resource) *node {
	n := t.nodes[r]
	if n == nil {
		n = new(node)
		t.nodes[r] = n
		if r.isTree() {
			t.trees++
		}
	}
	return n
}

func (t *Table) dropNodeLocked(r Resource, n *node) {
	if n.lease == nil && len(n.waiting) == 0 {
		delete(t.nodes, r)
		if r.isTree() {
			t.trees--
		}
	}
}

// settleLocked finds a new place for all whose blocker is gone, first come first.
func (t *Table) settleLocked() {
	for len(t.retry) > 0 {
		u := heap.Pop(&t.retry).(*Use)
		if u.stage != useWaiting || u.behind != nil || t.closed {
			continue
		}
		if _, err := t.placeLocked(u); err != nil {
			t.leaveLineLocked(u)
			u.stage, u.refused = useOver, err
			close(u.granted)
		}
	}
}

// placeLocked grants the use, refuses it, or puts it behind what it has to wait for.
// It reports whether it was granted.
func (t *Table) placeLocked(u *Use) (granted bool, err error) {
	if err := t.checkLocked(u); err != nil {
		return false, err
	}
	b := t.blockerLocked(u)
	for b.lease != nil && t.boundLocked(b.lease) {
		b = t.blockerLocked(u)
	}
	if b == (blocker{}) {
		t.grantLocked(u)
		return true, nil
	}
	u.blocked = b
	if t.deadlockLocked(u) {
		held := t.heldLocked(u)
		held.Deadlock = true
		return false, held
	}
	u.behind = b.line()
	u.behind.waiting = append(u.behind.waiting, u)
	return false, nil
}

// boundLocked follows the arrival of somebody who waits for the lease: one that is
// only held after a call ends when all its time is over. It reports whether that
// is now.
func (t *Table) boundLocked(l *lease) (ended bool) {
	if l.place < 0 || l.byHand {
		return false
	}
	if l.expires = min(l.expires, l.granted+t.holdMax); l.expires <= t.now {
		t.endLocked(l, ErrExpired)
		t.lapsed = true
		return true
	}
	heap.Fix(&t.idle, l.place)
	return false
}

// grantLocked gives the use all that it asks for.
func (t *Table) grantLocked(u *Use) {
	if u.stage == useWaiting {
		t.leaveLineLocked(u)
	}
	u.stage = useGranted
	u.waited = t.now - u.since
	if u.ttl > 0 {
		t.grantByHandLocked(u)
	} else {
		t.grantCallLocked(u)
	}
	if u.granted != nil {
		close(u.granted)
	}
	if u.ttl > 0 || u.hold > 0 {
		t.retryLocked(u.Owner)
	}
}

// retryLocked has an owner's uses placed anew that wait for something else by now,
// or for nothing: they go before others under a lease that the owner has been given.
func (t *Table) retryLocked(owner string) {
	for w := range t.waiting {
		if w.Owner == owner && w.behind != nil && t.blockerLocked(w) != w.blocked {
			w.behind.waiting = remove(w.behind.waiting, w)
			w.behind, w.blocked = nil, blocker{}
			heap.Push(&t.retry, w)
		}
	}
}

func (t *Table) grantCallLocked(u *Use) {
	u.leases = u.room[:0]
	for _, l := range u.shown {
		t.enterLocked(u, l)
	}
	for _, r := range u.resources {
		l := t.coverLocked(r, u.Owner)
		if l == nil {
			l = t.newLeaseLocked(u.Party, r)
		}
		if !l.byHand && !l.ending {
			l.keep = u.hold
		}
		t.enterLocked(u, l)
	}
}

// enterLocked puts the lease in use once more.
func (t *Table) enterLocked(u *Use, l *lease) {
	l.uses++
	if l.place >= 0 {
		heap.Remove(&t.idle, l.place)
	}
	u.leases = append(u.leases, l)
	u.epoch = max(u.epoch, l.epoch)
}

func (t *Table) newLeaseLocked(p Party, r Resource) *lease {
	l := &lease{Party: p, resource: r, epoch: t.epoch, granted: t.now, place: -1}
	t.epoch++
	t.nodeLocked(r).lease = l
	return l
}

// idleLocked follows the moment in which nobody uses the lease any more.
func (t *Table) idleLocked(l *lease) {
	l.expires = t.now + l.keep
	if !l.byHand && len(l.line.waiting) > 0 {
		l.expires = min(l.expires, l.granted+t.holdMax)
	}
	if l.expires <= t.now {
		t.endLocked(l, ErrExpired)
		return
	}
	heap.Push(&t.idle, l)
}

// endLocked ends a lease for the reason given. Those that wait for it are placed
// anew before the mutex is given back.
func (t *Table) endLocked(l *lease, why error) {
	if l.place >= 0 {
		heap.Remove(&t.idle, l.place)
	}
	n := t.nodes[l.resource]
	n.lease = nil
	t.dropNodeLocked(l.resource, n)
	if l.byHand {
		delete(t.byHand, l.epoch)
		t.past.bury(l.epoch, l.secret, why)
	}
	t.freeLocked(&l.line)
}

// freeLocked has all that wait behind the line placed anew.
func (t *Table) freeLocked(l *line) {
	for _, u := range l.waiting {
		u.behind, u.blocked = nil, blocker{}
		heap.Push(&t.retry, u)
	}
	l.waiting = nil
}

// leaveLineLocked takes a use out of the waiting ones.
func (t *Table) leaveLineLocked(u *Use) {
	delete(t.waiting, u)
	for _, r := range u.resources {
		n := t.nodes[r]
		n.waiting = remove(n.waiting, u)
		t.dropNodeLocked(r, n)
	}
	if u.behind != nil {
		u.behind.waiting = remove(u.behind.waiting, u)
		u.behind, u.blocked = nil, blocker{}
	}
	t.freeLocked(&u.line)
}

func remove(list []*Use, u *Use) []*Use {
	if i := slices.Index(list, u); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}

// ReleaseOwner releases all leases of an owner, and of the actors it speaks for
// ("owner/actor"), when its session is over. Those in use end when their last call
// leaves. Nothing more may be asked for in its name.
func (t *Table) ReleaseOwner(owner string) {
	t.lock()
	defer t.unlock()
	for _, n := range t.nodes {
		if n.lease != nil && ownedBy(n.lease.Owner, owner) {
			t.releaseLocked(n.lease)
		}
	}
}

// ownedBy reports whether the owner is who, or one of its actors.
func ownedBy(owner, who string) bool {
	rest, ok := strings.CutPrefix(owner, who)
	return ok && (rest == "" || rest[0] == '/')
}

// releaseLocked ends a lease as soon as nobody uses it.
func (t *Table) releaseLocked(l *lease) {
	if l.uses == 0 {
		t.endLocked(l, ErrExpired)
		return
	}
	if l.byHand {
		delete(t.byHand, l.epoch)
		t.past.bury(l.epoch, l.secret, ErrExpired)
	}
	l.byHand, l.keep, l.ending = false, 0, true
}

// Break ends the lease of a resource, though calls may be using it and though it
// is somebody else's. Calls under it that have not been sent yet are not
// ([Use.Valid]). It returns the lease that there was, or an [ErrNotFound].
func (t *Table) Break(r Resource) (Lease, error) {
	t.lock()
	defer t.unlock()
	n := t.nodes[r]
	if n == nil || n.lease == nil {
		return Lease{}, fmt.Errorf("%w: nobody has one on %s", ErrNotFound, r)
	}
	l := n.lease
	was := t.describeLocked(l, t.wall())
	l.broken = true
	t.endLocked(l, ErrBroken)
	return was, nil
}
