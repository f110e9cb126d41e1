package mcpd

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"interlock/mcpd/internal/endpoint"
	"interlock/mcpd/internal/life"
	"interlock/mcpd/internal/wire"
	"interlock/session"
	"interlock/status"
)

// BridgeOptions are what a bridge is made of.
type BridgeOptions struct {
	Place   Place
	Server  string // empty: the only one there is
	Project string // root of the client's project; empty: found out
	// WithLeases adds the tools of leases to the server's own.
	WithLeases bool
	Stdin      *os.File
	Stdout     *os.File
	Stderr     io.Writer
}

const (
	// welcomeLimit is how long a daemon may take to answer a hello.
	welcomeLimit = 5 * time.Second
	// copyBuffer is the size of the two buffers of a bridge.
	copyBuffer = 64 << 10
	// depthVariable tells a bridge how deep it is nested.
	depthVariable = "INTERLOCK_DEPTH"
)

// ErrDaemonEnded is returned by Connect when the daemon ends the session.
var ErrDaemonEnded = errors.New("the daemon has ended the session")

// Connect is the bridge: a session of the daemon on standard input and output.
// It starts the daemon if there is none. It returns when the client has ended
// its input and has its answers, when its output has no reader, when ctx ends,
// or when the daemon ends the session. A client that cannot be served is told
// why in the answer to its first request.
func Connect(ctx context.Context, o BridgeOptions) error {
	nc, in, refused, err := openSession(ctx, o)
	if err != nil {
		answerFirst(o, refuse(codeStartFailed, "interlock cannot serve this client: %v", err))
		return err
	}
	defer nc.Close()
	if refused != nil && refused.Code == int(codePeerRefused) {
		// That daemon reads nothing of this client's.
		answerFirst(o, refuse(codePeerRefused, "interlock cannot serve this client: %v", refused))
		return refused
	}
	stop := context.AfterFunc(ctx, func() { nc.Close() })
	defer stop()
	// What the start has used is not needed any more; a client has many bridges.
	debug.FreeOSMemory()
	// A daemon that gives no session says why in the answers to the client's
	// requests, so the frames flow all the same.
	err = relay(ctx, nc, in, o)
	if refused != nil {
		return refused
	}
	return err
}

// openSession connects, greets, and returns the connection with what has been
// read of it. A daemon that just ends is no reason to fail: another is started.
func openSession(ctx context.Context, o BridgeOptions) (nc *net.UnixConn, in *bufio.Reader, refused *RemoteError, err error) {
	paths, err := o.Place.paths()
	if err != nil {
		return nil, nil, nil, err
	}
	hello, err := greeting(o)
	if err != nil {
		return nil, nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		nc, err = reach(ctx, o.Place, paths)
		if err != nil {
			return nil, nil, nil, err
		}
		in = bufio.NewReaderSize(nc, 4<<10)
		var welcome Welcome
		welcome, refused, err = exchangeHello(nc, in, hello)
		ending := refused != nil && refused.Code == int(codeDraining)
		if err == nil && !ending {
			if n := welcome.Pending; n > 0 {
				fmt.Fprintf(o.Stderr, "interlock: %s; look at it with: %s daemon recovery\n", cutOff(n), o.Place.Command())
			}
			return nc, in, refused, nil
		}
		nc.Close()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, nil, nil, unresponsive(o.Place, paths, welcomeLimit)
		}
		if pause(ctx, 20*time.Millisecond) != nil {
			return nil, nil, nil, errors.Join(err, ctx.Err())
		}
	}
}

// unresponsive says which daemon does not answer, and what to do.
func unresponsive(place Place, paths endpoint.Paths, limit time.Duration) error {
	pid := "unknown"
	if s, err := status.Read(paths.Status); err == nil {
		pid = strconv.Itoa(s.PID)
	}
	return fmt.Errorf("the running daemon (pid %s) has not answered for %v; look at it with: %s daemon doctor, or end it with: %[3]s daemon stop", pid, limit, place.Command())
}

// reach connects to the daemon and starts one where there is none. The lock
// decides which of several that are started at once stays.
func reach(ctx context.Context, place Place, paths endpoint.Paths) (*net.UnixConn, error) {
	for {
		nc, err := dialBriefly(ctx, paths)
		if errors.Is(err, endpoint.ErrBusy) {
			return nil, unresponsive(place, paths, welcomeLimit)
		}
		if err == nil || !errors.Is(err, endpoint.ErrAbsent) {
			return nc, err
		}
		if held, heldErr := endpoint.Held(paths); heldErr == nil && held {
			if pause(ctx, 10*time.Millisecond) != nil {
				return nil, fmt.Errorf("a daemon is starting or ending and does not answer: %w", err)
			}
			continue
		}
		if err := begin(ctx, place, paths); err != nil {
			return nil, err
		}
	}
}

// dialBriefly connects to a daemon that takes connections, or says that it does
// not after as long as it may take to answer a hello.
func dialBriefly(ctx context.Context, p endpoint.Paths) (*net.UnixConn, error) {
	ctx, cancel := context.WithTimeout(ctx, welcomeLimit)
	defer cancel()
	return endpoint.Dial(ctx, p)
}

// begin starts a daemon for a bridge. That another one won is as good.
func begin(ctx context.Context, place Place, paths endpoint.Paths) error {
	if err := endpoint.Prepare(paths); err != nil {
		return err
	}
	if err := life.ClearStopMarker(paths.Dir); err != nil {
		return err
	}
	if _, err := launch(ctx, place, paths); !errors.Is(err, ErrRunning) {
		return err
	}
	return nil
}

