package leases

import (
	"iter"
	"slices"
)

// covers are the owner's leases under each of which it may change r.
func (t *Table) covers(r Resource, owner string) iter.Seq[*lease] {
	return func(yield func(*lease) bool) {
		own := func(n *node) bool { return n != nil && n.lease != nil && n.lease.Owner == owner }
		if n := t.nodes[r]; own(n) && !yield(n.lease) || t.trees == 0 {
			return
		}
		r.trees(func(tree Resource) bool {
			n := t.nodes[tree]
			return tree == r || !own(n) || yield(n.lease)
		})
	}
}

// coverLocked returns the owner's lease under which it changes r, nil if it has
// none: one by hand if there is one, which is renewed by that.
func (t *Table) coverLocked(r Resource, owner string) (cover *lease) {
	for l := range t.covers(r, owner) {
		if l.byHand {
			return l
		}
		if cover == nil {
			cover = l
		}
	}
	return cover
}

// goesFirstLocked reports whether the use goes before those that wait for r: under
// a lease that its owner has by hand, and if it is a call's, under one that is held,
// as long as that may be.
func (t *Table) goesFirstLocked(u *Use, r Resource) bool {
	for l := range t.covers(r, u.Owner) {
		if l.byHand || u.ttl == 0 && l.keep > 0 && t.now < l.granted+t.holdMax {
			return true
		}
	}
	return false
}

// blocker is what a use cannot go past: a lease of another owner, or another's use
// that came earlier.
type blocker struct {
	lease *lease
	use   *Use
	on    Resource // of the use that is blocked
}

func (b *blocker) line() *line {
	if b.use != nil {
		return &b.use.line
	}
	return &b.lease.line
}

// blockerLocked returns the latest of all that the use cannot go past, so that the
// end of one sets few of them going; zero if its way is free.
func (t *Table) blockerLocked(u *Use) (b blocker) {
	for _, r := range u.resources {
		if t.goesFirstLocked(u, r) {
			continue
		}
		if n := t.nodes[r]; n != nil {
			b.consider(u, r, n)
		}
		if r.isTree() {
			for other, n := range t.nodes {
				if other != r && r.Conflicts(other) {
					b.consider(u, r, n)
				}
			}
			continue
		}
		if t.trees > 0 {
			r.trees(func(tree Resource) bool {
				if n := t.nodes[tree]; n != nil {
					b.consider(u, r, n)
				}
				return true
			})
		}
	}
	return b
}

// consider takes the latest of the node's that blocks u, if it is later than b.
func (b *blocker) consider(u *Use, r Resource, n *node) {
	for _, w := range slices.Backward(n.waiting) {
		if w.Owner != u.Owner && (w.arrived < u.arrived || u.arrived == 0) {
			if b.use == nil || b.use.arrived < w.arrived {
				*b = blocker{use: w, on: r}
			}
			return
		}
	}
	if n.lease != nil && n.lease.Owner != u.Owner && b.use == nil && (b.lease == nil || b.lease.epoch < n.lease.epoch) {
		*b = blocker{lease: n.lease, on: r}
	}
}

// deadlockLocked reports whether u, whose blocker is known, would wait for an owner
// who waits, at once or over others, for u or for a lease that u's owner keeps by
// hand.
func (t *Table) deadlockLocked(u *Use) bool {
	seen := make(map[string]bool) // owners
	var inVain func(b blocker) bool
	inVain = func(b blocker) bool {
		for b.use != nil {
			if b.use == u {
				return true
			}
			b = b.use.blocked
		}
		l := b.lease
		if l == nil || !l.byHand || seen[l.Owner] {
			return false // it ends by itself when its call does
		}
		if l.Owner == u.Owner {
			return true
		}
		seen[l.Owner] = true
		for w := range t.waiting {
			if w.Owner == l.Owner && inVain(w.blocked) {
				return true
			}
		}
		return false
	}
	return inVain(u.blocked)
}
