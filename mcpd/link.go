package mcpd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"interlock/mcpd/internal/builtin"
	"interlock/mcpd/internal/proc"
	"interlock/mcpd/internal/wire"
)

// inputBound is how much may wait for a server that does not read its input, one
// frame of the largest size not counted: after that, a client may go on.
const inputBound = 8 << 20

// startingLimit is how long a server that says nothing counts as one that is being
// started: most are silent until they are asked something.
const startingLimit = 5 * time.Second

// link is the way to one running server: a child's standard streams, or a
// built-in server of the daemon.
type link interface {
	// run starts the server, hands all it says to the instance, and returns
	// when nothing of it is left: because it ended, or because ctx did.
	run(ctx context.Context, in *instance) error
	// send hands a frame on, with the edits applied, and never blocks. The
	// sequence number is that of the frame among all that were sent. Frames
	// sent before the server runs wait for it.
	send(f *wire.Frame, edits []wire.Edit) (seq uint64, err error)
	sendOwn(message []byte) error
	// flush waits until the server has taken all that was sent, or ctx ends.
	flush(ctx context.Context)
	// begun is the sequence number of the last frame of which the server may
	// have seen a byte.
	begun() uint64
}

// childLink is the way to a child process.
type childLink struct {
	queue *wire.Queue
}

func newChildLink(in *instance) *childLink {
	return &childLink{queue: wire.NewQueue(wire.QueueOptions{
		Bound: inputBound + in.up.d.limits.Frame,
		// A server may be busy for as long as it likes: only its end fails
		// the queue, and then the reader of its output notices too.
		OnFail: func(error) { in.quit() },
	})}
}

func (l *childLink) send(f *wire.Frame, edits []wire.Edit) (uint64, error) {
	return l.queue.Send(f, edits)
}

func (l *childLink) sendOwn(message []byte) error {
	_, err := l.queue.SendBytes(message)
	return err
}

func (l *childLink) flush(ctx context.Context) { l.queue.Flush(ctx) }
func (l *childLink) begun() uint64             { return l.queue.Begun() }

func (l *childLink) run(ctx context.Context, in *instance) error {
	defer l.queue.Close()
	child, started, err := in.up.spawn(ctx)
	if err != nil {
		return err
	}
	defer started()
	defer child.Stdout().Close()
	in.runs(child.PID())
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		in.up.d.end(child)
	})
	defer func() {
		if !stop() {
			<-stopped
		}
		in.up.d.end(child)
	}()
	l.begin(in, child)
	l.read(in, child, started)
	if ctx.Err() == nil {
		in.up.d.counters.exited.Add(1)
	}
	// The output has ended. A process that lives on without it is ended.
	in.up.d.end(child)
	return child.Err()
}

// end ends a child, by the graces that servers have unless the daemon is to end
// at once.
func (d *Daemon) end(child *proc.Child) {
	ctx, cancel := d.unhurried()
	defer cancel()
	if err := child.Stop(ctx, proc.DefaultGraces()); err != nil {
		d.log.Error("ending a server", zap.Error(err))
	}
}

// begin lets the queue flow: at once into a first process, and after the
// handshake into one that takes the place of another.
func (l *childLink) begin(in *instance, child *proc.Child) {
	handshake, again := in.up.memory.replay()
	if !again {
		l.queue.Attach(child.Stdin())
		return
	}
	in.up.classes.forget() // it may be another version of the server
	var unread atomic.Bool // it did not take what was written
	write := func(frame []byte) error {
		child.Stdin().SetWriteDeadline(time.Now().Add(in.up.d.limits.StartTimeout))
		_, err := child.Stdin().Write(append(frame, '\n'))
		child.Stdin().SetWriteDeadline(time.Time{})
		unread.Store(err != nil)
		return err
	}
	limit := in.up.d.limits.StartTimeout
	in.ask(handshake.under, write, limit, func(result []byte) {
		if unread.Load() {
			in.quit() // how it ends says why
			return
		}
		if result == nil {
			in.abort(refuse(codeStartFailed, "server %q was started anew and refused its handshake, or did not answer it within %v", in.up.server.Name, limit))
			return
		}
		in.up.d.recovered(in.up.server.Name)
		initialized, restore := in.up.memory.rest()
		if initialized != nil {
			write(slices.Clone(initialized))
		}
		for _, r := range restore {
			in.ask(r.under, write, limit, func([]byte) {})
		}
		l.queue.Attach(child.Stdin())
		for _, frame := range in.up.memory.changed() {
			in.up.conn.sendOwn(frame)
		}
	})
}

// read hands the server's output to the instance until it ends. Started is called
// at the first of it.
func (l *childLink) read(in *instance, child *proc.Child, started func()) {
	d := in.up.d
	reader := wire.NewReader(child.Stdout(), d.budget.Account(d.limits.SessionBudget), wire.ReaderOptions{MaxFrame: int(d.limits.Frame)})
	var env wire.Envelope
	f, err := reader.Next()
	started()
	for ; ; f, err = reader.Next() {
		if err == nil {
			in.receive(f, &env)
			f.Release()
			continue
		}
		var discarded *wire.DiscardedError
		switch {
		case errors.As(err, &discarded):
			in.receiveDiscarded(discarded)
		case errors.Is(err, wire.ErrUnterminated):
			d.counters.parseErrors.Add(1)
		default:
			return
		}
	}
}

