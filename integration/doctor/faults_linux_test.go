package doctor

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// fault is something that goes wrong.
type fault struct {
	name string
	// code is what doctor must find.
	code string
	// happen makes a place in which it is so.
	happen func(w *ward)
	// flags are given to doctor.
	flags string
	// mends says that the remedy is a command that mends it.
	mends bool
}

// TestFaults has doctor find every fault under its code, and has the commands that
// it prints mend what they are printed for.
func TestFaults(t *testing.T) {
	t.Parallel()
	faults := []fault{}
	for _, group := range [][]fault{pathFaults(), fileFaults(), daemonFaults(), recordFaults(), configFaults(), processFaults()} {
		faults = append(faults, group...)
	}
	mended := 0
	for _, f := range faults {
		if f.mends {
			mended++
		}
	}
	t.Logf("%d faults, %d of them with a command that mends them", len(faults), mended)
	if len(faults) < 30 || mended < 25 {
		t.Error("these are too few")
	}
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			w := newWard(t)
			f.happen(w)
			d := w.doctor(f.flags)
			found, ok := d.find(f.code)
			if !ok {
				t.Fatalf("%s was not found: %+v", f.code, d.Findings)
			}
			if found.Detail == "" || found.Title == "" {
				t.Errorf("it says too little: %+v", found)
			}
			if d.Status == "unhealthy" && d.code != 8 || d.Status == "unavailable" && d.code != 3 || d.Status == "healthy" && d.code != 0 {
				t.Errorf("%s with exit code %d", d.Status, d.code)
			}
			if !f.mends {
				return
			}
			if out, errs, code := w.run(found.Remedy); code != 0 {
				t.Fatalf("%s: exit code %d\n%s%s", found.Remedy, code, out, errs)
			}
			eventually(t, found.Remedy+" has mended it", func() error {
				if f, still := w.doctor(f.flags).find(f.code); still {
					return fmt.Errorf("it is still there: %+v", f)
				}
				return nil
			})
		})
	}
}

func (w *ward) running() { w.t.Helper(); w.do("interlock daemon start") }

// quiet waits until a running daemon has nothing more to write to its status file.
func (w *ward) quiet() {
	w.t.Helper()
	w.running()
	eventually(w.t, "the status file rests", func() error {
		info, err := os.Stat(w.path("daemon.json"))
		if err == nil && time.Since(info.ModTime()) < time.Second {
			return errors.New("it was just written")
		}
		return err
	})
}

func (w *ward) stopped() { w.t.Helper(); w.running(); w.do("interlock daemon stop") }

func (w *ward) chmod(path string, mode os.FileMode) {
	w.t.Helper()
	w.must(os.Chmod(path, mode))
}

func pathFaults() []fault {
	return []fault{
		{name: "directory open to others", code: "directory_unsafe", mends: true, happen: func(w *ward) {
			w.running()
			w.chmod(w.home, 0o755)
		}},
		{name: "directory above open to others", code: "directory_unsafe", mends: true, happen: func(w *ward) {
			w.home = filepath.Join(w.base, "open to all", "d")
			w.must(os.Mkdir(filepath.Dir(w.home), 0o700))
			w.chmod(filepath.Dir(w.home), 0o777)
		}},
		{name: "directory of servers open to others", code: "directory_unsafe", mends: true, happen: func(w *ward) {
			w.stopped()
			w.chmod(w.path("servers"), 0o750)
		}},
		{name: "directory is a link", code: "directory_unsafe", happen: func(w *ward) {
			w.must(os.Symlink(w.base, w.home))
		}},
		{name: "directory is a file", code: "directory_unsafe", happen: func(w *ward) {
			w.must(os.WriteFile(w.home, nil, 0o600))
		}},
		{name: "socket path too long", code: "socket_path_too_long", happen: func(w *ward) {
			w.home = filepath.Join(w.base, strings.Repeat("d", 100))
		}},
		{name: "socket open to others", code: "socket_unsafe", mends: true, happen: func(w *ward) {
			w.running()
			w.chmod(w.path("interlock.sock"), 0o666)
		}},
		{name: "socket removed", code: "socket_missing", mends: true, happen: func(w *ward) {
			w.running()
			w.must(os.Remove(w.path("interlock.sock")))
		}},
		{name: "socket replaced", code: "socket_foreign", mends: true, happen: func(w *ward) {
			w.running()
			w.must(os.Remove(w.path("interlock.sock")))
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: w.path("interlock.sock")})
			w.must(err)
			w.chmod(w.path("interlock.sock"), 0o600)
			l.SetUnlinkOnClose(false)
			w.must(l.Close())
		}},
		{name: "file in the socket's place", code: "socket_foreign", mends: true, happen: func(w *ward) {
			w.stopped()
			w.must(os.WriteFile(w.path("interlock.sock"), nil, 0o600))
		}},
		{name: "lock removed", code: "lock_mismatch", mends: true, happen: func(w *ward) {
			w.running()
			w.must(os.Remove(w.path("daemon.lock")))
		}},
	}
}

