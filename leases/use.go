package leases

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Request is what a call needs.
type Request struct {
	Party
	// Resources are what the call changes. Those that another one covers are left out.
	Resources []Resource
	// Hold is how long the leases outlive the call. It takes the place of what an
	// earlier call of the owner has asked for.
	Hold time.Duration
	// Handles are of leases acquired by hand that the call runs under.
	Handles []Handle
	// MustHold refuses the call with [ErrNotHeld] unless the handles cover all of
	// its resources.
	MustHold bool
}

type useStage uint8

const (
	useNew useStage = iota
	useWaiting
	useGranted
	useOver
)

// Use is one call's use of the leases that it runs under, or the acquisition of
// some by hand. The zero value is ready for [Table.Enter]. A use that was entered
// must be left.
type Use struct {
	Party
	table     *Table
	resources []Resource
	hold, ttl time.Duration // ttl is positive for an acquisition
	room      [1]*lease
	granted   chan struct{} // closed when it is granted or refused; nil if it never waited
	refused   error         // after all, once granted is closed

	// guarded by the table's mutex
	line    // who waits for the use to be over
	stage   useStage
	arrived uint64 // its number among all uses; 0 before it waits
	since   time.Duration
	waited  time.Duration
	blocked blocker // what it waits for
	behind  *line   // where it is entered for that
	first   Blocker // what it waited for first
	shown   []*lease
	leases  []*lease // in use
	grants  []Grant  // of an acquisition
	epoch   uint64
}

// Enter asks for leases on all the resources of a call. It never waits: if it
// returns false the use waits in line, and the caller calls [Use.Wait]. The errors
// are an [ErrInvalid], [ErrNotFound], [ErrNotOwner] or [ErrExpired] for a handle,
// [ErrNotHeld], [ErrExhausted], and a [*HeldError] where waiting would be in vain.
// Unless there is an error the caller calls [Use.Leave] once, when the call has
// settled or is given up.
func (t *Table) Enter(u *Use, r Request) (granted bool, err error) {
	u.Party, u.table, u.hold = r.Party, t, r.Hold
	resources := reduce(r.Resources)
	t.lock()
	defer t.unlock()
	for _, h := range r.Handles {
		l, err := t.handledLocked(h, r.Owner)
		if err != nil {
			return false, err
		}
		u.shown = append(u.shown, l)
	}
	u.resources = resources
	if len(u.shown) > 0 {
		u.resources = slices.DeleteFunc(slices.Clone(resources), func(res Resource) bool {
			return slices.ContainsFunc(u.shown, func(l *lease) bool { return l.resource.Covers(res) })
		})
	}
	if r.MustHold && len(u.resources) > 0 {
		return false, fmt.Errorf("%w: %s", ErrNotHeld, u.resources[0])
	}
	return t.startLocked(u)
}

// reduce returns the resources, sorted, without those that another one covers.
func reduce(list []Resource) []Resource {
	if len(list) == 1 {
		return list
	}
	all := slices.Compact(slices.Sorted(slices.Values(list)))
	return slices.DeleteFunc(slices.Clone(all), func(r Resource) bool {
		return slices.ContainsFunc(all, func(o Resource) bool { return o != r && o.Covers(r) })
	})
}

// startLocked grants a new use or lets it wait.
func (t *Table) startLocked(u *Use) (granted bool, err error) {
	if t.closed {
		return false, fmt.Errorf("%w: the daemon is ending", ErrExhausted)
	}
	u.since = t.now
	if granted, err := t.placeLocked(u); granted || err != nil {
		return granted, err
	}
	t.arrived++
	u.arrived = t.arrived
	u.stage = useWaiting
	u.first = t.blockerOf(u)
	u.granted = make(chan struct{})
	t.waiting[u] = struct{}{}
	for _, r := range u.resources {
		n := t.nodeLocked(r)
		n.waiting = append(n.waiting, u)
	}
	return false, nil
}

// checkLocked says why the use, though nobody may be in its way, is not to be
// granted. It is looked at anew after every wait.
func (t *Table) checkLocked(u *Use) error {
	if t.last-t.epoch < uint64(len(u.resources)) {
		return fmt.Errorf("%w: the daemon has given out all its epochs", ErrExhausted)
	}
	for _, l := range u.shown {
		if t.byHand[l.epoch] != l {
			return t.past.why(l.epoch, l.secret)
		}
	}
	if u.ttl > 0 {
		return t.checkByHandLocked(u)
	}
	return nil
}

// Wait returns nil when the use is granted. When ctx ends first it is over, and the
// error is a [*HeldError] that says what it waited for last. It is over, too, when
// it has turned out that the use must not be granted: the other errors are those of
// [Table.Enter].
func (u *Use) Wait(ctx context.Context) error {
	if u.granted == nil {
		return nil
	}
	select {
	case <-u.granted:
		return u.refused
	default:
	}
	select {
	case <-u.granted:
		return u.refused
	case <-ctx.Done():
	}
	t := u.table
	t.lock()
	defer t.unlock()
	switch u.stage {
	case useGranted:
		return nil // at the last moment
	case useOver:
		if u.refused != nil {
			return u.refused
		}
		return ctx.Err() // it was left meanwhile
	}
	err := t.heldLocked(u)
	t.leaveLineLocked(u)
	u.stage = useOver
	return err
}

// Leave ends the use: it waits no longer, or its call has settled. Further calls do
// nothing.
func (u *Use) Leave() {
	t := u.table
	if t == nil {
		return
	}
	t.lock()
	defer t.unlock()
	switch u.stage {
	case useWaiting:
		t.leaveLineLocked(u)
	case useGranted:
		for _, l := range u.leases {
			if l.uses--; l.uses == 0 && !l.broken {
				t.idleLocked(l)
			}
		}
	}
	u.stage, u.leases, u.shown = useOver, nil, nil
}

// Valid returns an [ErrBroken] if a lease that the granted use relies on is gone. A
// use that was never entered relies on none.
func (u *Use) Valid() error {
	if u.table == nil {
		return nil
	}
	u.table.mu.Lock()
	defer u.table.mu.Unlock()
	for _, l := range u.leases {
		if l.broken {
			return fmt.Errorf("%w: %s", ErrBroken, l.resource)
		}
	}
	return nil
}

// Epoch returns the epoch of a granted use: the largest of its leases'. 0 is none.
func (u *Use) Epoch() uint64 { return u.epoch }

// Waited returns how long a granted use has waited, and what for at first.
func (u *Use) Waited() (time.Duration, Blocker) { return u.waited, u.first }
