package mcpd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"interlock/mcpd/internal/config"
	"interlock/mcpd/internal/wire"
	"interlock/recovery"
	"interlock/session"
)

const (
	// probeTimeout is how long a server may take to answer server/discover,
	// its start included, before the client is told to use initialize.
	probeTimeout = 2 * time.Second
	// maxNumber bounds the ids that servers see: some read 32 bits only.
	maxNumber = 1<<31 - 1
	// maxTokens bounds the progress tokens kept for tasks whose request has
	// been answered.
	maxTokens = 1024
)

// instance is one process of an upstream, or one session of a built-in server:
// what has been sent to it and not been answered. Its goroutine starts it, reads
// its output and ends it.
type instance struct {
	up   *upstream
	link link
	quit context.CancelFunc // ends the process; run waits until it is gone

	mu      sync.Mutex // guards the fields below
	pid     int
	pending map[int64]*exchange
	own     map[int64]*errand // the daemon's own requests
	tokens  map[int64][]byte  // clients' progress tokens of tasks under way
	last    int64
	ended   bool     // takes nothing more
	cause   *refusal // why it is being ended, if the daemon decided so
}

// enter adds a request to those the process owes an answer to and gives it its
// number. It returns false when the process takes nothing more.
func (in *instance) enter(x *exchange) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.ended {
		return false
	}
	x.number = in.numberLocked()
	x.inst.Store(in)
	in.pending[x.number] = x
	switch x.kind {
	case kindInitialize:
		x.timer = time.AfterFunc(in.up.d.limits.StartTimeout, func() { in.unshaken(x) })
	case kindDiscover:
		x.timer = time.AfterFunc(probeTimeout, func() { in.unprobed(x) })
	case kindListen, kindTaskResult, kindPing:
	default:
		if limit := in.up.d.limits.CallTimeout; limit > 0 {
			x.timer = time.AfterFunc(limit, func() { in.expired(x) })
		}
	}
	return true
}

// numberLocked returns an id that no request in flight has.
func (in *instance) numberLocked() int64 {
	for {
		in.last = in.last%maxNumber + 1
		_, taken := in.pending[in.last]
		_, own := in.own[in.last]
		_, token := in.tokens[in.last]
		if !taken && !own && !token {
			return in.last
		}
	}
}

// sent records the place of the request among all frames sent.
func (in *instance) sent(x *exchange, seq uint64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	x.seq = seq
}

// forget takes the request out of those that an answer is due for; whoever gets
// true answers it.
func (in *instance) forget(x *exchange) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.forgetLocked(x)
}

func (in *instance) forgetLocked(x *exchange) bool {
	if in.pending[x.number] != x {
		return false
	}
	delete(in.pending, x.number)
	if x.timer != nil {
		x.timer.Stop()
	}
	return true
}

// unshaken ends a process that has not answered the handshake in time.
func (in *instance) unshaken(x *exchange) {
	if !in.forget(x) {
		return
	}
	r := refuse(codeStartTimeout, "server %q did not answer initialize within %v and was ended; see its log with: interlock daemon logs --server %s",
		in.up.server.Name, in.up.d.limits.StartTimeout, in.up.server.Name)
	x.refuse(r)
	in.abort(r)
}

// unprobed tells the client that its probe found a server of the old era.
func (in *instance) unprobed(x *exchange) {
	if in.forget(x) {
		in.up.d.eras.set(in.up.server, session.Handshake)
		x.answerNoDiscover()
	}
}

// expired gives a call up that has neither been answered nor reported progress
// for the configured time.
func (in *instance) expired(x *exchange) {
	if !in.forget(x) {
		return
	}
	in.sendCancel(x.number, "the call's deadline has passed")
	limit := in.up.d.limits.CallTimeout
	x.lost(refuse(codeDeadline, "server %q neither answered nor reported progress for %v, and the call was cancelled", in.up.server.Name, limit), true)
}

// progressed starts a call's deadline anew.
func (in *instance) progressedLocked(x *exchange) {
	if x.timer != nil && in.up.d.limits.CallTimeout > 0 && !x.withdrawn.Load() {
		x.timer.Reset(in.up.d.limits.CallTimeout)
	}
}

