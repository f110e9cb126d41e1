package integration

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const ordinary, nobody = 1000, 65534

// asUser calls the function on a thread that is another user's, as the kernel
// tells it to whoever is connected to. The thread ends with it.
func asUser(uid int, do func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread is of no more use
		for _, set := range []uintptr{syscall.SYS_SETRESGID, syscall.SYS_SETRESUID} {
			if _, _, errno := syscall.RawSyscall(set, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
				panic(errno)
			}
		}
		do()
	}()
	<-done
}

// ordinaryRig is a rig whose daemon and clients run as an ordinary user.
func ordinaryRig(t *testing.T) (r *rig, as func(cmd *exec.Cmd) *exec.Cmd) {
	needRoot(t)
	r = life(t)
	for _, dir := range []string{filepath.Dir(programs.interlock), r.dir} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(r.dir, ordinary, ordinary); err != nil {
		t.Fatal(err)
	}
	r.killed = true // the rig's own commands are root's, and refused
	return r, func(cmd *exec.Cmd) *exec.Cmd {
		cmd = through(cmd, "setpriv", fmt.Sprint("--reuid=", ordinary), fmt.Sprint("--regid=", ordinary), "--clear-groups")
		cmd.Env = append(cmd.Env, "HOME="+r.dir)
		return cmd
	}
}

// ends sends SIGTERM to the rig's daemon and waits for its end.
func (r *rig) terminate() {
	r.t.Helper()
	r.daemon.cmd.Process.Signal(syscall.SIGTERM)
	r.gone()
}

