package mcpd

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime/debug"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"interlock/mcpd/internal/config"
	"interlock/mcpd/internal/endpoint"
	"interlock/mcpd/internal/wire"
	"interlock/session"
)

// Bounds of a connection's output: how much of its server's may wait for a slow
// reader, one frame more not counted; how much of the daemon's own besides; and
// how long no byte of it may go.
const (
	outputBound    = 8 << 20
	ownOutputBound = 1 << 20
	outputStall    = 10 * time.Second
)

// refusedLinger is how long a client that got no session is told why, in the
// answer to each of its requests, before the connection is closed.
const refusedLinger = 2 * time.Second

// conn is one accepted connection: first nameless, then a session or a control
// connection. Its reader goroutine owns it.
type conn struct {
	d    *Daemon
	peer endpoint.Peer
	nc   *net.UnixConn
	in   *wire.Reader
	out  *wire.Queue
	env  wire.Envelope // of the frame in hand; the reader's

	// set once by the reader, before the server can know of the connection
	session *session.Session
	server  *upstream
	own     *upstream // serves the tools of leases beside the server's; nil where they are not asked for
	refusal *refusal  // why there is no session

	upstream atomic.Pointer[upstream] // the same as server, for status

	questions session.Questions[*instance]
	waiters   waiters
}

// newConn prepares a connection whose peer has been checked.
func (d *Daemon) newConn(nc *net.UnixConn, peer endpoint.Peer) *conn {
	c := &conn{d: d, peer: peer, nc: nc}
	c.in = wire.NewReader(nc, d.budget.Account(d.limits.SessionBudget), wire.ReaderOptions{MaxFrame: int(d.limits.Frame)})
	c.out = wire.NewQueue(wire.QueueOptions{
		Bound: outputBound + d.limits.Frame + ownOutputBound,
		Stall: outputStall,
		// Without its output a connection is of no use: the reader ends it.
		OnFail: func(error) { nc.Close() },
	})
	c.out.Attach(nc)
	return c
}

// serve reads the connection to its end. A panic ends this connection only.
func (c *conn) serve(first time.Time) {
	defer c.guard() // of its end
	defer c.close()
	defer c.guard()
	c.nc.SetReadDeadline(first)
	frame, err := c.nextFrame()
	if err != nil {
		return
	}
	c.nc.SetReadDeadline(time.Time{})
	control := c.open(frame)
	if c.refusal == nil {
		c.d.spoke(c)
	}
	if control {
		c.serveControl(frame)
		c.out.Flush(context.Background()) // ends with the client's reading at the latest
		return
	}
	for {
		frame, err := c.nextFrame()
		if err != nil {
			c.ended(err)
			return
		}
		c.handle(frame)
		frame.Release()
	}
}

// guard, deferred by whatever works for the connection, keeps a panic to it: the
// session ends, and the daemon does not.
func (c *conn) guard() {
	if p := recover(); p != nil {
		c.fault(p)
	}
}

// fault ends the connection because of a panic.
func (c *conn) fault(p any) {
	c.d.panicked(p, debug.Stack())
	c.nc.Close()
}

// nextFrame returns the next frame, and answers those that were discarded.
func (c *conn) nextFrame() (*wire.Frame, error) {
	for {
		frame, err := c.in.Next()
		if err == nil {
			return frame, nil
		}
		var discarded *wire.DiscardedError
		switch {
		case errors.As(err, &discarded):
			c.answerDiscarded(discarded)
		case errors.Is(err, wire.ErrUnterminated):
			c.d.counters.parseErrors.Add(1)
			c.sendOwn(appendRPCError(nil, nil, rpcParseError, "parse error: the input ended inside a message; a message ends with a newline"))
		default:
			return nil, err
		}
	}
}

func (c *conn) answerDiscarded(e *wire.DiscardedError) {
	c.d.counters.droppedFrames.Add(1)
	r := refuse(codeTooLarge, "the message is larger than interlock takes (%d bytes); it was not sent on", c.d.limits.Frame)
	if e.Reason != wire.TooLarge {
		r = refuse(codeBusy, "interlock has no memory left for a message of this size, or it stopped arriving; it was not sent on. Try again in a moment.").later()
	}
	if !e.HasMethod && e.ID != nil {
		c.answerQuestion(e.ID, r)
		return
	}
	c.sendOwn(appendRefusal(nil, e.ID, false, session.EraUnknown, r))
}

// answerQuestion answers the question that the client knows under the raw id with
// the refusal, if there is such a question: its own answer cannot be passed on.
func (c *conn) answerQuestion(id []byte, r *refusal) {
	n, ok := wire.ParseOwnID(id)
	if !ok {
		return
	}
	if in, id, ok := c.questions.Answer(n); ok {
		in.link.sendOwn(appendRefusal(nil, id, false, session.EraUnknown, r))
	}
}

// open makes the first frame's connection a session, or reports that it is a
// control connection.
func (c *conn) open(first *wire.Frame) (control bool) {
	b := first.Bytes()
	if err := wire.Scan(b, &c.env); err != nil || c.env.Kind != wire.Request {
		c.openSession(Hello{}, nil)
		c.handle(first)
		first.Release()
		return false
	}
	switch string(c.env.MethodName(b)) {
	case methodStatus, methodStop, methodRecovery, methodAck, methodRepair, methodHistory, methodLeases, methodBreak, methodExplain:
		return true
	case methodHello:
		id := append([]byte(nil), c.env.ID.Of(b)...)
		hello, err := c.d.parseHello(c.env.Params.Of(b))
		first.Release()
		if err != nil {
			c.refuseSession(refusalOf(err), id)
			return false
		}
		c.openSession(hello, id)
		return false
	default:
		c.openSession(Hello{}, nil)
		c.handle(first)
		first.Release()
		return false
	}
}

