package mcpd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"interlock/mcpd/internal/config"
	"interlock/mcpd/internal/endpoint"
	"interlock/mcpd/internal/life"
	"interlock/mcpd/internal/logfile"
	"interlock/mcpd/internal/proc"
	"interlock/recovery"
	"interlock/status"
)

// The daemon's heap is a few MiB: letting it double and half again before it is
// collected spares calls the pauses. What large messages leave is collected in
// time all the same, since all memory is limited to their budget and a bit.
const (
	gcPercent    = 300
	memoryBeside = 128 << 20
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
	// IdleExit ends the daemon when nobody has been connected for so long; 0 is
	// never.
	IdleExit time.Duration
	// Ready is called once connections are accepted, unless it is another process
	// that has started this one and hears it. It may be nil.
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
	identity, err := life.Self(Version())
	if err != nil {
		return err
	}
	previous, _ := status.Read(paths.Status) // of a daemon that has crashed, if there is one
	writer := status.NewWriter(paths.Status, statusInterval)
	defer func() { err = errors.Join(err, writer.Close(!errors.Is(err, endpoint.ErrLost))) }()
	// Until that is done the file names the daemon to sweep after, should this one
	// be killed too; from then on it names this one.
	sweep(ctx, previous.Identity.Instance, logs.daemon)
	if marked := lock.Instance(); marked != previous.Identity.Instance {
		sweep(ctx, marked, logs.daemon) // the status file is gone, or another's
	}
	lock.Mark(identity.Instance)
	defer lock.Mark("")
	writer.Update(func() status.Snapshot { return starting(paths, identity) })
	if err := writer.Flush(); err != nil {
		logs.daemon.Warn("writing the status file", zap.Error(err))
	}
	journal, report, err := recovery.Open(recoveryOptions(place, paths, cfg, identity))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, journal.Close()) }()
	if report.Interrupted > 0 || len(report.Problems) > 0 {
		logs.daemon.Warn("recovered", zap.Int("interrupted", report.Interrupted), zap.Int("pending", report.Pending), zap.Any("problems", report.Problems))
	}
	spawner, end, err := startSpawner(ctx, identity.Instance, logs.daemon)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	ln, err := listen(paths, lock)
	if err != nil {
		return err
	}
	defer ln.Close()
	identity.SocketDevice, identity.SocketInode = ln.Inode()

	d, err := New(Options{
		Paths: paths, Config: cfg, Identity: identity, Spawner: spawner,
		Log: logs.daemon, Status: writer, Journal: journal, ServerLog: logs.server, IdleExit: o.IdleExit, Command: place.Command(), Epoch: report.Epoch,
	})
	if err != nil {
		return err
	}
	debug.SetGCPercent(gcPercent)
	debug.SetMemoryLimit(cfg.Limits.Budget + memoryBeside)
	logs.daemon.Info("serving", zap.String("socket", paths.Socket), zap.Int("pid", identity.PID), zap.String("build", identity.Build))
	d.changed()
	writer.Flush()
	if o.Ready != nil && !notifier.Awaited() {
		o.Ready(d.Snapshot())
	}
	notifier.OK()
	err = d.supervised(ctx, ln, o)
	logs.daemon.Info("ended", zap.Error(err))
	return err
}

// starting is the status of a daemon that does not serve yet.
func starting(p endpoint.Paths, id life.Identity) status.Snapshot {
	return status.Snapshot{
		ProtocolVersion: status.ProtocolVersion, State: status.StateStarting, PID: id.PID,
		Socket: p.Socket, StatusPath: p.Status, LogPath: p.Log, RecoveryPath: p.Recovery,
		StartedAt: time.Now(), Transport: status.Transport, Identity: statusIdentity(id),
	}
}

// sweepLimit bounds the end of what a crashed daemon has left behind.
const sweepLimit = 10 * time.Second

// sweep ends the processes of this directory's previous daemon, which has ended
// without its helper: those that carry its instance's marker, and no others.
func sweep(ctx context.Context, instance string, log *zap.Logger) {
	if instance == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, sweepLimit)
	defer cancel()
	ended, err := proc.EndMarked(ctx, instance, func(pid int) bool { return pid == os.Getpid() })
	if len(ended) > 0 {
		log.Warn("ended what the previous daemon left behind", zap.Ints("pids", ended))
	}
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		log.Error("ending what the previous daemon left behind", zap.Error(err))
	}
}

// helperLimit bounds the start of the spawn helper, and its end.
const helperLimit = 10 * time.Second

