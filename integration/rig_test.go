package integration

import (
	"bytes"
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
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is how long anything may take that is not itself under test. It
// only ever passes when something is broken.
const patience = 20 * time.Second

// way is how a client gets to a server.
type way string

const (
	direct way = "direct" // the client runs the server
	bridge way = "bridge" // the client runs `interlock connect NAME`
	socket way = "socket" // the client dials the daemon's socket and says hello
)

// ways are those that the flag -ways names.
func ways() (list []way) {
	for name := range strings.SplitSeq(*waysFlag, ",") {
		list = append(list, way(name))
	}
	return list
}

// eachWay runs the test once for every way, at the same time, or for every way
// named, where the test does not apply to all.
func eachWay(t *testing.T, test func(*testing.T, way), only ...way) {
	apply := slices.DeleteFunc(ways(), func(w way) bool { return len(only) > 0 && !slices.Contains(only, w) })
	if len(apply) == 0 {
		t.Skipf("the flag -ways leaves %v out", only)
	}
	for _, w := range apply {
		t.Run(string(w), func(t *testing.T) {
			t.Parallel()
			test(t, w)
		})
	}
}

// eachRelay runs the test once for every way that leads through interlock.
func eachRelay(t *testing.T, test func(*testing.T, way)) {
	eachWay(t, test, bridge, socket)
}

// server is an entry of the configuration.
type server struct {
	Command   string            `json:"command"`
	Args      []string          `json:"args,omitempty"`
	Env       map[string]string `json:"env,omitempty"`
	State     string            `json:"state,omitempty"`
	Mutations string            `json:"mutations,omitempty"`
	LeaseHold string            `json:"leaseHold,omitempty"`
	Guard     string            `json:"guard,omitempty"`

	Annotations string              `json:"annotations,omitempty"`
	Tools       map[string]toolRule `json:"tools,omitempty"`
}

// toolRule is what the configuration says of one tool.
type toolRule struct {
	Class     string `json:"class"`
	Resource  string `json:"resource,omitempty"`
	LeaseHold string `json:"leaseHold,omitempty"`
}

// settings are the members of the configuration beside the servers.
type settings struct {
	Limits   limits          `json:"limits,omitzero"`
	Sync     string          `json:"sync,omitempty"`
	Recovery pendingSettings `json:"recovery,omitzero"`
}

// limits are those that tests change; what is left out is the default.
type limits struct {
	CallTimeout  string `json:"callTimeout,omitempty"`
	CancelGrace  string `json:"cancelGrace,omitempty"`
	LockDelay    string `json:"lockDelay,omitempty"`
	WaitLimit    string `json:"waitLimit,omitempty"`
	DrainTimeout string `json:"drainTimeout,omitempty"`
	ClientCalls  int    `json:"clientCalls,omitempty"`
	Calls        int    `json:"calls,omitempty"`
}

type pendingSettings struct {
	Pending string `json:"pending,omitempty"`
}

// rig is one test's own place: a directory, a configuration and, once something
// needs it, a daemon. What carries the directory is ended and looked for at
// the end of the test.
type rig struct {
	t        testing.TB
	dir      string
	servers  map[string]server
	settings settings

	mu     sync.Mutex // guards daemon
	daemon *daemon

	killed bool // the daemon was, and so left files
}

// newRig makes a place whose path is short enough for a socket in it.
func newRig(t testing.TB) *rig {
	t.Helper()
	dir, err := os.MkdirTemp("", "il-")
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, dir: dir, servers: map[string]server{}}
	t.Cleanup(func() {
		r.nothingLeft()
		if t.Failed() {
			t.Logf("what the test leaves to look at is in %s", dir)
			return
		}
		os.RemoveAll(dir)
	})
	return r
}

// in gives the rig, with its daemon running, to a test below the rig's own.
func (r *rig) in(t *testing.T) *rig {
	r.start()
	return &rig{t: t, dir: r.dir, servers: r.servers, daemon: r.daemon}
}

// fake gives the server that misbehaves, with its log in the rig's directory.
func (r *rig) fake(flags ...string) server {
	return server{Command: programs.fakeserver, Args: append([]string{"-log", r.fakeLog()}, flags...)}
}

func (r *rig) fakeLog() string { return filepath.Join(r.dir, "fake.log") }

// environ is what clients and the daemon run with: the test's own environment
// without traces of another interlock, and the extra variables.
func (r *rig) environ(extra ...string) []string {
	extra = append([]string{"INTEGRATION_DIR=" + r.dir, "GORACE=atexit_sleep_ms=0 log_path=" + filepath.Join(r.dir, "race")}, extra...)
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return strings.HasPrefix(name, "INTERLOCK_") || slices.ContainsFunc(extra, func(v string) bool { return strings.HasPrefix(v, name+"=") })
	})
	return append(env, extra...)
}

// config writes the configuration and gives its path.
func (r *rig) config() string {
	r.t.Helper()
	entries := map[string]server{}
	for name, s := range r.servers {
		s.Env = mergeEnv(s.Env, "INTEGRATION_DIR", r.dir)
		entries[name] = s
	}
	text, err := json.MarshalIndent(struct {
		Servers map[string]server `json:"mcpServers"`
		settings
	}{entries, r.settings}, "", "  ")
	if err != nil {
		r.t.Fatal(err)
	}
	path := filepath.Join(r.dir, "config.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		r.t.Fatal(err)
	}
	return path
}

