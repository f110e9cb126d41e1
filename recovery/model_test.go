package recovery_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"interlock/recovery"
)

// model is what the journal must do, as a set of runs in one of four places.
type model struct {
	fs      *memFS
	o       recovery.Options
	j       *recovery.Journal
	bad     bool // the disk takes nothing new
	n       int
	active  map[string]*recovery.Run
	pending map[string]string // id → server
	acked   map[string]bool
	// doubtful are runs that ended while the disk was bad: a kill may bring them back.
	doubtful map[string]string
}

// servers that the runs of the model are of.
var modelServers = [...]string{"git", "db", "files"}

func (m *model) server(id string) string {
	runs, _ := m.j.Active(1 << 20)
	for _, r := range runs {
		if r.RequestID == id {
			return r.Server
		}
	}
	return ""
}

func (m *model) open(t *rapid.T) {
	j, report, err := recovery.Open(m.o)
	if err != nil {
		t.Fatal(err)
	}
	m.j = j
	for _, p := range report.Problems {
		if p.Blocks && !(m.bad && p.Code == recovery.CodeUnwritable) {
			t.Fatalf("%s: %s", p.Code, p.Detail)
		}
	}
}

// interrupted makes active runs pending, and finds out about the doubtful.
func (m *model) interrupted(t *rapid.T, active map[string]string) {
	maps.Copy(m.pending, active)
	clear(m.active)
	got := ids(m.j.Pending())
	for id, server := range m.doubtful {
		if slices.Contains(got, id) {
			m.pending[id] = server
		}
	}
	clear(m.doubtful)
}

// activeServers are the active runs and their servers.
func (m *model) activeServers() map[string]string {
	list := map[string]string{}
	for id := range m.active {
		list[id] = m.server(id)
	}
	return list
}

func (m *model) Begin(t *rapid.T) {
	m.n++
	in := intent(m.n)
	in.Server = rapid.SampledFrom(modelServers[:]).Draw(t, "server")
	in.Arguments = nil
	if rapid.Bool().Draw(t, "large") {
		in.Resources = []string{fmt.Sprintf("file:%0*d", 4000, m.n)}
	}
	r, err := m.j.Begin(in)
	if err != nil {
		if !m.bad || !errors.Is(err, recovery.ErrUnwritable) {
			t.Fatal(err)
		}
		return
	}
	if m.pending[r.ID()] != "" || m.acked[r.ID()] || m.active[r.ID()] != nil {
		t.Fatalf("id %s again", r.ID())
	}
	m.active[r.ID()] = r
}

func (m *model) End(t *rapid.T) {
	if len(m.active) == 0 {
		t.Skip("nothing is active")
	}
	id := rapid.SampledFrom(slices.Sorted(maps.Keys(m.active))).Draw(t, "run")
	outcome := rapid.SampledFrom([]recovery.Outcome{
		recovery.OutcomeOK, recovery.OutcomeCancelled, recovery.OutcomeUnknown, recovery.OutcomeUnknown,
	}).Draw(t, "outcome")
	server := m.server(id)
	err := m.active[id].End(outcome, "")
	if err != nil && !m.bad {
		t.Fatal(err)
	}
	delete(m.active, id)
	switch {
	case outcome == recovery.OutcomeUnknown:
		m.pending[id] = server
	case err != nil:
		m.doubtful[id] = server
	}
}

func (m *model) Kill(t *rapid.T) {
	left := m.fs.afterKill()
	left.fail = m.fs.fail
	active := m.activeServers()
	m.j.Close()
	m.fs, m.o.FS = left, left
	m.open(t)
	m.interrupted(t, active)
}

func (m *model) Restart(t *rapid.T) {
	active := m.activeServers()
	m.j.Close()
	m.open(t)
	m.interrupted(t, active)
}

// Disk makes the disk full or read-only, or mends it.
func (m *model) Disk(t *rapid.T) {
	switch rapid.SampledFrom([]string{"good", "good", "full", "read-only"}).Draw(t, "disk") {
	case "good":
		m.bad = false
		m.fs.setFail(nil)
	case "full":
		m.bad = true
		m.fs.setFail(fullDisk)
	case "read-only":
		m.bad = true
		m.fs.setFail(readOnly)
	}
}