func fileFaults() []fault {
	open := func(name string, start func(*ward)) fault {
		return fault{name: name + " open to others", code: "file_unsafe", mends: true, happen: func(w *ward) {
			start(w)
			w.chmod(w.path(name), 0o644)
		}}
	}
	return []fault{
		open("daemon.json", (*ward).quiet), open("daemon.journal", (*ward).running),
		open("daemon.log", (*ward).stopped), open("daemon.lock", (*ward).stopped), open("daemon.key", (*ward).stopped),
		{name: "lock is a link", code: "file_unsafe", mends: true, happen: func(w *ward) {
			w.stopped()
			w.must(os.Rename(w.path("daemon.lock"), w.path("elsewhere")))
			w.must(os.Symlink("elsewhere", w.path("daemon.lock")))
		}},
		{name: "status is a directory", code: "file_unsafe", mends: true, happen: func(w *ward) {
			w.stopped()
			w.must(os.Mkdir(w.path("daemon.json"), 0o700))
		}},
		{name: "status damaged, daemon running", code: "status_unreadable", mends: true, happen: func(w *ward) {
			w.quiet()
			w.must(os.WriteFile(w.path("daemon.json"), make([]byte, 100), 0o600))
		}},
		{name: "status damaged, daemon gone", code: "status_unreadable", mends: true, happen: func(w *ward) {
			w.running()
			w.crash()
			w.must(os.Truncate(w.path("daemon.json"), 40))
		}},
		{name: "status of another version", code: "version_unsupported", mends: true, happen: func(w *ward) {
			w.running()
			w.crash()
			w.edit("daemon.json", `"protocolVersion": 1`, `"protocolVersion": 9`)
		}},
		{name: "status of another daemon", code: "status_foreign", mends: true, happen: func(w *ward) {
			w.running()
			w.crash()
			w.edit("daemon.json", w.path("interlock.sock"), "/elsewhere/interlock.sock")
		}},
		{name: "status missing", code: "status_stale", mends: true, happen: func(w *ward) {
			w.quiet()
			w.must(os.Remove(w.path("daemon.json")))
		}},
		{name: "status of an earlier daemon", code: "status_stale", mends: true, happen: func(w *ward) {
			w.quiet()
			// From the file: a daemon that is asked would write it anew.
			data, err := os.ReadFile(w.path("daemon.json"))
			w.must(err)
			var s daemonStatus
			w.must(json.Unmarshal(data, &s))
			w.edit("daemon.json", s.Identity.Instance, "0123456789abcdef0123456789abcdef")
		}},
		{name: "log removed", code: "log_unwritable", mends: true, happen: func(w *ward) {
			w.running()
			w.must(os.Remove(w.path("daemon.log")))
		}},
		{name: "log grown", code: "log_large", mends: true, happen: func(w *ward) {
			w.stopped()
			w.must(os.Truncate(w.path("daemon.log"), 1<<30))
		}},
		{name: "temporary files", code: "temporary_files", mends: true, happen: func(w *ward) {
			w.stopped()
			for _, name := range []string{".daemon.json.tmp", "daemon.journal.next"} {
				w.must(os.WriteFile(w.path(name), nil, 0o600))
			}
		}},
	}
}

