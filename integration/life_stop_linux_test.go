package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestLifeLadder ends sessions whose servers heed different things: the end of
// their input, SIGTERM, or nothing but SIGKILL, which come in this order and two
// seconds apart. A server that leaves a stranger with its standard output holds
// nobody up. Full: 100 of each.
func TestLifeLadder(t *testing.T) {
	const step = 2 * time.Second
	script := func(onEOF, onTerm string) string {
		return `log() { echo "$1 $(date +%s%N)" >>"$0.$$"; }
trap 'log term; ` + onTerm + `' TERM
log start
while read -r line; do log in; done
log eof
` + onEOF + `
while :; do sleep 0.05; done`
	}
	heeds := map[string]struct {
		script string
		events string
		least  time.Duration // from the end of its input to its own
	}{
		"eof":      {script("exit", ""), "eof", 0},
		"term":     {script("", "exit"), "eof term", step},
		"kill":     {script("", ""), "eof term", 2 * step},
		"stranger": {"setsid sleep 7357 & " + script("exit", ""), "eof", 0},
	}
	for name, h := range heeds {
		// Several rigs at once, because most of it is waiting.
		for lane := range repeats(1, 10) {
			t.Run(fmt.Sprint(name, lane), func(t *testing.T) {
				r := life(t)
				r.servers[name] = server{Command: "sh", Args: []string{"-c", h.script, filepath.Join(r.dir, "log")}}
				r.start()
				for range repeats(2, 10) {
					r.ladder(name, h.events, h.least)
				}
			})
		}
	}
}

// ladder ends one session with the server of that name, and looks at what the
// server logged.
func (r *rig) ladder(name, events string, least time.Duration) {
	t := r.t
	t.Helper()
	c, err := dialRaw(r.socketPath())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.ask("interlock/hello", hello{Protocol: 1, Servers: []string{name}, Env: r.environ()}); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(c, `{"jsonrpc":"2.0","method":"initialize","id":1,"params":{}}`)
	var log string
	eventually(t, "the server has its input", func() error {
		found, _ := filepath.Glob(filepath.Join(r.dir, "log.[0-9]*"))
		if len(found) != 1 {
			return fmt.Errorf("%d logs", len(found))
		}
		log = found[0]
		text, err := os.ReadFile(log)
		if err == nil && !strings.Contains(string(text), "in ") {
			err = fmt.Errorf("only %q", text)
		}
		return err
	})
	pid, err := strconv.Atoi(strings.TrimPrefix(filepath.Ext(log), "."))
	if err != nil {
		t.Fatal(err)
	}
	watched := pin(t, []process{{pid: pid, command: name}})
	c.Close()
	watched.left(patience)
	checkLadder(t, log, events, least)
	os.Remove(log)
}

// checkLadder compares what a server logged, at what time, with what should have
// come, and its end, which is now.
func checkLadder(t testing.TB, log, events string, least time.Duration) {
	t.Helper()
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	var eof time.Time
	for line := range strings.Lines(string(text)) {
		name, at, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name == "start" || name == "in" {
			continue
		}
		got = append(got, name)
		if n, err := strconv.ParseInt(at, 10, 64); err == nil && name == "eof" {
			eof = time.Unix(0, n)
		}
	}
	if strings.Join(got, " ") != events {
		t.Errorf("the server saw %v, want %s", got, events)
	}
	// The server itself is as slow as the machine lets it be.
	slack := 3 * time.Second
	if full() {
		slack = time.Second
	}
	if took := time.Since(eof); took < least-time.Second || took > least+slack {
		t.Errorf("it took %v from the end of its input, want %v", took, least)
	}
}

