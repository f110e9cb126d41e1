package recovery_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"interlock/recovery"
)

// unknownRuns leaves one pending run for each server and returns their ids.
func unknownRuns(t *testing.T, j *recovery.Journal, servers ...string) (list []string) {
	t.Helper()
	for n, server := range servers {
		in := intent(n)
		in.Server, in.Resources = server, []string{"server:" + server, "file:/shared"}
		r := begin(t, j, in)
		if err := r.End(recovery.OutcomeUnknown, "server died"); err != nil {
			t.Fatal(err)
		}
		list = append(list, r.ID())
	}
	return list
}

func TestAcknowledge(t *testing.T) {
	type selection func(ids []string, digest string) recovery.Selection
	for _, tt := range []struct {
		name                        string
		sel                         selection
		acked                       int
		missing, unknown, duplicate int
		digestOnly                  bool // refused without a wrong id
	}{
		{name: "all", acked: 3, sel: func(ids []string, _ string) recovery.Selection {
			return recovery.Selection{IDs: ids}
		}},
		{name: "all in another order", acked: 3, sel: func(ids []string, _ string) recovery.Selection {
			return recovery.Selection{IDs: []string{ids[2], ids[0], ids[1]}}
		}},
		{name: "digest", acked: 3, sel: func(_ []string, digest string) recovery.Selection {
			return recovery.Selection{Digest: digest}
		}},
		{name: "ids and digest", acked: 3, sel: func(ids []string, digest string) recovery.Selection {
			return recovery.Selection{IDs: ids, Digest: digest}
		}},
		{name: "server", acked: 2, sel: func(ids []string, _ string) recovery.Selection {
			return recovery.Selection{IDs: ids[:2], Servers: []string{"git"}}
		}},
		{name: "servers", acked: 3, sel: func(ids []string, _ string) recovery.Selection {
			return recovery.Selection{IDs: ids, Servers: []string{"git", "db"}}
		}},
		{name: "resource", acked: 1, sel: func(ids []string, _ string) recovery.Selection {
			return recovery.Selection{IDs: ids[2:], Resource: "server:db"}
		}},
		{name: "second resource", acked: 3, sel: func(ids []string, _ string) recovery.Selection {
			return recovery.Selection{IDs: ids, Resource: "file:/shared"}
		}},
		{name: "server with nothing pending", sel: func([]string, string) recovery.Selection {
			return recovery.Selection{IDs: []string{"x"}, Servers: []string{"other"}}
		}},
		{name: "none", missing: 3, sel: func([]string, string) recovery.Selection {
			return recovery.Selection{}
		}},
		{name: "subset", missing: 1, sel: func(ids []string, _ string) recovery.Selection {
			return recovery.Selection{IDs: ids[:2]}
		}},
		{name: "superset", unknown: 1, sel: func(ids []string, _ string) recovery.Selection {
			return recovery.Selection{IDs: append(slices.Clone(ids), "1-1-0000000000000000")}
		}},
		{name: "duplicate", duplicate: 1, sel: func(ids []string, _ string) recovery.Selection {
			return recovery.Selection{IDs: append(slices.Clone(ids), ids[0], ids[0])}
		}},
		{name: "all of it", missing: 1, unknown: 1, duplicate: 1, sel: func(ids []string, _ string) recovery.Selection {
			return recovery.Selection{IDs: []string{ids[0], ids[0], ids[1], "x", ""}[:4]}
		}},
		{name: "wrong server", unknown: 2, missing: 1, sel: func(ids []string, _ string) recovery.Selection {
			return recovery.Selection{IDs: ids[:2], Servers: []string{"db"}}
		}},
		{name: "wrong digest", digestOnly: true, sel: func([]string, string) recovery.Selection {
			return recovery.Selection{Digest: recovery.SetDigest(nil)}
		}},
		{name: "digest of all for a server", digestOnly: true, sel: func(_ []string, digest string) recovery.Selection {
			return recovery.Selection{Digest: digest, Servers: []string{"git"}}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := recovery.Options{Dir: t.TempDir(), SegmentSize: 1}
			j, _ := open(t, o)
			all := unknownRuns(t, j, "git", "git", "db")
			sel := tt.sel(all, recovery.SetDigest(j.Pending()))
			before, err := os.ReadFile(filepath.Join(o.Dir, "daemon.recovery.json"))
			if err != nil {
				t.Fatal(err)
			}
			ack, err := j.Acknowledge(sel)
			var set *recovery.SetError
			refused := tt.digestOnly || tt.missing+tt.unknown+tt.duplicate > 0
			if errors.As(err, &set) != refused || !refused && err != nil {
				t.Fatalf("error %v", err)
			}
			if refused {
				if len(set.Missing) != tt.missing || len(set.Unknown) != tt.unknown || len(set.Duplicate) != tt.duplicate {
					t.Errorf("error %+v", set)
				}
				after, _ := os.ReadFile(filepath.Join(o.Dir, "daemon.recovery.json"))
				if string(after) != string(before) {
					t.Error("the recovery file changed")
				}
				// What the error names is right.
				again := recovery.Selection{IDs: set.Pending, Digest: set.Digest, Servers: sel.Servers}
				if _, err := j.Acknowledge(again); err != nil {
					t.Errorf("acknowledging what the error names: %v", err)
				}
				return
			}
			if ack.Runs != tt.acked || ack.Acknowledged != (tt.acked > 0) || len(ack.ReconciledRequestIDs) != tt.acked {
				t.Errorf("answer %+v", ack)
			}
			for range 2 {
				if n := len(j.Pending()); n != 3-tt.acked {
					t.Errorf("%d pending", n)
				}
				_, err := os.Stat(filepath.Join(o.Dir, "daemon.recovery.json"))
				if (err == nil) != (tt.acked < 3) {
					t.Errorf("recovery file: %v", err)
				}
				j.Close()
				j, _ = open(t, o)
			}
		})
	}
}

