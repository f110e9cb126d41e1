package mcpd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"interlock/mcpd/internal/config"
	"interlock/mcpd/internal/endpoint"
	"interlock/mcpd/internal/life"
	"interlock/mcpd/internal/logfile"
	"interlock/mcpd/internal/proc"
	"interlock/status"
)

// statusInterval is the least time between two writes of the status file.
const statusInterval = 200 * time.Millisecond

// ErrRunning is returned by Serve where another daemon serves the directory.
var ErrRunning = endpoint.ErrRunning

// codeRunning is what a daemon that finds another one tells its starter.
const codeRunning = "running"

// ServeOptions are what a daemon's process gives to Serve.
type ServeOptions struct {
	// Hurry ends a drain at once when it is closed.
	Hurry <-chan struct{}
	// Reload makes the daemon read its configuration anew at each receive.
	Reload <-chan os.Signal
	// Ready is called once connections are accepted. It may be nil.
	Ready func(status.Snapshot)
}

// Serve is the daemon: it takes the directory's lock, listens, and serves until
// ctx ends or the daemon is asked to stop, and then drains. It must be called
// before the process has made goroutines of its own. Where another process
// started this one, that one hears how the start went.
func Serve(ctx context.Context, place Place, o ServeOptions) error {
	notifier, err := life.Ready(os.Getenv)
	if errors.Is(err, life.ErrDetached) {
		return nil
	}
	if err != nil {
		return err
	}
	err = serve(ctx, place, o, notifier)
	if err != nil {
		code := ""
		if errors.Is(err, ErrRunning) {
			code = codeRunning
		}
		notifier.Fail(code, err)
	}
	return err
}

func serve(ctx context.Context, place Place, o ServeOptions, notifier *life.Notifier) (err error) {
	paths, err := place.paths()
	if err != nil {
		return err
	}
	cfg, err := config.Load(place.configPath(), place.Config != "")
	if err != nil {
		return err
	}
	if err := endpoint.Prepare(paths); err != nil {
		return err
	}
	lock, err := endpoint.Acquire(paths)
	if err != nil {
		return err
	}
	defer lock.Close()
	logs, err := openLogs(paths)
	if err != nil {
		return err
	}
	defer logs.close()
	ln, err := listen(paths, lock)
	if err != nil {
		return err
	}
	defer ln.Close()
	identity, err := life.Self(Version())
	if err != nil {
		return err
	}
	identity.SocketDevice, identity.SocketInode = ln.Inode()
	writer := status.NewWriter(paths.Status, statusInterval)
	defer func() { err = errors.Join(err, writer.Close(err == nil)) }()

	d, err := New(Options{
		Paths: paths, Config: cfg, Identity: identity, Spawner: proc.Direct{},
		Log: logs.daemon, Status: writer, ServerLog: logs.server,
	})
	if err != nil {
		return err
	}
	logs.daemon.Info("serving", zap.String("socket", paths.Socket), zap.Int("pid", identity.PID), zap.String("build", identity.Build))
	d.changed()
	writer.Flush()
	notifier.OK()
	if o.Ready != nil {
		o.Ready(d.Snapshot())
	}
	err = d.supervised(ctx, ln, o)
	logs.daemon.Info("ended", zap.Error(err))
	return err
}

// listen takes the socket that the service manager passed, or makes one.
func listen(p endpoint.Paths, lock *endpoint.Lock) (*endpoint.Listener, error) {
	ln, ok, err := endpoint.Activated(p, lock)
	if err != nil || ok {
		return ln, err
	}
	return endpoint.Listen(p, lock)
}

// supervised runs the daemon under its service manager, if it has one.
func (d *Daemon) supervised(ctx context.Context, ln *endpoint.Listener, o ServeOptions) error {
	ctx, cancel := context.WithCancel(ctx)
	var helpers sync.WaitGroup
	helpers.Add(2)
	go func() {
		defer helpers.Done()
		if err := life.Watchdog(ctx, func() bool { return true }); err != nil {
			d.log.Warn("watchdog", zap.Error(err))
		}
	}()
	go func() {
		defer helpers.Done()
		for {
			select {
			case <-ctx.Done():
				return
			case <-o.Reload:
				d.reload()
			}
		}
	}()
	if err := life.NotifyReady(); err != nil {
		d.log.Warn("telling the service manager", zap.Error(err))
	}
	err := d.Run(ctx, ln, o.Hurry)
	cancel()
	helpers.Wait()
	return err
}

// reload reads the configuration anew. Sessions that are open keep what they
// have; limits change with the next start.
func (d *Daemon) reload() {
	old := d.config.Load()
	cfg, err := config.Load(old.Path, !old.Missing)
	if err != nil {
		d.log.Error("reloading the configuration; the old one stays", zap.Error(err))
		return
	}
	d.config.Store(cfg)
	d.log.Info("configuration reloaded", zap.Int("servers", len(cfg.Servers)), zap.Int("problems", len(cfg.Problems)))
	d.changed()
}

