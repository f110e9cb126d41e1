package leases_test

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"interlock/leases"
)

func drawOwner(t *rapid.T) string {
	return rapid.SampledFrom([]string{"a", "a/x", "b", "c"}).Draw(t, "owner")
}

// use draws who wants what.
func (m *naive) use(t *rapid.T) (u *naiveUse, p leases.Party) {
	m.n++
	u = &naiveUse{n: m.n, owner: drawOwner(t)}
	u.resources = rapid.SliceOfNDistinct(rapid.SampledFrom(m.names), 1, 2, rapid.ID).Draw(t, "resources")
	slices.Sort(u.resources)
	return u, leases.Party{Owner: u.owner, Session: u.owner, Client: fmt.Sprint(u.n)}
}

// uncovered are the resources that no other one covers, nor one of the leases.
func uncovered(list []leases.Resource, under []*naiveLease) (left []leases.Resource) {
	for _, r := range list {
		if !slices.ContainsFunc(list, func(o leases.Resource) bool { return o != r && o.Covers(r) }) &&
			!slices.ContainsFunc(under, func(l *naiveLease) bool { return l.Resource.Covers(r) }) {
			left = append(left, r)
		}
	}
	return left
}

// handleError is what the table says of a handle that an owner shows.
func (m *naive) handleError(owner string, h *naiveHandle) error {
	switch {
	case !h.lives():
		return leases.ErrExpired
	case h.lease.Owner != owner:
		return leases.ErrNotOwner
	}
	return nil
}

// wantAnswer has err be what is wanted; of a handle whose lease was acquired once
// more, and is over, the table need not know.
func wantAnswer(t *rapid.T, what string, err, want error) {
	if (err != nil) != (want != nil) || want != nil && !errors.Is(err, want) && !(want == leases.ErrExpired && errors.Is(err, leases.ErrNotFound)) {
		t.Fatalf("%s: %v, want %v", what, err, want)
	}
}

func (m *naive) Enter(t *rapid.T) {
	u, p := m.use(t)
	u.hold = rapid.SampledFrom(m.holds).Draw(t, "hold")
	r := leases.Request{Party: p, Resources: slices.Clone(u.resources), Hold: u.hold, MustHold: rapid.IntRange(0, 5).Draw(t, "must hold") == 0}
	var want error
	if len(m.given) > 0 && rapid.Bool().Draw(t, "with a handle") {
		h := rapid.SampledFrom(m.given).Draw(t, "handle")
		r.Handles = []leases.Handle{h.handle}
		u.shown = []*naiveLease{h.lease}
		want = m.handleError(u.owner, h)
	}
	u.resources = uncovered(u.resources, u.shown)
	if want == nil && r.MustHold && len(u.resources) > 0 {
		want = leases.ErrNotHeld
	}
	granted, err := m.table.Enter(&u.Use, r)
	if want != nil {
		wantAnswer(t, "entering", err, want)
		return
	}
	m.uses = append(m.uses, u)
	free := m.free(u)
	if err != nil {
		var h *leases.HeldError
		if free || !errors.As(err, &h) || !h.Deadlock || !m.circle(u, nil) {
			t.Fatalf("entering %+v: %v; free: %t", r, err, free)
		}
		m.uses = m.uses[:len(m.uses)-1]
		return
	}
	if granted != free {
		t.Fatalf("entering %+v: granted: %t", r, granted)
	}
	if free {
		m.grant(u)
	}
}

// Leave ends a use, be it that it is granted or not.
func (m *naive) Leave(t *rapid.T) {
	if len(m.uses) == 0 {
		t.Skip("there is none")
	}
	i := rapid.IntRange(0, len(m.uses)-1).Draw(t, "use")
	u := m.uses[i]
	u.Leave()
	m.uses = slices.Delete(m.uses, i, i+1)
	for _, l := range u.under {
		if l.Calls--; l.Calls > 0 || l.broken {
			continue
		}
		l.expires = m.now + l.keep
		if l.expires <= m.now {
			m.end(l)
		}
	}
}

func (m *naive) GiveUp(t *rapid.T) {
	line := m.waiting()
	if len(line) == 0 {
		t.Skip("nobody waits")
	}
	u := rapid.SampledFrom(line).Draw(t, "use")
	err := u.Wait(cancelled)
	var h *leases.HeldError
	if !errors.As(err, &h) || h.Deadlock || h.Own || h.Holder.Owner == u.owner {
		t.Fatalf("use %d of %s gave up: %+v", u.n, u.owner, err)
	}
	turns, held := m.blockers(u)
	if h.Waits && !slices.ContainsFunc(turns, func(o *naiveUse) bool { return o.owner == h.Holder.Owner }) ||
		!h.Waits && !slices.ContainsFunc(held, func(l *naiveLease) bool { return l.Resource == h.Resource && l.Owner == h.Holder.Owner }) {
		t.Fatalf("use %d of %s gave up: %+v", u.n, u.owner, h)
	}
	m.uses = slices.DeleteFunc(m.uses, func(o *naiveUse) bool { return o == u })
}

