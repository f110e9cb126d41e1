package recovery_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"interlock/recovery"
)

func TestOutcomes(t *testing.T) {
	for outcome, pending := range map[recovery.Outcome]bool{
		recovery.OutcomeOK:            false,
		recovery.OutcomeError:         false,
		recovery.OutcomeInputRequired: false,
		recovery.OutcomeNotSent:       false,
		recovery.OutcomeCancelled:     false,
		recovery.OutcomeUnknown:       true,
		"":                            true, // never ended
	} {
		t.Run(string(outcome), func(t *testing.T) {
			o := recovery.Options{Dir: t.TempDir(), SegmentSize: 1}
			j, _ := open(t, o)
			r := begin(t, j, intent(1))
			if outcome != "" {
				if err := r.End(outcome, "a reason"); err != nil {
					t.Fatal(err)
				}
			}
			_, err := os.Stat(filepath.Join(o.Dir, "daemon.recovery.json"))
			if filed := err == nil; filed != (outcome == recovery.OutcomeUnknown) {
				t.Errorf("recovery file exists: %v", filed)
			}
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
			j, report := open(t, o)
			if got := len(j.Pending()) == 1; got != pending || report.Pending != len(j.Pending()) {
				t.Errorf("pending after restart: %v, report %+v", j.Pending(), report)
			}
			if want := outcome == ""; (report.Interrupted == 1) != want {
				t.Errorf("interrupted = %d", report.Interrupted)
			}
			if _, err = os.Stat(filepath.Join(o.Dir, "daemon.recovery.json")); (err == nil) != pending {
				t.Errorf("recovery file after restart: %v", err)
			}
		})
	}
}

