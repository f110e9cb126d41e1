package proc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	helloBound = 10 * time.Second // for a new helper to say hello
	sendBound  = 5 * time.Second  // for the helper to take a message; one that does not is ended
	lostBound  = 2 * time.Second  // for processes to end after their helper was lost
)

// errNotSent is why a request did not reach a helper that was lost: it may be put to the next.
var errNotSent = errors.New("the spawn helper ended before the request was sent")

// link is one helper process and the connection to it. Its goroutines, read and write, end with the connection; finish waits for them.
type link struct {
	cmd     *exec.Cmd
	output  *tail // what the helper says on stderr
	conn    *net.UnixConn
	out     chan outgoing
	lost    chan struct{} // closed by read when the connection has ended
	writing sync.WaitGroup

	mu      sync.Mutex // guards what follows
	nextID  uint64
	asked   map[uint64]chan spawnReply // each of capacity 1
	running map[uint64]*helperProcess  // not yet ended
}

// outgoing is a message for write, which tells on sent, of capacity 1, how it went; nil if nobody asks.
type outgoing struct {
	message
	sent chan error
}

type spawnReply struct {
	process *helperProcess
	err     error
}

// startLink starts a helper from this process's own image and waits for its hello. cgroup may be empty.
func startLink(ctx context.Context, marker, cgroup string) (*link, error) {
	if err := keepInherited(); err != nil {
		return nil, err
	}
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	conn, err := unixConn(ours)
	if err != nil {
		return nil, err
	}
	l := &link{
		output: &tail{}, conn: conn, out: make(chan outgoing, 64), lost: make(chan struct{}),
		asked: map[uint64]chan spawnReply{}, running: map[uint64]*helperProcess{},
	}
	l.cmd = &exec.Cmd{
		Path:        "/proc/self/exe", // also after an upgrade has replaced the file
		Args:        []string{"interlock", helperArg},
		Env:         []string{MarkerEnv + "=" + marker, "GOMAXPROCS=1"},
		Dir:         "/",
		Stderr:      l.output,
		ExtraFiles:  []*os.File{theirs},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if err := l.cmd.Start(); err != nil {
		conn.Close()
		return nil, err
	}
	r := &wireReader{conn: conn, perMsg: 1}
	if err := l.hello(ctx, r, cgroup); err != nil {
		r.close()
		l.kill()
		werr := l.cmd.Wait()
		return nil, fmt.Errorf("%w (it ended with %v; on stderr: %q)", err, werr, l.output.last())
	}
	go l.read(r)
	l.writing.Go(l.write)
	return l, nil
}

func socketPair() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(fds[0]), "spawn helper"), os.NewFile(uintptr(fds[1]), "daemon"), nil
}

func (l *link) hello(ctx context.Context, r *wireReader, cgroup string) error {
	ctx, cancel := context.WithTimeout(ctx, helloBound)
	defer cancel()
	unwatch := context.AfterFunc(ctx, func() { _ = l.conn.SetDeadline(time.Unix(1, 0)) })
	err := writeMessage(l.conn, message{kind: kindHello, body: encoder(nil).uint32(wireVersion).string(cgroup)})
	if err != nil {
		return fmt.Errorf("sending hello: %w", err)
	}
	m, err := r.next()
	if err != nil {
		return errors.Join(fmt.Errorf("awaiting its hello: %w", err), context.Cause(ctx))
	}
	d := &decoder{rest: m.body}
	if v := d.uint32(); m.kind != kindHello || v != wireVersion {
		return fmt.Errorf("its hello has kind %d and version %d, not %d and %d", m.kind, v, kindHello, wireVersion)
	}
	if !unwatch() {
		return context.Cause(ctx)
	}
	return nil
}

// read takes the helper's messages until the connection ends.
func (l *link) read(r *wireReader) {
	defer close(l.lost)
	defer r.close()
	for {
		m, err := r.next()
		if err != nil || !l.take(m) {
			return
		}
	}
}

// take does what one message of the helper says. It returns false for one that it cannot read.
func (l *link) take(m message) bool {
	d := &decoder{rest: m.body}
	id := d.uint64()
	switch m.kind {
	case kindSpawned:
		p := &helperProcess{link: l, id: id, pid: int(d.uint32()), done: make(chan struct{})}
		if len(m.fds) == 1 && m.fds[0] >= 0 {
			p.pidfd = os.NewFile(uintptr(m.fds[0]), "pidfd")
		}
		l.mu.Lock()
		l.running[id] = p
		l.mu.Unlock()
		if !l.answer(id, spawnReply{process: p}) {
			_ = p.Kill() // its asker has gone; that it has ended already is as good
		}
	case kindFailed:
		l.answer(id, spawnReply{err: syscall.Errno(d.uint32())})
	case kindExited:
		status := syscall.WaitStatus(d.uint32())
		l.mu.Lock()
		p := l.running[id]
		delete(l.running, id)
		l.mu.Unlock()
		if p == nil {
			return false
		}
		p.end(status)
	default:
		return false
	}
	return d.err == nil
}