// TestLifeOtherUser has other users connect all the time to an ordinary user's
// daemon that starts again and again under any umask: none gets a connection.
// Then directory and socket are opened to all: each is closed before a byte is
// read or sent, and the daemon neither keeps anything of them nor fills its log.
// Full: 50 starts under each umask, 1,000 connections of each user.
func TestLifeOtherUser(t *testing.T) {
	r, as := ordinaryRig(t)
	r.servers["fake"] = server{Command: programs.fakeserver}
	config := r.config()
	if err := os.Chmod(config, 0o644); err != nil {
		t.Fatal(err)
	}
	serve := func(umask string) {
		r.launch(as(through(r.serve(config), "sh", "-c", "umask "+umask+`; exec "$0" "$@"`)))
	}
	var stop atomic.Bool
	var connected, tried atomic.Int64
	attack := make(chan struct{})
	go func() {
		defer close(attack)
		asUser(nobody, func() {
			for !stop.Load() {
				if fd, err := connectTo(r.socketPath()); err == nil {
					connected.Add(1)
					unix.Close(fd)
				}
				tried.Add(1)
			}
		})
	}()
	starts := repeats(2, 50)
	for _, umask := range []string{"000", "002", "022"} {
		for range starts {
			serve(umask)
			for path, want := range map[string]os.FileMode{
				r.home(): os.ModeDir | 0o700, r.socketPath(): os.ModeSocket | 0o600,
				filepath.Join(r.home(), "daemon.lock"): 0o600, filepath.Join(r.home(), "daemon.json"): 0o600, filepath.Join(r.home(), "daemon.log"): 0o600,
			} {
				if info, err := os.Lstat(path); err != nil || info.Mode() != want {
					t.Errorf("under umask %s %s is %v, want %v; %v", umask, path, info.Mode(), want, err)
				}
			}
			r.terminate()
		}
	}
	stop.Store(true)
	<-attack
	t.Logf("%d starts, %d attempts, %d connections", 3*starts, tried.Load(), connected.Load())
	if connected.Load() > 0 {
		t.Errorf("another user connected %d times", connected.Load())
	}

	serve("022")
	c := r.run(as(r.command("connect", "fake")))
	c.ready().settle()
	for path, mode := range map[string]os.FileMode{r.home(): 0o755, r.socketPath(): 0o666} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	files := openFiles(t, r.daemon.pid())
	n := repeats(100, 1000)
	for _, uid := range []int{nobody, 0} {
		var problem error
		asUser(uid, func() { problem = refusedAll(r.socketPath(), n) })
		if problem != nil {
			t.Errorf("uid %d: %v", uid, problem)
		}
	}
	c.settle()
	eventually(t, "the daemon keeps nothing of them", func() error {
		if now := openFiles(t, r.daemon.pid()); now > files {
			return fmt.Errorf("%d descriptors, %d before", now, files)
		}
		return nil
	})
	log, err := os.ReadFile(filepath.Join(r.home(), "daemon.log"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Count(string(log), "peer refused")
	t.Logf("%d log lines about %d strangers", lines, 2*n)
	if lines == 0 || lines > n {
		t.Errorf("%d log lines", lines)
	}
	c.close()
	r.terminate()
	os.RemoveAll(r.home()) // the rig would meet what is not its own
}

// connectTo is connect(2) on the calling thread.
func connectTo(path string) (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// refusedAll connects n times, and fails if anything but the end comes back.
func refusedAll(path string, n int) error {
	for range n {
		fd, err := connectTo(path)
		if err != nil {
			return err
		}
		unix.Write(fd, []byte(`{"jsonrpc":"2.0","id":1,"method":"interlock/status"}`+"\n"))
		got, err := unix.Read(fd, make([]byte, 100))
		unix.Close(fd)
		if got > 0 || err != nil && err != unix.ECONNRESET {
			return fmt.Errorf("it got %d bytes, %v", got, err)
		}
	}
	return nil
}

// TestLifeSocketStays tries to start daemons over one that cannot be reached: it
// stands still with a full backlog, the starter may open next to no files, or is
// another user. The socket stays, no other daemon comes, and afterwards all works.
// Full: 50 starts of each kind.
func TestLifeSocketStays(t *testing.T) {
	r := life(t)
	r.servers["fake"] = r.fake()
	daemon := r.start()
	config := r.config()
	old := r.open(socket, "fake").ready()
	inode := inodeOf(t, r.socketPath())
	if err := syscall.Kill(daemon.pid(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	backlog := fillBacklog(t, r.socketPath())
	t.Logf("the backlog took %d connections", len(backlog))
	tries := map[string]*exec.Cmd{
		"start":           r.command("daemon", "start"),
		"serve":           r.serve(config),
		"bridge":          r.command("connect", "fake", "--config", config),
		"no descriptors":  through(r.command("daemon", "start"), "prlimit", "--nofile=6:6"),
		"few descriptors": through(r.serve(config), "prlimit", "--nofile=12:12"),
	}
	if os.Geteuid() == 0 {
		tries["another user"] = through(r.command("daemon", "start"), "setpriv", fmt.Sprint("--reuid=", nobody), "--clear-groups")
	}
	for range repeats(1, 50) {
		running := map[string]*exec.Cmd{}
		for name, cmd := range tries {
			again := exec.Command(cmd.Path, cmd.Args[1:]...)
			again.Env, again.Dir = cmd.Env, cmd.Dir
			if err := again.Start(); err != nil {
				t.Fatal(err)
			}
			running[name] = again
		}
		for name, cmd := range running {
			hung := time.AfterFunc(patience, func() { cmd.Process.Kill() })
			if cmd.Wait() == nil {
				t.Errorf("%s: it succeeded", name)
			}
			if !hung.Stop() {
				t.Errorf("%s: it hung", name)
			}
		}
		if now := inodeOf(t, r.socketPath()); now != inode {
			t.Fatalf("the socket's inode was %d and is %d", inode, now)
		}
	}
	if all := r.daemons(); len(all) != 1 {
		t.Errorf("there are %v", all)
	}
	for _, fd := range backlog {
		unix.Close(fd)
	}
	if err := syscall.Kill(daemon.pid(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	old.settle()
	r.open(bridge, "fake").ready().settle()
}

// fillBacklog connects until nobody can any more.
func fillBacklog(t *testing.T, path string) (fds []int) {
	t.Helper()
	for {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		err = unix.Connect(fd, &unix.SockaddrUnix{Name: path})
		if err == unix.EAGAIN {
			unix.Close(fd)
			return fds
		}
		if err != nil {
			t.Fatal(err)
		}
		fds = append(fds, fd)
	}
}

// TestLifeHostileFiles plants what does not belong there at each of the daemon's
// paths. It refuses or serves, and never hangs; what a link leads to stays as it
// was. Full: every kind at every path.
func TestLifeHostileFiles(t *testing.T) {
	kinds := map[string]func(path, victim string) error{
		"symbolic link":  func(path, victim string) error { return os.Symlink(victim, path) },
		"hard link":      func(path, victim string) error { return os.Link(victim, path) },
		"fifo":           func(path, _ string) error { return unix.Mkfifo(path, 0o600) },
		"directory":      func(path, _ string) error { return os.Mkdir(path, 0o700) },
		"writable":       func(path, _ string) error { return plant(path, 0o666, 0) },
		"another user's": func(path, _ string) error { return plant(path, 0o600, nobody) },
	}
	// Where the daemon must refuse, and where it may do without.
	refuses := map[string]bool{
		"daemon.lock": true, "interlock.sock": true, "daemon.json": false, "daemon.journal": false,
		"daemon.recovery.json": false, "daemon.log": false, "servers": false, "daemon.stopped": false,
	}
	for path, must := range refuses {
		for kind, make := range kinds {
			if !full() && kind != "symbolic link" && kind != "fifo" {
				continue
			}
			t.Run(path+" is a "+kind, func(t *testing.T) {
				if kind == "another user's" {
					needRoot(t)
				}
				r := life(t)
				r.killed = true
				if err := os.Mkdir(r.home(), 0o700); err != nil {
					t.Fatal(err)
				}
				victim := filepath.Join(r.dir, "victim")
				if err := os.WriteFile(victim, []byte("precious"), 0o640); err != nil {
					t.Fatal(err)
				}
				if err := make(filepath.Join(r.home(), path), victim); err != nil {
					t.Fatal(err)
				}
				served, said := r.servesOrEnds()
				if served && must {
					t.Error("it serves")
				}
				if !served && !strings.Contains(said, path) {
					t.Errorf("it refuses with %q", said)
				}
				content, err := os.ReadFile(victim)
				info, statErr := os.Stat(victim)
				if err := errors.Join(err, statErr); err != nil || sha256.Sum256(content) != sha256.Sum256([]byte("precious")) || info.Mode() != 0o640 {
					t.Errorf("the victim is %q, %v: %v", content, info.Mode(), err)
				}
				os.RemoveAll(r.home()) // the rig would meet it too
			})
		}
	}
}

func plant(path string, mode os.FileMode, uid int) error {
	if err := os.WriteFile(path, []byte("{}\n"), mode); err != nil {
		return err
	}
	return errors.Join(os.Chmod(path, mode), os.Chown(path, uid, uid))
}

// servesOrEnds starts a daemon and waits until it does one or the other. One that
// serves is ended.
func (r *rig) servesOrEnds() (served bool, said string) {
	r.t.Helper()
	cmd := r.serve(r.config())
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() { cmd.Wait(); close(exited) }()
	err := within(patience, func() error {
		select {
		case <-exited:
			return nil
		default:
		}
		_, err := control(r.socketPath(), "interlock/status")
		served = err == nil
		return err
	})
	if err != nil {
		r.t.Errorf("it neither serves nor ends: %v", err)
		cmd.Process.Kill()
	}
	cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-exited:
	case <-time.After(patience):
		r.t.Error("it did not end")
		cmd.Process.Kill()
		<-exited
	}
	return served, out.String()
}

// TestLifeNamespaces starts daemons and clients where users, pids or host names
// are others: what cannot be told apart is refused, in words, and nobody is
// signalled by a number that means another process there.
func TestLifeNamespaces(t *testing.T) {
	needRoot(t)
	r := life(t)
	r.servers["fake"] = r.fake()
	config := r.config()
	refused := func(what string, cmd *exec.Cmd, code int, words ...string) {
		t.Helper()
		out, got := output(t, cmd)
		if got == 0 || code != 0 && got != code {
			t.Errorf("%s: exit code %d: %s", what, got, out)
		}
		for _, word := range words {
			if !strings.Contains(out, word) {
				t.Errorf("%s: it does not say %q: %s", what, word, out)
			}
		}
	}
	refused("an unmapped user", through(r.serve(config), "unshare", "--user"), 0, "uid")
	if exists(r.home()) {
		t.Error("it made something")
	}

	r.start()
	c := r.open(socket, "fake").ready()
	elsewhere := []string{"unshare", "--pid", "--fork", "--mount-proc"}
	refused("a second daemon in another pid namespace", through(r.serve(config), elsewhere...), 0, "running")
	refused("a second daemon on another host", through(r.serve(config), "unshare", "--uts", "sh", "-c", `hostname elsewhere && exec "$0" "$@"`), 0, "host")
	c.settle()
	refused("an unmapped client", through(r.command("connect", "fake"), "unshare", "--user"), 0, "uid")
	c.settle()
	r.stop()

	// The daemon is inside, and everybody else outside.
	r.killed = true
	inside := r.launch(through(r.serve(config), append(elsewhere, "--kill-child")...))
	conn, err := net.Dial("unix", r.socketPath())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	said, _ := io.ReadAll(conn)
	if !strings.Contains(string(said), "pid namespace") {
		t.Errorf("a client outside was told %q", said)
	}
	refused("a stop from outside", r.command("daemon", "stop"), 4)
	select {
	case <-inside.exited:
		t.Error("it was ended from outside")
	default:
	}
	inside.cmd.Process.Kill()
	r.gone()
}
