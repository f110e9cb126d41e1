package status

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

const interval = 200 * time.Millisecond

// counted is a source of snapshots that differ in their count of sessions.
type counted struct{ asked atomic.Int32 }

// snapshot returns a source of a snapshot with n sessions.
func (c *counted) snapshot(n int) func() Snapshot {
	return func() Snapshot {
		c.asked.Add(1)
		s := full()
		s.ClientSessions = n
		return s
	}
}

// sessions returns the count of sessions in the file, -1 if there is no file.
func sessions(t *testing.T, path string) int {
	t.Helper()
	s, err := Read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return -1
	}
	if err != nil {
		t.Fatal(err)
	}
	return s.ClientSessions
}

func TestWriterCoalesces(t *testing.T) {
	path := filepath.Join(t.TempDir(), "daemon.json")
	synctest.Test(t, func(t *testing.T) {
		var source counted
		w := NewWriter(path, interval)
		synctest.Wait()
		if got := sessions(t, path); got != -1 {
			t.Errorf("before the first update the file has %d sessions", got)
		}

		w.Update(source.snapshot(1))
		synctest.Wait()
		if got := sessions(t, path); got != 1 || source.asked.Load() != 1 {
			t.Errorf("after the first update: %d sessions, %d snapshots", got, source.asked.Load())
		}

		for n := 2; n <= 100; n++ { // 99 updates in 99 ms
			w.Update(source.snapshot(n))
			time.Sleep(time.Millisecond)
		}
		synctest.Wait()
		if got := sessions(t, path); got != 1 || source.asked.Load() != 1 {
			t.Errorf("within the interval: %d sessions, %d snapshots", got, source.asked.Load())
		}
		time.Sleep(interval)
		synctest.Wait()
		if got := sessions(t, path); got != 100 || source.asked.Load() != 2 {
			t.Errorf("after the interval: %d sessions, %d snapshots", got, source.asked.Load())
		}

		time.Sleep(time.Hour)
		if source.asked.Load() != 2 {
			t.Errorf("%d snapshots without an update", source.asked.Load())
		}
		if err := w.Close(true); err != nil {
			t.Error(err)
		}
	})
}

func TestWriterRate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "daemon.json")
	synctest.Test(t, func(t *testing.T) {
		var source counted
		w := NewWriter(path, interval)
		for n := range 1000 { // 10 s
			w.Update(source.snapshot(n))
			time.Sleep(10 * time.Millisecond)
		}
		synctest.Wait()
		if source.asked.Load() < 45 || source.asked.Load() > 51 {
			t.Errorf("%d writes in 10 s, want about 50", source.asked.Load())
		}
		w.Close(false)
	})
}

func TestWriterFlush(t *testing.T) {
	path := filepath.Join(t.TempDir(), "daemon.json")
	synctest.Test(t, func(t *testing.T) {
		var source counted
		w := NewWriter(path, interval)
		if err := w.Flush(); err != nil || sessions(t, path) != -1 {
			t.Errorf("Flush without an update: %v", err)
		}
		w.Update(source.snapshot(1))
		synctest.Wait()
		w.Update(source.snapshot(2))
		if err := w.Flush(); err != nil || sessions(t, path) != 2 {
			t.Errorf("Flush: %v, %d sessions", err, sessions(t, path))
		}
		time.Sleep(time.Hour)
		if source.asked.Load() != 2 {
			t.Errorf("%d snapshots, want 2", source.asked.Load())
		}
		w.Close(true)
		if err := w.Flush(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("Flush after Close: %v", err)
		}
	})
}

func TestWriterTriesAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "later")
	path := filepath.Join(dir, "daemon.json")
	synctest.Test(t, func(t *testing.T) {
		var source counted
		w := NewWriter(path, interval)
		w.Update(source.snapshot(1))
		time.Sleep(2500 * time.Millisecond)
		synctest.Wait()
		if w.Err() == nil || source.asked.Load() != 3 {
			t.Errorf("after 2.5 s: %v, %d attempts, want 3", w.Err(), source.asked.Load())
		}
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		time.Sleep(retryDelay)
		synctest.Wait()
		if w.Err() != nil || sessions(t, path) != 1 {
			t.Errorf("once it can be written: %v, %d sessions", w.Err(), sessions(t, path))
		}
		w.Close(true)
	})
}

func TestWriterLeavesForeignFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "daemon.json")
	const foreign = `{"protocolVersion": 1, "pid": 7, "socket": "/other.sock"}`
	writeFile(t, path, foreign)
	var source counted
	w := NewWriter(path, interval)
	w.Update(source.snapshot(1))
	if err := w.Flush(); !errors.Is(err, ErrForeign) || !errors.Is(w.Err(), ErrForeign) {
		t.Errorf("Flush: %v", err)
	}
	if err := w.Close(true); err != nil {
		t.Error(err)
	}
	if got := readText(t, path); got != foreign {
		t.Errorf("the file is now %s", got)
	}
}

func TestWriterLeavesSuccessorsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "daemon.json")
	w := NewWriter(path, interval)
	write := func() error {
		w.Update(full)
		return w.Flush()
	}
	writeFile(t, path, `{"protocolVersion": 1, "pid": 7, "socket": "`+full().Socket+`", "identity": {"instance": "crashed"}}`)
	if err := write(); err != nil {
		t.Errorf("over the file of a daemon that has crashed: %v", err)
	}
	successor := `{"protocolVersion": 1, "pid": 7, "socket": "` + full().Socket + `", "identity": {"instance": "successor"}}`
	writeFile(t, path, successor)
	if err := write(); !errors.Is(err, ErrForeign) {
		t.Errorf("over the file of a successor: %v", err)
	}
	if err := w.Close(true); !errors.Is(err, ErrForeign) {
		t.Errorf("Close: %v", err)
	}
	if got := readText(t, path); got != successor {
		t.Errorf("the file is now %s", got)
	}
}

func TestWriterClose(t *testing.T) {
	path := filepath.Join(t.TempDir(), "daemon.json")
	var source counted
	open := func() *Writer {
		w := NewWriter(path, interval)
		w.Update(source.snapshot(1))
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		return w
	}
	if err := open().Close(false); err != nil || sessions(t, path) != 1 {
		t.Errorf("Close(false): %v, %d sessions", err, sessions(t, path))
	}
	if err := open().Close(true); err != nil || sessions(t, path) != -1 {
		t.Errorf("Close(true): %v, %d sessions", err, sessions(t, path))
	}
	w := open()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(true); err != nil {
		t.Errorf("Close(true) without the file: %v", err)
	}
	w = open()
	writeFile(t, path, `{"protocolVersion": 1, "pid": 7, "socket": "/other.sock"}`)
	if err := w.Close(true); !errors.Is(err, ErrForeign) || sessions(t, path) != 0 {
		t.Errorf("Close(true) with another's file: %v", err)
	}
}

func TestWriterKeepsWithinBounds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "daemon.json")
	w := NewWriter(path, interval)
	defer w.Close(true)
	w.Update(stressed)
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Size() > MaxBytes || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}