// greeting is the hello of a bridge in this process's place.
func greeting(o BridgeOptions) ([]byte, error) {
	cwd, err := os.Getwd()
	if err != nil {
		cwd = ""
	}
	depth, _ := strconv.Atoi(os.Getenv(depthVariable))
	umask := uint32(syscall.Umask(0o077)) // there is no way to ask without setting it
	syscall.Umask(int(umask))
	h := Hello{
		Umask:    &umask,
		Protocol: ProtocolVersion, Build: Version(), CWD: cwd, Env: os.Environ(),
		Project: projectRoot(o.Project, cwd), Depth: depth, Leases: o.WithLeases,
	}
	if o.Server != "" {
		h.Servers = []string{o.Server}
	}
	if o.Place.Config != "" {
		h.Config = o.Place.configPath()
	}
	params, err := json.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("writing hello: %w", err)
	}
	frame := append([]byte(`{"jsonrpc":"2.0","id":0,"method":"`+methodHello+`","params":`), params...)
	return append(frame, "}\n"...), nil
}

// exchangeHello sends the hello and reads the answer. Refused is why the daemon
// gives no session; err says that it did not answer as a daemon does.
func exchangeHello(nc *net.UnixConn, in *bufio.Reader, hello []byte) (w Welcome, refused *RemoteError, err error) {
	nc.SetDeadline(time.Now().Add(welcomeLimit))
	defer nc.SetDeadline(time.Time{})
	// A daemon that refuses its peer says why without reading, and is gone.
	_, writeErr := nc.Write(hello)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return w, nil, fmt.Errorf("greeting the daemon: %w", errors.Join(writeErr, err))
	}
	err = decodeAnswer(line, "0", &w)
	if errors.As(err, &refused) {
		return w, refused, nil
	}
	return w, nil, err
}

// relay copies both ways until one side is done. The goroutine that reads the
// client's input ends with it, or with the process.
func relay(ctx context.Context, nc *net.UnixConn, in *bufio.Reader, o BridgeOptions) error {
	var inputEnded atomic.Bool
	over := make(chan struct{})
	defer close(over)
	go func() {
		copyFrames(nc, &withoutMark{r: o.Stdin})
		inputEnded.Store(true)
		nc.CloseWrite()
		// Answers are awaited only as long as somebody is there to read them.
		for !readerGone(o.Stdout) {
			select {
			case <-over:
				return
			default:
			}
		}
		nc.Close()
	}()
	early, _ := in.Peek(in.Buffered()) // what came with the daemon's answer
	if _, err := o.Stdout.Write(early); err != nil {
		return nil
	}
	err := copyFrames(o.Stdout, nc)
	var write *writeError
	if inputEnded.Load() || ctx.Err() != nil || errors.As(err, &write) {
		return nil
	}
	return ErrDaemonEnded
}

// withoutMark is a client's input without the byte order mark that some put
// before their first message: for the daemon that is not the first any more.
type withoutMark struct {
	r    io.Reader
	past bool
}

func (w *withoutMark) Read(p []byte) (int, error) {
	if w.past {
		return w.r.Read(p)
	}
	const mark = "\xEF\xBB\xBF"
	n, err := io.ReadAtLeast(w.r, p, len(mark))
	w.past = true
	if err == io.ErrUnexpectedEOF {
		err = io.EOF
	}
	if bytes.HasPrefix(p[:n], []byte(mark)) {
		n = copy(p, p[len(mark):n])
	}
	return n, err
}

// writeError is an error of the side that a copy writes to.
type writeError struct{ err error }

func (e *writeError) Error() string { return e.err.Error() }

// copyFrames copies bytes as they come until the source ends.
func copyFrames(dst io.Writer, src io.Reader) error {
	buffer := make([]byte, copyBuffer)
	for {
		n, err := src.Read(buffer)
		if n > 0 {
			if _, err := dst.Write(buffer[:n]); err != nil {
				return &writeError{err}
			}
		}
		if err != nil {
			return err
		}
	}
}

// readerGone waits a moment and reports whether nobody can read what is written
// to f any more. Only a pipe or a socket can tell.
func readerGone(f *os.File) bool {
	raw, err := f.SyscallConn()
	if err != nil {
		return true
	}
	gone := false
	err = raw.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd)}}
		n, err := unix.Poll(fds, 100)
		gone = err == nil && n > 0 && fds[0].Revents&(unix.POLLERR|unix.POLLHUP|unix.POLLNVAL) != 0
	})
	return gone || err != nil
}

// answerFirst answers the client's first request with the refusal, if one comes
// soon: most clients show that, and not what a server writes to stderr.
func answerFirst(o BridgeOptions, r *refusal) {
	first := make(chan []byte, 1)
	go func() { // ends with the client's first line, or with the process
		line, _ := bufio.NewReader(o.Stdin).ReadBytes('\n')
		first <- line
	}()
	select {
	case line := <-first:
		var env wire.Envelope
		line = bytes.TrimSpace(line)
		if wire.Scan(line, &env) == nil && env.Kind == wire.Request {
			o.Stdout.Write(append(appendRefusal(nil, env.ID.Of(line), false, session.EraUnknown, r), '\n'))
		}
	case <-time.After(refusedLinger):
	}
}

// projectRoot is the root of the client's project: what was said, what Claude
// Code says, or the root of the git work tree around the working directory. The
// home directory and / are no projects.
func projectRoot(said, cwd string) string {
	root := said
	if root == "" {
		root = os.Getenv("CLAUDE_PROJECT_DIR")
	}
	for dir := cwd; root == "" && filepath.IsAbs(dir); dir = filepath.Dir(dir) {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			root = dir
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	if home, err := os.UserHomeDir(); root == "/" || (err == nil && root == home) {
		return ""
	}
	return root
}
