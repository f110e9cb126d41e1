package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// endedSoon is how long what a killed daemon leaves may live on.
const endedSoon = 2 * time.Second

// decoys are processes of the same names as the product's, which are nobody's
// business. The function fails the test unless all of them still run.
func decoys(t *testing.T) (check func()) {
	t.Helper()
	var all []*exec.Cmd
	var ends []func()
	for _, args := range [][]string{
		{"bash", "-c", "exec -a '" + programs.fakeserver + "' sleep 7357"},
		{"bash", "-c", "exec -a 'interlock __spawn-helper' sleep 7357"},
		{"bash", "-c", "exec -a 'interlock daemon serve' sleep 7357"},
	} {
		cmd := exec.Command(args[0], args[1:]...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		all = append(all, cmd)
		ends = append(ends, func() { cmd.Process.Kill(); cmd.Wait() })
	}
	t.Cleanup(func() {
		for _, end := range ends {
			end()
		}
	})
	return func() {
		t.Helper()
		for _, cmd := range all {
			if state := statFields(fmt.Sprint("/proc/", cmd.Process.Pid)); len(state) == 0 || state[0] == "Z" {
				t.Errorf("a process that only has the same name was ended: %v", cmd.Args)
			}
		}
	}
}

// forest starts n sessions with a tree of processes each.
func (r *rig) forest(n int) *pinned {
	r.t.Helper()
	for range n {
		r.open(socket, "tree").ready()
	}
	return pin(r.t, r.trees(n))
}

// TestLifeKilled kills the daemon with SIGKILL: of its servers, their children,
// what these put into sessions of their own and what they forked twice, nothing
// is left two seconds later, and nobody else is touched. Full: 100 kills of 8
// servers.
func TestLifeKilled(t *testing.T) {
	r := life(t)
	r.servers["tree"] = r.tree()
	untouched := decoys(t)
	var took []time.Duration
	for range repeats(10, 100) {
		daemon := r.start()
		all := r.forest(repeats(3, 8))
		began := time.Now()
		syscall.Kill(daemon.pid(), syscall.SIGKILL)
		if left := all.left(endedSoon); len(left) > 0 {
			t.Fatalf("%v after the daemon was killed there are %v", endedSoon, left)
		}
		took = append(took, time.Since(began))
		r.kill()
		if left := r.serverProcesses(); len(left) > 0 {
			t.Fatalf("processes that came late: %v", left)
		}
		all.release()
	}
	untouched()
	if p99 := figures(t, "all gone after SIGKILL of the daemon", took); full() && p99 > 500*time.Millisecond {
		t.Errorf("p99 is %v", p99)
	}
}

// TestLifeHelperKilled kills the spawn helper: all its servers end, what was in
// flight is answered and not sent again, and the next request finds a server
// below a new helper. Full: 100 kills.
func TestLifeHelperKilled(t *testing.T) {
	r := life(t)
	r.servers["tree"] = r.tree()
	var took []time.Duration
	for n := range repeats(5, 100) {
		daemon := r.start()
		c := r.open(socket, "tree").ready()
		r.open(socket, "tree").ready()
		all := pin(t, r.trees(2))
		key := fmt.Sprintf("round-%d", n)
		c.sendCall("1", "hold", `{"key":"`+key+`"}`)
		r.logged(1, "hold", key)
		began := time.Now()
		syscall.Kill(helperOf(t, daemon.pid()), syscall.SIGKILL)
		if left := all.left(endedSoon); len(left) > 0 {
			t.Fatalf("%v after the helper was killed there are %v", endedSoon, left)
		}
		took = append(took, time.Since(began))
		if m := c.answer("1"); m.Error == nil && !strings.Contains(m.raw, `"isError":true`) {
			t.Errorf("the call in flight got %s", m.raw)
		}
		c.settle()
		if n := len(r.logged(1, "hold", key)); n != 1 {
			t.Errorf("the call was sent %d times", n)
		}
		all.release()
		c.close()
		r.stop()
	}
	figures(t, "all gone after SIGKILL of the helper", took)
}

// TestLifeBothKilled kills daemon and helper at the same moment: the servers end
// at once, and what they had put out of reach when the next daemon starts. Full:
// 100 times.
func TestLifeBothKilled(t *testing.T) {
	r := life(t)
	r.servers["tree"] = r.tree()
	untouched := decoys(t)
	var direct, swept []time.Duration
	for range repeats(5, 100) {
		daemon := r.start()
		helper := helperOf(t, daemon.pid())
		all := r.forest(2)
		var leaders []process
		for _, p := range childrenOf(helper) {
			if strings.HasPrefix(p.command, "sh -c") && strings.Contains(p.command, r.dir) {
				leaders = append(leaders, p)
			}
		}
		if len(leaders) != 2 {
			t.Fatalf("the helper has %v", childrenOf(helper))
		}
		held := pin(t, leaders)
		// Stopped, neither can do anything about the other's end.
		for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
			syscall.Kill(helper, sig)
			syscall.Kill(daemon.pid(), sig)
		}
		began := time.Now()
		if left := held.left(endedSoon); len(left) > 0 {
			t.Fatalf("%v after both were killed there are the servers %v", endedSoon, left)
		}
		direct = append(direct, time.Since(began))
		r.kill()
		r.start()
		began = time.Now()
		if left := all.left(endedSoon); len(left) > 0 {
			t.Fatalf("%v after the next daemon started there are %v", endedSoon, left)
		}
		swept = append(swept, time.Since(began))
		held.release()
		all.release()
		r.stop()
	}
	untouched()
	figures(t, "servers gone after SIGKILL of both", direct)
	figures(t, "all gone after the next start", swept)
}

