package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestHelperKilled kills the spawn helper under calls: all its servers end, their
// calls are answered and pending, and the next call finds a helper again.
func TestHelperKilled(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.servers["oracle"] = r.oracle()
	for round := range repeats(3, 100) {
		d := r.start()
		var ids []string
		var clients []*client
		for n := range 4 {
			c := r.open(socket, "oracle").ready()
			clients, ids = append(clients, c), append(ids, fmt.Sprintf("%d.%d", round, n))
			c.oracleCall(ids[n], "write", "hang")
		}
		r.awaitSeen(ids...)
		if round%2 == 0 {
			killProcess(t, helperOf(t, d.pid()))
			for n, c := range clients {
				cutOff(t, c.answer(strconv.Quote(ids[n])), "server_lost")
			}
			r.settleTool("oracle", "write", fmt.Sprintf("after-%d", round))
		} else {
			helper := helperOf(t, d.pid())
			r.killed = true
			killProcess(t, d.pid())
			killProcess(t, helper)
			r.gone()
			for _, c := range clients {
				c.ended()
			}
			r.start()
		}
		r.awaitPending(ids...)
		r.acknowledgeAll()
	}
	r.sentOnce()
}

// onSmallDisk puts the rig's directory on a file system of its own, of that size,
// until the end of the test.
func (r *rig) onSmallDisk(size string) {
	r.t.Helper()
	if os.Geteuid() != 0 {
		r.t.Skip("mounting a tmpfs needs root")
	}
	if err := os.Mkdir(r.home(), 0o700); err != nil {
		r.t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", r.home(), "tmpfs", 0, "mode=0700,size="+size); err != nil {
		r.t.Skipf("mounting a tmpfs: %v", err)
	}
	r.t.Cleanup(func() {
		r.stop()
		eventually(r.t, "the file system is free", func() error { return unix.Unmount(r.home(), 0) })
	})
}

func (r *rig) remount(flags uintptr, options string) {
	r.t.Helper()
	if err := unix.Mount("tmpfs", r.home(), "tmpfs", unix.MS_REMOUNT|flags, options); err != nil {
		r.t.Fatal(err)
	}
}

// fillDisk leaves no room on the rig's file system and gives the file to remove.
func (r *rig) fillDisk() string {
	r.t.Helper()
	ballast := filepath.Join(r.home(), "ballast")
	f, err := os.Create(ballast)
	if err != nil {
		r.t.Fatal(err)
	}
	defer f.Close()
	page := make([]byte, 4096)
	for {
		if _, err := f.Write(page); err != nil {
			return ballast
		}
	}
}

// TestDiskFull fills the disk under the daemon. Once the journal has no room, calls
// that may change something are refused before they are sent; reads go on; what is
// pending can be acknowledged; and it heals by itself.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.servers["oracle"] = r.oracle("-delay", "0s")
	r.onSmallDisk("1m")
	r.interrupt("oracle", "write", "interrupted")
	before := r.awaitPending("interrupted")
	c := r.open(socket, "oracle").ready()
	ballast := r.fillDisk()

	sent := map[string]bool{"interrupted": true}
	write := func(id string) (m *message, done bool) {
		c.oracleCall(id, "write", "")
		m = c.answer(strconv.Quote(id))
		done = strings.Contains(m.raw, "did "+id)
		sent[id] = done
		return m, done
	}
	for n, done := 0, true; done; n++ { // the journal has room in advance
		if _, done = write(fmt.Sprintf("room-%d", n)); n == 10_000 {
			t.Fatal("the journal grows on the full disk")
		}
	}
	for n := range repeats(20, 100) {
		m, done := write(fmt.Sprintf("full-%d", n))
		if done {
			t.Fatalf("a call went through on the full disk: %s", m.raw)
		}
		e := notSent(t, m, "state_unwritable")
		if e.Outcome != "not_sent" || e.RetrySafe == nil || !*e.RetrySafe {
			t.Errorf("the refusal says %+v, want that nothing was sent", e)
		}
		id := fmt.Sprintf("read-%d", n)
		sent[id] = true
		c.oracleCall(id, "read", "")
		if got := textOf(t, c.answer(strconv.Quote(id))); got != "did "+id {
			t.Errorf("a read is answered %q", got)
		}
	}
	for _, s := range r.sights() {
		if !sent[s.id] {
			t.Errorf("call %s was refused and sent", s.id)
		}
	}
	r.wantFinding("state_unwritable", true)
	if after := r.pending(); len(after) != 1 || after[0] != before[0] {
		t.Errorf("the recovery file is now %+v", after)
	}
	text, err := os.ReadFile(filepath.Join(r.home(), "daemon.json"))
	if err != nil || !json.Valid(text) {
		t.Errorf("the status file is %q, %v", text, err)
	}
	r.acknowledgeAll()

	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	n := 0
	eventually(t, "it heals", func() error {
		n++
		if m, done := write(fmt.Sprintf("healed-%d", n)); !done {
			return fmt.Errorf("it answers %s", m.raw)
		}
		return nil
	})
	r.wantFinding("state_unwritable", false)
	r.sentOnce()
}