// spawn starts the child of a stdio server in its session's place. It is one of
// those that start at the same time, which are few, until started is called or
// the limit for that is over.
func (u *upstream) spawn(ctx context.Context) (child *proc.Child, started func(), err error) {
	if err := u.d.starting.Acquire(ctx, 1); err != nil {
		return nil, nil, err
	}
	release := sync.OnceFunc(func() { u.d.starting.Release(1) })
	defer func() {
		if err != nil {
			release()
		}
	}()
	spec, err := u.spec()
	if err != nil {
		return nil, nil, refuse(codeStartFailed, "server %q could not be started: %v", u.server.Name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, u.d.limits.StartTimeout)
	defer cancel()
	child, err = proc.Start(ctx, u.d.spawner, spec, u.d.serverLog(u.server.Name))
	if err != nil {
		return nil, nil, refuse(codeStartFailed, "server %q could not be started: %v", u.server.Name, err)
	}
	u.d.counters.spawned.Add(1)
	timer := time.AfterFunc(startingLimit, release)
	return child, func() {
		timer.Stop()
		release()
	}, nil
}

// spec is what the server's configuration comes to in the session's place.
func (u *upstream) spec() (proc.Spec, error) {
	env := environment(childEnv(u.place.env))
	env[depthVariable] = strconv.Itoa(u.place.depth + 1)
	command, err := u.server.Expand(env.lookup)
	if err != nil {
		return proc.Spec{}, err
	}
	for name, value := range command.Env {
		env[name] = value
	}
	dir := u.workdir(command.Dir)
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return proc.Spec{}, fmt.Errorf("its working directory %q is not there", dir)
	}
	list := env.list()
	path, err := proc.Resolve(command.Program, list, dir)
	if err != nil {
		return proc.Spec{}, err
	}
	return proc.Spec{
		Name: u.server.Name, Path: path,
		Args: append([]string{command.Program}, command.Args...),
		Env:  list, Dir: dir, Umask: &u.place.umask,
	}, nil
}

// variables is an environment by name.
type variables map[string]string

// environment reads KEY=VALUE lines; the first of a name counts, as for getenv.
func environment(list []string) variables {
	env := make(variables, len(list))
	for _, line := range list {
		name, value, ok := strings.Cut(line, "=")
		if _, seen := env[name]; ok && name != "" && !seen {
			env[name] = value
		}
	}
	return env
}

func (v variables) lookup(name string) (string, bool) {
	value, ok := v[name]
	return value, ok
}

func (v variables) list() []string {
	list := make([]string, 0, len(v))
	for name, value := range v {
		list = append(list, name+"="+value)
	}
	slices.Sort(list)
	return list
}

// baseEnv is what sessions whose client has sent no environment get of the
// daemon's: where things are, and how to speak to people. The rest is that of
// whoever has started the daemon, and may be secret.
func baseEnv(list []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(line string) bool {
		name, _, _ := strings.Cut(line, "=")
		switch name {
		case "HOME", "PATH", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR":
			return false
		}
		return !strings.HasPrefix(name, "LC_") && !strings.HasPrefix(name, "XDG_")
	})
}

// childEnv is a client's environment without what is interlock's own.
func childEnv(list []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(line string) bool {
		return strings.HasPrefix(line, "INTERLOCK_")
	})
}

// builtinLink is the way to a server in this process. Tool calls are served on
// goroutines of their own, all else in the order in which it comes.
type builtinLink struct {
	server  *builtin.Server
	in      *instance
	open    chan struct{}    // closed by run when session is set, or never will be
	session *builtin.Session // nil if it could not be opened

	mu      sync.Mutex // guards closed, and additions to serving
	closed  bool
	serving sync.WaitGroup // whoever is in the session
}

func newBuiltinLink(in *instance, s *builtin.Server) *builtinLink {
	return &builtinLink{server: s, in: in, open: make(chan struct{})}
}

func (l *builtinLink) run(ctx context.Context, in *instance) error {
	if err := l.begin(); err != nil {
		return refuse(codeStartFailed, "server %q could not be opened: %v", in.up.server.Name, err)
	}
	<-ctx.Done()
	l.session.Close()
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.serving.Wait()
	return ctx.Err()
}

// begin opens the session and lets in who waits for it.
func (l *builtinLink) begin() error {
	defer close(l.open)
	up := l.in.up
	s, err := l.server.Open(up.conn.session.ID(), up.place.dir, fs.FileMode(up.place.umask)&fs.ModePerm, l.receive)
	l.session = s
	return err
}

// send counts all that reaches the session as one frame of which it has seen
// something.
func (l *builtinLink) send(f *wire.Frame, edits []wire.Edit) (uint64, error) {
	if err := l.sendOwn(wire.Splice(nil, f.Bytes(), edits)); err != nil {
		return 0, err
	}
	return 1, nil
}

func (l *builtinLink) flush(context.Context) {}
func (l *builtinLink) begun() uint64         { return 1 }

func (l *builtinLink) sendOwn(frame []byte) error {
	<-l.open
	if !l.enter() {
		return wire.ErrQueueClosed
	}
	var env wire.Envelope
	if wire.Scan(frame, &env) == nil && kindOf(env.MethodName(frame)) == kindToolCall {
		go l.serve(frame)
		return nil
	}
	l.serve(frame)
	return nil
}

// enter reports whether the session is open; it then stays so until serving is
// done.
func (l *builtinLink) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.session == nil {
		return false
	}
	l.serving.Add(1)
	return true
}

func (l *builtinLink) serve(frame []byte) {
	defer l.serving.Done()
	defer l.in.up.conn.guard()
	if answer := l.session.Handle(context.Background(), frame); answer != nil {
		l.receive(answer)
	}
}

func (l *builtinLink) receive(frame []byte) {
	defer l.in.up.conn.guard()
	var env wire.Envelope
	l.in.receive(wire.NewFrame(frame), &env)
}