// Acknowledge draws a selection from right ones and wrong ones, and whether a daemon
// is there to do it.
func (m *model) Acknowledge(t *rapid.T) {
	var sel recovery.Selection
	part := maps.Clone(m.pending)
	if rapid.Bool().Draw(t, "by server") {
		server := rapid.SampledFrom(modelServers[:]).Draw(t, "server")
		sel.Servers = []string{server}
		maps.DeleteFunc(part, func(_, of string) bool { return of != server })
	}
	right := slices.Sorted(maps.Keys(part))
	var records []recovery.Record
	for _, id := range right {
		records = append(records, recovery.Record{RequestID: id})
	}
	wrong := false
	sel.IDs = rapid.Permutation(right).Draw(t, "order")
	switch kind := rapid.SampledFrom([]string{
		"exact", "exact", "acked too", "digest", "subset", "unknown", "duplicate", "wrong digest", "active",
	}).Draw(t, "kind"); kind {
	case "acked too":
		if len(m.acked) > 0 {
			sel.IDs = append(sel.IDs, rapid.SampledFrom(slices.Sorted(maps.Keys(m.acked))).Draw(t, "acked"))
		}
	case "digest":
		sel.IDs, sel.Digest = nil, recovery.SetDigest(records)
	case "subset":
		sel.IDs, wrong = sel.IDs[:len(sel.IDs)/2], len(right) > 0
	case "unknown":
		sel.IDs, wrong = append(sel.IDs, "0-0-0000000000000000"), true
	case "active":
		for id := range m.active {
			sel.IDs, wrong = append(sel.IDs, id), true
		}
	case "duplicate":
		if len(right) > 0 {
			sel.IDs, wrong = append(sel.IDs, right[0]), true
		}
	case "wrong digest":
		sel.Digest, wrong = recovery.SetDigest(append(records, recovery.Record{RequestID: "x"})), true
	}
	wrong = wrong && len(right) > 0
	var ack recovery.Ack
	var err error
	if len(m.active) == 0 && rapid.Bool().Draw(t, "offline") {
		m.j.Close()
		ack, err = recovery.AcknowledgeOffline(m.o, sel)
		m.open(t)
		// A doubtful run that came back counts from the next step on.
		defer m.interrupted(t, nil)
		if len(m.doubtful) > 0 {
			m.settle(ack)
			return
		}
	} else {
		ack, err = m.j.Acknowledge(sel)
	}
	var set *recovery.SetError
	switch {
	case wrong:
		if !errors.As(err, &set) || !slices.Equal(slices.Sorted(slices.Values(set.Pending)), right) || set.Digest != recovery.SetDigest(records) {
			t.Fatalf("wrong set: %v, right one %v", err, right)
		}
	case err != nil:
		if !m.bad || !errors.Is(err, recovery.ErrUnwritable) {
			t.Fatal(err)
		}
	case ack.Runs != len(right) || ack.Acknowledged != (len(right) > 0):
		t.Fatalf("answer %+v, pending were %v", ack, right)
	}
	m.settle(ack)
}

// settle takes what was acknowledged out of the pending set.
func (m *model) settle(ack recovery.Ack) {
	for _, id := range ack.ReconciledRequestIDs {
		delete(m.pending, id)
		delete(m.doubtful, id)
		m.acked[id] = true
	}
}

// Check compares the journal with the model.
func (m *model) Check(t *rapid.T) {
	want := slices.Sorted(maps.Keys(m.pending))
	if got := ids(m.j.Pending()); !slices.Equal(got, want) && len(got)+len(want) > 0 {
		t.Fatalf("pending %v\nwant    %v", got, want)
	}
	if _, total := m.j.Active(0); total != len(m.active) {
		t.Fatalf("%d active, want %d", total, len(m.active))
	}
	if m.bad || slices.ContainsFunc(m.j.Problems(), func(p recovery.Problem) bool { return p.Code == recovery.CodeStale }) {
		return
	}
	// The recovery file is there exactly when something is pending.
	if filed := m.fs.content("/d/daemon.recovery.json") != nil; filed != (len(want) > 0) {
		t.Fatalf("recovery file there: %v, pending %v", filed, want)
	}
}

// TestModel compares the journal with the model over random sequences of calls,
// kills, restarts, acknowledgements and disks.
func TestModel(t *testing.T) {
	steps := 0
	rapid.Check(t, func(t *rapid.T) {
		fs := newMemFS()
		m := &model{
			fs: fs, o: recovery.Options{Dir: "/d", FS: fs, SegmentSize: 1, BootID: "one", Now: counter()},
			active: map[string]*recovery.Run{}, pending: map[string]string{}, acked: map[string]bool{}, doubtful: map[string]string{},
		}
		m.open(t)
		defer func() { m.j.Close() }()
		count := func(act func(*rapid.T)) func(*rapid.T) {
			return func(t *rapid.T) { steps++; act(t) }
		}
		t.Repeat(map[string]func(*rapid.T){
			"begin": count(m.Begin), "begin more": count(m.Begin), "end": count(m.End), "end more": count(m.End),
			"kill": count(m.Kill), "restart": count(m.Restart), "disk": count(m.Disk),
			"acknowledge": count(m.Acknowledge), "": m.Check,
		})
	})
	t.Logf("%d steps", steps)
}