func mergeEnv(env map[string]string, name, value string) map[string]string {
	merged := map[string]string{name: value}
	for k, v := range env {
		merged[k] = v
	}
	return merged
}

// home is the daemon's own directory, below the rig's.
func (r *rig) home() string { return filepath.Join(r.dir, "d") }

// command is interlock with these arguments, in the rig's place.
func (r *rig) command(args ...string) *exec.Cmd {
	cmd := exec.Command(programs.interlock, append(args, "--dir", r.home())...)
	cmd.Env = r.environ()
	cmd.Dir = r.dir
	return cmd
}

// daemon is a daemon in the foreground.
type daemon struct {
	cmd    *exec.Cmd
	output bytes.Buffer
	exited chan struct{} // closed when the process is gone
}

func (d *daemon) pid() int { return d.cmd.Process.Pid }

// start starts the rig's daemon and waits until it takes connections. It does
// nothing when the daemon runs.
func (r *rig) start() *daemon {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.daemon != nil {
		return r.daemon
	}
	d := &daemon{cmd: r.command("daemon", "serve", "--config", r.config()), exited: make(chan struct{})}
	d.cmd.Stdout, d.cmd.Stderr = &d.output, &d.output
	d.cmd.WaitDelay = 5 * time.Second
	if err := d.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	go func() {
		defer close(d.exited)
		d.cmd.Wait()
	}()
	eventually(r.t, "the daemon takes connections", func() error {
		select {
		case <-d.exited:
			r.t.Fatalf("the daemon ended at once: %v\n%s", d.cmd.ProcessState, d.output.String())
		default:
		}
		c, err := net.Dial("unix", r.socketPath())
		if err == nil {
			c.Close()
		}
		return err
	})
	r.daemon = d
	return d
}

func (r *rig) socketPath() string { return filepath.Join(r.home(), "interlock.sock") }

// stop stops the daemon as a user does, and waits for its end.
func (r *rig) stop() {
	r.t.Helper()
	out, err := r.command("daemon", "stop").CombinedOutput()
	if err != nil {
		r.t.Errorf("daemon stop: %v\n%s", err, out)
	}
	r.gone()
}

// kill ends the daemon as the kernel does when memory is short.
func (r *rig) kill() {
	r.t.Helper()
	r.killed = true
	r.daemon.cmd.Process.Kill()
	r.gone()
}

// gone waits for the end of the daemon's process and forgets it.
func (r *rig) gone() {
	r.t.Helper()
	r.mu.Lock()
	d := r.daemon
	r.daemon = nil
	r.mu.Unlock()
	if d == nil {
		return
	}
	select {
	case <-d.exited:
	case <-time.After(patience):
		d.cmd.Process.Signal(syscall.SIGABRT) // for the goroutines
		<-d.exited
		r.t.Errorf("the daemon did not end")
	}
	if r.t.Failed() {
		r.t.Logf("the daemon said:\n%s", tail(d.output.String()))
	}
}

// nothingLeft stops what runs, and fails the test if anything outlives that.
func (r *rig) nothingLeft() {
	if _, err := os.Stat(r.home()); err == nil {
		r.stop() // also what a bridge started
		for _, name := range []string{"interlock.sock", "daemon.json"} {
			if _, err := os.Lstat(filepath.Join(r.home(), name)); err == nil && !r.killed {
				r.t.Errorf("a clean stop left %s", name)
			}
		}
	}
	err := within(patience, func() error {
		if left := processesOf(r.dir); len(left) > 0 {
			return fmt.Errorf("still there: %v", left)
		}
		return nil
	})
	if err != nil {
		r.t.Errorf("the test left processes: %v", err)
		for _, p := range processesOf(r.dir) {
			syscall.Kill(p.pid, syscall.SIGKILL)
		}
	}
	races, _ := filepath.Glob(filepath.Join(r.dir, "race.*"))
	for _, name := range races {
		report, _ := os.ReadFile(name)
		r.t.Errorf("data race:\n%s", tail(string(report)))
	}
}

// eventually waits until try succeeds, and fails the test if it never does.
func eventually(t testing.TB, what string, try func() error) {
	t.Helper()
	if err := within(patience, try); err != nil {
		t.Fatalf("waited in vain until %s: %v", what, err)
	}
}

// within tries again and again for so long, and gives the last error.
func within(limit time.Duration, try func() error) error {
	deadline := time.After(limit)
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-again.C:
		case <-deadline:
			return err
		}
	}
}

// alive gives an error when there is a process of that id.
func alive(pid string) error {
	n, err := strconv.Atoi(pid)
	if err != nil {
		return err
	}
	if err := syscall.Kill(n, 0); !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("process %d is there: %v", n, err)
	}
	return nil
}

// tail is the end of a long text.
func tail(s string) string {
	const most = 8 << 10
	if len(s) > most {
		return "…" + s[len(s)-most:]
	}
	return s
}
