package proc

import (
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	helperFD   = 3                 // the helper's end of the socket pair
	helperComm = "interlock-spawn" // what ps shows; the kernel keeps 15 bytes
)

// The kernel sends a child its parent-death signal when the thread that forked it ends. The main thread ends with the process only,
// and a goroutine can be tied to it in init alone.
func init() {
	if IsHelper(os.Args) {
		runtime.LockOSThread()
	}
}

// HelperMain is the whole of a spawn helper process: it serves the daemon at the other end of descriptor 3 until that asks for
// shutdown or is gone, ends every process below it, and returns the exit status of this process: 0, or 2 if it cannot serve.
func HelperMain() int {
	h, err := newSpawnServer()
	if err != nil {
		fmt.Fprintf(os.Stderr, "interlock: the spawn helper cannot run (only the daemon can start it): %v\n", err)
		return 2
	}
	h.serve()
	return 0
}

// spawnServer is the state of a helper process. All of it belongs to the main goroutine, which alone forks, peeks and reaps.
type spawnServer struct {
	conn    *net.UnixConn
	out     chan message // to the goroutine write, which ends when it is closed
	pid     int
	cgroup  string
	cgroupF *os.File // nil if there is no control group
	byID    map[uint64]*leader
	byPID   map[int]*leader
}

// leader is a child of ours that leads its session and group, until it is reaped.
type leader struct {
	id       uint64
	pid      int
	released bool
}

func newSpawnServer() (*spawnServer, error) {
	// Descendants whose parents end become our children instead of init's.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("becoming a subreaper: %w", err)
	}
	conn, err := unixConn(os.NewFile(helperFD, "socket of the daemon"))
	if err != nil {
		return nil, fmt.Errorf("using descriptor %d: %w", helperFD, err)
	}
	h := &spawnServer{
		conn: conn, out: make(chan message, 64), pid: os.Getpid(),
		byID: map[uint64]*leader{}, byPID: map[int]*leader{},
	}
	if err := clearInherited(); err != nil {
		return nil, err
	}
	// Only for whoever reads ps, which would show "exe".
	_ = os.WriteFile("/proc/self/comm", []byte(helperComm), 0)
	return h, nil
}

// clearInherited undoes what children would otherwise inherit from whoever started the daemon: blocked signals, and ignored ones,
// which exec keeps, while those that are caught become default again.
func clearInherited() error {
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &unix.Sigset_t{}, nil); err != nil {
		return fmt.Errorf("unblocking signals: %w", err)
	}
	caught := make(chan os.Signal, 1) // nobody receives: our end is decided by the socket alone
	for s := syscall.Signal(1); s <= 64; s++ {
		switch s {
		case syscall.SIGKILL, syscall.SIGSTOP, syscall.SIGURG, 32, 33: // not to be caught, or the runtimes' own
		default:
			signal.Notify(caught, s)
		}
	}
	return nil
}

// serve runs until shutdown or the daemon's end.
func (h *spawnServer) serve() {
	childEnded := make(chan os.Signal, 1)
	signal.Notify(childEnded, syscall.SIGCHLD)
	requests := make(chan message)
	stop := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() { h.read(requests, stop) })
	running.Go(h.write)

	for serving := true; serving; {
		select {
		case m, ok := <-requests:
			serving = ok && h.handle(m)
		case <-childEnded:
			h.reapLeaders()
			h.reapOrphans()
		}
	}
	close(stop)
	h.endAll()
	close(h.out)
	_ = h.conn.CloseRead() // wakes read; what is still to be written goes out first
	running.Wait()
	_ = h.conn.Close()
}

// read passes the daemon's messages on and closes requests when there are no more.
func (h *spawnServer) read(requests chan<- message, stop <-chan struct{}) {
	defer close(requests)
	r := &wireReader{conn: h.conn, perMsg: 3}
	for {
		m, err := r.next()
		if err != nil {
			closeFDs(r.fds)
			return
		}
		select {
		case requests <- m:
		case <-stop:
			closeFDs(m.fds)
			return
		}
	}
}

// write sends what the main goroutine has to say. When the daemon is gone it only takes.
func (h *spawnServer) write() {
	var failed error
	for m := range h.out {
		if failed == nil {
			failed = writeMessage(h.conn, m)
		}
		closeFDs(m.fds)
	}
}

// handle does one request and says whether to go on.
func (h *spawnServer) handle(m message) bool {
	defer closeFDs(m.fds)
	d := &decoder{rest: m.body}
	switch m.kind {
	case kindHello:
		return h.hello(d.uint32(), d.string())
	case kindSpawn:
		h.spawn(d, m.fds)
	case kindSignal:
		if l := h.byID[d.uint64()]; l != nil {
			_ = signalGroup(l.pid, syscall.Signal(d.uint32())) // the daemon learns of the group's end otherwise
		}
	case kindRelease:
		if l := h.byID[d.uint64()]; l != nil {
			l.released = true
		}
	case kindShutdown:
		return false
	}
	return d.err == nil
}