func TestAcknowledgedAgain(t *testing.T) {
	o := recovery.Options{Dir: t.TempDir(), SegmentSize: 1}
	j, _ := open(t, o)
	old := unknownRuns(t, j, "a", "b")
	if _, err := j.Acknowledge(recovery.Selection{IDs: old}); err != nil {
		t.Fatal(err)
	}
	if ack, err := j.Acknowledge(recovery.Selection{IDs: old}); err != nil || ack.Acknowledged || ack.Status != "clear" {
		t.Errorf("again with nothing pending: %+v, %v", ack, err)
	}
	fresh := unknownRuns(t, j, "c")
	j.Close()
	ack, err := recovery.AcknowledgeOffline(o, recovery.Selection{IDs: append(old, fresh...)})
	if err != nil || ack.Runs != 1 || !slices.Equal(ack.ReconciledRequestIDs, fresh) {
		t.Errorf("old and new together: %+v, %v", ack, err)
	}
}

func TestConcurrentAcknowledge(t *testing.T) {
	j, _ := open(t, recovery.Options{Dir: t.TempDir(), SegmentSize: 1})
	all := unknownRuns(t, j, "a", "b", "c")
	var done atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			ack, err := j.Acknowledge(recovery.Selection{IDs: all})
			if err != nil {
				t.Error(err)
			}
			if ack.Acknowledged {
				done.Add(1)
			}
		})
	}
	wg.Wait()
	if done.Load() != 1 {
		t.Errorf("%d acknowledged the same runs", done.Load())
	}
}

// TestAcknowledgedStaysGone keeps the begin record in the journal for longer than an
// acknowledgement is kept: neither may go without the other.
func TestAcknowledgedStaysGone(t *testing.T) {
	clock := counter()
	o := recovery.Options{Dir: t.TempDir(), SegmentSize: 1, Now: clock}
	j, _ := open(t, o)
	unknownRuns(t, j, "a")
	if _, err := j.Acknowledge(recovery.Selection{Digest: j.State().Set}); err != nil {
		t.Fatal(err)
	}
	for range 31 * 24 * 60 {
		clock()
	}
	for range 3 {
		j.Close()
		j, _ = open(t, o)
		if got := j.Pending(); len(got) != 0 {
			t.Fatalf("came back: %v", ids(got))
		}
	}
}

// TestManyAcknowledged acknowledges more runs at once than are remembered.
func TestManyAcknowledged(t *testing.T) {
	var runs []string
	for n := range 9000 {
		runs = append(runs, fmt.Sprintf(`{"requestId":"old-%d","ownerId":"client-1"}`, n))
	}
	m := newMemFS()
	m.put(recoveryPath, []byte(`{"schemaVersion":1,"state":"reconciliation_required","runs":[`+strings.Join(runs, ",")+`]}`))
	o := recovery.Options{Dir: "/d", FS: m, SegmentSize: 1}
	j, _ := open(t, o)
	if ack, err := j.Acknowledge(recovery.Selection{Digest: j.State().Set}); err != nil || ack.Runs != len(runs) {
		t.Fatalf("%d acknowledged, %v", ack.Runs, err)
	}
	for n := range 2000 {
		begin(t, j, intent(n)).End(recovery.OutcomeOK, "")
	}
	j.Close()
	j, _ = open(t, o)
	if n := len(j.Pending()); n != 0 {
		t.Errorf("%d came back", n)
	}
}

func TestSetDigest(t *testing.T) {
	run := func(id string) recovery.Record { return recovery.Record{RequestID: id} }
	a, b := run("a"), run("b")
	if recovery.SetDigest([]recovery.Record{a, b}) != recovery.SetDigest([]recovery.Record{b, a}) {
		t.Error("the order counts")
	}
	if recovery.SetDigest([]recovery.Record{run("a b")}) == recovery.SetDigest([]recovery.Record{a, b}) {
		t.Error("one id passes for two")
	}
}