// TestDiskFullAtStart starts the daemon where there is no room for a journal.
func TestDiskFullAtStart(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.servers["oracle"] = r.oracle()
	r.onSmallDisk("64k")
	c := r.open(socket, "oracle").ready()
	c.oracleCall("refused", "write", "")
	notSent(t, c.answer(`"refused"`), "state_unwritable")
	r.settleTool("oracle", "read", "read")
	r.wantFinding("state_unwritable", true)
	r.remount(0, "size=8m")
	n := 0
	eventually(t, "it heals", func() error {
		n++
		id := fmt.Sprintf("healed-%d", n)
		c.oracleCall(id, "write", "")
		if m := c.answer(strconv.Quote(id)); !strings.Contains(m.raw, "did "+id) {
			return fmt.Errorf("it answers %s", m.raw)
		}
		return nil
	})
	for _, s := range r.sights() {
		if s.id == "refused" {
			t.Error("the refused call was sent")
		}
	}
}

// TestReadOnlyDisk looks at the record on a file system that cannot be written.
func TestReadOnlyDisk(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.servers["oracle"] = r.oracle()
	r.onSmallDisk("16m")
	runs := r.interrupt("oracle", "write", "interrupted")
	r.stop()
	r.remount(unix.MS_RDONLY, "")
	shown := decoded[recoveryAnswer](r, "daemon", "recovery", "--json")
	if shown.Recovery == nil || len(shown.Recovery.Runs) != 1 {
		t.Errorf("it shows %+v", shown)
	}
	if text, code := r.output("daemon", "recovery", "ack", runs[0]); code == 0 || !strings.Contains(text, "read-only") {
		t.Errorf("acknowledging on a read-only disk: exit code %d, %s", code, text)
	}
	if text, code := r.output("daemon", "serve", "--config", r.config()); code == 0 || !strings.Contains(text, "read-only") {
		t.Errorf("serving on a read-only disk: exit code %d, %s", code, text)
	}
	r.remount(0, "")
	r.awaitPending("interrupted")
	r.acknowledgeAll()
}

// TestImmutableDirectory takes from the daemon the right to make files. What has its
// room goes on; the recovery file follows as soon as it can.
func TestImmutableDirectory(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.servers["oracle"] = r.oracle()
	r.onSmallDisk("16m")
	c := r.open(socket, "oracle").ready()
	c.oracleCall("interrupted", "write", "hang")
	pid := r.awaitSeen("interrupted")
	r.immutable(true)
	defer r.immutable(false)
	killProcess(t, pid)
	cutOff(t, c.answer(`"interrupted"`), "server_lost")
	r.clear() // it cannot be written
	if shown := decoded[recoveryAnswer](r, "daemon", "recovery", "--json"); shown.Recovery == nil || len(shown.Recovery.Runs) != 1 {
		t.Errorf("it shows %+v", shown)
	}
	r.wantFinding("state_unwritable", true)
	r.immutable(false)
	r.awaitPending("interrupted")
	r.wantFinding("state_unwritable", false)
	r.acknowledgeAll()
}

// immutable sets or clears the attribute of the rig's directory.
func (r *rig) immutable(on bool) {
	r.t.Helper()
	dir, err := os.Open(r.home())
	if err != nil {
		r.t.Fatal(err)
	}
	defer dir.Close()
	const immutable = 0x10 // FS_IMMUTABLE_FL of linux/fs.h
	flags := 0
	if on {
		flags = immutable
	}
	if err := unix.IoctlSetPointerInt(int(dir.Fd()), unix.FS_IOC_SETFLAGS, flags); err != nil {
		r.t.Skipf("setting the attribute: %v", err)
	}
}
