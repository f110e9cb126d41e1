package recovery_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"interlock/recovery"
)

// TestFullDisk fills a real file system: calls that began can end and be
// acknowledged, with the daemon and without, and new ones are refused.
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting a tmpfs needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4m,mode=0700"); err != nil {
		t.Skipf("mounting a tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	o := recovery.Options{Dir: dir, SegmentSize: 1}
	j, _ := open(t, o)
	var runs []*recovery.Run
	for n := range 20 {
		runs = append(runs, begin(t, j, intent(n)))
	}
	fill(t, filepath.Join(dir, "ballast"))
	refused := 0
	for n := range 1000 {
		r, err := j.Begin(intent(n))
		if err == nil {
			err = r.End(recovery.OutcomeOK, "")
		} else if refused++; !errors.Is(err, recovery.ErrUnwritable) || !errors.Is(err, unix.ENOSPC) {
			t.Fatalf("Begin on a full disk: %v", err)
		} else {
			err = nil
		}
		if err != nil {
			t.Fatalf("End on a full disk: %v", err)
		}
	}
	if refused == 0 {
		t.Error("the journal grew on a full disk")
	}
	for n, r := range runs[:10] {
		if err := r.End([]recovery.Outcome{recovery.OutcomeOK, recovery.OutcomeUnknown}[n%2], "cut off"); err != nil {
			t.Errorf("End on a full disk: %v", err)
		}
	}
	if ack, err := j.Acknowledge(recovery.Selection{Digest: j.State().Set}); err != nil || ack.Runs != 5 {
		t.Errorf("Acknowledge on a full disk: %+v, %v", ack, err)
	}
	j.Close()
	state, err := recovery.Inspect(o)
	if err != nil || len(state.Recovery.Runs) != 10 {
		t.Fatalf("Inspect on a full disk: %+v, %v", state, err)
	}
	if ack, err := recovery.AcknowledgeOffline(o, recovery.Selection{Digest: state.Set}); err != nil || ack.Runs != 10 {
		t.Errorf("AcknowledgeOffline on a full disk: %+v, %v", ack, err)
	}
	j, report := open(t, o)
	if report.Pending != 0 {
		t.Errorf("pending %v", ids(j.Pending()))
	}
	if err := os.Remove(filepath.Join(dir, "ballast")); err != nil {
		t.Fatal(err)
	}
	for n := range 1000 {
		r, err := j.Begin(intent(n))
		for end := time.Now().Add(5 * time.Second); err != nil && time.Now().Before(end); {
			r, err = j.Begin(intent(n))
		}
		if err != nil {
			t.Fatalf("Begin after space was freed: %v", err)
		}
		r.End(recovery.OutcomeOK, "")
	}
}

// fill writes a file until the disk is full.
func fill(t *testing.T, name string) {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 64 << 10; size > 0; size /= 2 {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, size))
		}
		if !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
	}
}