// TestRecordSurvives checks each field over a restart, from the journal and from the
// recovery file.
func TestRecordSurvives(t *testing.T) {
	o := recovery.Options{Dir: t.TempDir(), SegmentSize: 1}
	j, _ := open(t, o)
	in := intent(1)
	in.ClientRequestID = `"a-1"`
	in.Resources = []string{"file:/a b", "file:/ü"}
	in.Client = "bad \xff utf-8"
	r := begin(t, j, in)
	active, total := j.Active(10)
	if total != 1 {
		t.Fatalf("%d active runs", total)
	}
	want := active[0]
	if want.RequestID != r.ID() || want.ClientRequestID != in.ClientRequestID || want.OwnerID != in.Owner ||
		want.Server != in.Server || want.Tool != in.Tool || want.Class != in.Class || want.Epoch != in.Epoch ||
		!slices.Equal(want.AllResources(), in.Resources) || want.Client != "bad \uFFFD utf-8" || want.Outcome != "" ||
		!strings.HasPrefix(want.ArgumentsDigest, "hmac-sha256:") {
		t.Fatalf("active record %+v", want)
	}
	for range 2 {
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		j, _ = open(t, o)
		pending := j.Pending()
		if len(pending) != 1 {
			t.Fatalf("pending: %+v", pending)
		}
		want.Outcome, want.Reason = recovery.OutcomeUnknown, "the daemon ended before the call did"
		if got, want := fmt.Sprintf("%+v", pending[0]), fmt.Sprintf("%+v", want); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		// From now on only the recovery file has it.
		if err := os.Remove(filepath.Join(o.Dir, "daemon.journal")); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRestartOfTheMachineIsSaid(t *testing.T) {
	o := recovery.Options{Dir: t.TempDir(), SegmentSize: 1, BootID: "one"}
	j, _ := open(t, o)
	begin(t, j, intent(1))
	j.Close()
	o.BootID = "two"
	j, _ = open(t, o)
	if got := j.Pending()[0].Reason; got != "the machine was restarted before the call ended" {
		t.Errorf("reason %q", got)
	}
}

func TestArgumentsAreNotKept(t *testing.T) {
	o := recovery.Options{Dir: t.TempDir(), SegmentSize: 1}
	j, _ := open(t, o)
	same, other := intent(1), intent(2)
	other.Arguments = []byte(`{"message":"another"}`)
	begin(t, j, same).End(recovery.OutcomeUnknown, "")
	begin(t, j, same).End(recovery.OutcomeUnknown, "")
	begin(t, j, other).End(recovery.OutcomeUnknown, "")
	digests := map[string]int{}
	for _, r := range j.Pending() {
		digests[r.ArgumentsDigest]++
	}
	if len(digests) != 2 {
		t.Errorf("digests %v: equal arguments must have equal ones, different arguments different ones", digests)
	}
	j.Close()
	entries, err := os.ReadDir(o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(o.Dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(data, []byte("secret")) {
			t.Errorf("%s holds an argument", e.Name())
		}
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != 0o600 {
			t.Errorf("%s has mode %v", e.Name(), info.Mode())
		}
	}
	// The key outlives the daemon.
	j, _ = open(t, o)
	begin(t, j, same).End(recovery.OutcomeUnknown, "")
	for _, r := range j.Pending() {
		digests[r.ArgumentsDigest]++
	}
	if len(digests) != 2 {
		t.Errorf("digests after a restart %v", digests)
	}
}

func TestIDsNeverRepeat(t *testing.T) {
	o := recovery.Options{Dir: t.TempDir(), SegmentSize: 1}
	seen := map[string]bool{}
	last := uint64(0)
	for start := range 12 {
		j, report := open(t, o)
		if report.Epoch <= last {
			t.Fatalf("start %d has number %d after %d", start, report.Epoch, last)
		}
		last = report.Epoch
		for range 5 {
			r := begin(t, j, intent(1))
			if seen[r.ID()] || len(r.ID()) > 128 || strings.ContainsAny(r.ID(), " \t\n") {
				t.Fatalf("id %q", r.ID())
			}
			seen[r.ID()] = true
			if start%2 == 0 {
				r.End(recovery.OutcomeOK, "")
			}
		}
		j.Close()
		if start == 8 {
			// The number is in the recovery file, too.
			if err := os.Remove(filepath.Join(o.Dir, "daemon.journal")); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestEndTwice(t *testing.T) {
	j, _ := open(t, recovery.Options{Dir: t.TempDir(), SegmentSize: 1})
	r := begin(t, j, intent(1))
	if err := r.End(recovery.OutcomeOK, ""); err != nil {
		t.Fatal(err)
	}
	if err := r.End(recovery.OutcomeUnknown, ""); !errors.Is(err, recovery.ErrEnded) {
		t.Errorf("second End: %v", err)
	}
	if len(j.Pending()) != 0 {
		t.Error("the second End counted")
	}
}

func TestRefusals(t *testing.T) {
	j, _ := open(t, recovery.Options{Dir: t.TempDir(), SegmentSize: 1})
	in := intent(1)
	for i := range 20 {
		in.Resources = append(in.Resources, fmt.Sprint(i)+strings.Repeat("x", 4096))
	}
	if _, err := j.Begin(in); !errors.Is(err, recovery.ErrTooLarge) {
		t.Errorf("large intent: %v", err)
	}
	r := begin(t, j, intent(1))
	j.Close()
	if _, err := j.Begin(intent(1)); !errors.Is(err, recovery.ErrClosed) {
		t.Errorf("Begin after Close: %v", err)
	}
	if err := r.End(recovery.OutcomeOK, ""); !errors.Is(err, recovery.ErrClosed) {
		t.Errorf("End after Close: %v", err)
	}
	if _, err := j.Acknowledge(recovery.Selection{}); !errors.Is(err, recovery.ErrClosed) {
		t.Errorf("Acknowledge after Close: %v", err)
	}
	if err := j.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

func TestLookup(t *testing.T) {
	o := recovery.Options{Dir: t.TempDir(), SegmentSize: 1}
	j, _ := open(t, o)
	ended := map[int]recovery.Outcome{1: recovery.OutcomeOK, 2: recovery.OutcomeUnknown, 3: recovery.OutcomeError, 4: ""}
	for n, outcome := range ended {
		if r := begin(t, j, intent(n)); outcome != "" {
			r.End(outcome, "")
		}
	}
	check := func(when string) {
		t.Helper()
		for n, outcome := range ended {
			r, ok := j.Lookup("client-1", fmt.Sprint(n))
			if !ok || r.Outcome != outcome || r.RequestID == "" {
				t.Errorf("%s: request %d: %v, %+v", when, n, ok, r)
			}
		}
		for _, never := range []struct{ owner, id string }{{"client-1", "5"}, {"client-2", "1"}, {"client-1", `"1"`}} {
			if r, ok := j.Lookup(never.owner, never.id); ok {
				t.Errorf("%s: found %+v for %v", when, r, never)
			}
		}
	}
	check("live")
	j.Close()
	ended[4] = recovery.OutcomeUnknown
	j, _ = open(t, o)
	check("after a restart")
	// What a client may ask about survives many changes of segments, and a restart.
	for n := range 1500 {
		begin(t, j, intent(100+n)).End(recovery.OutcomeOK, "")
	}
	check("after changes of segments")
	if _, err := j.Acknowledge(recovery.Selection{Digest: j.State().Set}); err != nil {
		t.Fatal(err)
	}
	check("after an acknowledgement")
	j.Close()
	j, _ = open(t, o)
	check("after an acknowledgement and a restart")
}

func TestPendingOn(t *testing.T) {
	j, _ := open(t, recovery.Options{Dir: t.TempDir(), SegmentSize: 1})
	for n, change := range []func(*recovery.Intent){
		func(*recovery.Intent) {},
		func(in *recovery.Intent) { in.Resources = []string{"server:git", "file:/b"} },
		func(in *recovery.Intent) { in.Server, in.Resources = "memory", nil },
		func(in *recovery.Intent) { in.Class = recovery.ClassUnknown },
	} {
		in := intent(n)
		change(&in)
		begin(t, j, in).End(recovery.OutcomeUnknown, "")
	}
	on := func(server string, overlaps func(string) bool) (requests []string) {
		for _, r := range j.PendingOn(server, overlaps) {
			requests = append(requests, r.ClientRequestID)
		}
		return requests
	}
	is := func(resource string) func(string) bool { return func(r string) bool { return r == resource } }
	for _, tt := range []struct {
		got, want []string
	}{
		{on("git", nil), []string{"0", "1"}},
		{on("memory", nil), []string{"2"}},
		{on("git", is("file:/b")), []string{"1"}},
		{on("git", is("tree:/home/u/project")), []string{"0"}},
		{on("git", is("file:/c")), nil},
	} {
		if !slices.Equal(tt.got, tt.want) {
			t.Errorf("got %v, want %v", tt.got, tt.want)
		}
	}
}

func TestActiveIsBounded(t *testing.T) {
	j, _ := open(t, recovery.Options{Dir: t.TempDir(), SegmentSize: 1})
	var want []string
	for n := range 5 {
		want = append(want, begin(t, j, intent(n)).ID())
	}
	runs, total := j.Active(3)
	if total != 5 || !slices.Equal(ids(runs), want[:3]) {
		t.Errorf("%d of %d: %v, want the oldest of %v", len(runs), total, ids(runs), want)
	}
}

// TestSegmentsAreBounded makes the journal change segments under load and checks
// that its size stays, and that nothing active or pending is lost over it.
func TestSegmentsAreBounded(t *testing.T) {
	o := recovery.Options{Dir: t.TempDir(), SegmentSize: 1, Now: counter()}
	j, _ := open(t, o)
	var want []string
	for n := range 20 {
		r := begin(t, j, intent(n))
		want = append(want, r.ID())
		if n%2 == 0 {
			r.End(recovery.OutcomeUnknown, "server died")
		}
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for n := range 500 {
				r, err := j.Begin(intent(n))
				if err != nil {
					t.Error(err)
					return
				}
				r.End(recovery.OutcomeOK, "")
			}
		})
	}
	wg.Wait()
	info, err := os.Stat(filepath.Join(o.Dir, "daemon.journal"))
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > 1<<20 {
		t.Errorf("journal has %d bytes", info.Size())
	}
	if _, total := j.Active(100); total != 10 {
		t.Errorf("%d active", total)
	}
	j.Close()
	j, _ = open(t, o)
	slices.Sort(want)
	if got := ids(j.Pending()); !slices.Equal(got, want) {
		t.Errorf("pending %v\nwant    %v", got, want)
	}
}

// counter is a clock that moves a minute with each look, so that what is only kept
// for minutes does not gather.
func counter() func() time.Time {
	var mu sync.Mutex
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	return func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(time.Minute)
		return now
	}
}

// TestGroupCommit holds the disk's sync and checks that nobody else is held up
// meanwhile, and that callers who wait share the next one.
func TestGroupCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemFS()
		j, _ := open(t, recovery.Options{Dir: "/d", FS: m, Sync: recovery.SyncPower})
		defer j.Close()
		blocked, release := make(chan struct{}), make(chan struct{})
		var once sync.Once
		m.hook = func(point string) {
			if point == "before sync daemon.journal.next" {
				once.Do(func() { close(blocked); <-release })
			}
		}
		before := m.syncs
		var wg sync.WaitGroup
		wg.Go(func() { begin(t, j, intent(0)) })
		<-blocked
		for n := range 16 {
			wg.Go(func() { begin(t, j, intent(n)) })
		}
		synctest.Wait()
		if _, total := j.Active(1); total != 0 {
			t.Errorf("%d runs began without a sync", total)
		}
		j.Pending()
		j.Lookup("client-1", "1")
		j.Problems()
		close(release)
		wg.Wait()
		if n := m.syncs - before; n != 2 {
			t.Errorf("17 begin records took %d syncs", n)
		}
	})
}
