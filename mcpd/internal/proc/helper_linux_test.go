package proc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// daemon is the process of daemonRole.
type daemon struct {
	cmd    *exec.Cmd
	stdin  io.Closer
	helper int
	trees  []int
}

func startRole(t testing.TB, args ...string) (*exec.Cmd, io.Closer, *lines) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", append([]string{"role"}, args...)...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { out.Close() })
	cmd.Stdout = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd, in, linesOf(t, out)
}

func startDaemon(t testing.TB, marker string, trees int) *daemon {
	t.Helper()
	cmd, in, out := startRole(t, "daemon", marker, strconv.Itoa(trees))
	d := &daemon{cmd: cmd, stdin: in, helper: out.pid()}
	for range trees * treeSize {
		d.trees = append(d.trees, out.pid())
	}
	for _, pid := range append(d.trees, d.helper) {
		if gone(pid) {
			t.Fatalf("process %d has not stayed", pid)
		}
	}
	return d
}

func (d *daemon) kill(t testing.TB) {
	t.Helper()
	if err := d.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = d.cmd.Wait() // it was killed
}

// pidsOfTree returns the pids of c, a tree, the leader's first.
func pidsOfTree(t testing.TB, c *Child) []int {
	t.Helper()
	out := linesOf(t, c.Stdout())
	all := []int{c.PID()}
	for len(all) < treeSize {
		all = append(all, out.pid())
	}
	return all
}

// However the daemon ends, nothing of its own stays, and nothing else goes.
func TestDaemonKilled(t *testing.T) {
	t.Parallel()
	decoy := start(t, Direct{Marker: newMarker(t)}, sh(tree))
	decoys := pidsOfTree(t, decoy)
	for range 3 {
		d := startDaemon(t, newMarker(t), 8)
		begun := time.Now()
		d.kill(t)
		awaitGone(t, append(d.trees, d.helper)...)
		t.Logf("%d processes ended within %v", len(d.trees), time.Since(begun))
	}
	for _, pid := range decoys {
		if gone(pid) {
			t.Errorf("process %d of somebody else was ended", pid)
		}
	}
}

// When the helper dies, the daemon ends what was below it, says so, and goes on with another.
func TestHelperKilled(t *testing.T) {
	t.Parallel()
	lost := make(chan error, 1)
	h := startHelper(t, HelperOptions{OnLost: func(err error) { lost <- err }})
	c := start(t, h, sh(tree))
	all := pidsOfTree(t, c)
	first := h.PID()
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	awaitDone(t, c.Done())
	if !errors.Is(c.Err(), ErrHelperLost) || c.Process().Status() != StatusLost {
		t.Errorf("the server ended with %v, status %#x", c.Err(), c.Process().Status())
	}
	awaitGone(t, all...)
	if err := <-lost; !errors.Is(err, ErrHelperLost) || !strings.Contains(err.Error(), "killed") {
		t.Errorf("OnLost was told %v", err)
	}

	second := start(t, h, sh("cat")) // waits for the next helper
	if pid := h.PID(); pid == 0 || pid == first {
		t.Errorf("the helper is process %d, after %d", pid, first)
	}
	if err := second.Stop(t.Context(), DefaultGraces()); err != nil {
		t.Error(err)
	}

	// Not twice at once.
	if err := syscall.Kill(h.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-lost
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := Start(ctx, h, sh("exit"), io.Discard)
	if failed := (*SpawnError)(nil); !errors.As(err, &failed) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a start without a helper: %v", err)
	}
}

