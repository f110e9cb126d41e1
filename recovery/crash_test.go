package recovery_test

import (
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"interlock/recovery"
)

// oracle knows what has been promised so far: what must be pending after a crash
// and what must not.
type oracle struct {
	runs map[string]fate
	// flying says that a Begin has not returned, so one more run may be on record.
	flying bool
}

// fate is what has been promised of one run.
type fate int

const (
	begunFate  fate = iota // Begin returned, or it ended unknown: must be pending
	endingFate             // an End or Acknowledge has not returned: may be pending
	endedFate              // End returned with a known outcome: must not be pending
	ackedFate              // Acknowledge returned: must not be pending
)

func (o *oracle) clone() *oracle { return &oracle{maps.Clone(o.runs), o.flying} }

// check compares a pending set. After a loss of power the end of a run may be lost.
func (o *oracle) check(pending []recovery.Record, powerLost bool) error {
	got := map[string]bool{}
	extra := 0
	for _, r := range pending {
		if got[r.RequestID] {
			return fmt.Errorf("run %s is pending twice", r.RequestID)
		}
		got[r.RequestID] = true
		f, known := o.runs[r.RequestID]
		switch {
		case !known:
			extra++
		case f == ackedFate, f == endedFate && !powerLost:
			return fmt.Errorf("run %s is pending again (%d)", r.RequestID, f)
		}
	}
	for id, f := range o.runs {
		if f == begunFate && !got[id] {
			return fmt.Errorf("run %s is lost", id)
		}
	}
	if extra > 1 || extra == 1 && !o.flying {
		return fmt.Errorf("%d runs that never began are pending", extra)
	}
	return nil
}

// scenario uses a journal in every way and tells the oracle, over two starts and
// several changes of segments.
type scenario struct {
	o      recovery.Options
	oracle *oracle
	n      int
}

func (s *scenario) begin(j *recovery.Journal) (*recovery.Run, error) {
	s.n++
	in := intent(s.n)
	in.Server = fmt.Sprint("server-", s.n%3)
	in.Tool = strings.Repeat("long", 1000) // so that segments change soon
	s.oracle.flying = true
	r, err := j.Begin(in)
	s.oracle.flying = false
	if err == nil {
		s.oracle.runs[r.ID()] = begunFate
	}
	return r, err
}

func (s *scenario) end(r *recovery.Run, outcome recovery.Outcome) error {
	if outcome == recovery.OutcomeUnknown {
		return r.End(outcome, "why")
	}
	s.oracle.runs[r.ID()] = endingFate
	err := r.End(outcome, "why")
	if err == nil {
		s.oracle.runs[r.ID()] = endedFate
	}
	return err
}

func (s *scenario) acknowledge(j *recovery.Journal, sel recovery.Selection) error {
	part := j.State().Narrow(sel)
	if part.Recovery == nil {
		return nil
	}
	for _, r := range part.Recovery.Runs {
		s.oracle.runs[r.RequestID] = endingFate
	}
	sel.Digest = part.Set
	ack, err := j.Acknowledge(sel)
	for _, id := range ack.ReconciledRequestIDs {
		s.oracle.runs[id] = ackedFate
	}
	return err
}

func (s *scenario) run() error {
	for start := range 2 {
		j, _, err := recovery.Open(s.o)
		if err != nil {
			return err
		}
		defer j.Close()
		for n := range 22 {
			r, err := s.begin(j)
			if err != nil {
				return err
			}
			outcome := []recovery.Outcome{recovery.OutcomeOK, recovery.OutcomeUnknown, recovery.OutcomeError, ""}[n%4]
			if outcome != "" {
				if err := s.end(r, outcome); err != nil {
					return err
				}
			}
			if n == 14 {
				if err := s.acknowledge(j, recovery.Selection{Servers: []string{"server-1"}}); err != nil {
					return err
				}
			}
		}
		if start == 1 {
			if err := s.acknowledge(j, recovery.Selection{}); err != nil {
				return err
			}
		}
		j.Close()
	}
	return nil
}