func (in *instance) sendCancel(n int64, reason string) {
	in.link.sendOwn([]byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` +
		strconv.FormatInt(n, 10) + `,"reason":"` + reason + `"}}`))
}

func (x *exchange) answerNoDiscover() {
	if x.conn.session.Settle(&x.Call) {
		x.conn.sendOwn(appendRPCError(nil, x.id, rpcMethodNotFound, "method not found: server/discover"))
		x.conn.session.Answered(&x.Call)
	}
}

// cancelled passes the client's cancellation of x on, with the id replaced. The
// call keeps its permits until the server answers, or for the grace that a
// server has that rightly answers nothing.
func (in *instance) cancelled(x *exchange, f *wire.Frame, id wire.Span) {
	number := strconv.AppendInt(nil, x.number, 10)
	in.pass(f, []wire.Edit{{Span: id, With: number}})
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.pending[x.number] != x {
		return
	}
	if x.timer != nil {
		x.timer.Stop()
	}
	x.timer = time.AfterFunc(in.up.d.limits.CancelGrace, func() {
		if in.forget(x) {
			x.end(recovery.OutcomeCancelled, "")
			x.conn.session.Settle(&x.Call)
		}
	})
}

// pass hands on a frame that no answer is due for. While the server does not
// read its input it waits, which holds back a client that sends more.
func (in *instance) pass(f *wire.Frame, edits []wire.Edit) {
	for {
		_, err := in.link.send(f, edits)
		if !errors.Is(err, wire.ErrQueueFull) {
			return
		}
		if in.link.waitRoom(context.Background()) != nil {
			return
		}
	}
}

// errand is a request of the daemon's own.
type errand struct {
	done  func(result []byte) // result is nil for an error and for no answer
	timer *time.Timer
}

// ask sends a request of the daemon's own; done is called once, with no lock
// held, at the latest when the limit is over or the process has ended.
func (in *instance) ask(build func(n int64) []byte, send func(frame []byte) error, limit time.Duration, done func(result []byte)) {
	in.mu.Lock()
	if in.ended {
		in.mu.Unlock()
		done(nil)
		return
	}
	n := in.numberLocked()
	in.own[n] = &errand{done: done, timer: time.AfterFunc(limit, func() { in.finish(n, nil) })}
	in.mu.Unlock()
	if send(build(n)) != nil {
		in.finish(n, nil)
	}
}

// finish ends the errand n, if it is not over, and reports whether it was there.
func (in *instance) finish(n int64, result []byte) bool {
	in.mu.Lock()
	e := in.own[n]
	delete(in.own, n)
	in.mu.Unlock()
	if e == nil {
		return false
	}
	e.timer.Stop()
	e.done(result)
	return true
}

// abort ends the process for the reason given.
func (in *instance) abort(r *refusal) {
	in.mu.Lock()
	if in.cause == nil {
		in.cause = r
	}
	in.mu.Unlock()
	in.quit()
}

// leave ends the process because its session is over: what is in flight is
// cancelled first.
func (in *instance) leave() {
	in.mu.Lock()
	numbers := make([]int64, 0, len(in.pending))
	for n, x := range in.pending {
		if x.kind != kindInitialize && x.kind != kindPing {
			numbers = append(numbers, n)
		}
	}
	in.mu.Unlock()
	for _, n := range numbers {
		in.sendCancel(n, "the client has disconnected")
	}
	in.quit()
}

func (in *instance) snapshot() (pid, inFlight int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.pid, len(in.pending)
}

// run starts the server, reads its output to the end, and answers what is then
// still in flight. Nothing of the process is left when it returns.
func (in *instance) run(ctx context.Context, pause time.Duration) {
	err := in.host(ctx, pause)
	in.up.dropped(in)
	in.lost(err)
}

func (in *instance) host(ctx context.Context, pause time.Duration) (err error) {
	defer in.quit()
	defer func() {
		if p := recover(); p != nil {
			in.up.d.panicked(p, debug.Stack())
			err = fmt.Errorf("interlock failed while it served %q", in.up.server.Name)
		}
	}()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(pause):
	}
	return in.link.run(ctx, in)
}

// lost answers everything that the ended process has left open.
func (in *instance) lost(err error) {
	in.mu.Lock()
	in.ended = true
	pending, own, cause := in.pending, in.own, in.cause
	in.pending, in.own, in.tokens = nil, nil, nil
	for _, x := range pending {
		if x.timer != nil {
			x.timer.Stop()
		}
	}
	begun := in.link.begun()
	in.mu.Unlock()

	if cause == nil {
		cause = in.explain(err)
	}
	for _, x := range pending {
		if x.kind == kindDiscover {
			in.up.d.eras.set(in.up.server, session.Handshake)
			in.up.forgive()
			x.answerNoDiscover()
			continue
		}
		x.lost(cause, x.seq == 0 || x.seq <= begun)
	}
	for _, e := range own {
		e.timer.Stop()
		e.done(nil)
	}
	for _, n := range in.up.conn.questions.Lapse(in) {
		in.up.conn.sendOwn([]byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` +
			strconv.FormatInt(n, 10) + `,"reason":"the server has ended"}}`))
	}
}

// explain says why a process ended that was not told to.
func (in *instance) explain(err error) *refusal {
	var r *refusal
	if errors.As(err, &r) {
		return r
	}
	if err == nil {
		err = errors.New("it closed its output")
	}
	return refuse(codeServerLost, "server %q ended: %s", in.up.server.Name, strings.TrimSuffix(err.Error(), "."))
}

// eras remembers, for one daemon's life, which servers turned out to be of the
// era before server/discover; a server known as such is not probed again.
type eras struct {
	mu  sync.Mutex // guards era
	era map[string]session.Era
}

func (e *eras) of(s config.Server) session.Era {
	key := eraKey(s)
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.era[key]
}

func (e *eras) set(s config.Server, era session.Era) {
	key := eraKey(s)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.era == nil {
		e.era = make(map[string]session.Era)
	}
	e.era[key] = era
}

// eraKey names a server's configuration: a changed entry is probed anew.
func eraKey(s config.Server) string {
	b, err := json.Marshal([]any{s.Name, s.Command, s.Args, s.Env, s.Dir})
	if err != nil {
		return s.Name
	}
	return string(b)
}