// The kernel ends the servers; the next daemon finds the rest.
func TestDaemonAndHelperKilled(t *testing.T) {
	t.Parallel()
	marker := newMarker(t)
	d := startDaemon(t, marker, 4)
	if err := syscall.Kill(d.helper, syscall.SIGSTOP); err != nil { // so that it cannot notice the daemon's end first
		t.Fatal(err)
	}
	d.kill(t)
	if err := syscall.Kill(d.helper, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(d.trees); i += treeSize {
		awaitGone(t, d.trees[i])
	}
	ended, err := EndMarked(t.Context(), marker, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(ended) < 2*4 {
		t.Errorf("ended %v; each tree has two processes that only the marker finds", ended)
	}
	awaitGone(t, d.trees...)
}

// A helper that hangs cannot keep its servers alive either.
func TestCloseOfHungHelper(t *testing.T) {
	t.Parallel()
	h := startHelper(t, HelperOptions{})
	c := start(t, h, sh(tree))
	all := pidsOfTree(t, c)
	if err := syscall.Kill(h.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := h.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("closing a helper that hangs: %v", err)
	}
	awaitDone(t, c.Done())
	awaitGone(t, all...)
}

// Who gives up waiting for a start leaves nothing running, whenever the start happens.
func TestAbandonedSpawn(t *testing.T) {
	t.Parallel()
	h := startHelper(t, HelperOptions{})
	if err := syscall.Kill(h.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := Start(ctx, h, sh("sleep 1000"), io.Discard)
	if failed := (*SpawnError)(nil); errors.As(err, &failed) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a start that may yet happen: %v", err)
	}
	if err := syscall.Kill(h.PID(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	after := start(t, h, sh("read x")) // the helper does one after the other
	eventually(t, "only the helper and the later child are left", func() bool {
		left, err := FindMarked(h.opts.Marker)
		return err == nil && len(left) == 2 && slices.ContainsFunc(left, func(m Marked) bool { return m.PID == after.PID() })
	})
}

func TestCloseEndsEverything(t *testing.T) {
	t.Parallel()
	h := startHelper(t, HelperOptions{})
	c := start(t, h, sh(tree))
	c.Process().Release()
	all := pidsOfTree(t, c)
	helper := h.PID()
	if err := h.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !gone(helper) {
		t.Error("the helper is still there after Close")
	}
	for _, pid := range all {
		if !gone(pid) {
			t.Errorf("process %d is still there after Close", pid)
		}
	}
	awaitDone(t, c.Done())
	if got := c.Process().Status(); got != syscall.WaitStatus(syscall.SIGKILL) {
		t.Errorf("status %#x, want that of SIGKILL", got)
	}
	_, err := Start(t.Context(), h, sh("exit"), io.Discard)
	if failed := (*SpawnError)(nil); !errors.As(err, &failed) || !errors.Is(err, ErrHelperClosed) {
		t.Errorf("a start after Close: %v", err)
	}
}

// A released group can still be signalled after its leader's end, and only while it lives.
func TestSignalToReleasedGroup(t *testing.T) {
	t.Parallel()
	h := startHelper(t, HelperOptions{})
	c := start(t, h, sh("sleep 1000 & echo $!; read x"))
	background := linesOf(t, c.Stdout()).pid()
	c.Process().Release()
	if err := c.Stop(t.Context(), DefaultGraces()); err != nil {
		t.Fatal(err)
	}
	if err := c.Process().Kill(); errors.Is(err, os.ErrProcessDone) {
		t.Skip("this kernel signals no groups by pidfd")
	} else if err != nil {
		t.Fatal(err)
	}
	awaitGone(t, background)
	eventually(t, "the group is known to be gone", func() bool { return c.Process().Signal(0) == os.ErrProcessDone })
}

// The path for kernels that signal no groups by pidfd, and for a daemon that had no descriptor left for one.
func TestSignalThroughTheHelper(t *testing.T) {
	t.Parallel()
	h := startHelper(t, HelperOptions{})
	c := start(t, h, sh("sleep 1000 & echo $!; wait"))
	grandchild := linesOf(t, c.Stdout()).pid()
	p := c.Process().(*helperProcess)
	without := &helperProcess{link: p.link, id: p.id, pid: p.pid, done: p.done}
	if err := without.Kill(); err != nil {
		t.Fatal(err)
	}
	awaitDone(t, c.Done())
	awaitGone(t, grandchild)
	if err := without.Kill(); err != os.ErrProcessDone {
		t.Errorf("after the end: %v", err)
	}
}

// A server creates files with its client's mask, and one that names none with the helper's.
func TestUmask(t *testing.T) {
	t.Parallel()
	h := startHelper(t, HelperOptions{})
	loose := uint32(0o027)
	for _, test := range []struct {
		name  string
		umask *uint32
	}{{"given", &loose}, {"not given", nil}} {
		s := sh("umask; read x")
		s.Umask = test.umask
		c := start(t, h, s)
		got := linesOf(t, c.Stdout()).next()
		if is := got == "0027"; is != (test.umask != nil) {
			t.Errorf("umask %s: the server has %s", test.name, got)
		}
	}
}

// Whatever the daemon opens and forks meanwhile, a child gets its three descriptors and nothing else.
func TestCleanInheritance(t *testing.T) {
	t.Parallel()
	h := startHelper(t, HelperOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	var churn sync.WaitGroup
	defer churn.Wait()
	defer cancel()
	for range 2 {
		churn.Go(func() {
			for ctx.Err() == nil {
				f, err := os.Open("/dev/null")
				if err == nil {
					_ = exec.Command("/bin/true").Run() // fails or not
					f.Close()
				}
			}
		})
	}
	for i := range 200 {
		c, err := Start(t.Context(), h, sh("echo ready; read x"), discard{})
		if err != nil {
			t.Fatal(err)
		}
		linesOf(t, c.Stdout()).next() // past the opening of libraries
		if err := checkInheritance(c.PID()); err != nil {
			t.Errorf("child %d: %v", i, err)
		}
		// The thread that forked it must live as long as the helper, or the child gets its parent-death signal early.
		if list := childrenOf(h.PID()); !slices.Contains(list, c.PID()) {
			t.Errorf("child %d was not forked by the main thread, whose children are %v", c.PID(), list)
		}
		if err := c.Stop(t.Context(), Graces{}); err != nil {
			t.Fatal(err)
		}
		c.Stdout().Close()
	}
	if z := zombiesOf(h.PID()); len(z) != 0 {
		t.Errorf("zombies: %v", z)
	}
}

// A daemon that was started with signals ignored and blocked, and with descriptors that it knows nothing of, hands none of them on.
func TestNothingIsInheritedFromTheStarter(t *testing.T) {
	t.Parallel()
	_, in, out := startRole(t, "hostile", newMarker(t))
	pid := out.pid()
	if err := checkInheritance(pid); err != nil {
		t.Error(err)
	}
	in.Close()
	awaitGone(t, pid)
}

// libcSignals are 32 and 33, which the C library keeps for itself: what was started
// by its posix_spawn, by make for one, ignores them, and nobody else can change that.
const libcSignals = 1<<31 | 1<<32

func checkInheritance(pid int) error {
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return err
	}
	var names []string
	for _, fd := range fds {
		names = append(names, fd.Name())
	}
	if !slices.Equal(names, []string{"0", "1", "2"}) {
		return fmt.Errorf("descriptors %q", names)
	}
	for _, fd := range names {
		info, err := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/%s", pid, fd))
		if err != nil {
			return err
		}
		_, flags, _ := strings.Cut(string(info), "flags:\t")
		flags, _, _ = strings.Cut(flags, "\n")
		if v, err := strconv.ParseUint(flags, 8, 32); err != nil || v&unix.O_NONBLOCK != 0 {
			return fmt.Errorf("descriptor %s has flags %q (%v), so it may not block", fd, flags, err)
		}
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(status)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":\t")
		if key != "SigIgn" && key != "SigBlk" {
			continue
		}
		if set, err := strconv.ParseUint(value, 16, 64); err != nil || set&^libcSignals != 0 {
			return fmt.Errorf("%s is %s", key, value)
		}
	}
	if sid, err := unix.Getsid(pid); err != nil || sid != pid {
		return fmt.Errorf("its session is %d (%v)", sid, err)
	}
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return err
	}
	if kv := strings.Split(strings.Trim(string(env), "\x00"), "\x00"); len(kv) != 2 || kv[0] != "PATH=/usr/bin:/bin" || !strings.HasPrefix(kv[1], MarkerEnv+"=test-") {
		return fmt.Errorf("environment %q", kv)
	}
	return nil
}

func zombiesOf(parent int) []int {
	var z []int
	for _, pid := range pids() {
		if s, err := readStat(pid); err == nil && s.ppid == parent && s.state == 'Z' {
			z = append(z, pid)
		}
	}
	return z
}

// Orphans that the helper adopts are reaped, and their reaping takes no server's status.
func TestOrphansAreReaped(t *testing.T) {
	t.Parallel()
	h := startHelper(t, HelperOptions{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 10 {
				c, err := Start(t.Context(), h, sh("i=0; while [ $i -lt 20 ]; do (true &); i=$((i+1)); done; exit 3"), discard{})
				if err != nil {
					t.Error(err)
					return
				}
				awaitDone(t, c.Done())
				c.Stdout().Close()
				if got := c.Process().Status(); got.ExitStatus() != 3 {
					t.Errorf("status %#x, want exit status 3", got)
				}
			}
		})
	}
	wg.Wait()
	eventually(t, "no zombie is left", func() bool { return len(zombiesOf(h.PID())) == 0 })
}

func TestAsInit(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("unshare", "--pid", "--fork", "--mount-proc", "/proc/self/exe", "role", "init", newMarker(t))
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Args[4] = exe
	out, err := cmd.CombinedOutput()
	if strings.Contains(string(out), "unshare: ") {
		t.Skipf("no pid namespace may be made here: %s", out)
	}
	if err != nil || strings.TrimSpace(string(out)) != "clean" {
		t.Errorf("%v: %s", err, out)
	}
}

func TestIsHelper(t *testing.T) {
	for _, argv := range [][]string{nil, {"interlock"}, {helperArg}, {"interlock", "connect"}, {"interlock", "connect", helperArg}} {
		if IsHelper(argv) {
			t.Errorf("%q was taken for a helper's arguments", argv)
		}
	}
	if !IsHelper([]string{"interlock", helperArg}) {
		t.Error("a helper's arguments were not known")
	}
}

func TestHelperWithoutDaemon(t *testing.T) {
	t.Parallel()
	out, err := (&exec.Cmd{Path: "/proc/self/exe", Args: []string{"interlock", helperArg}}).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(string(out), "only the daemon can start it") {
		t.Errorf("%v: %s", err, out)
	}
}

func BenchmarkSpawn(b *testing.B) {
	run := func(b *testing.B, sp Spawner) {
		s := Spec{Name: "true", Path: "/bin/true", Args: []string{"true"}}
		for b.Loop() {
			c, err := Start(b.Context(), sp, s, discard{})
			if err != nil {
				b.Fatal(err)
			}
			<-c.Done()
			c.Stdout().Close()
		}
	}
	b.Run("direct", func(b *testing.B) { run(b, Direct{}) })
	b.Run("helper", func(b *testing.B) { run(b, startHelper(b, HelperOptions{})) })
}
