package integration

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"interlock/status"
)

// lossAfter is how long a daemon without its files lives on, with room for what
// it then has to end.
const lossAfter = 16 * time.Second

// TestLifeHomeLost takes the daemon's directory, lock or socket away in the
// middle of calls: what may change something is refused in two seconds, in twelve
// the daemon and its servers are gone, and it removes nothing that is not its
// own, least of all from the daemon that has come meanwhile. Full: 20 times each.
func TestLifeHomeLost(t *testing.T) {
	replace := func(name string) func(r *rig) error {
		return func(r *rig) error {
			path := filepath.Join(r.home(), name)
			if err := os.Rename(path, path+".away"); err != nil {
				return err
			}
			if name == "interlock.sock" {
				other, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
				if err != nil {
					return err
				}
				other.SetUnlinkOnClose(false)
				r.t.Cleanup(func() { other.Close() })
				return nil
			}
			return os.WriteFile(path, nil, 0o600)
		}
	}
	for name, lose := range map[string]func(r *rig) error{
		"removed":         func(r *rig) error { return os.RemoveAll(r.home()) },
		"moved":           func(r *rig) error { return os.Rename(r.home(), r.home()+"2") },
		"lock replaced":   replace("daemon.lock"),
		"socket replaced": replace("interlock.sock"),
		"unmounted":       func(r *rig) error { return unix.Unmount(r.home(), unix.MNT_DETACH) },
	} {
		t.Run(name, func(t *testing.T) {
			r := life(t)
			r.servers["fake"] = r.fake()
			var noticed, ended []time.Duration
			for range repeats(1, 20) {
				if name == "unmounted" {
					r.mountHome()
				}
				n, e := r.lose(lose, name != "socket replaced")
				noticed, ended = append(noticed, n), append(ended, e)
			}
			figures(t, "refused", noticed)
			figures(t, "ended", ended)
		})
	}
}

// mountHome makes the daemon's directory a file system of its own.
func (r *rig) mountHome() {
	r.t.Helper()
	needRoot(r.t)
	if err := os.MkdirAll(r.home(), 0o700); err != nil {
		r.t.Fatal(err)
	}
	if err := unix.Mount("none", r.home(), "tmpfs", 0, "mode=700"); err != nil {
		r.t.Skipf("mounting: %v", err)
	}
	r.t.Cleanup(func() { unix.Unmount(r.home(), unix.MNT_DETACH) })
}

// lose starts a daemon, loses its files, and gives how long the daemon took to
// refuse and to end. Where that is possible a new one starts meanwhile.
func (r *rig) lose(lose func(r *rig) error, renew bool) (noticed, ended time.Duration) {
	t := r.t
	t.Helper()
	old := r.start()
	c, err := dialRaw(r.socketPath())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.greet("fake"); err != nil {
		t.Fatal(err)
	}
	mutate := func() (*message, error) { return c.ask("tools/call", map[string]any{"name": "count"}) }
	if m, err := mutate(); err != nil || strings.Contains(m.raw, `"isError":true`) {
		t.Fatalf("before the loss: %v %v", m, err)
	}
	all := pin(t, r.population(1))
	began := time.Now()
	if err := lose(r); err != nil {
		t.Fatal(err)
	}
	err = within(patience, func() error {
		m, err := mutate()
		if err != nil {
			return err
		}
		if !strings.Contains(m.raw, "home_lost") {
			return fmt.Errorf("got %s", m.raw)
		}
		return nil
	})
	noticed = time.Since(began)
	if slack := repeats(4, 2); err != nil || noticed > time.Duration(slack)*time.Second {
		t.Errorf("a call that may change something was refused after %v: %v", noticed, err)
	}
	if m, err := c.ask("tools/call", map[string]any{"name": "echo", "arguments": map[string]any{}}); err != nil || strings.Contains(m.raw, "home_lost") {
		t.Errorf("a call that changes nothing: %v %v", m, err)
	}
	var fresh status.Snapshot
	if renew {
		fresh = r.renewed(old.pid())
	}
	select {
	case <-old.exited:
		ended = time.Since(began)
	case <-time.After(lossAfter):
		t.Fatalf("the daemon has not ended %v after the loss", lossAfter)
	}
	if left := all.left(endedSoon); len(left) > 0 {
		t.Errorf("it left %v", left)
	}
	r.daemon = nil
	r.killed = true
	if !renew {
		if !exists(r.socketPath()) {
			t.Error("it removed another's socket")
		}
		os.RemoveAll(r.home())
		return noticed, ended
	}
	r.unharmed(fresh)
	r.stop()
	os.RemoveAll(r.home() + "2")
	return noticed, ended
}

// renewed starts another daemon beside the one with the pid, and gives what it
// says of itself.
func (r *rig) renewed(old int) status.Snapshot {
	r.t.Helper()
	if out, code := output(r.t, r.command("daemon", "start", "--config", r.config())); code != 0 {
		r.t.Fatalf("starting a new daemon: %d %s", code, out)
	}
	s, err := r.snapshot()
	if err != nil || s.PID == old {
		r.t.Fatalf("the new daemon is %d, the old %d: %v", s.PID, old, err)
	}
	// The rig's own daemon is the old one; a bridge finds the new.
	r.connect(r.config(), "fake").ready().settle()
	return s
}

// unharmed makes sure that the daemon is as it was, and its files too.
func (r *rig) unharmed(was status.Snapshot) {
	r.t.Helper()
	now, err := r.snapshot()
	if err != nil || now.Identity != was.Identity {
		r.t.Errorf("the new daemon was %+v and is %+v: %v", was.Identity, now.Identity, err)
	}
	file, err := status.Read(filepath.Join(r.home(), "daemon.json"))
	if err != nil || file.PID != was.PID {
		r.t.Errorf("the new daemon %d is on file as %d: %v", was.PID, file.PID, err)
	}
}

// TestLifeForeignSocket puts a second daemon at the place of the first, and ends
// the first in every way: the second keeps its socket and its files. Full: 33
// times each.
func TestLifeForeignSocket(t *testing.T) {
	for name, sig := range map[string]syscall.Signal{"terminated": syscall.SIGTERM, "killed": syscall.SIGKILL, "aborted": syscall.SIGABRT} {
		t.Run(name, func(t *testing.T) {
			r := life(t)
			r.servers["fake"] = r.fake()
			for range repeats(1, 33) {
				first := r.start()
				lock := filepath.Join(r.home(), "daemon.lock")
				if err := os.Rename(lock, lock+".away"); err != nil {
					t.Fatal(err)
				}
				second := r.renewed(first.pid())
				inode := inodeOf(t, r.socketPath())
				first.cmd.Process.Signal(sig)
				select {
				case <-first.exited:
				case <-time.After(patience):
					t.Fatal("the first daemon did not end")
				}
				if now := inodeOf(t, r.socketPath()); now != inode {
					t.Errorf("the socket's inode was %d and is %d", inode, now)
				}
				r.unharmed(second)
				r.daemon = nil
				r.stop()
			}
		})
	}
}