// TestLifeSweepOutlivesKills kills the next daemon too, in the middle of its
// start: the one after that still ends what the first had left.
func TestLifeSweepOutlivesKills(t *testing.T) {
	r := life(t)
	r.servers["tree"] = r.tree()
	for range repeats(3, 30) {
		daemon := r.start()
		helper := helperOf(t, daemon.pid())
		all := r.forest(1)
		for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
			syscall.Kill(helper, sig)
			syscall.Kill(daemon.pid(), sig)
		}
		r.kill()
		// Stopped where it is about to end them, and then killed.
		before := inodeOf(t, filepath.Join(r.home(), "daemon.json"))
		second := r.serve(r.config())
		if err := second.Start(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the second daemon has begun", func() error {
			if now := inodeOf(t, filepath.Join(r.home(), "daemon.json")); now != before || lockHeld(t, r.home()) {
				return nil
			}
			return fmt.Errorf("nothing yet")
		})
		second.Process.Kill()
		second.Wait()
		r.start()
		if left := all.left(endedSoon); len(left) > 0 {
			t.Fatalf("%v after the third daemon started there are %v", endedSoon, left)
		}
		all.release()
		r.stop()
	}
}

// TestLifeSweepWithoutStatus takes the status file of a killed daemon away: the
// next one knows from the lock's file what to end.
func TestLifeSweepWithoutStatus(t *testing.T) {
	r := life(t)
	r.servers["tree"] = r.tree()
	daemon := r.start()
	helper := helperOf(t, daemon.pid())
	all := r.forest(1)
	for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
		syscall.Kill(helper, sig)
		syscall.Kill(daemon.pid(), sig)
	}
	r.kill()
	if err := os.Remove(filepath.Join(r.home(), "daemon.json")); err != nil {
		t.Fatal(err)
	}
	r.start()
	if left := all.left(endedSoon); len(left) > 0 {
		t.Fatalf("%v after the next daemon started there are %v", endedSoon, left)
	}
	all.release()
}

// inodeOf is the inode number of a file, 0 if there is none.
func inodeOf(t testing.TB, path string) uint64 {
	t.Helper()
	info, err := os.Lstat(path)
	if os.IsNotExist(err) {
		return 0
	}
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Ino
}

// lockHeld is whether some process holds the lock of the daemon's directory.
func lockHeld(t testing.TB, home string) bool {
	t.Helper()
	f, err := os.Open(filepath.Join(home, "daemon.lock"))
	if os.IsNotExist(err) {
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) == unix.EWOULDBLOCK
}

