package integration

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"interlock/status"
)

// TestLifeDrain ends the daemon with SIGTERM under calls that end within the time
// that they get, and calls that do not end: the first are all answered, the others
// end with their connection and are on record, the status says what is going on,
// and nothing is left. Full: 32 sessions with two calls, of up to 4 s, 50 times.
func TestLifeDrain(t *testing.T) {
	r := life(t)
	r.killed = true
	r.servers["fake"] = r.fake()
	limit := time.Duration(repeats(2, 5)) * time.Second
	config := r.configuration(map[string]any{"drainTimeout": limit.String()},
		map[string]map[string]any{"fake": {"tools": map[string]any{"sleep": map[string]any{"class": "mutate"}, "hold": map[string]any{"class": "mutate"}}}})
	sessions := repeats(8, 32)
	var took []time.Duration
	for round := range repeats(1, 50) {
		daemon := r.launch(r.serve(config))
		var clients []*client
		for i := range sessions {
			c := r.open(socket, "fake").ready()
			c.sendCall("1", "sleep", fmt.Sprintf(`{"ms":%d,"key":"%d"}`, (limit*8/10).Milliseconds()*int64(i)/int64(sessions), round))
			c.sendCall("2", "hold", fmt.Sprintf(`{"key":"%d-%d"}`, round, i))
			clients = append(clients, c)
		}
		r.logged(sessions, "sleep", fmt.Sprint(round))
		r.logged(sessions, "hold", fmt.Sprintf("%d-", round))
		all := pin(t, r.population(sessions))
		began := time.Now()
		daemon.cmd.Process.Signal(syscall.SIGTERM)
		eventually(t, "the status says draining", func() error {
			s, err := status.Read(filepath.Join(r.home(), "daemon.json"))
			if err == nil && s.State != status.StateDraining {
				err = fmt.Errorf("it says %s", s.State)
			}
			return err
		})
		for i, c := range clients {
			if m, err := c.next(patience, isAnswer("1")); err != nil || !strings.Contains(m.raw, "slept") {
				t.Errorf("call %d got %v, %v", i, m, err)
			}
		}
		select {
		case <-daemon.exited:
		case <-time.After(patience):
			t.Fatal("it did not end")
		}
		took = append(took, time.Since(began))
		if left := all.left(0); len(left) > 0 {
			t.Errorf("it left %v", left)
		}
		r.gone()
		var ids []string
		for _, run := range r.pending() {
			ids = append(ids, run.RequestID)
		}
		if len(ids) != sessions {
			t.Errorf("%d calls were cut off, and on record are %v", sessions, ids)
		}
		if out, code := output(t, r.command(append([]string{"daemon", "recovery", "ack"}, ids...)...)); code != 0 {
			t.Errorf("acknowledging: %d %s", code, out)
		}
		all.release()
		os.Remove(r.fakeLog())
	}
	if p99 := figures(t, "ended", took); p99 > limit+time.Duration(repeats(5, 1))*time.Second {
		t.Errorf("p99 is %v", p99)
	}
}

// TestLifeFewDescriptors lets 500 clients come to a daemon that may open 96
// files: it does not spin, control requests and its status file still work, and
// when the clients have gone it serves as before.
func TestLifeFewDescriptors(t *testing.T) {
	r := life(t)
	r.servers["fake"] = r.fake()
	config := r.config()
	daemon := r.launch(through(r.serve(config), "prlimit", "--nofile=96:96"))
	honest := r.open(socket, "fake").ready()
	var crowd []net.Conn
	defer func() {
		for _, c := range crowd {
			c.Close()
		}
	}()
	for i := range 500 {
		c, err := net.Dial("unix", r.socketPath())
		if err != nil {
			t.Fatal(err)
		}
		crowd = append(crowd, c)
		if i%2 == 0 {
			fmt.Fprintf(c, `{"jsonrpc":"2.0","id":0,"method":"interlock/hello","params":{"protocol":1,"servers":["fake"]}}`+"\n")
			fmt.Fprintf(c, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":%s}`+"\n", initializeParams)
		}
	}
	honest.settle()
	for range 3 {
		if out, code := output(t, r.command("daemon", "status", "--json")); code != 0 {
			t.Errorf("daemon status: %d %s", code, out)
		}
	}
	eventually(t, "the status file tells of the sessions", func() error {
		s, err := status.Read(filepath.Join(r.home(), "daemon.json"))
		if err == nil && s.ClientSessions == 0 {
			err = fmt.Errorf("it tells of none")
		}
		return err
	})
	// Measured once everybody has been told.
	before, began := processorTime(t, daemon.pid()), time.Now()
	<-time.After(time.Duration(repeats(1, 5)) * time.Second)
	busy := float64(processorTime(t, daemon.pid())-before) / float64(time.Since(began))
	t.Logf("%.0f%% of a processor, %d descriptors", 100*busy, openFiles(t, daemon.pid()))
	if busy > 0.2 {
		t.Errorf("%.0f%% of a processor", 100*busy)
	}
	for _, c := range crowd {
		c.Close()
	}
	honest.close()
	r.deserted()
	r.open(socket, "fake").ready().settle()
}

// processorTime is what the process has used of the processors.
func processorTime(t testing.TB, pid int) (used time.Duration) {
	t.Helper()
	fields := statFields(fmt.Sprint("/proc/", pid))
	for _, i := range []int{14 - 3, 15 - 3} {
		ticks, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		used += time.Duration(ticks) * time.Second / 100
	}
	return used
}

// TestLifeHalfOpen connects a crowd that says nothing, half of a hello, or a byte
// now and then: honest clients get through at once meanwhile, and the crowd is
// closed after the five seconds that it is given. Full: 1,000 connections, 16
// honest clients.
func TestLifeHalfOpen(t *testing.T) {
	r := life(t)
	r.servers["fake"] = r.fake()
	r.start()
	began := time.Now()
	n := repeats(300, 1000)
	ended := make(chan time.Duration, n)
	stop := make(chan struct{})
	defer close(stop)
	for i := range n {
		c, err := net.Dial("unix", r.socketPath())
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			defer c.Close()
			if i%3 == 1 {
				fmt.Fprint(c, `{"jsonrpc":"2.0","id":0,"method":"interlock/hel`)
			}
			if i%3 == 2 {
				go drip(c, stop)
			}
			c.SetReadDeadline(time.Now().Add(4 * patience))
			c.Read(make([]byte, 1))
			ended <- time.Since(began)
		}()
	}
	var honest []time.Duration
	for range repeats(4, 16) {
		from := time.Now()
		c, err := dialRaw(r.socketPath())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.ask("interlock/hello", hello{Protocol: 1, Servers: []string{"fake"}}); err != nil {
			t.Error(err)
		}
		honest = append(honest, time.Since(from))
		c.Close()
	}
	if p99 := figures(t, "honest clients greeted", honest); p99 > time.Second || full() && p99 > 100*time.Millisecond {
		t.Errorf("p99 is %v", p99)
	}
	// Those that came before it was crowded have a minute, unless others press.
	var worst time.Duration
	for range n - 128 {
		worst = <-ended
	}
	t.Logf("%d of the crowd were closed within %v", n-128, worst.Round(time.Millisecond))
	if worst > 8*time.Second {
		t.Errorf("the crowd was closed after %v", worst)
	}
}