// crashes runs the scenario on a file system and calls at at every point around
// and within each change that it makes.
func crashes(t *testing.T, sync recovery.Sync, at func(point string, m *memFS, o *oracle)) {
	m := newMemFS()
	s := &scenario{
		o:      recovery.Options{Dir: "/d", FS: m, Sync: sync, SegmentSize: 1, BootID: "one", Now: counter()},
		oracle: &oracle{runs: map[string]fate{}},
	}
	m.hook = func(point string) {
		// The history is written by another goroutine, and promises nothing.
		if !strings.HasSuffix(point, " daemon.history") {
			at(point, m, s.oracle)
		}
	}
	if err := s.run(); err != nil {
		t.Fatal(err)
	}
}

// reopen opens what a crash left, checks it, and closes it.
func reopen(t *testing.T, point string, m *memFS, boot string, o *oracle) {
	t.Helper()
	j, report := open(t, recovery.Options{Dir: "/d", FS: m, SegmentSize: 1, BootID: boot})
	if err := o.check(j.Pending(), boot != "one"); err != nil {
		t.Errorf("%s: %v", point, err)
	}
	for _, p := range report.Problems {
		if p.Blocks {
			t.Errorf("%s: %s: %s", point, p.Code, p.Detail)
		}
	}
	for _, name := range m.list() {
		if strings.HasSuffix(name, ".next") || strings.HasSuffix(name, ".tmp") {
			t.Errorf("%s: %s was left", point, name)
		}
	}
	r, err := j.Begin(intent(1))
	if err != nil {
		t.Errorf("%s: the next Begin: %v", point, err)
	} else if _, again := o.runs[r.ID()]; again {
		t.Errorf("%s: id %s was given out again", point, r.ID())
	}
	j.Close()
}

// TestKillAtEveryPoint kills the process before, within and after each write, sync,
// rename and removal, and again at every such point of the start that follows.
func TestKillAtEveryPoint(t *testing.T) {
	points, second := map[string]int{}, 0
	crashes(t, recovery.SyncCrash, func(point string, m *memFS, o *oracle) {
		points[point]++
		left, oracle := m.afterKill(), o.clone()
		reopen(t, point, left.afterKill(), "one", oracle)
		// The points of a start are the same for many kinds of the first.
		if points[point] > 1 {
			return
		}
		left.hook = func(again string) {
			second++
			reopen(t, point+", then "+again, left.afterKill(), "one", oracle)
		}
		open(t, recovery.Options{Dir: "/d", FS: left, SegmentSize: 1, BootID: "one"})
		left.hook = nil
	})
	t.Logf("%d kinds of points, %d second crashes", len(points), second)
	for _, point := range []string{
		"within write daemon.journal.next", "before rename daemon.journal", "after rename daemon.journal",
		"before rename daemon.recovery.json", "after syncdir d", "after remove daemon.recovery.json",
		"within write daemon.recovery.json.tmp", "within write daemon.journal", "before sync daemon.journal.next",
	} {
		if points[point] == 0 {
			t.Errorf("never came to %q; came to %v", point, slices.Sorted(maps.Keys(points)))
		}
	}
}

// TestPowerLossAtEveryPoint stops the machine at each point: the disk keeps what was
// synced and any part of the rest.
func TestPowerLossAtEveryPoint(t *testing.T) {
	rng := rand.New(rand.NewSource(1))
	crashes(t, recovery.SyncPower, func(point string, m *memFS, o *oracle) {
		reopen(t, point, m.afterPowerLoss(rng), "two", o)
	})
}

// TestCrashSyncLosesPower shows that the file system of these tests does lose data:
// what SyncCrash does not promise, it does not hold.
func TestCrashSyncLosesPower(t *testing.T) {
	rng := rand.New(rand.NewSource(1))
	lost := 0
	crashes(t, recovery.SyncCrash, func(point string, m *memFS, o *oracle) {
		if rng.Intn(10) > 0 {
			return
		}
		j, _ := open(t, recovery.Options{Dir: "/d", FS: m.afterPowerLoss(rng), SegmentSize: 1, BootID: "two"})
		if err := o.check(j.Pending(), true); err != nil {
			lost++
		}
		j.Close()
	})
	if lost == 0 {
		t.Error("nothing was ever lost")
	}
}
