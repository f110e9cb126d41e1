package mcpd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/semaphore"

	"interlock/leases"
	"interlock/mcpd/internal/builtin"
	"interlock/mcpd/internal/config"
	"interlock/mcpd/internal/endpoint"
	"interlock/mcpd/internal/life"
	"interlock/mcpd/internal/policy"
	"interlock/mcpd/internal/proc"
	"interlock/mcpd/internal/wire"
	"interlock/recovery"
	"interlock/session"
	"interlock/status"
)

const (
	// firstFrame is how long a new connection may stay silent, and
	// firstFrameCrowded how long when many do.
	firstFrame        = 60 * time.Second
	firstFrameCrowded = 5 * time.Second
	crowd             = 128
)

// ownersPerLife and epochsPerLife are how many sessions and leases one daemon can
// have in its life. Epochs stay below 2^53, above which JavaScript cannot count, for
// two million lives.
const (
	ownersPerLife = 1_000_000_000
	epochsPerLife = 1 << 32
)

// Options are what a daemon is made of.
type Options struct {
	Paths    endpoint.Paths
	Config   *config.Config
	Identity life.Identity
	Spawner  proc.Spawner
	Log      *zap.Logger
	Status   *status.Writer    // kept up to date by the daemon, closed by the caller
	Journal  *recovery.Journal // closed by the caller
	// Command is how messages name this program on a command line.
	Command string
	// IdleExit ends the daemon when it has had no connection for so long; 0 is
	// never.
	IdleExit time.Duration
	// Epoch counts the daemons of the directory, from 1.
	Epoch uint64
	// ServerLog returns where the output of a server's stderr goes; it must not
	// block. The daemon calls it once for each server.
	ServerLog func(name string) io.Writer
}

// Daemon serves the connections of one endpoint. It is made by New and serves
// once, by Run.
type Daemon struct {
	options    Options
	config     atomic.Pointer[config.Config] // replaced by reload
	limits     config.Limits
	log        *zap.Logger
	spawner    proc.Spawner
	budget     *wire.Budget
	sessions   *session.Registry
	starting   *semaphore.Weighted // servers being started at the same time
	peers      *endpoint.PeerCheck
	counters   counters
	eras       eras
	baseEnv    []string // of sessions whose client has sent none
	home       string
	started    time.Time
	status     *status.Writer
	journal    *recovery.Journal
	leases     *leases.Table
	guard      leases.Guard
	guarded    atomic.Bool // some server has a guard
	catalogue  *policy.Catalogue
	syncsPower bool            // begin records wait for the disk
	homeLost   atomic.Bool     // the directory is not ours any more
	own        *builtin.Server // named interlock
	local      *builtin.Server
	leaseTools []byte // their descriptions, for sessions of other servers

	stopping chan struct{} // closed by Stop
	stopOnce sync.Once
	hurried  chan struct{} // closed by Run when the end may take no time any more

	mu       sync.Mutex // guards the fields below
	conns    map[*conn]struct{}
	silent   []*conn                     // without a first frame yet, or refused, oldest first
	logs     map[string]func() io.Writer // by server; each opens its log at the first call
	findings map[string]status.Finding   // by code and detail
	troubles map[string]status.Finding   // by the server that has not answered since
	// peerFindings are about peers, the latest of each code.
	peerFindings map[status.Code]status.Finding
	listed       map[string]map[string]string // classes by server and tool, as last listed
	idle         *time.Timer                  // runs while there is no connection; nil without IdleExit

	serving sync.WaitGroup // the goroutines of connections
}