// answer hands a reply to whoever asked, if it still waits.
func (l *link) answer(id uint64, r spawnReply) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	asker, ok := l.asked[id]
	delete(l.asked, id)
	if ok {
		asker <- r // has room for the one answer
	}
	return ok
}

// write sends messages until the connection is lost. A message that is not taken in time ends the helper: what was sent of it cannot
// be taken back, and the daemon must not wait for a helper that hangs. Until read has noticed, further messages fail likewise, so that
// nobody waits in send.
func (l *link) write() {
	var failed error
	for {
		select {
		case <-l.lost:
			return
		case m := <-l.out:
			if failed == nil {
				_ = l.conn.SetWriteDeadline(time.Now().Add(sendBound))
				if failed = writeMessage(l.conn, m.message); failed != nil {
					l.kill()
					_ = l.conn.CloseRead() // wakes read
				}
			}
			if m.sent != nil {
				m.sent <- failed
			}
		}
	}
}

// send queues a message that has no answer.
func (l *link) send(m message) {
	select {
	case l.out <- outgoing{message: m}:
	case <-l.lost:
	}
}

// shutdown asks the helper to end and waits until it has. When forced ends, the helper is killed.
func (l *link) shutdown(forced context.Context) {
	l.send(message{kind: kindShutdown})
	select {
	case <-l.lost:
	case <-forced.Done():
		l.kill()
		<-l.lost
	}
}

func (l *link) kill() { _ = l.cmd.Process.Kill() } // ended already is as good

// spawn asks the helper to start s. The errors are those of Spawner.Spawn, or errNotSent.
func (l *link) spawn(ctx context.Context, s Spec, stdio [3]*os.File) (Process, error) {
	reply := make(chan spawnReply, 1)
	l.mu.Lock()
	l.nextID++
	id := l.nextID
	l.asked[id] = reply
	l.mu.Unlock()

	if err := l.request(ctx, id, s, stdio); err != nil {
		l.forget(id, reply)
		return nil, err
	}
	select {
	case r := <-reply:
		if r.err != nil {
			return nil, s.failed(r.err)
		}
		return r.process, nil
	case <-l.lost:
		l.forget(id, reply)
		return nil, fmt.Errorf("starting server %q: %w", s.Name, ErrHelperLost)
	case <-ctx.Done():
		l.forget(id, reply)
		return nil, fmt.Errorf("starting server %q: %w", s.Name, context.Cause(ctx))
	}
}

// request sends the request to spawn and returns when stdio is no longer needed.
func (l *link) request(ctx context.Context, id uint64, s Spec, stdio [3]*os.File) error {
	body := encoder(nil).uint64(id).string(s.Path).string(s.Dir).list(s.Args).list(s.Env).uint32(s.umask())
	if len(body) > maxMessage {
		return s.failed(syscall.E2BIG)
	}
	return withFDs(stdio[:], func(fds []int) error {
		m := outgoing{message: message{kind: kindSpawn, body: body, fds: fds}, sent: make(chan error, 1)}
		select {
		case l.out <- m:
		case <-l.lost:
			return errNotSent
		case <-ctx.Done():
			return s.failed(context.Cause(ctx))
		}
		select {
		case err := <-m.sent:
			if err != nil {
				return fmt.Errorf("starting server %q: %w", s.Name, errors.Join(ErrHelperLost, err))
			}
			return nil
		case <-l.lost:
			return fmt.Errorf("starting server %q: %w", s.Name, ErrHelperLost)
		}
	})
}

// forget withdraws a question, and kills the process of an answer that came meanwhile.
func (l *link) forget(id uint64, reply chan spawnReply) {
	l.mu.Lock()
	delete(l.asked, id)
	l.mu.Unlock()
	select {
	case r := <-reply:
		if r.process != nil {
			_ = r.process.Kill()
		}
	default:
	}
}

// finish is called once, when the connection is lost. It awaits the end of the helper process, which is to end then, ends by pidfd
// the groups of whatever it left running, and returns how it ended; nil if as it should after shutdown.
func (l *link) finish() error {
	hung := time.AfterFunc(lostBound, l.kill)
	err := l.cmd.Wait()
	hung.Stop()
	l.writing.Wait()
	l.mu.Lock()
	left := l.running
	l.running = nil
	l.mu.Unlock()
	for _, p := range left {
		_ = p.Kill() // by the kernel already, if the helper is dead; the group, then
	}
	deadline := time.Now().Add(lostBound)
	for _, p := range left {
		p.awaitEnd(deadline)
		p.end(StatusLost)
	}
	if out := l.output.last(); out != "" {
		return fmt.Errorf("it ended with %v and said %q", l.cmd.ProcessState, out)
	}
	if err != nil {
		return fmt.Errorf("it ended with %w", err)
	}
	return nil
}

// noUmask stands for no umask in a message.
const noUmask = 1<<32 - 1

func (s Spec) umask() uint32 {
	if s.Umask == nil {
		return noUmask
	}
	return *s.Umask & 0o777
}