func daemonFaults() []fault {
	return []fault{
		{name: "never started", code: "daemon_not_running", mends: true, happen: func(*ward) {}},
		{name: "stopped on purpose", code: "daemon_stopped", mends: true, happen: (*ward).stopped},
		{name: "stopped by a signal", code: "daemon_unresponsive", mends: true, happen: func(w *ward) {
			w.running()
			w.must(syscall.Kill(w.status().PID, syscall.SIGSTOP))
		}},
		{name: "killed", code: "daemon_crashed", mends: true, happen: func(w *ward) {
			w.running()
			w.crash()
		}},
		{name: "machine restarted", code: "daemon_crashed", mends: true, happen: func(w *ward) {
			w.running()
			w.crash()
			boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
			w.must(err)
			w.edit("daemon.json", strings.TrimSpace(string(boot)), "00000000-0000-4000-8000-000000000000")
		}},
		{name: "pid used again", code: "daemon_crashed", mends: true, happen: func(w *ward) {
			w.running()
			pid := w.status().PID
			w.crash()
			w.edit("daemon.json", fmt.Sprintf(`"pid": %d`, pid), fmt.Sprintf(`"pid": %d`, w.innocent()))
		}},
		{name: "clock set back", code: "clock_skew", mends: true, happen: func(w *ward) {
			w.running()
			w.crash()
			w.edit("daemon.json", fmt.Sprintf(`"startedAt": "%d-`, time.Now().UTC().Year()), `"startedAt": "2999-`)
		}},
		{name: "few descriptors", code: "descriptors_low", mends: true, happen: func(w *ward) {
			w.do("ulimit -n 100; interlock daemon start")
		}},
		{name: "sessions at their limit", code: "sessions_at_limit", happen: func(w *ward) {
			w.configure(`{"mcpServers": {"local": {"builtin": "local"}}, "limits": {"sessions": 1}}`)
			w.connect("local")
		}},
	}
}

// innocent starts a process that must live until the end of the test, and says
// so if it gets any signal.
func (w *ward) innocent() int {
	w.t.Helper()
	heard := filepath.Join(w.base, "heard")
	script := `trap "echo signal >'` + heard + `'" HUP INT QUIT TERM USR1 USR2 CONT; echo ready; while :; do read -r line || exit 0; done`
	cmd := exec.Command("sh", "-c", script)
	in, err := cmd.StdinPipe()
	w.must(err)
	out, err := cmd.StdoutPipe()
	w.must(err)
	w.must(cmd.Start())
	w.t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			w.t.Errorf("an innocent process ended: %v", err)
		}
		if _, err := os.Stat(heard); err == nil {
			w.t.Error("an innocent process got a signal")
		}
	})
	_, err = out.Read(make([]byte, 6))
	w.must(err)
	return cmd.Process.Pid
}

func recordFaults() []fault {
	return []fault{
		{name: "runs pending, no daemon", code: "recovery_pending", happen: func(w *ward) { w.pending(2) }},
		{name: "runs pending, daemon running", code: "recovery_pending", happen: func(w *ward) {
			w.pending(1)
			w.running()
		}},
		{name: "recovery file damaged, no daemon", code: "recovery_unreadable", mends: true, happen: func(w *ward) {
			w.pending(1)
			w.stopped()
			w.must(os.Truncate(w.path("daemon.recovery.json"), 150))
		}},
		{name: "recovery file damaged, daemon running", code: "recovery_unreadable", mends: true, happen: func(w *ward) {
			w.pending(1)
			w.stopped()
			w.must(os.Truncate(w.path("daemon.recovery.json"), 150))
			w.running()
		}},
		{name: "recovery file of another version", code: "recovery_unsupported", happen: func(w *ward) {
			w.pending(1)
			w.stopped()
			w.edit("daemon.recovery.json", `"schemaVersion": 1`, `"schemaVersion": 2`)
		}},
		{name: "journal damaged", code: "journal_damaged", mends: true, happen: func(w *ward) {
			w.configureFake()
			c := w.connect("fake")
			for _, id := range []string{"1", "2", "3"} {
				c.call(id, "echo", `{}`)
			}
			c.leave()
			w.do("interlock daemon stop")
			f, err := os.OpenFile(w.path("daemon.journal"), os.O_RDWR, 0)
			w.must(err)
			defer f.Close()
			_, err = f.WriteAt([]byte("damage"), 200)
			w.must(err)
		}},
	}
}

