package integration

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"interlock/status"
)

// The tests of the daemon's life, in the files life_*, have two forms. The short
// one is what `go test` runs, and -short leaves the heavier ones out altogether.
// The full one does everything as often as the guarantee is stated for:
//
//	INTERLOCK_FULL=1 go test ./integration -run 'TestLife' -v -timeout 2h
//
// and logs how often and how fast.

// full is whether the full forms run, which are held to the full bounds too.
func full() bool { return repeats(0, 1) == 1 }

// life begins a test of the daemon's life.
func life(t *testing.T) *rig {
	t.Helper()
	if testing.Short() {
		t.Skip("it takes a while")
	}
	if len(ways()) == 1 && ways()[0] == direct {
		t.Skip("the flag -ways leaves interlock out")
	}
	t.Parallel()
	return newRig(t)
}

// needRoot skips a test that plays other users or makes namespaces.
func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("it needs root")
	}
}

// figures logs how long something took, and gives the 99th percentile.
func figures(t testing.TB, what string, took []time.Duration) time.Duration {
	t.Helper()
	if len(took) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(took))
	at := func(percent int) time.Duration { return sorted[(len(sorted)-1)*percent/100].Round(time.Millisecond) }
	t.Logf("%s: %d times, p50 %v, p99 %v, max %v", what, len(took), at(50), at(99), at(100))
	return at(99)
}

// configuration writes one with limits, which may be nil, beside the rig's
// servers, with the extra members of the entries, and gives its path.
func (r *rig) configuration(limits map[string]any, extra map[string]map[string]any) string {
	r.t.Helper()
	path := r.config()
	text, err := os.ReadFile(path)
	if err != nil {
		r.t.Fatal(err)
	}
	var whole map[string]any
	if err := json.Unmarshal(text, &whole); err != nil {
		r.t.Fatal(err)
	}
	if limits != nil {
		whole["limits"] = limits
	}
	for name, members := range extra {
		entry := whole["mcpServers"].(map[string]any)[name].(map[string]any)
		for k, v := range members {
			entry[k] = v
		}
	}
	if text, err = json.Marshal(whole); err != nil {
		r.t.Fatal(err)
	}
	path = filepath.Join(r.dir, "custom.json")
	if err := os.WriteFile(path, text, 0o644); err != nil {
		r.t.Fatal(err)
	}
	return path
}