// TestLifeAsInit runs the daemon as process 1 of a pid namespace, where nobody
// else reaps: servers fork orphans by the hundred, and none stays a zombie. Full:
// 1,000 orphans and 200 servers.
func TestLifeAsInit(t *testing.T) {
	needRoot(t)
	r := life(t)
	sessions := repeats(10, 200)
	script := fmt.Sprintf(`i=0; while [ $i -lt %d ]; do (true &) ; i=$((i+1)); done; exec "$0" "$@"`, repeats(100, 1000)/sessions)
	r.servers["orphans"] = server{Command: "sh", Args: []string{"-c", script, programs.fakeserver, "-log", r.fakeLog()}}
	config := r.config()
	d := r.launch(through(r.serve(config), "unshare", "--pid", "--fork", "--mount-proc", "--kill-child"))
	init := childrenOf(d.pid())[0].pid
	inside := func(args ...string) *exec.Cmd {
		return through(r.command(args...), "nsenter", "--target", strconv.Itoa(init), "--pid", "--mount")
	}
	most := 0
	for range sessions {
		c := r.run(inside("connect", "orphans"))
		c.ready()
		most = max(most, len(zombiesBeside(init)))
		c.settle()
		c.closeInput()
		if code := c.exitCode(); code != 0 {
			t.Errorf("the bridge ended with %d: %s", code, c.stderr())
		}
		most = max(most, len(zombiesBeside(init)))
	}
	t.Logf("at most %d zombies at a time", most)
	if full() && most > 5 { // on a busy machine the reaper is late now and then
		t.Errorf("%d zombies at a time", most)
	}
	if err := within(endedSoon, func() error {
		if left := zombiesBeside(init); len(left) > 0 {
			return fmt.Errorf("zombies: %v", left)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	output(t, inside("daemon", "stop")) // ends with the namespace, like everything in it
	r.gone()
}

// zombiesBeside are the zombies in the pid namespace of the process.
func zombiesBeside(pid int) (list []string) {
	namespace, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
	entries, _ := filepath.Glob("/proc/[0-9]*")
	for _, entry := range entries {
		if fields := statFields(entry); len(fields) > 0 && fields[0] == "Z" {
			if other, _ := os.Readlink(entry + "/ns/pid"); other == namespace && namespace != "" {
				list = append(list, filepath.Base(entry))
			}
		}
	}
	return list
}

// TestLifeInheritance looks at servers while others come and go: standard
// streams and nothing else, no signal ignored or blocked, a session of its own,
// the client's umask, and the client's environment, in which only interlock's
// own two variables take the place of others. Full: 1,000 servers.
func TestLifeInheritance(t *testing.T) {
	r := life(t)
	r.servers["fake"] = server{Command: programs.fakeserver, Args: []string{"-log", r.fakeLog()}}
	// The daemon inherits what a careless starter leaves open, and runs with
	// signals ignored and another umask.
	leak, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer leak.Close()
	cmd := through(r.serve(r.config()), "sh", "-c", `trap "" HUP USR1 PIPE; umask 000; exec "$0" "$@"`)
	cmd.ExtraFiles = []*os.File{leak, leak}
	r.launch(cmd)
	const workers = 4
	failed := make(chan error, workers)
	for w := range workers {
		go func() {
			for i := range repeats(10, 250) {
				if err := r.inherits(w, i); err != nil {
					failed <- err
					return
				}
			}
			failed <- nil
		}()
	}
	for range workers {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
}

// inherits looks at the server of one session.
func (r *rig) inherits(worker, round int) error {
	c, err := dialRaw(r.socketPath())
	if err != nil {
		return err
	}
	defer c.Close()
	own := []string{"PATH=" + os.Getenv("PATH"), fmt.Sprintf("ROUND=%d-%d", worker, round), "EMPTY=", "ODD=a=b\nc"}
	given := append(slices.Clone(own), "INTERLOCK_DIR=/elsewhere", "INTERLOCK_INSTANCE=forged", "INTERLOCK_START=serve")
	umask := []uint32{0o022, 0o077, 0o002, 0}[worker]
	if _, err := c.ask("interlock/hello", map[string]any{
		"protocol": 1, "servers": []string{"fake"}, "cwd": r.dir, "env": given, "umask": umask,
	}); err != nil {
		return err
	}
	if _, err := c.ask("initialize", initializeParams); err != nil {
		return err
	}
	m, err := c.ask("tools/call", map[string]any{"name": "env", "arguments": map[string]any{}})
	if err != nil {
		return err
	}
	pid := environmentOf(r.t, m).PID
	return r.clean(pid, own, umask)
}

var libcSignals = regexp.MustCompile(`\nSigIgn:\t0000000(080000000|100000000|180000000)\n`)

// clean compares what /proc shows of the server with what it should have.
func (r *rig) clean(pid int, own []string, umask uint32) error {
	dir := fmt.Sprintf("/proc/%d", pid)
	fds, err := os.ReadDir(dir + "/fd")
	if err != nil {
		return err
	}
	for _, fd := range fds {
		target, _ := os.Readlink(dir + "/fd/" + fd.Name())
		// Go's runtime opens some for itself, and the fake server its log.
		own := strings.HasPrefix(target, "anon_inode:") || strings.HasPrefix(target, "/sys/fs/cgroup/") || target == r.fakeLog()
		if number, _ := strconv.Atoi(fd.Name()); number > 2 && !own {
			return fmt.Errorf("the server inherited descriptor %s, %s", fd.Name(), target)
		}
	}
	// Go's runtime blocks signals for a moment of its own where it starts threads.
	err = within(endedSoon, func() error {
		text, err := os.ReadFile(dir + "/status")
		// 32 and 33 are the C library's: what its posix_spawn has started, by make for
		// one, ignores them, and so does everything below.
		text = libcSignals.ReplaceAll(text, []byte("\nSigIgn:\t0000000000000000\n"))
		for _, want := range []string{
			"\nSigIgn:\t0000000000000000\n", "\nSigBlk:\t0000000000000000\n", fmt.Sprintf("\nUmask:\t%04o\n", umask),
		} {
			if err == nil && !strings.Contains(string(text), want) {
				err = fmt.Errorf("the server's status lacks %q:\n%s", want, text)
			}
		}
		return err
	})
	if err != nil {
		return err
	}
	if fields := statFields(dir); fields[3] != strconv.Itoa(pid) || fields[2] != strconv.Itoa(pid) {
		return fmt.Errorf("the server is in group %s and session %s, not its own", fields[2], fields[3])
	}
	environ, err := os.ReadFile(dir + "/environ")
	if err != nil {
		return err
	}
	s, err := r.snapshot()
	if err != nil {
		return err
	}
	want := append(slices.Clone(own), "INTEGRATION_DIR="+r.dir, "INTERLOCK_DEPTH=1", "INTERLOCK_INSTANCE="+s.Identity.Instance)
	got := strings.Split(strings.TrimSuffix(string(environ), "\x00"), "\x00")
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		return fmt.Errorf("the server's environment is %q, want %q", got, want)
	}
	return nil
}