// hello answers the daemon's. What speaks against going on is said on stderr, which the daemon reports.
func (h *spawnServer) hello(version uint32, cgroup string) bool {
	if version != wireVersion {
		fmt.Fprintf(os.Stderr, "the daemon speaks version %d of the protocol, not %d\n", version, wireVersion)
		return false
	}
	if cgroup != "" {
		f, err := os.Open(cgroup)
		if err != nil {
			fmt.Fprintf(os.Stderr, "opening the control group: %v\n", err)
			return false
		}
		h.cgroup, h.cgroupF = cgroup, f
	}
	h.out <- message{kind: kindHello, body: encoder(nil).uint32(wireVersion)}
	return true
}

func (h *spawnServer) spawn(d *decoder, stdio []int) {
	id, path, dir, argv, env, umask := d.uint64(), d.string(), d.string(), d.list(), d.list(), d.uint32()
	if d.err != nil {
		return
	}
	if umask != noUmask {
		defer syscall.Umask(syscall.Umask(int(umask))) // nothing else here creates files
	}
	pidfd := -1
	sys := &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL, PidFD: &pidfd}
	if h.cgroupF != nil {
		sys.UseCgroupFD, sys.CgroupFD = true, int(h.cgroupF.Fd())
	}
	pid, err := 0, error(syscall.EMFILE)
	if len(stdio) == 3 && stdio[2] >= 0 {
		pid, err = syscall.ForkExec(path, argv, &syscall.ProcAttr{
			Dir: dir, Env: env, Sys: sys,
			Files: []uintptr{uintptr(stdio[0]), uintptr(stdio[1]), uintptr(stdio[2])},
		})
	}
	if err != nil {
		errno, ok := err.(syscall.Errno)
		if !ok {
			errno = syscall.EINVAL // a NUL byte in a string is all that is refused before the fork
		}
		h.out <- message{kind: kindFailed, body: encoder(nil).uint64(id).uint32(uint32(errno))}
		return
	}
	l := &leader{id: id, pid: pid}
	h.byID[id], h.byPID[pid] = l, l
	m := message{kind: kindSpawned, body: encoder(nil).uint64(id).uint32(uint32(pid))}
	if pidfd >= 0 {
		m.fds = []int{pidfd}
	}
	h.out <- m
}

// reapLeaders ends the groups of the leaders that have ended and reaps those.
func (h *spawnServer) reapLeaders() {
	for pid, l := range h.byPID {
		if !isZombie(pid) {
			continue
		}
		if !l.released {
			_ = signalGroup(pid, syscall.SIGKILL) // nobody left in it is the usual case
		}
		h.ended(l, reap(pid))
	}
}

// ended reports a leader that has been reaped.
func (h *spawnServer) ended(l *leader, status syscall.WaitStatus) {
	delete(h.byID, l.id)
	delete(h.byPID, l.pid)
	h.out <- message{kind: kindExited, body: encoder(nil).uint64(l.id).uint32(uint32(status))}
}

// reapOrphans reaps what we have adopted and what has ended, each by its own number so that no leader's status is taken.
func (h *spawnServer) reapOrphans() {
	for _, pid := range childrenOf(h.pid) {
		if h.byPID[pid] == nil {
			// One that is still alive, or a status that nobody waits for.
			_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
		}
	}
}

// endAll kills every group, and then every child until there are no more: the children of each that dies become ours, so this comes
// to all descendants. The number of a child that we have not reaped cannot belong to another.
func (h *spawnServer) endAll() {
	if h.cgroup != "" {
		_ = killCgroup(h.cgroup) // what it missed, if anything, is met below
	}
	for pid := range h.byPID {
		_ = signalGroup(pid, syscall.SIGKILL)
	}
	for {
		for _, pid := range childrenOf(h.pid) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		// Children are handed over before the end of their parent is told, so after each end the list is complete again.
		if !h.reapAny(0) {
			return
		}
		for h.reapAny(syscall.WNOHANG) {
		}
	}
}

// reapAny reaps one child and says whether there was one.
func (h *spawnServer) reapAny(options int) bool {
	var status syscall.WaitStatus
	pid, err := syscall.Wait4(-1, &status, options, nil)
	if err == syscall.EINTR {
		return true
	}
	if err != nil || pid == 0 {
		return false
	}
	if l := h.byPID[pid]; l != nil {
		h.ended(l, status)
	}
	return true
}

func killCgroup(dir string) error {
	return os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0)
}