// Acquire does not wait: what is had by others is refused.
func (m *naive) Acquire(t *rapid.T) {
	u, p := m.use(t)
	u.byHand = true
	ttl := time.Duration(rapid.IntRange(1, 20).Draw(t, "ttl")) * time.Second
	grants, err := m.table.Acquire(cancelled, leases.Acquisition{Party: p, Resources: u.resources, TTL: ttl})
	u.resources = uncovered(u.resources, nil)
	m.uses = append(m.uses, u)
	own := slices.ContainsFunc(m.leases, func(l *naiveLease) bool {
		return l.ByHand && l.Owner == u.owner && slices.Contains(u.resources, l.Resource)
	})
	free := !own && m.free(u)
	circle := m.circle(u, nil)
	m.uses = m.uses[:len(m.uses)-1]
	var h *leases.HeldError
	switch {
	case !free:
		if !errors.As(err, &h) || h.Own != own || h.Deadlock && !circle {
			t.Fatalf("acquiring %v for %s: %+v", u.resources, u.owner, err)
		}
		return
	case err != nil:
		t.Fatalf("acquiring %v for %s: %v", u.resources, u.owner, err)
	}
	for i, r := range u.resources {
		j := slices.IndexFunc(m.leases, func(l *naiveLease) bool { return l.Resource == r })
		var l *naiveLease
		if j >= 0 {
			l = m.leases[j]
		} else {
			l = m.take(u, r)
		}
		l.ByHand, l.Ending, l.keep, l.expires = true, false, ttl, m.now+ttl
		if g := grants[i]; g.Resource != r || !g.Expires.Equal(at(m.now+ttl)) || l.Epoch != 0 && g.Epoch != l.Epoch {
			t.Fatalf("granted %+v", g)
		}
		m.given = append(m.given, &naiveHandle{handle: grants[i].Handle, lease: l})
	}
}

// Show renews, releases or validates a lease by its handle.
func (m *naive) Show(t *rapid.T) {
	if len(m.given) == 0 {
		t.Skip("there is no handle")
	}
	h, owner := rapid.SampledFrom(m.given).Draw(t, "handle"), drawOwner(t)
	if rapid.Bool().Draw(t, "its owner's") {
		owner = h.lease.Owner
	}
	want := m.handleError(owner, h)
	switch what := rapid.SampledFrom([]string{"renew", "release", "validate"}).Draw(t, "what"); what {
	case "renew":
		ttl := time.Duration(rapid.IntRange(1, 20).Draw(t, "ttl")) * time.Second
		_, err := m.table.Renew(owner, h.handle, ttl)
		wantAnswer(t, what, err, want)
		if want == nil {
			h.lease.keep, h.lease.expires = ttl, m.now+ttl
		}
	case "release":
		_, err := m.table.Release(owner, h.handle)
		wantAnswer(t, what, err, want)
		if want == nil {
			m.release(h.lease)
		}
	case "validate":
		_, err := m.table.Validate(owner, h.handle)
		wantAnswer(t, what, err, want)
	}
}

// End is that of an owner's session, or of a lease by force.
func (m *naive) End(t *rapid.T) {
	if rapid.Bool().Draw(t, "by force") {
		m.breakOne(t)
		return
	}
	owner := drawOwner(t)
	m.table.ReleaseOwner(owner)
	for _, l := range slices.Clone(m.leases) {
		if l.Owner == owner || owner == "a" && l.Owner == "a/x" {
			m.release(l)
		}
	}
}

func (m *naive) breakOne(t *rapid.T) {
	r := rapid.SampledFrom(m.names).Draw(t, "resource")
	i := slices.IndexFunc(m.leases, func(l *naiveLease) bool { return l.Resource == r })
	_, err := m.table.Break(r)
	if errors.Is(err, leases.ErrNotFound) != (i < 0) {
		t.Fatalf("breaking %s: %v", r, err)
	}
	if i >= 0 {
		m.leases[i].broken = true
		m.end(m.leases[i])
	}
}

// Time goes on, past the ends of some leases.
func (m *naive) Time(t *rapid.T) {
	m.clock.advance(time.Duration(rapid.IntRange(1, 8).Draw(t, "by")) * time.Second)
	m.now = m.clock.read()
	for _, l := range slices.Clone(m.leases) {
		if l.Calls == 0 && l.expires <= m.now {
			m.end(l)
		}
	}
}