// logs are the open log files of a daemon.
type logs struct {
	daemon *zap.Logger
	paths  endpoint.Paths
	file   *logfile.Writer

	mu      sync.Mutex // guards servers
	servers []io.Closer
}

func openLogs(p endpoint.Paths) (*logs, error) {
	file, err := logfile.Open(p.Log, logfile.Options{})
	if err != nil {
		return nil, err
	}
	return &logs{daemon: logfile.NewLogger(file, zapcore.InfoLevel), paths: p, file: file}, nil
}

// server opens the log of a server. Where that fails its output goes nowhere,
// and the daemon's log says why.
func (l *logs) server(name string) io.Writer {
	file, err := logfile.Open(l.paths.ServerLog(name), logfile.Options{})
	if err != nil {
		l.daemon.Error("opening a server's log", zap.String("server", name), zap.Error(err))
		return io.Discard
	}
	lines := logfile.NewLineWriter(file, logfile.LineOptions{})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.servers = append(l.servers, lines, file)
	return lines
}

func (l *logs) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.servers {
		c.Close()
	}
	l.file.Close()
}

// Start makes sure that a daemon serves the place and returns its pid, and
// whether there was one already. A daemon that was stopped by its user is
// started again.
func Start(ctx context.Context, place Place) (pid int, already bool, err error) {
	paths, err := place.paths()
	if err != nil {
		return 0, false, err
	}
	if err := endpoint.Prepare(paths); err != nil {
		return 0, false, err
	}
	if err := life.ClearStopMarker(paths.Dir); err != nil {
		return 0, false, err
	}
	if s, err := Status(ctx, place); err == nil {
		return s.PID, true, nil
	}
	pid, err = launch(ctx, place, paths)
	var failed *life.StartError
	if errors.As(err, &failed) && failed.Code == codeRunning {
		s, err := awaitStatus(ctx, place)
		return s.PID, true, err
	}
	return pid, false, err
}

// startLimit bounds a start, up to the first connection.
const startLimit = 30 * time.Second

// launch starts a daemon of the installed program.
func launch(ctx context.Context, place Place, paths endpoint.Paths) (pid int, err error) {
	program, err := os.Executable()
	if err != nil {
		return 0, fmt.Errorf("finding this program: %w", err)
	}
	argv := []string{program, "daemon", "serve", "--dir", paths.Dir, "--socket", paths.Socket}
	if place.Status != "" {
		argv = append(argv, "--status", paths.Status)
	}
	if place.Config != "" {
		argv = append(argv, "--config", place.configPath())
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	return life.StartDetached(ctx, life.StartSpec{Argv: argv, Env: os.Environ(), Log: paths.Log})
}

// awaitStatus returns the status of a daemon that another process is starting.
func awaitStatus(ctx context.Context, place Place) (status.Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		s, err := Status(ctx, place)
		if err == nil {
			return s, nil
		}
		if pause(ctx, 20*time.Millisecond) != nil {
			return s, fmt.Errorf("awaiting the daemon that is starting: %w", err)
		}
	}
}

// pause waits, or returns the context's error.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// StopStep is one step of a stop and how long it took.
type StopStep struct {
	Name string
	Took time.Duration
}

// Stop ends the daemon of the place and returns when it is gone: it is asked,
// then terminated, then killed, each only once it is certain which process it
// is. Where no daemon runs the error is ErrNotRunning. Bridges do not start it
// again until a user does.
func Stop(ctx context.Context, place Place, report func(StopStep)) error {
	paths, err := place.paths()
	if err != nil {
		return err
	}
	held, err := endpoint.Held(paths)
	if err != nil {
		return err
	}
	if !held {
		return ErrNotRunning
	}
	if err := life.SetStopMarker(paths.Dir, time.Now()); err != nil {
		return err
	}
	s, err := status.Read(paths.Status)
	if err != nil {
		return fmt.Errorf("finding the daemon to stop: %w", err)
	}
	id := s.Identity
	return life.Stop(ctx, life.StopPlan{
		Identity: life.Identity{
			PID: s.PID, StartTicks: id.StartTicks, BootID: id.BootID, PIDNamespace: id.PIDNamespace,
			Instance: id.Instance, UID: uint32(id.UID), Build: id.Build,
		},
		Graces: life.Graces{Ask: stopAsk},
		Ask: func(ctx context.Context) error {
			r, err := dialControl(ctx, paths)
			if err != nil {
				return err
			}
			defer r.close()
			return r.call(ctx, methodStop, nil, nil)
		},
		Report: func(step life.Step, took time.Duration) {
			if report != nil {
				report(StopStep{Name: string(step), Took: took})
			}
		},
	})
}

// stopAsk is how long a daemon that was asked to stop may take: its drain, and
// the end of its servers.
const stopAsk = 16 * time.Second

// ErrNotVerified is returned by Stop for a process that is not certainly the
// daemon: nothing was sent to it.
var ErrNotVerified = life.ErrNotVerified
