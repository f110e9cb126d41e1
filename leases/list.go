package leases

import (
	"cmp"
	"slices"
	"time"
)

// List returns all live leases, the oldest first.
func (t *Table) List() []Lease {
	t.lock()
	defer t.unlock()
	wall := t.wall()
	list := make([]Lease, 0, len(t.nodes))
	for _, n := range t.nodes {
		if n.lease != nil {
			list = append(list, t.describeLocked(n.lease, wall))
		}
	}
	slices.SortFunc(list, func(a, b Lease) int { return cmp.Compare(a.Epoch, b.Epoch) })
	return list
}

// Waiting returns all who wait, the longest first.
func (t *Table) Waiting() []Waiter {
	t.lock()
	defer t.unlock()
	wall := t.wall()
	uses := make([]*Use, 0, len(t.waiting))
	for u := range t.waiting {
		uses = append(uses, u)
	}
	slices.SortFunc(uses, func(a, b *Use) int { return cmp.Compare(a.arrived, b.arrived) })
	list := make([]Waiter, len(uses))
	for i, u := range uses {
		list[i] = Waiter{
			Party: u.Party, Resources: slices.Clone(u.resources),
			Since: wall.Add(u.since - t.now), Blocked: t.blockerOf(u),
		}
	}
	return list
}

// Owner returns the lease under which the resource is held now, by itself or as
// part of a tree.
func (t *Table) Owner(r Resource) (Lease, bool) {
	t.lock()
	defer t.unlock()
	if n := t.nodes[r]; n != nil && n.lease != nil {
		return t.describeLocked(n.lease, t.wall()), true
	}
	var found *lease
	r.trees(func(tree Resource) bool {
		if n := t.nodes[tree]; n != nil {
			found = n.lease
		}
		return found == nil
	})
	if found == nil {
		return Lease{}, false
	}
	return t.describeLocked(found, t.wall()), true
}

func (t *Table) describeLocked(l *lease, wall time.Time) Lease {
	expires := t.now + l.keep
	if l.place >= 0 {
		expires = l.expires
	}
	return Lease{
		Resource: l.resource, Party: l.Party, Epoch: l.epoch, ByHand: l.byHand, Ending: l.ending,
		Granted: wall.Add(l.granted - t.now), Expires: wall.Add(expires - t.now),
		Calls: l.uses, Waiting: len(l.line.waiting),
	}
}

// blockerOf describes what u waits for.
func (t *Table) blockerOf(u *Use) Blocker {
	b := u.blocked
	switch {
	case b.use != nil:
		return Blocker{Resource: b.on, Owner: b.use.Owner, Client: b.use.Client, Waits: true}
	case b.lease != nil:
		return Blocker{Resource: b.lease.resource, Owner: b.lease.Owner, Client: b.lease.Client}
	}
	return Blocker{}
}

// heldLocked describes what keeps u from what it wants.
func (t *Table) heldLocked(u *Use) *HeldError {
	b := u.blocked
	switch {
	case b.use != nil:
		return &HeldError{
			Resource: b.on, Holder: b.use.Party, Waits: true, Age: t.now - b.use.since,
			WaitsFor: t.waitsForLocked(b.use.Owner), Waited: t.now - u.since,
		}
	case b.lease != nil:
		return t.heldByLocked(b.lease, u)
	}
	return &HeldError{Resource: u.resources[0], Waited: t.now - u.since} // the table is closed
}

func (t *Table) heldByLocked(l *lease, u *Use) *HeldError {
	e := &HeldError{
		Resource: l.resource, Holder: l.Party, Own: l.Owner == u.Owner, Age: t.now - l.granted,
		Calls: l.uses, WaitsFor: t.waitsForLocked(l.Owner), Waited: t.now - u.since,
	}
	if l.place >= 0 {
		e.Expires = l.expires - t.now
	}
	return e
}

// waitsForLocked returns what the owner has waited for the longest.
func (t *Table) waitsForLocked(owner string) *Blocker {
	var first *Use
	for u := range t.waiting {
		if u.Owner == owner && (first == nil || u.arrived < first.arrived) {
			first = u
		}
	}
	if first == nil {
		return nil
	}
	b := t.blockerOf(first)
	return &b
}
