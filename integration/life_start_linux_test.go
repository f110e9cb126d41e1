package integration

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// barrier holds commands back until all of them are let go at once.
type barrier struct{ hold, gate *os.File }

func newBarrier(t *testing.T) *barrier {
	t.Helper()
	hold, gate, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { hold.Close(); gate.Close() })
	return &barrier{hold, gate}
}

// behind is the command, which begins when the barrier opens.
func (b *barrier) behind(cmd *exec.Cmd) *exec.Cmd {
	held := through(cmd, "sh", "-c", `read x <&3; exec 3<&-; exec "$0" "$@"`)
	held.ExtraFiles = []*os.File{b.hold}
	return held
}

func (b *barrier) open() { b.gate.Close() }

// storm starts n bridges, each with a handshake and a list to ask for, at the
// moment at which the function calls open, and gives how long each took to its
// answer.
func (r *rig) storm(t *testing.T, config string, n int, begin func(open func())) (took []time.Duration, clients []*client) {
	t.Helper()
	b := newBarrier(t)
	for range n {
		c := r.run(b.behind(r.command("connect", "fake", "--config", config)))
		c.send(`{"jsonrpc":"2.0","id":"init","method":"initialize","params":%s}`, initializeParams)
		c.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		c.send(`{"jsonrpc":"2.0","id":"list","method":"tools/list"}`)
		clients = append(clients, c)
	}
	var began time.Time
	begin(func() { began = time.Now(); b.open() })
	failed := make(chan error, n)
	took = make([]time.Duration, n)
	for i, c := range clients {
		go func() {
			m, err := c.next(patience, isAnswer(`"list"`))
			took[i] = time.Since(began)
			if err == nil && m.Result == nil {
				err = fmt.Errorf("%s", m.raw)
			}
			if err != nil {
				err = fmt.Errorf("client %d: %w; it got%s\n%s", i, err, c.leftover(), c.stderr())
			}
			failed <- err
		}()
	}
	for range n {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
	return took, clients
}

// oneDaemon makes sure that one daemon serves that many sessions, and no other
// is there.
func (r *rig) oneDaemon(t *testing.T, sessions int) {
	t.Helper()
	if err := within(time.Second, func() error {
		if all := r.daemons(); len(all) != 1 {
			return fmt.Errorf("there are %d: %v", len(all), all)
		}
		return nil
	}); err != nil {
		t.Errorf("daemons: %v", err)
	}
	if s, err := r.snapshot(); err != nil || s.ClientSessions != sessions {
		t.Errorf("the daemon has %d of %d sessions: %v", s.ClientSessions, sessions, err)
	}
	if !lockHeld(t, r.home()) {
		t.Error("nobody holds the lock")
	}
}

// leave ends clients as they end themselves.
func leave(t *testing.T, clients []*client) {
	t.Helper()
	for _, c := range clients {
		c.closeInput()
	}
	for _, c := range clients {
		if code := c.exitCode(); code != 0 {
			t.Errorf("a bridge ended with %d: %s", code, c.stderr())
		}
	}
}

// TestLifeStorm starts many bridges at once where there is no daemon, or one that
// is just ending: all are served, by one daemon. Full, with -parallel 1 so that the
// storms do not add up: 64 bridges, 20 rounds of each kind.
func TestLifeStorm(t *testing.T) {
	crashed := func(r *rig) { r.start(); r.kill() }
	nothing := func() {}
	for name, prepare := range map[string]func(t *testing.T, r *rig) (after func()){
		"no directory": func(t *testing.T, r *rig) func() { os.RemoveAll(r.home()); return nothing },
		"stale socket": func(t *testing.T, r *rig) func() { crashed(r); return nothing },
		"no lock": func(t *testing.T, r *rig) func() {
			crashed(r)
			if err := os.Remove(filepath.Join(r.home(), "daemon.lock")); err != nil {
				t.Fatal(err)
			}
			return nothing
		},
		"killed now": func(t *testing.T, r *rig) func() { r.start(); return r.kill },
		"draining": func(t *testing.T, r *rig) func() {
			old := r.start()
			c := r.open(socket, "fake").ready()
			c.sendCall("1", "sleep", `{"ms":1000,"key":"drain"}`)
			r.logged(1, "sleep", "drain")
			os.Remove(r.fakeLog())
			return func() {
				if _, err := control(r.socketPath(), "interlock/stop"); err != nil {
					t.Error(err)
				}
				if m := c.answer("1"); m.Result == nil {
					t.Errorf("the call under way got %s", m.raw)
				}
				select {
				case <-old.exited:
				case <-time.After(patience):
					t.Error("the old daemon did not end")
				}
				r.daemon = nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := life(t)
			r.servers["fake"] = r.fake()
			config := r.config()
			n := repeats(12, 64)
			var all []time.Duration
			for range repeats(1, 20) {
				after := prepare(t, r)
				took, clients := r.storm(t, config, n, func(open func()) { open(); after() })
				r.oneDaemon(t, n)
				leave(t, clients)
				r.stop()
				all = append(all, took...)
			}
			if p99 := figures(t, "served", all); full() && p99 > 5*time.Second {
				t.Errorf("p99 is %v", p99)
			}
		})
	}
}

// TestLifeIdleExit starts bridges around the moment at which a daemon ends for
// want of them: all are served, and by one daemon. Full: 10,000 bridges.
func TestLifeIdleExit(t *testing.T) {
	const lanes, n = 2, 8
	for lane := range lanes {
		t.Run(fmt.Sprint(lane), func(t *testing.T) {
			r := life(t)
			r.servers["fake"] = r.fake()
			config := r.config()
			var all []time.Duration
			inTime := 0
			// How long after the last connection's end the bridges begin. It draws
			// near to where it matters whichever is first.
			var lead time.Duration
			for range repeats(96, 10_000) / lanes / n {
				old := r.launch(r.serve(config, "--idle-exit", "200ms"))
				last, err := dialRaw(r.socketPath())
				if err != nil {
					t.Fatal(err)
				}
				took, clients := r.storm(t, config, n, func(open func()) {
					first, second := open, func() { last.Close() }
					if lead > 0 {
						first, second = second, first
					}
					first()
					<-time.After(lead.Abs())
					second()
				})
				r.oneDaemon(t, n)
				step := 20*time.Millisecond + rand.N(20*time.Millisecond)
				select {
				case <-old.exited:
					lead -= step
				default:
					lead += step
					inTime++
				}
				leave(t, clients)
				r.stop()
				all = append(all, took...)
			}
			figures(t, "served", all)
			t.Logf("%d of %d daemons were found in time", inTime, len(all)/n)
		})
	}
}

// TestLifePathLength starts daemons in directories of every length, and with
// names that are hard to carry: they work, or fail before anything is made and
// say how long the path is and may be. Full: every length to 400.
func TestLifePathLength(t *testing.T) {
	r := life(t)
	const limit = 107 - len("/interlock.sock")
	lengths := []int{limit - 1, limit, limit + 1, 400}
	if full() {
		lengths = nil
		for n := len(r.dir) + 2; n <= 400; n++ {
			lengths = append(lengths, n)
		}
	}
	run := func(dir, cwd string, args ...string) (string, int) {
		cmd := exec.Command(programs.interlock, append(args, "--dir", dir)...)
		cmd.Env, cmd.Dir = r.environ(), cwd
		return output(t, cmd)
	}
	works := func(dir, cwd string) {
		t.Helper()
		if out, code := run(dir, cwd, "daemon", "start"); code != 0 {
			t.Errorf("%d bytes, %q: %d %s", len(dir), dir, code, out)
			return
		}
		if out, code := run(dir, cwd, "daemon", "stop"); code != 0 || !strings.Contains(out, "stopped") {
			t.Errorf("%d bytes, %q: stop: %d %s", len(dir), dir, code, out)
		}
	}
	for _, n := range lengths {
		dir := pathOf(r.dir, n)
		if n <= limit {
			works(dir, r.dir)
			continue
		}
		out, code := run(dir, r.dir, "daemon", "start")
		if code == 0 || !strings.Contains(out, fmt.Sprint(n+len("/interlock.sock"))) || !strings.Contains(out, "107") {
			t.Errorf("%d bytes: %d %s", n, code, out)
		}
		if first, _, _ := strings.Cut(strings.TrimPrefix(dir, r.dir+"/"), "/"); exists(filepath.Join(r.dir, first)) {
			t.Errorf("%d bytes: something was made", n)
		}
	}
	real := filepath.Join(r.dir, "real")
	if err := os.Mkdir(real, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(real, filepath.Join(r.dir, "home")); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{
		filepath.Join(r.dir, "with space"), filepath.Join(r.dir, "дом 漢字🦀"), r.dir + "/slash///", filepath.Join(r.dir, "home", "d"), "relative", filepath.Join(r.dir, "q\"'$`\\"),
	} {
		works(dir, r.dir)
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// pathOf is a path below base that is n bytes long.
func pathOf(base string, n int) string {
	path := base
	for len(path) < n {
		part := min(n-len(path)-1, 200)
		if n-len(path)-1-part == 1 {
			part-- // a slash alone would not count
		}
		path += "/" + strings.Repeat("p", part)
	}
	return path
}

// TestLifeFrozen lets the daemon stand still: each new bridge answers its
// client's first request with an error that names the daemon, in five seconds,
// starts no other, and when the daemon goes on so do its sessions. Full: 50
// bridges and 50 sessions.
func TestLifeFrozen(t *testing.T) {
	r := life(t)
	r.servers["fake"] = r.fake()
	daemon := r.start()
	config := r.config()
	n := repeats(5, 50)
	var old []*client
	for range n {
		old = append(old, r.open(bridge, "fake").ready())
	}
	if err := syscall.Kill(daemon.pid(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for _, c := range old {
		c.sendCall("1", "echo", `{}`)
	}
	var took []time.Duration
	var fresh []*client
	b := newBarrier(t)
	for range n {
		c := r.run(b.behind(r.command("connect", "fake", "--config", config)))
		c.send(`{"jsonrpc":"2.0","id":"init","method":"initialize","params":%s}`, initializeParams)
		fresh = append(fresh, c)
	}
	began := time.Now()
	b.open()
	for _, c := range fresh {
		m := c.answer(`"init"`)
		took = append(took, time.Since(began))
		if m.Error == nil || !strings.Contains(m.Error.Message, fmt.Sprint(daemon.pid())) {
			t.Errorf("a new client got %s", m.raw)
		}
	}
	if worst := figures(t, "told", took); worst > 10*time.Second || full() && worst > 7*time.Second {
		t.Errorf("it took %v", worst)
	}
	// Nor does starting one by hand hang, or find the place free.
	if out, code := output(t, r.command("daemon", "start")); code == 0 || !strings.Contains(out, fmt.Sprint(daemon.pid())) {
		t.Errorf("daemon start: %d %s", code, out)
	}
	if all := r.daemons(); len(all) != 1 {
		t.Errorf("there are %v", all)
	}
	if err := syscall.Kill(daemon.pid(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for _, c := range old {
		if m := c.answer("1"); m.Result == nil {
			t.Errorf("a call of before got %s", m.raw)
		}
		c.settle()
	}
	r.open(bridge, "fake").ready().settle()
}