// begin starts the rig's daemon with this command, which may lead through other
// programs.
func (r *rig) begin(cmd *exec.Cmd) *daemon {
	r.t.Helper()
	d := &daemon{cmd: cmd, exited: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &d.output, &d.output
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	go func() {
		defer close(d.exited)
		cmd.Wait()
	}()
	r.mu.Lock()
	r.daemon = d
	r.mu.Unlock()
	return d
}

// launch is begin, and waits until the daemon takes connections.
func (r *rig) launch(cmd *exec.Cmd) *daemon {
	r.t.Helper()
	d := r.begin(cmd)
	eventually(r.t, "the daemon takes connections", func() error {
		select {
		case <-d.exited:
			r.t.Fatalf("the daemon ended at once: %v\n%s", cmd.ProcessState, d.output.String())
		default:
		}
		c, err := net.Dial("unix", r.socketPath())
		if err == nil {
			c.Close()
		}
		return err
	})
	return d
}

// through is the command with another program before it, which runs it.
func through(cmd *exec.Cmd, before ...string) *exec.Cmd {
	wrapped := exec.Command(before[0], append(before[1:], cmd.Args...)...)
	wrapped.Env, wrapped.Dir = cmd.Env, cmd.Dir
	return wrapped
}

// serve is the command of a daemon in the foreground with the configuration.
func (r *rig) serve(config string, args ...string) *exec.Cmd {
	return r.command(append([]string{"daemon", "serve", "--config", config}, args...)...)
}

// control asks the daemon at the socket one thing and gives its answer.
func control(socket, method string) (*message, error) {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	if _, err := fmt.Fprintf(conn, `{"jsonrpc":"2.0","id":1,"method":%q}`+"\n", method); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(conn).ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	m := &message{raw: string(line)}
	if err := json.Unmarshal(line, m); err != nil {
		return nil, err
	}
	if m.Error != nil {
		return m, errors.New(m.Error.Message)
	}
	return m, nil
}

// snapshot is what the daemon says of itself.
func (r *rig) snapshot() (s status.Snapshot, err error) {
	m, err := control(r.socketPath(), "interlock/status")
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(m.Result, &s)
}

// deserted waits until the daemon has no session and no server.
func (r *rig) deserted() {
	r.t.Helper()
	eventually(r.t, "no session is left", func() error {
		s, err := r.snapshot()
		if err == nil && (s.ClientSessions > 0 || len(s.Upstreams) > 0) {
			err = fmt.Errorf("%d sessions, %d servers", s.ClientSessions, len(s.Upstreams))
		}
		return err
	})
}

// output runs the command to its end and gives what it said and its exit code.
func output(t testing.TB, cmd *exec.Cmd) (string, int) {
	t.Helper()
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%v: %v", cmd, err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// serverProcesses are the rig's processes but daemons and bridges.
func (r *rig) serverProcesses() []process {
	return slices.DeleteFunc(processesOf(r.dir), func(p process) bool { return strings.Contains(p.command, programs.interlock) })
}

// daemons are the rig's processes that are daemons, or about to be.
func (r *rig) daemons() []process {
	return slices.DeleteFunc(processesOf(r.dir), func(p process) bool { return !strings.Contains(p.command, "daemon serve") })
}

// population waits until the rig has so many servers' processes and gives them.
func (r *rig) population(n int) (list []process) {
	r.t.Helper()
	eventually(r.t, fmt.Sprintf("%d processes run", n), func() error {
		if list = r.serverProcesses(); len(list) != n {
			return fmt.Errorf("%d do: %v", len(list), list)
		}
		return nil
	})
	return list
}

// tree makes the rig's fake server one as launchers start it: below a wrapper
// that waits for it, with a child, a descendant in a session of its own that has
// a child too, and one that was forked twice.
func (r *rig) tree() server {
	script := `sleep 7357 & setsid sh -c 'sleep 7357 & exec sleep 7357' & (setsid sleep 7357 &)
"$0" "$@"
exit $?`
	return server{Command: "sh", Args: []string{"-c", script, programs.fakeserver, "-log", r.fakeLog()}}
}

// trees waits until there are n whole trees, all of whose processes are where they
// belong, and gives the processes.
func (r *rig) trees(n int) (list []process) {
	r.t.Helper()
	eventually(r.t, fmt.Sprintf("%d trees have grown", n), func() error {
		list = r.serverProcesses()
		sleeping := 0
		for _, p := range list {
			if strings.HasPrefix(p.command, "sleep ") {
				sleeping++
			}
		}
		if len(list) != 6*n || sleeping != 4*n {
			return fmt.Errorf("%d processes: %v", len(list), list)
		}
		return nil
	})
	return list
}

// pinned are processes held by descriptors: no other can take their place.
type pinned struct {
	list []process
	fds  []int
}

// pin takes hold of those of the processes that still run.
func pin(t testing.TB, list []process) *pinned {
	t.Helper()
	p := &pinned{}
	t.Cleanup(p.release)
	for _, one := range list {
		fd, err := unix.PidfdOpen(one.pid, 0)
		if err == unix.ESRCH {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		p.list, p.fds = append(p.list, one), append(p.fds, fd)
	}
	return p
}

func (p *pinned) release() {
	for _, fd := range p.fds {
		unix.Close(fd)
	}
	p.list, p.fds = nil, nil
}

// left waits until all have ended, at most for so long, and gives those that
// have not.
func (p *pinned) left(limit time.Duration) (left []process) {
	deadline := time.Now().Add(limit)
	for i, fd := range p.fds {
		for {
			poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			n, err := unix.Poll(poll, max(0, int(time.Until(deadline).Milliseconds())))
			if err == unix.EINTR {
				continue
			}
			if n == 0 {
				left = append(left, p.list[i])
			}
			break
		}
	}
	return left
}

// childrenOf are the children of a process.
func childrenOf(pid int) (list []process) {
	entries, _ := filepath.Glob("/proc/[0-9]*")
	for _, entry := range entries {
		fields := statFields(entry)
		if len(fields) < 2 || fields[1] != strconv.Itoa(pid) {
			continue
		}
		child, _ := strconv.Atoi(filepath.Base(entry))
		arguments, _ := os.ReadFile(entry + "/cmdline")
		list = append(list, process{child, strings.ReplaceAll(string(arguments), "\x00", " ")})
	}
	return list
}

// statFields are those of a process's stat file from the third, the state, on.
func statFields(entry string) []string {
	text, _ := os.ReadFile(entry + "/stat") // gone: no fields
	return strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
}

// helperOf is the spawn helper of the daemon with that pid.
func helperOf(t testing.TB, daemon int) int {
	t.Helper()
	for _, p := range childrenOf(daemon) {
		if strings.Contains(p.command, "__spawn-helper") {
			return p.pid
		}
	}
	t.Fatalf("daemon %d has no spawn helper among %v", daemon, childrenOf(daemon))
	return 0
}

// connect is a client with a bridge to whichever daemon there is, or that the
// bridge starts.
func (r *rig) connect(config, name string) *client {
	return r.run(r.command("connect", name, "--config", config))
}

// vitals reads what the rig's daemon holds.
func (r *rig) vitals() vitals {
	r.t.Helper()
	pid := r.daemon.pid()
	fields := statFields(fmt.Sprint("/proc/", pid))
	pages, err := strconv.ParseInt(fields[24-3], 10, 64)
	if err != nil {
		r.t.Fatal(err)
	}
	threads, err := strconv.Atoi(fields[20-3])
	if err != nil {
		r.t.Fatal(err)
	}
	return vitals{
		files: openFiles(r.t, pid), threads: threads, resident: pages * int64(os.Getpagesize()),
		processes: len(childrenOf(pid)) + len(childrenOf(helperOf(r.t, pid))),
	}
}
