package leases_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"interlock/leases"
)

// The model is checked more often than is usual; the command line says otherwise.
func init() {
	for name, value := range map[string]string{"rapid.checks": "1500", "rapid.steps": "50"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
}

// naive is what a table must do, as lists that are looked through from end to end.
// It keeps no lines: who can go on is found out anew after each step.
type naive struct {
	table  *leases.Table
	names  []leases.Resource
	holds  []time.Duration
	clock  hands
	now    time.Duration // what it says
	n      int           // uses so far
	epoch  uint64        // the largest so far
	leases []*naiveLease
	uses   []*naiveUse // not left yet, first come first
	given  []*naiveHandle
}

type naiveLease struct {
	leases.Lease
	keep, granted, expires time.Duration // expires while it is not in use
	over, broken           bool
}

type naiveUse struct {
	leases.Use
	n         int // its client's name
	owner     string
	resources []leases.Resource // that no shown lease covers
	hold      time.Duration
	byHand    bool
	granted   bool
	shown     []*naiveLease // by handles
	under     []*naiveLease // once it is granted
}

type naiveHandle struct {
	handle leases.Handle
	lease  *naiveLease
	ended  bool // before its lease
}

func (h *naiveHandle) lives() bool { return !h.ended && !h.lease.over }

// cancelled has a use say what has become of it, without waiting for more.
var cancelled = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

func (m *naive) waiting() (list []*naiveUse) {
	for _, u := range m.uses {
		if !u.granted {
			list = append(list, u)
		}
	}
	return list
}

// goesFirst reports whether the use goes before others that wait for r.
func (m *naive) goesFirst(u *naiveUse, r leases.Resource) bool {
	return slices.ContainsFunc(m.leases, func(l *naiveLease) bool {
		return l.Owner == u.owner && l.Resource.Covers(r) &&
			(l.ByHand || !u.byHand && l.keep > 0)
	})
}

// blockers are others' earlier turns and leases that a use cannot go past, the
// earliest first.
func (m *naive) blockers(u *naiveUse) (turns []*naiveUse, held []*naiveLease) {
	var wants []leases.Resource
	for _, r := range u.resources {
		if !m.goesFirst(u, r) {
			wants = append(wants, r)
		}
	}
	for _, w := range m.waiting() {
		if w.n < u.n && w.owner != u.owner && slices.ContainsFunc(w.resources, func(r leases.Resource) bool { return slices.ContainsFunc(wants, r.Conflicts) }) {
			turns = append(turns, w)
		}
	}
	for _, l := range m.leases {
		if l.Owner != u.owner && slices.ContainsFunc(wants, l.Resource.Conflicts) {
			held = append(held, l)
		}
	}
	return turns, held
}

// free reports whether the use can go on.
func (m *naive) free(u *naiveUse) bool {
	turns, held := m.blockers(u)
	return len(turns)+len(held) == 0
}

// circle reports whether the use waits for itself or its owner's leases by hand, as
// far as each waits for what the table says, or for anything if that is nil.
func (m *naive) circle(u *naiveUse, said []leases.Waiter) bool {
	seen := make(map[*naiveUse]bool)
	var inVain func(w *naiveUse) bool
	inVain = func(w *naiveUse) bool {
		if seen[w] {
			return w == u
		}
		seen[w] = true
		turns, held := m.blockers(w)
		for _, s := range said {
			if s.Client != fmt.Sprint(w.n) {
				continue
			}
			turns = slices.DeleteFunc(turns, func(o *naiveUse) bool { return !s.Blocked.Waits || o.owner != s.Blocked.Owner })
			turns = turns[max(len(turns)-1, 0):]
			held = slices.DeleteFunc(held, func(l *naiveLease) bool { return s.Blocked.Waits || l.Resource != s.Blocked.Resource })
		}
		return slices.ContainsFunc(turns, inVain) || slices.ContainsFunc(held, func(l *naiveLease) bool {
			return l.ByHand && (l.Owner == u.owner || slices.ContainsFunc(m.waiting(), func(o *naiveUse) bool {
				return o.owner == l.Owner && inVain(o)
			}))
		})
	}
	return inVain(u)
}

func (m *naive) end(l *naiveLease) {
	l.over = true
	m.leases = slices.DeleteFunc(m.leases, func(o *naiveLease) bool { return o == l })
}

// release ends a lease when nobody uses it.
func (m *naive) release(l *naiveLease) {
	if l.Calls == 0 {
		m.end(l)
		return
	}
	l.ByHand, l.Ending, l.keep = false, true, 0
	for _, h := range m.given {
		h.ended = h.ended || h.lease == l
	}
}

// take gives the use's owner a lease on r; its epoch is the table's to say.
func (m *naive) take(u *naiveUse, r leases.Resource) *naiveLease {
	l := &naiveLease{Lease: leases.Lease{Resource: r, Party: leases.Party{Owner: u.owner}}, granted: m.now}
	m.leases = append(m.leases, l)
	return l
}

// cover is the owner's lease that a call on r uses: one by hand, and then the
// closest.
func (m *naive) cover(owner string, r leases.Resource) (cover *naiveLease) {
	for _, l := range m.leases {
		if l.Owner != owner || !l.Resource.Covers(r) {
			continue
		}
		closer := cover == nil || len(l.Resource) > len(cover.Resource)
		if cover == nil || l.ByHand && !cover.ByHand || l.ByHand == cover.ByHand && closer {
			cover = l
		}
	}
	return cover
}

func (m *naive) grant(u *naiveUse) {
	u.granted = true
	u.under = slices.Clone(u.shown)
	for _, l := range u.shown {
		l.Calls++
	}
	for _, r := range u.resources {
		l := m.cover(u.owner, r)
		if l == nil {
			l = m.take(u, r)
		}
		if !l.ByHand && !l.Ending {
			l.keep = u.hold
		}
		l.Calls++
		u.under = append(u.under, l)
	}
}

// lost reports whether a handle that the use has shown is not good any more.
func (u *naiveUse) lost() bool {
	return slices.ContainsFunc(u.shown, func(l *naiveLease) bool { return l.over || !l.ByHand })
}

// settle grants all that can go on, and takes out what the table has refused with
// good reason.
func (m *naive) settle(t *rapid.T) {
	line := m.table.Waiting()
	waits := func(u *naiveUse) bool {
		return slices.ContainsFunc(line, func(w leases.Waiter) bool { return w.Client == fmt.Sprint(u.n) })
	}
	refused := make(map[*naiveUse]error)
	for _, u := range m.waiting() {
		if !waits(u) {
			if err := u.Wait(cancelled); err != nil {
				refused[u] = err
			}
		}
	}
	step := func(u *naiveUse) (moved bool) {
		free := m.free(u)
		switch err := refused[u]; {
		case err != nil:
			var h *leases.HeldError
			if moved = errors.Is(err, leases.ErrExpired) && u.lost() || errors.As(err, &h) && h.Deadlock && m.circle(u, nil); moved {
				delete(refused, u)
				m.uses = slices.DeleteFunc(m.uses, func(o *naiveUse) bool { return o == u })
			}
		case free && u.lost():
			t.Fatalf("use %d goes on though its lease has ended", u.n)
		case free:
			m.grant(u)
			moved = true
		}
		return moved
	}
	for slices.ContainsFunc(m.waiting(), step) {
	}
	for u, err := range refused {
		t.Fatalf("use %d of %s for %v was refused: %v", u.n, u.owner, u.resources, err)
	}
}

// Check compares the table with the model.
func (m *naive) Check(t *rapid.T) {
	m.settle(t)
	m.checkUses(t)
	if len(m.leases) == 0 && len(m.waiting()) == 0 && !m.table.Empty() {
		t.Fatal("the table remembers what is over")
	}
	list := m.table.List()
	if len(list) != len(m.leases) {
		t.Fatalf("leases %+v\nwant %d", list, len(m.leases))
	}
	last := m.epoch
	for _, l := range m.leases {
		i := slices.IndexFunc(list, func(got leases.Lease) bool { return got.Resource == l.Resource })
		if i < 0 {
			t.Fatalf("no lease on %s: %+v", l.Resource, list)
		}
		got := list[i]
		if l.Epoch == 0 && got.Epoch > last {
			l.Epoch, m.epoch = got.Epoch, max(m.epoch, got.Epoch)
		}
		expires := m.now + l.keep
		if l.Calls == 0 {
			expires = l.expires
		}
		want := l.Lease
		want.Party, want.Waiting = got.Party, got.Waiting
		want.Granted, want.Expires = at(l.granted), at(expires)
		if got != want || got.Owner != l.Owner {
			t.Fatalf("lease %+v\nwant  %+v", got, want)
		}
		for _, o := range m.leases {
			if o.Owner != l.Owner && o.Resource.Conflicts(l.Resource) {
				t.Fatalf("%s has %s while %s has %s", o.Owner, o.Resource, l.Owner, l.Resource)
			}
		}
	}
}

func (m *naive) checkUses(t *rapid.T) {
	line := m.table.Waiting()
	waiting := m.waiting()
	if !slices.EqualFunc(line, waiting, func(w leases.Waiter, u *naiveUse) bool { return w.Client == fmt.Sprint(u.n) && w.Owner == u.owner }) {
		t.Fatalf("waiting %+v\nwant %d", line, len(waiting))
	}
	for _, u := range waiting {
		if m.circle(u, line) {
			t.Fatalf("use %d of %s waits for itself", u.n, u.owner)
		}
	}
	for _, u := range m.uses {
		if !u.granted {
			continue
		}
		broken := slices.ContainsFunc(u.under, func(l *naiveLease) bool { return l.broken })
		if err := u.Wait(cancelled); err != nil || errors.Is(u.Valid(), leases.ErrBroken) != broken {
			t.Fatalf("use %d: %v, broken: %v", u.n, err, u.Valid())
		}
	}
}

// at is what the wall clock reads at a time.
func at(d time.Duration) time.Time { return time.Unix(0, int64(d)) }

// testModel compares a table on these names, for calls with these holds, with the
// model.
func testModel(t *testing.T, names []leases.Resource, holds []time.Duration) {
	steps := make(map[string]int)
	rapid.Check(t, func(t *rapid.T) {
		m := &naive{names: names, holds: holds}
		m.table = leases.New(leases.Options{
			Clock: m.clock.read, Now: func() time.Time { return at(m.clock.read()) },
			HoldMax: time.Hour, // longer than a run: what it does has tests of its own

		})
		defer m.table.Close()
		actions := map[string]func(*rapid.T){"": m.Check}
		for name, act := range map[string]func(*rapid.T){
			"enter": m.Enter, "enter more": m.Enter, "enter again": m.Enter, "leave": m.Leave, "leave more": m.Leave,
			"acquire": m.Acquire, "show": m.Show, "end": m.End, "time": m.Time, "give up": m.GiveUp,
		} {
			actions[name] = func(t *rapid.T) { act(t); steps[name]++ }
		}
		t.Repeat(actions)
	})
	t.Log(steps)
}

// TestModelNames holds leases on names after calls.
func TestModelNames(t *testing.T) {
	testModel(t, []leases.Resource{"q", "r", "s"}, []time.Duration{0, time.Second, 5 * time.Second})
}

// TestModelTrees has resources that are in others.
func TestModelTrees(t *testing.T) {
	testModel(t, []leases.Resource{"tree:/p", "tree:/p/q", "file:/p/q/x", "file:/p/y", "r"}, []time.Duration{0})
}