func configFaults() []fault {
	one := func(name, code, text string) fault {
		return fault{name: name, code: code, happen: func(w *ward) {
			w.configure(text)
			w.running()
		}}
	}
	return []fault{
		one("configuration is no JSON", "config_syntax", `{"mcpServers": {`),
		one("server without a command", "command_missing", `{"mcpServers": {"a": {"args": ["x"]}}}`),
		one("server by URL", "http_unsupported", `{"mcpServers": {"a": {"url": "http://localhost:1/mcp"}}}`),
		one("command line as a command", "command_has_args", `{"mcpServers": {"a": {"command": "npx -y thing"}}}`),
		one("program not installed", "upstream_no_command", `{"mcpServers": {"a": {"command": "no-such-program-anywhere"}}}`),
		one("no working directory", "upstream_start_failed", `{"mcpServers": {"a": {"command": "sh", "cwd": "/no/such/directory"}}}`),
		one("variable not set", "variable_unset", `{"mcpServers": {"a": {"command": "sh", "args": ["${NO_SUCH_VARIABLE_ANYWHERE}"]}}}`),
		{name: "configuration open to others", code: "config_writable", mends: true, happen: func(w *ward) {
			w.configureFake()
			w.chmod(w.config, 0o666)
		}},
		{name: "configuration missing", code: "config_missing", flags: "--config nowhere.json", happen: (*ward).running},
		{name: "configuration changed", code: "config_outdated", mends: true, happen: func(w *ward) {
			w.configureFake()
			w.running()
			w.configure(`{"mcpServers": {"local": {"builtin": "local"}}}`)
		}},
	}
}

func processFaults() []fault {
	return []fault{
		{name: "helper stopped by a signal", code: "helper_lost", mends: true, happen: func(w *ward) {
			w.running()
			w.must(syscall.Kill(w.childOf(w.status().PID), syscall.SIGSTOP))
		}},
		{name: "helper killed again and again", code: "helper_lost", mends: true, happen: func(w *ward) {
			w.running()
			pid := w.status().PID
			first := w.childOf(pid)
			w.must(syscall.Kill(first, syscall.SIGKILL))
			eventually(w.t, "the helper is replaced", func() error {
				for _, p := range processes() {
					if p.parent == pid && p.pid != first && p.state != 'Z' {
						return syscall.Kill(p.pid, syscall.SIGKILL)
					}
				}
				return errors.New("it is not")
			})
			eventually(w.t, "the second helper is missed", func() error {
				if _, ok := w.doctor().find("helper_lost"); !ok {
					return errors.New("it is not")
				}
				return nil
			})
		}},
		{name: "server not reaped", code: "zombies", happen: func(w *ward) {
			w.configureFake()
			c := w.connect("fake")
			helper := w.childOf(w.status().PID)
			server := w.childOf(helper)
			w.must(syscall.Kill(helper, syscall.SIGSTOP))
			w.must(syscall.Kill(server, syscall.SIGKILL))
			w.ended(server)
			w.t.Cleanup(func() {
				syscall.Kill(helper, syscall.SIGCONT)
				c.leave()
			})
		}},
		{name: "daemon and helper killed", code: "orphans", mends: true, happen: func(w *ward) {
			w.configureFake("-child", "-stay")
			c := w.connect("fake")
			pid := w.status().PID
			helper := w.childOf(pid)
			w.must(syscall.Kill(helper, syscall.SIGSTOP))
			w.crash()
			w.must(syscall.Kill(helper, syscall.SIGKILL))
			w.ended(helper)
			c.cmd.Process.Kill() // it would start the next daemon
			c.leave()
		}},
	}
}