// startSpawner starts the spawn helper, where the system has what it needs; else
// servers are children of the daemon. The function ends it and all that it has
// started, or says what it has not ended.
func startSpawner(ctx context.Context, marker string, log *zap.Logger) (proc.Spawner, func() error, error) {
	ctx, cancel := context.WithTimeout(ctx, helperLimit)
	defer cancel()
	group, err := proc.MakeCgroup("interlock-" + marker)
	if err != nil {
		log.Warn("servers have no control group of their own", zap.Error(err))
	}
	helper, err := proc.StartHelper(ctx, proc.HelperOptions{Marker: marker, Cgroup: group, Log: log.Named("helper")})
	if err != nil && group != "" {
		err = errors.Join(err, os.Remove(group))
	}
	if errors.Is(err, errors.ErrUnsupported) {
		return proc.Direct{Marker: marker}, func() error { return nil }, nil
	}
	if err != nil {
		return nil, nil, err
	}
	return helper, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), helperLimit)
		defer cancel()
		err := helper.Close(ctx)
		if group != "" {
			err = errors.Join(err, os.Remove(group))
		}
		if err == nil {
			return nil
		}
		left, _ := proc.FindMarked(marker)
		log.Error("ending the spawn helper", zap.Error(err), zap.Ints("left", pidsOf(left)))
		return err
	}, nil
}

// recoveryOptions say where the daemon of the place keeps its record.
func recoveryOptions(place Place, p endpoint.Paths, cfg *config.Config, id life.Identity) recovery.Options {
	o := recovery.Options{
		Dir: p.Dir, Journal: p.Journal, Recovery: p.Recovery, BootID: id.BootID, Command: place.Command(),
	}
	if cfg != nil && cfg.Sync == config.SyncPower {
		o.Sync = recovery.SyncPower
	}
	return o
}

// IsHelper reports whether the command line is that of the spawn helper, which
// main must hand to HelperMain before anything else.
func IsHelper(argv []string) bool { return proc.IsHelper(argv) }

// HelperMain is the spawn helper: a small process that is the parent of every
// server and ends them all when the daemon is gone. It returns an exit code.
func HelperMain() int { return proc.HelperMain() }

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
	if err := life.NotifyReady(); err != nil {
		d.log.Warn("telling the service manager", zap.Error(err))
	}
	ctx, cancel := context.WithCancel(ctx)
	var helpers sync.WaitGroup
	helpers.Add(3)
	go func() {
		defer helpers.Done()
		select {
		case <-ctx.Done():
		case <-d.stopping:
		}
		if err := life.NotifyStopping(endLimit(d.limits.DrainTimeout)); err != nil {
			d.log.Warn("telling the service manager", zap.Error(err))
		}
	}()
	go func() {
		defer helpers.Done()
		if err := life.Watchdog(ctx, d.alive); err != nil {
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
	d.configure(cfg)
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
	asking, cancel := context.WithTimeout(ctx, welcomeLimit)
	defer cancel()
	s, err := Status(asking, place)
	held, heldErr := endpoint.Held(paths)
	switch {
	case err == nil && (held || heldErr != nil):
		return s.PID, true, nil
	case err == nil:
		// It has lost its files and will end; its place is free.
	case ctx.Err() == nil && asking.Err() != nil:
		return 0, false, unresponsive(place, paths, welcomeLimit)
	}
	for {
		pid, err = launch(ctx, place, paths)
		if !errors.Is(err, ErrRunning) {
			return pid, false, err
		}
		s, err := awaitStatus(ctx, place, paths)
		if !errors.Is(err, errNobody) {
			return s.PID, true, err
		}
	}
}

// errNobody is what awaitStatus returns where nobody has the directory any more.
var errNobody = errors.New("no daemon is starting")

// startLimit bounds a start, up to the first connection.
const startLimit = 30 * time.Second

// launch starts a daemon of the installed program. The error is ErrRunning where
// another one has won.
func launch(ctx context.Context, place Place, paths endpoint.Paths) (pid int, err error) {
	program, err := os.Executable()
	if err != nil {
		return 0, fmt.Errorf("finding this program: %w", err)
	}
	argv := append([]string{program}, place.serve(paths)...)
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	pid, err = life.StartDetached(ctx, life.StartSpec{Argv: argv, Env: childEnv(os.Environ()), Log: paths.Log})
	var failed *life.StartError
	if errors.As(err, &failed) && failed.Code == codeRunning {
		return 0, fmt.Errorf("%w: %w", ErrRunning, err)
	}
	return pid, err
}

// serve is the command line, behind the program's name, of the daemon of the place.
func (p Place) serve(paths endpoint.Paths) []string {
	args := []string{"daemon", "serve", "--dir", paths.Dir}
	if p.Socket != "" {
		args = append(args, "--socket", paths.Socket)
	}
	if p.Status != "" {
		args = append(args, "--status", paths.Status)
	}
	if p.Config != "" {
		args = append(args, "--config", p.configPath())
	}
	return args
}

// awaitStatus returns the status of a daemon that another process is starting. The
// other may have had the directory for a moment only, to acknowledge runs.
func awaitStatus(ctx context.Context, place Place, paths endpoint.Paths) (status.Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		s, err := Status(ctx, place)
		if err == nil {
			return s, nil
		}
		if held, heldErr := endpoint.Held(paths); heldErr == nil && !held {
			return s, errNobody
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
