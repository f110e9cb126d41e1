package leases

import (
	"container/heap"
	"context"
	"fmt"
	"time"
)

// Acquisition is what an owner asks for by hand.
type Acquisition struct {
	Party
	Resources []Resource
	TTL       time.Duration // from MinTTL to MaxTTL
}

// Grant is a lease that was acquired by hand, and the proof of it.
type Grant struct {
	Lease
	Handle Handle
}

// Acquire gives the owner leases on all the resources or none. It waits in line
// until ctx ends, not at all if it has ended; then, and where waiting would be in
// vain, the error is a [*HeldError]. A lease that the owner has acquired already is
// not given again; one that was taken for a call of its own becomes one by hand.
// Other errors are an [ErrInvalid] and an [ErrExhausted].
func (t *Table) Acquire(ctx context.Context, a Acquisition) ([]Grant, error) {
	if err := a.check(); err != nil {
		return nil, err
	}
	u := &Use{Party: a.Party, table: t, ttl: a.TTL}
	u.resources = reduce(a.Resources)
	if err := t.enterByHand(u); err != nil {
		return nil, err
	}
	if err := u.Wait(ctx); err != nil {
		return nil, err
	}
	return u.grants, nil
}

func (a *Acquisition) check() error {
	if err := checkTTL(a.TTL); err != nil {
		return err
	}
	if len(a.Resources) == 0 {
		return fmt.Errorf("%w: no resource is named", ErrInvalid)
	}
	return checkName("an owner", a.Owner)
}

func checkTTL(ttl time.Duration) error {
	if ttl < MinTTL || ttl > MaxTTL {
		return fmt.Errorf("%w: a lease lives from %v to %v, not %v", ErrInvalid, MinTTL, MaxTTL, ttl)
	}
	return nil
}

func (t *Table) enterByHand(u *Use) error {
	t.lock()
	defer t.unlock()
	held := 0
	for _, l := range t.byHand {
		if l.Session == u.Session {
			held++
		}
	}
	for w := range t.waiting {
		if w.ttl > 0 && w.Session == u.Session {
			held += len(w.resources)
		}
	}
	if held+len(u.resources) > maxByHand {
		return fmt.Errorf("%w: this session has acquired %d or waits for them, of %d that it may", ErrExhausted, held, maxByHand)
	}
	_, err := t.startLocked(u)
	return err
}

// checkByHandLocked refuses what the owner has acquired already.
func (t *Table) checkByHandLocked(u *Use) error {
	for _, r := range u.resources {
		if n := t.nodes[r]; n != nil && n.lease != nil && n.lease.Owner == u.Owner && n.lease.byHand {
			return t.heldByLocked(n.lease, u)
		}
	}
	return nil
}

// grantByHandLocked makes leases that last without a call. They are not in use.
func (t *Table) grantByHandLocked(u *Use) {
	for _, r := range u.resources {
		l := t.nodeLocked(r).lease
		if l == nil {
			l = t.newLeaseLocked(u.Party, r)
		}
		l.byHand, l.ending, l.keep, l.secret = true, false, u.ttl, newSecret()
		t.byHand[l.epoch] = l
		if l.uses == 0 {
			t.renewLocked(l)
		}
		u.grants = append(u.grants, Grant{t.describeLocked(l, t.wall()), handleOf(l.epoch, l.secret)})
	}
}

// renewLocked starts the time anew of a lease that is not in use.
func (t *Table) renewLocked(l *lease) {
	l.expires = t.now + l.keep
	if l.place < 0 {
		heap.Push(&t.idle, l)
		return
	}
	heap.Fix(&t.idle, l.place)
}

// handledLocked returns the lease that the handle proves, if it is the owner's.
func (t *Table) handledLocked(h Handle, owner string) (*lease, error) {
	epoch, s, err := h.parse()
	if err != nil {
		return nil, err
	}
	l := t.byHand[epoch]
	switch {
	case l == nil || !l.secret.equal(s):
		return nil, t.past.why(epoch, s)
	case l.Owner != owner:
		return nil, ErrNotOwner
	}
	return l, nil
}

// Renew starts the time to live of a lease anew, with a length of its own. The
// errors are those of a handle ([Table.Validate]) and an [ErrInvalid] for the time.
func (t *Table) Renew(owner string, h Handle, ttl time.Duration) (Lease, error) {
	if err := checkTTL(ttl); err != nil {
		return Lease{}, err
	}
	t.lock()
	defer t.unlock()
	l, err := t.handledLocked(h, owner)
	if err != nil {
		return Lease{}, err
	}
	l.keep = ttl
	if l.uses == 0 {
		t.renewLocked(l)
	}
	return t.describeLocked(l, t.wall()), nil
}

// Release ends a lease: at once, or when the last call leaves that uses it, which
// Lease.Ending then says. The errors are those of a handle.
func (t *Table) Release(owner string, h Handle) (Lease, error) {
	t.lock()
	defer t.unlock()
	l, err := t.handledLocked(h, owner)
	if err != nil {
		return Lease{}, err
	}
	t.releaseLocked(l)
	return t.describeLocked(l, t.wall()), nil
}

// Validate returns the lease that the handle proves, if it is the owner's and
// lives. The error is an [ErrInvalid] for what is no handle, an [ErrNotFound], an
// [ErrNotOwner] or an [ErrExpired].
func (t *Table) Validate(owner string, h Handle) (Lease, error) {
	t.lock()
	defer t.unlock()
	l, err := t.handledLocked(h, owner)
	if err != nil {
		return Lease{}, err
	}
	return t.describeLocked(l, t.wall()), nil
}

// graves is how many ended leases are remembered, so that who shows the handle of
// one learns what has become of it.
const graves = 1024

// graveyard remembers the leases by hand that ended last.
type graveyard struct {
	ended map[uint64]grave
	order []uint64 // oldest first
}

type grave struct {
	secret secret
	why    error
}

func (g *graveyard) bury(epoch uint64, s secret, why error) {
	if g.ended == nil {
		g.ended = make(map[uint64]grave)
	}
	if _, again := g.ended[epoch]; !again {
		if len(g.order) == graves {
			delete(g.ended, g.order[0])
			g.order = g.order[1:]
		}
		g.order = append(g.order, epoch)
	}
	g.ended[epoch] = grave{s, why}
}

// why says what became of the lease with the epoch, to who knows its secret.
func (g *graveyard) why(epoch uint64, s secret) error {
	e, ok := g.ended[epoch]
	switch {
	case !ok || !e.secret.equal(s):
		return ErrNotFound
	case e.why == ErrBroken:
		return fmt.Errorf("%w: somebody broke it by hand", ErrExpired)
	}
	return ErrExpired
}