// TestLifeFlood has a server write to standard error without end, with lines and
// without: no answer is lost, other sessions hardly notice, and the log stays
// within its bound. Full: 600 MB beside 1,000 calls.
func TestLifeFlood(t *testing.T) {
	r := life(t)
	flood := `yes "a line of some length that somebody writes to standard error" >&2 & yes x | tr -d '\n' >&2 & "$0" "$@"; kill 0`
	r.servers["flood"] = server{Command: "sh", Args: []string{"-c", flood, programs.fakeserver, "-log", r.fakeLog()}}
	r.servers["calm"] = r.fake()
	calls := repeats(100, 1000)
	measure := func(c *client) (took []time.Duration) {
		for i := range calls {
			began := time.Now()
			if m := c.call(fmt.Sprint(i+1), "echo", `{"n":1}`); m.Result == nil {
				t.Fatalf("call %d got %s", i, m.raw)
			}
			took = append(took, time.Since(began))
		}
		return took
	}
	calm := r.open(socket, "calm").ready()
	figures(t, "calls before the flood", measure(calm))
	flooded := r.open(socket, "flood").ready()
	figures(t, "calls of the flooding server", measure(flooded))
	figures(t, "calls beside the flood", measure(calm))
	const bound = 6 * 4 << 20 // five files of 4 MiB, and one line too many in each
	logs, err := filepath.Glob(filepath.Join(r.home(), "servers", "flood.log*"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("no log: %v", err)
	}
	var size int64
	for _, log := range logs {
		if info, err := os.Stat(log); err == nil {
			size += info.Size()
		}
	}
	t.Logf("%d bytes in %d log files", size, len(logs))
	if size > bound {
		t.Errorf("the log has %d bytes", size)
	}
	flooded.close()
	calm.close()
	r.deserted()
}

// innocent is a process that notes every signal it is sent.
func innocent(t *testing.T, dir string) (pid int, signals func() string) {
	t.Helper()
	log := filepath.Join(dir, "signals")
	cmd := exec.Command("sh", "-c", `for s in HUP INT QUIT TERM USR1 USR2; do trap "echo $s >>$0" $s; done; echo ready >>$0; while :; do sleep 0.1; done`, log)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	read := func() string { text, _ := os.ReadFile(log); return string(text) }
	eventually(t, "the innocent process is ready", func() error {
		if read() == "" {
			return os.ErrNotExist
		}
		return nil
	})
	return cmd.Process.Pid, func() string {
		if syscall.Kill(cmd.Process.Pid, 0) != nil || statFields(fmt.Sprint("/proc/", cmd.Process.Pid))[0] == "Z" {
			return "it was killed"
		}
		return strings.TrimPrefix(read(), "ready\n")
	}
}

// TestLifeStranger lets the status file name somebody else, in every way that a
// pid goes wrong, while the lock is held by a process that does not answer:
// `daemon stop` signals nobody and says that it could not verify. Full: 50 times.
func TestLifeStranger(t *testing.T) {
	r := life(t)
	r.start()
	r.kill()
	path := filepath.Join(r.home(), "daemon.json")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	pid, signals := innocent(t, r.dir)
	fields := statFields(fmt.Sprint("/proc/", pid))
	start, err := strconv.ParseUint(fields[22-3], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	zombie := exec.Command("true")
	if err := zombie.Start(); err != nil {
		t.Fatal(err)
	}
	defer zombie.Wait()
	eventually(t, "there is a zombie", func() error {
		if state := statFields(fmt.Sprint("/proc/", zombie.Process.Pid))[0]; state != "Z" {
			return fmt.Errorf("in state %s", state)
		}
		return nil
	})
	zombieStart, _ := strconv.ParseUint(statFields(fmt.Sprint("/proc/", zombie.Process.Pid))[22-3], 10, 64)
	// Somebody who is no daemon holds the lock.
	lock, err := os.OpenFile(filepath.Join(r.home(), "daemon.lock"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]map[string]any{
		"a reused pid":          {"pid": pid, "startTicks": start - 1},
		"another boot":          {"pid": pid, "startTicks": start, "bootId": "00000000-0000-0000-0000-000000000000"},
		"another pid namespace": {"pid": pid, "startTicks": start, "pidNamespace": 1},
		"another user":          {"pid": pid, "startTicks": start, "uid": 12345},
		"a thread":              {"pid": threadOf(t, os.Getpid()), "startTicks": start},
		"a zombie":              {"pid": zombie.Process.Pid, "startTicks": zombieStart},
		"nobody":                {"pid": 0},
		"init":                  {"pid": 1, "startTicks": 1},
	} {
		if err := os.WriteFile(path, changed(t, text, change), 0o600); err != nil {
			t.Fatal(err)
		}
		for range repeats(1, 50) {
			began := time.Now()
			out, code := output(t, r.command("daemon", "stop"))
			if code != 4 {
				t.Errorf("%s: exit code %d, want 4: %s", name, code, out)
			}
			if took := time.Since(began); took > patience/2 {
				t.Errorf("%s: it took %v", name, took)
			}
			if got := signals(); got != "" {
				t.Fatalf("%s: the innocent process was sent %s", name, got)
			}
		}
	}
	lock.Close()
	// With the lock free nothing runs, whatever the file says.
	out, code := output(t, r.command("daemon", "stop"))
	if code != 0 || !strings.Contains(out, "not running") || signals() != "" {
		t.Errorf("without a daemon: %d %s; signals %q", code, out, signals())
	}
}

// changed is a status file with other members in its identity, or beside it.
func changed(t *testing.T, text []byte, members map[string]any) []byte {
	t.Helper()
	var whole map[string]any
	if err := json.Unmarshal(text, &whole); err != nil {
		t.Fatal(err)
	}
	for k, v := range members {
		if _, ok := whole[k]; ok {
			whole[k] = v
			continue
		}
		whole["identity"].(map[string]any)[k] = v
	}
	text, err := json.Marshal(whole)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// threadOf is a thread of the process other than its main one.
func threadOf(t *testing.T, pid int) int {
	t.Helper()
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		if tid, _ := strconv.Atoi(task.Name()); tid != pid {
			return tid
		}
	}
	t.Fatal("a Go program of one thread")
	return 0
}

// TestLifeStopEscalates stops daemons that make it hard: one that stands still,
// one whose status file is gone or damaged, one whose servers heed nothing. It
// ends in time, with all its servers. Full: 20 of each.
func TestLifeStopEscalates(t *testing.T) {
	for name, spoil := range map[string]func(r *rig) error{
		"it stands still":          func(r *rig) error { return syscall.Kill(r.daemon.pid(), syscall.SIGSTOP) },
		"its status is gone":       func(r *rig) error { return os.Remove(filepath.Join(r.home(), "daemon.json")) },
		"its status is damaged":    func(r *rig) error { return os.WriteFile(filepath.Join(r.home(), "daemon.json"), []byte("{"), 0o600) },
		"its servers heed nothing": func(r *rig) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			r := life(t)
			r.servers["stubborn"] = r.fake("-stay", "-child")
			for range repeats(1, 20) {
				r.start()
				r.open(socket, "stubborn").ready()
				r.logged(1, "child", "")
				all := pin(t, r.serverProcesses())
				os.Remove(r.fakeLog())
				if err := spoil(r); err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				out, code := output(t, r.command("daemon", "stop"))
				took := time.Since(began)
				if code != 0 {
					t.Errorf("exit code %d: %s", code, out)
				}
				if took > 12*time.Second {
					t.Errorf("it took %v: %s", took, out)
				}
				if left := all.left(endedSoon); len(left) > 0 {
					t.Errorf("there are still %v", left)
				}
				t.Logf("stopped in %v: %s", took.Round(time.Millisecond), strings.ReplaceAll(strings.TrimSpace(out), "\n", "; "))
				r.killed = true
				r.gone()
				all.release()
			}
		})
	}
}

// TestLifeZombie stops a daemon that has ended and that its parent does not
// reap: nothing runs any more.
func TestLifeZombie(t *testing.T) {
	r := life(t)
	r.killed = true
	config := r.config()
	parent := exec.Command("sh", "-c", `"$0" "$@" & echo $!; exec sleep 7357`, programs.interlock, "daemon", "serve", "--config", config, "--dir", r.home())
	parent.Env = r.environ()
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { parent.Process.Kill(); parent.Wait() }()
	var pid int
	if _, err := fmt.Fscan(out, &pid); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the daemon serves", func() error { _, err := r.snapshot(); return err })
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is a zombie", func() error {
		if state := statFields(fmt.Sprint("/proc/", pid))[0]; state != "Z" {
			return fmt.Errorf("in state %s", state)
		}
		return nil
	})
	if out, code := output(t, r.command("daemon", "stop")); code != 0 || !strings.Contains(out, "not running") {
		t.Errorf("exit code %d: %s", code, out)
	}
}