// drip sends a byte of a message now and then.
func drip(c net.Conn, stop <-chan struct{}) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for _, b := range []byte(`{"jsonrpc":"2.0","id":0,"method":"interlock/hello"`) {
		select {
		case <-stop:
			return
		case <-tick.C:
			if _, err := c.Write([]byte{b}); err != nil {
				return
			}
		}
	}
}

// TestLifeServiceManager starts the daemon as a service manager does: the socket
// it passes is taken and never removed, one that is meant for another process is
// let be, READY comes when connections are taken, and the watchdog is told in
// time. Full: 20 times.
func TestLifeServiceManager(t *testing.T) {
	for _, right := range []bool{true, false} {
		t.Run(fmt.Sprintf("meant for it %v", right), func(t *testing.T) {
			r := life(t)
			r.servers["fake"] = r.fake()
			config := r.config()
			for range repeats(1, 20) {
				r.activated(config, right)
			}
		})
	}
}

// activated runs one daemon with a socket of the service manager's.
func (r *rig) activated(config string, right bool) {
	t := r.t
	t.Helper()
	if err := os.MkdirAll(r.home(), 0o700); err != nil {
		t.Fatal(err)
	}
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(r.dir, "notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	defer os.Remove(filepath.Join(r.dir, "notify"))
	path := r.socketPath()
	if !right {
		path = filepath.Join(r.dir, "another.sock")
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false)
	defer os.Remove(path)
	defer listener.Close()
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := listener.File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	inode := inodeOf(t, path)
	pid := map[bool]string{true: "$$", false: "1"}[right]
	cmd := through(r.serve(config), "sh", "-c", `LISTEN_PID=`+pid+` WATCHDOG_PID=$$ exec "$0" "$@"`)
	cmd.Env = append(cmd.Env, "LISTEN_FDS=1", "LISTEN_FDNAMES=interlock.socket", "NOTIFY_SOCKET="+filepath.Join(r.dir, "notify"), "WATCHDOG_USEC=400000")
	cmd.ExtraFiles = []*os.File{file}
	d := r.begin(cmd)
	if said := notification(t, manager); said != "READY=1" {
		t.Errorf("first it said %q", said)
	}
	// Nothing has to be tried again now.
	if _, err := r.snapshot(); err != nil {
		t.Errorf("after READY=1: %v", err)
	}
	for range 3 {
		if said := notification(t, manager); said != "WATCHDOG=1" {
			t.Errorf("then it said %q", said)
		}
	}
	c := r.open(socket, "fake").ready()
	server := r.serverProcesses()
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", server[0].pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if target, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", server[0].pid, fd.Name())); strings.HasPrefix(target, "socket:") {
			t.Errorf("its server has descriptor %s, %s", fd.Name(), target)
		}
	}
	c.close()
	d.cmd.Process.Signal(syscall.SIGTERM)
	stopping := false
	for !stopping {
		said := notification(t, manager)
		stopping = strings.HasPrefix(said, "STOPPING=1")
		if !stopping && said != "WATCHDOG=1" {
			t.Errorf("at its end it said %q", said)
		}
	}
	r.gone()
	if now := inodeOf(t, path); now != inode {
		t.Errorf("the manager's socket had inode %d and has %d", inode, now)
	}
	if !right && exists(r.socketPath()) {
		t.Error("it left its own socket")
	}
}

// notification is the next thing that a daemon tells its service manager.
func notification(t testing.TB, manager *net.UnixConn) string {
	t.Helper()
	manager.SetReadDeadline(time.Now().Add(patience))
	buffer := make([]byte, 4096)
	n, err := manager.Read(buffer)
	if err != nil {
		t.Fatal(err)
	}
	return string(buffer[:n])
}
