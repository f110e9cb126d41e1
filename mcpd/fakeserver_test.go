package mcpd

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"interlock/mcpd/internal/proc"
)

// fakeSpawner starts servers that the test plays: it has their ends of the pipes.
type fakeSpawner struct {
	t       testing.TB
	started chan *fakeServer

	mu   sync.Mutex // guards the fields below
	next manner     // of the servers that start from now on
	all  []*fakeServer
}

// manner is how a server behaves.
type manner struct {
	fail  error // its start fails
	deaf  bool  // it reads nothing until hearing is closed
	stays bool  // it lives on when its stdin ends
}

func newFakeSpawner(t testing.TB) *fakeSpawner {
	s := &fakeSpawner{t: t, started: make(chan *fakeServer, 64)}
	t.Cleanup(func() {
		for _, server := range s.all {
			server.exit(0)
			<-server.ended
		}
	})
	return s
}

// behave says how the servers behave that start from now on.
func (s *fakeSpawner) behave(m manner) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next = m
}

// Spawn implements proc.Spawner.
func (s *fakeSpawner) Spawn(_ context.Context, spec proc.Spec, stdio [3]*os.File) (proc.Process, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.next
	if m.fail != nil {
		return nil, &proc.SpawnError{Name: spec.Name, Path: spec.Path, Err: m.fail}
	}
	f := &fakeServer{spec: spec, pid: len(s.all) + 1, done: make(chan struct{}), hearing: make(chan struct{})}
	for i, file := range stdio {
		f.stdio[i] = duplicate(file)
	}
	if !m.deaf {
		close(f.hearing)
	}
	f.lines = newLines(s.t, "the server", f.hearing)
	f.read(f.stdio[0], func() {
		if !m.stays {
			f.exit(0)
		}
	})
	s.all = append(s.all, f)
	s.started <- f
	return f, nil
}

// duplicate returns a descriptor of the file's that takes deadlines.
func duplicate(file *os.File) *os.File {
	var fd int
	raw := must(file.SyscallConn())
	err := raw.Control(func(old uintptr) { fd = must(unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0)) })
	if err != nil {
		panic(err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		panic(err)
	}
	return os.NewFile(uintptr(fd), file.Name())
}

// take waits for the start of a server.
func (s *fakeSpawner) take() *fakeServer {
	s.t.Helper()
	select {
	case f := <-s.started:
		return f
	case <-time.After(bound):
		s.t.Fatal("no server was started")
		return nil
	}
}

// none has no server been started that take has not returned.
func (s *fakeSpawner) none() {
	s.t.Helper()
	select {
	case <-s.started:
		s.t.Fatal("a server was started")
	default:
	}
}

// fakeServer is a server that the test plays. It ends when its stdin does, and
// by any signal.
type fakeServer struct {
	*lines  // what it reads
	spec    proc.Spec
	pid     int
	stdio   [3]*os.File
	hearing chan struct{} // closed when it begins to read
	once    sync.Once
	status  syscall.WaitStatus
	done    chan struct{}
}

func (f *fakeServer) PID() int                   { return f.pid }
func (f *fakeServer) Done() <-chan struct{}      { return f.done }
func (f *fakeServer) Status() syscall.WaitStatus { return f.status }
func (f *fakeServer) Kill() error                { return f.Signal(syscall.SIGKILL) }
func (f *fakeServer) Release()                   {}

func (f *fakeServer) Signal(sig syscall.Signal) error {
	f.end(syscall.WaitStatus(sig))
	return nil
}

// exit ends the process with an exit status.
func (f *fakeServer) exit(code int) { f.end(syscall.WaitStatus(code << 8)) }

func (f *fakeServer) end(status syscall.WaitStatus) {
	f.once.Do(func() {
		f.status = status
		for _, file := range f.stdio {
			file.Close()
		}
		close(f.quit)
		close(f.done)
	})
}

// say writes a line to the server's stdout.
func (f *fakeServer) say(format string, args ...any) {
	f.t.Helper()
	f.stdio[1].SetWriteDeadline(time.Now().Add(bound))
	if _, err := io.WriteString(f.stdio[1], fmt.Sprintf(format, args...)+"\n"); err != nil {
		f.t.Fatalf("the server writes: %v", err)
	}
}

// complain writes to the server's stderr.
func (f *fakeServer) complain(text string) { ok(f.t, second(io.WriteString(f.stdio[2], text))) }

func second[T any](_ T, err error) error { return err }

func (f *fakeServer) answer(request message, result string) {
	f.t.Helper()
	f.say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, request.ID, result)
}

// takeHandshake answers initialize.
func (f *fakeServer) takeHandshake() {
	f.t.Helper()
	m := f.recv()
	if m.Method != "initialize" {
		f.t.Fatalf("the server got %s and not initialize", m.raw)
	}
	f.answer(m, handshake)
}

// takes has the server get a request or notification of this method.
func (f *fakeServer) takes(method string) message {
	f.t.Helper()
	m := f.recv()
	if m.Method != method {
		f.t.Fatalf("the server got %s and not %s", m.raw, method)
	}
	return m
}

// env returns the value of a variable in the server's environment.
func (f *fakeServer) env(name string) (string, bool) {
	for _, line := range slices.Backward(f.spec.Env) {
		if value, ok := strings.CutPrefix(line, name+"="); ok {
			return value, true
		}
	}
	return "", false
}

// awaitDone waits for the end of the process.
func (f *fakeServer) awaitDone() {
	f.t.Helper()
	select {
	case <-f.done:
	case <-time.After(bound):
		f.t.Fatal("the server was not ended")
	}
}