// New returns a daemon that has done nothing yet.
func New(o Options) (*Daemon, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return nil, fmt.Errorf("finding the home directory: %w", err)
	}
	peers, err := endpoint.NewPeerCheck(endpoint.Policy{AllowSandboxed: o.Config.Peers.Sandboxed == config.Allow})
	if err != nil {
		return nil, err
	}
	files, err := openFiles()
	if err != nil {
		return nil, err
	}
	l := fitDescriptors(o.Config.Limits, files)
	if asked := o.Config.Limits.Sessions; l.Sessions < asked {
		o.Log.Warn("fewer sessions than configured, because few files may be open (see ulimit -n)",
			zap.Uint64("files", files), zap.Int("sessions", l.Sessions), zap.Int("configured", asked))
	}
	d := &Daemon{
		options: o, limits: l, log: o.Log, spawner: o.Spawner,
		budget: wire.NewBudget(l.Budget),
		sessions: session.NewRegistry(session.Limits{
			Sessions: l.Sessions, Running: l.ClientCalls, Waiting: l.ClientWaiting,
			Global: l.Calls, WaitLimit: l.WaitLimit,
		}),
		starting:   semaphore.NewWeighted(int64(max(4, 2*runtime.NumCPU()))),
		peers:      peers,
		baseEnv:    baseEnv(os.Environ()),
		home:       home,
		started:    time.Now(),
		status:     o.Status,
		journal:    o.Journal,
		syncsPower: o.Config.Sync == config.SyncPower,
		stopping:   make(chan struct{}),
		hurried:    make(chan struct{}),
		conns:      make(map[*conn]struct{}),
		logs:       make(map[string]func() io.Writer),
		findings:   make(map[string]status.Finding),
		troubles:   make(map[string]status.Finding),

		peerFindings: make(map[status.Code]status.Finding),
		listed:       make(map[string]map[string]string),
	}
	// No owner's number is used again, by a later daemon either, and no lease's.
	life := max(o.Epoch, 1) - 1
	d.sessions.CountFrom(life * ownersPerLife)
	d.leases = leases.New(leases.Options{
		Clock: bootClock, Now: time.Now,
		First: life*epochsPerLife + 1, Last: (life + 1) * epochsPerLife,
		HoldMax: l.LeaseHoldMax, Expired: d.changed,
	})
	if d.catalogue, err = policy.Load(); err != nil {
		return nil, err
	}
	d.configure(o.Config)
	if o.IdleExit > 0 {
		d.idle = time.AfterFunc(o.IdleExit, d.exitIdle)
	}
	d.local, err = builtin.NewLocal(builtin.LocalOptions{
		Version: Version(), Home: home,
		OnPanic: func(text string) { d.panicked(text, nil) },
	})
	if err != nil {
		return nil, err
	}
	d.own, err = builtin.NewInterlock(tools{d}, builtin.InterlockOptions{
		Version: Version(),
		OnPanic: func(text string) { d.panicked(text, nil) },
	})
	if err != nil {
		return nil, err
	}
	list, err := d.own.ListTools(ownPrefix, isLeaseTool)
	if err != nil {
		return nil, err
	}
	for i, t := range list {
		if i > 0 {
			d.leaseTools = append(d.leaseTools, ',')
		}
		d.leaseTools = append(d.leaseTools, t...)
	}
	return d, nil
}

// Run accepts connections until ctx ends or Stop is called, then drains: calls
// in flight get the drain time-out, or until hurry is closed or ctx ends after
// Stop, and everything else is over at once. Nothing of the daemon runs when it returns, and ln is
// closed.
func (d *Daemon) Run(ctx context.Context, ln *endpoint.Listener, hurry <-chan struct{}) error {
	accepted := make(chan error, 1)
	go func() { accepted <- d.accept(ln) }()
	lost := make(chan error, 1)
	watching, unwatch := context.WithCancel(ctx)
	go func() { lost <- d.watchHome(watching, ln) }()
	var err error
	select {
	case <-ctx.Done():
	case <-d.stopping:
	case err = <-lost:
		lost <- nil
	case err = <-accepted:
		accepted <- err
	}
	defer d.hurryWhen(hurry, ctx)()
	unwatch()
	<-lost
	d.sessions.Drain()
	ln.Close()
	<-accepted
	d.changed()
	d.drain()
	d.serving.Wait()
	if d.idle != nil {
		d.idle.Stop()
	}
	d.leases.Close()
	return err
}

// configure puts a configuration into force for new sessions.
func (d *Daemon) configure(c *config.Config) {
	d.config.Store(c)
	d.guarded.Store(slices.ContainsFunc(c.Servers, func(s config.Server) bool {
		return s.Guard == config.GuardWarn || s.Guard == config.GuardRefuse
	}))
}

// exitIdle ends the daemon if it still has no connection. One that comes at this
// moment is told that the daemon is ending, and its bridge starts another.
func (d *Daemon) exitIdle() {
	d.mu.Lock()
	idle := len(d.conns) == 0
	d.mu.Unlock()
	if idle {
		d.log.Info("ending, because nobody has been connected", zap.Duration("for", d.options.IdleExit))
		d.Stop()
	}
}

// Stop asks Run to drain and return.
func (d *Daemon) Stop() { d.stopOnce.Do(func() { close(d.stopping) }) }

// accept takes connections until the listener is closed.
func (d *Daemon) accept(ln *endpoint.Listener) error {
	var lines pacer // about refused peers
	for {
		nc, err := ln.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return nil
			}
			return err
		}
		d.admit(nc, &lines)
	}
}

