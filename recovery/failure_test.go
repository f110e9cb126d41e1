package recovery_test

import (
	"bytes"
	"errors"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"interlock/recovery"
)

// codes lists the codes of problems.
func codes(problems []recovery.Problem) (list []string) {
	for _, p := range problems {
		list = append(list, p.Code)
	}
	return list
}

// TestBeginFails lets each kind of write fail: the begin record is refused with the
// cause, and everything works again once the disk does.
func TestBeginFails(t *testing.T) {
	for _, tt := range []struct {
		name string
		fail func(op, name string, size int) error
		is   error
	}{
		{"full", fullDisk, syscall.ENOSPC},
		{"read-only", readOnly, syscall.EROFS},
		{"no new file", failing("open", "daemon.journal.next", syscall.EACCES), syscall.EACCES},
		{"rename", failing("rename", "daemon.journal", syscall.EIO), syscall.EIO},
		{"sync", failing("sync", "daemon.journal.next", syscall.EIO), syscall.EIO},
		{"directory", failing("syncdir", "d", syscall.EIO), syscall.EIO},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMemFS()
				attempts := 0
				m.setFail(func(op, name string, size int) error {
					if op == "open" && name == "daemon.journal.next" {
						attempts++
					}
					return tt.fail(op, name, size)
				})
				o := recovery.Options{Dir: "/d", FS: m, SegmentSize: 1}
				j, report := open(t, o)
				defer j.Close()
				if !slices.Equal(codes(report.Problems), []string{recovery.CodeUnwritable}) {
					t.Errorf("problems %v", report.Problems)
				}
				tried := attempts
				for range 3 {
					if _, err := j.Begin(intent(1)); !errors.Is(err, recovery.ErrUnwritable) || !errors.Is(err, tt.is) {
						t.Errorf("Begin: %v", err)
					}
				}
				if attempts != tried {
					t.Errorf("%d attempts within a moment", attempts-tried)
				}
				m.setFail(nil)
				// Nobody has to call for the problem to go.
				time.Sleep(3 * time.Second)
				if left := j.Problems(); len(left) != 0 {
					t.Errorf("problems after the disk was mended: %v", left)
				}
				begin(t, j, intent(1))
			})
		})
	}
}

// TestSyncFails poisons a segment: whatever a failed sync may have dropped, a new
// segment holds everything that had begun.
func TestSyncFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemFS()
		o := recovery.Options{Dir: "/d", FS: m, SegmentSize: 1, Sync: recovery.SyncPower}
		j, _ := open(t, o)
		first := begin(t, j, intent(1))
		j.Close()
		j, _ = open(t, o) // from here on the segment has its own name
		defer j.Close()
		second := begin(t, j, intent(2))

		failed := 0
		m.setFail(func(op, name string, size int) error {
			if op == "sync" && name == "daemon.journal" {
				failed++
				return syscall.EIO
			}
			return nil
		})
		third := begin(t, j, intent(3))
		fourth := begin(t, j, intent(4))
		if failed != 1 {
			t.Errorf("%d syncs of the poisoned segment", failed)
		}
		// Nothing new can be made either: refused, and not synced again.
		m.setFail(func(op, name string, size int) error {
			if op == "sync" {
				return syscall.EIO
			}
			return nil
		})
		if _, err := j.Begin(intent(5)); !errors.Is(err, recovery.ErrUnwritable) || !errors.Is(err, syscall.EIO) {
			t.Errorf("Begin: %v", err)
		}
		if err := third.End(recovery.OutcomeOK, ""); !errors.Is(err, recovery.ErrUnwritable) {
			t.Errorf("End: %v", err)
		}
		m.setFail(nil)
		time.Sleep(2 * time.Second)
		sixth := begin(t, j, intent(6))
		left := m.afterKill()
		o.FS = left
		again, _ := open(t, o)
		defer again.Close()
		want := []string{first.ID(), second.ID(), fourth.ID(), sixth.ID()}
		slices.Sort(want)
		if got := ids(again.Pending()); !slices.Equal(got, want) {
			t.Errorf("pending %v\nwant    %v", got, want)
		}
	})
}

// TestStaleRecoveryFile lets the recovery file fail while the journal works.
func TestStaleRecoveryFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemFS()
		o := recovery.Options{Dir: "/d", FS: m, SegmentSize: 1}
		j, _ := open(t, o)
		defer j.Close()
		m.setFail(failing("rename", "daemon.recovery.json", syscall.EIO))
		all := unknownRuns(t, j, "a", "b")
		if got := codes(j.Problems()); !slices.Equal(got, []string{recovery.CodeStale}) {
			t.Errorf("problems %v", got)
		}
		// Changes of segments must not forget what is not filed.
		for n := range 500 {
			begin(t, j, intent(n)).End(recovery.OutcomeOK, "")
		}
		o.FS = m.afterKill()
		again, _ := open(t, o)
		if got := ids(again.Pending()); !slices.Equal(got, all) {
			t.Errorf("pending %v, want %v", got, all)
		}
		again.Close()
		m.setFail(nil)
		time.Sleep(3 * time.Second)
		if got := j.Problems(); len(got) != 0 {
			t.Errorf("problems %v", got)
		}
		if !bytes.Contains(m.content(recoveryPath), []byte(all[1])) {
			t.Error("the recovery file was not rewritten")
		}
	})
}

// TestAcknowledgedWhileStale acknowledges runs that the recovery file goes on to hold,
// for longer than an acknowledgement is otherwise kept.
func TestAcknowledgedWhileStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemFS()
		var later atomic.Int64
		o := recovery.Options{Dir: "/d", FS: m, SegmentSize: 1, Now: func() time.Time {
			return time.Now().Add(time.Duration(later.Load()))
		}}
		j, _ := open(t, o)
		defer j.Close()
		unknownRuns(t, j, "a", "b")
		m.setFail(failing("remove", "daemon.recovery.json", syscall.EIO))
		if _, err := j.Acknowledge(recovery.Selection{Digest: j.State().Set}); err != nil {
			t.Fatal(err)
		}
		later.Store(int64(31 * 24 * time.Hour))
		for n := range 500 {
			begin(t, j, intent(n)).End(recovery.OutcomeOK, "")
		}
		if m.content(recoveryPath) == nil {
			t.Fatal("the recovery file is gone")
		}
		o.FS = m.afterKill()
		again, _ := open(t, o)
		defer again.Close()
		if got := again.Pending(); len(got) != 0 {
			t.Errorf("came back: %v", ids(got))
		}
	})
}

// TestNothingFits starts on a disk too small for any journal.
func TestNothingFits(t *testing.T) {
	m := newMemFS()
	m.setFail(fullDisk)
	j, report := open(t, recovery.Options{Dir: "/d", FS: m})
	if len(report.Problems) != 1 || j.Pending() != nil {
		t.Errorf("report %+v", report)
	}
	if ack, err := j.Acknowledge(recovery.Selection{}); err != nil || ack.Acknowledged {
		t.Errorf("Acknowledge: %+v, %v", ack, err)
	}
	if left := m.list(); len(left) != 0 {
		t.Errorf("left %v", left)
	}
	if _, _, err := recovery.Open(recovery.Options{}); err == nil {
		t.Error("opened no directory")
	}
	if _, _, err := recovery.Open(recovery.Options{Dir: filepath.Join(t.TempDir(), "none")}); err == nil {
		t.Error("opened a directory that is not there")
	}
}