// openSession gives the connection its session, and answers the hello with the
// raw id, if there was one.
func (c *conn) openSession(h Hello, helloID []byte) {
	server, err := c.d.serverFor(h)
	if err != nil {
		c.refuseSession(refusalOf(err), helloID)
		return
	}
	p := c.d.catalogue.For(server, c.d.limits)
	s, err := c.d.sessions.Open(session.Info{PID: c.peer.PID, Server: server.Name, Project: h.Project, Running: p.MaxRequests.Value})
	if err != nil {
		c.refuseSession(refusalOf(err), helloID)
		return
	}
	c.session = s
	c.server = newUpstream(c, server, p, h)
	if h.Leases && server.Builtin != config.BuiltinInterlock {
		c.own = newUpstream(c, ownServer(), c.d.catalogue.For(ownServer(), c.d.limits), h)
	}
	c.upstream.Store(c.server)
	c.d.changed()
	if helloID != nil {
		c.sendOwn(appendResult(nil, helloID, c.d.welcome(s)))
	}
}

// refuseSession tells the client for a while, in the answer to each of its
// requests, why it has no session; the connection is then closed.
func (c *conn) refuseSession(r *refusal, helloID []byte) {
	c.d.counters.refusedSessions.Add(1)
	c.refusal = r
	time.AfterFunc(refusedLinger, func() { c.nc.Close() })
	if helloID != nil {
		c.sendOwn(appendRefusal(nil, helloID, false, session.EraUnknown, r))
	}
}

// ended follows the end of the client's input: at once where the connection is
// broken, else when all that is in flight has been answered or the grace is over.
func (c *conn) ended(err error) {
	if c.session == nil || !errors.Is(err, io.EOF) || hungUp(c.nc) {
		return
	}
	c.session.EndInput()
	c.d.leases.ReleaseOwner(c.session.Owner()) // what it holds by hand serves nothing any more
	for _, q := range c.questions.End() {
		q.Origin.refuseQuestion(q.ID)
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.d.limits.HalfCloseGrace)
	defer cancel()
	done := make(chan struct{})
	go func() { // ends when everything is answered, the grace is over, or the peer is gone
		defer close(done)
		if c.session.WaitIdle(ctx) == nil {
			c.out.Flush(ctx)
		}
		c.nc.Close()
	}()
	deadline, _ := ctx.Deadline()
	awaitHangup(c.nc, deadline)
	cancel()
	<-done
}

// cutFlush is how long the answers for calls that are cut off may take to be read,
// and cutFlushHurried where the daemon is to end at once.
const (
	cutFlush        = time.Second
	cutFlushHurried = 200 * time.Millisecond
)

// drain closes the connection when its session is idle, or ctx ends: calls that
// are then still in flight are cut off, recorded, and answered as such. It is
// called by the daemon's drain.
func (c *conn) drain(ctx context.Context) {
	defer c.guard()
	defer c.nc.Close()
	u := c.upstream.Load()
	if u == nil {
		return
	}
	if u.conn.session.WaitIdle(ctx) != nil {
		u.cut(refuse(codeDraining, "interlock was stopped before server %q had answered", u.server.Name))
		u.conn.session.GiveUpAside(session.ErrDraining)
		if u.conn.own != nil {
			u.conn.own.cut(refuse(codeDraining, "interlock was stopped"))
		}
		limit := cutFlush
		select {
		case <-c.d.hurried:
			limit = cutFlushHurried
		default:
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.Background(), limit)
		defer cancel()
		u.conn.session.WaitIdle(ctx) // until what waited has been refused
	}
	c.out.Flush(ctx)
}

// close takes the connection down: nothing of it runs when it returns.
func (c *conn) close() {
	c.out.Close() // whoever waits to hand something to the client waits no longer
	if c.session != nil {
		c.session.Close()
		c.waiters.end()
		c.d.leases.ReleaseOwner(c.session.Owner())
		c.server.close()
		if c.own != nil {
			c.own.close()
			c.d.leases.ReleaseOwner(c.session.Owner()) // acquired at the last moment
		}
		c.d.guard.Forget(c.session.ID())
	}
	c.nc.Close()
	c.d.left(c)
}

// deliver hands a server's frame to the client. It waits while the client's
// queue is full, which holds the server back as a slow reader of its output
// would; a client that reads nothing at all is closed by its queue.
func (c *conn) deliver(f *wire.Frame, edits []wire.Edit) {
	for {
		if c.out.Queued() < outputBound {
			if _, err := c.out.Send(f, edits); !errors.Is(err, wire.ErrQueueFull) {
				return
			}
		}
		if c.out.Flush(context.Background()) != nil {
			return
		}
	}
}

// sendOwn sends a message of the daemon's own. Where the queue is full the
// client has not read its answers for long; it is closed.
func (c *conn) sendOwn(message []byte) {
	if _, err := c.out.SendBytes(message); errors.Is(err, wire.ErrQueueFull) {
		c.d.log.Info("closing a client that does not read its answers", zap.Int32("pid", c.peer.PID))
		c.nc.Close()
	}
}

// reject tells a refused peer of the daemon's own user why, without waiting.
func reject(nc *net.UnixConn, e *endpoint.PeerError) {
	defer nc.Close()
	if !e.Own {
		return
	}
	r := refuse(codePeerRefused, "%v", e)
	nc.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	nc.Write(append(appendRefusal(nil, nil, false, session.EraUnknown, r), '\n'))
}