// admit serves a new connection on a goroutine of its own, if its peer may have it.
func (d *Daemon) admit(nc *net.UnixConn, lines *pacer) {
	defer func() {
		if p := recover(); p != nil {
			d.panicked(p, debug.Stack())
			nc.Close()
		}
	}()
	d.counters.accepted.Add(1)
	peer, notes, err := d.peers.Check(nc)
	if err != nil {
		d.refusePeer(nc, err, lines)
		return
	}
	for _, n := range notes {
		d.notePeer(peerFinding(n))
	}
	c := d.newConn(nc, peer)
	deadline := d.greet(c)
	d.serving.Go(func() { c.serve(deadline) })
}

// refusePeer closes the connection of a peer that is not served. Whoever tries
// again and again does not fill the log.
func (d *Daemon) refusePeer(nc *net.UnixConn, err error, lines *pacer) {
	d.counters.refusedPeers.Add(1)
	var refused *endpoint.PeerError
	known := errors.As(err, &refused)
	if skipped, due := lines.due(time.Now()); due {
		if known {
			d.log.Warn("peer refused", zap.String("code", refused.Code), zap.Uint32("uid", refused.UID), zap.Int32("pid", refused.PID), zap.Int("unsaid", skipped))
		} else {
			d.log.Warn("examining a peer failed", zap.Error(err), zap.Int("unsaid", skipped))
		}
	}
	if !known {
		nc.Close()
		return
	}
	// A stranger leaves no finding, and neither does who has ended meanwhile.
	if refused.Own && refused.Code != endpoint.CodePeerEnded {
		d.notePeer(refusalFinding(refused))
	}
	reject(nc, refused)
}

// greet enters a new connection among those that have said nothing yet and
// returns when it must have. Where there are too many of them the oldest goes.
func (d *Daemon) greet(c *conn) time.Time {
	d.mu.Lock()
	d.conns[c] = struct{}{}
	if d.idle != nil {
		d.idle.Stop()
	}
	d.silent = append(d.silent, c)
	n := len(d.silent)
	var oldest *conn
	if n > d.limits.PendingConnections {
		oldest = d.silent[0]
		d.silent = slices.Delete(d.silent, 0, 1)
	}
	d.mu.Unlock()
	if oldest != nil {
		oldest.nc.Close()
	}
	if n > crowd {
		return time.Now().Add(firstFrameCrowded)
	}
	return time.Now().Add(firstFrame)
}

// spoke takes a connection out of those that are outside of the session limit: it
// is a session now, or asks something.
func (d *Daemon) spoke(c *conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.spokeLocked(c)
}

func (d *Daemon) spokeLocked(c *conn) {
	if i := slices.Index(d.silent, c); i >= 0 {
		d.silent = slices.Delete(d.silent, i, i+1)
	}
}

// left forgets a connection that is over.
func (d *Daemon) left(c *conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.conns, c)
	d.spokeLocked(c)
	if d.idle != nil && len(d.conns) == 0 {
		d.idle.Reset(d.options.IdleExit)
	}
	if c.session != nil {
		d.changed()
	}
}

// open returns the connections there are.
func (d *Daemon) open() []*conn {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make([]*conn, 0, len(d.conns))
	for c := range d.conns {
		all = append(all, c)
	}
	return all
}

// welcome is the answer to the hello of a session.
func (d *Daemon) welcome(s *session.Session) []byte {
	b, err := json.Marshal(Welcome{
		Protocol: ProtocolVersion, Build: Version(), Instance: d.options.Identity.Instance,
		PID: os.Getpid(), Session: s.ID(), Owner: s.Owner(), Pending: len(d.unacknowledged()),
	})
	if err != nil {
		return []byte("{}")
	}
	return b
}

// serverLog returns the log of the server's stderr.
func (d *Daemon) serverLog(name string) io.Writer {
	d.mu.Lock()
	open, ok := d.logs[name]
	if !ok {
		open = sync.OnceValue(func() io.Writer { return d.options.ServerLog(name) })
		d.logs[name] = open
	}
	d.mu.Unlock()
	return open()
}

// panicked records a fault of the daemon's that ended one session.
func (d *Daemon) panicked(p any, stack []byte) {
	d.counters.panics.Add(1)
	text := fmt.Sprint(p)
	d.log.Error("fault", zap.String("panic", text), zap.ByteString("stack", stack))
	d.note(status.DaemonPanic.Finding(text, "", time.Now()))
}
