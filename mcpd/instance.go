package mcpd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"interlock/mcpd/internal/endpoint/private"
	"interlock/mcpd/internal/proc"
	"interlock/mcpd/internal/wire"
	"interlock/recovery"
	"interlock/session"
	"interlock/status"
)

const (
	// probeTimeout is how long a server may take to answer server/discover,
	// its start included, before the client is told to use initialize.
	probeTimeout = 2 * time.Second
	// leaveFlush is how long a server's input stays open for the cancellations of
	// a client that has left.
	leaveFlush = 200 * time.Millisecond
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
	// lingering are calls that have settled with the client while the server may
	// still be at work on them; they keep their leases.
	lingering map[int64]*exchange
	own       map[int64]*errand // the daemon's own requests
	tokens    map[int64][]byte  // clients' progress tokens of tasks under way
	kept      []int64           // the numbers of these, oldest first
	last      int64
	probe     int64    // number of a probe that was not answered in time
	left      bool     // is being ended because its session is over
	ended     bool     // takes nothing more
	gone      bool     // nothing of the process is left
	cause     *refusal // why it has ended or, if the daemon decided so, is being ended
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
		_, lingers := in.lingering[in.last]
		_, own := in.own[in.last]
		_, token := in.tokens[in.last]
		if !taken && !lingers && !own && !token {
			return in.last
		}
	}
}

// sent records the place of the request among all frames sent, 0 if it has none.
// A process that was lost meanwhile has left the request to whoever was sending
// it, and a client that cancelled it meanwhile, the cancellation.
func (in *instance) sent(x *exchange, seq uint64) {
	in.mu.Lock()
	x.sent, x.seq = true, seq
	orphan := in.ended && in.forgetLocked(x)
	cancel := x.withdrawn.Load() && in.withdrawLocked(x)
	in.mu.Unlock()
	if orphan {
		in.abandon(x)
	}
	if cancel {
		in.sendCancel(x.number, "cancelled by the client")
	}
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
	defer x.guard()
	if !in.forget(x) {
		return
	}
	r := refuse(codeStartTimeout, "server %q did not answer initialize within %v and was ended; see its log with: %s daemon logs --server %s",
		in.up.server.Name, in.up.d.limits.StartTimeout, in.up.d.options.Command, private.Quote(in.up.server.Name))
	x.refuse(r)
	in.abort(r)
}

// unprobed tells the client that its probe found a server of the old era.
func (in *instance) unprobed(x *exchange) {
	defer x.guard()
	if in.forget(x) {
		in.mu.Lock()
		in.probe = x.number
		in.mu.Unlock()
		in.up.d.eras.set(in.up.server, session.Handshake)
		x.answerNoDiscover()
	}
}

// answeredLate learns from an answer to a probe that came too late for the client:
// the server was slow to start, and is of the new era all the same.
func (in *instance) answeredLate(n int64, env *wire.Envelope) {
	in.mu.Lock()
	late := n == in.probe
	in.mu.Unlock()
	if late && env.Kind == wire.Result {
		in.up.d.eras.set(in.up.server, session.Stateless)
	}
}

// expired gives a call up that has neither been answered nor reported progress
// for the configured time.
func (in *instance) expired(x *exchange) {
	defer x.guard()
	if !in.forgetUnsettled(x, in.up.d.limits.CancelGrace+in.up.d.limits.LockDelay) {
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

// cancellation is the notification that whoever asked under the id n wants no
// answer any more.
func cancellation(n int64, reason string) []byte {
	return []byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` +
		strconv.FormatInt(n, 10) + `,"reason":"` + reason + `"}}`)
}

func (in *instance) sendCancel(n int64, reason string) {
	in.link.sendOwn(cancellation(n, reason))
}

func (x *exchange) answerNoDiscover() {
	if x.settle() {
		x.conn.sendOwn(appendRPCError(nil, x.id, rpcMethodNotFound, "method not found: server/discover"))
		x.conn.session.Answered(&x.Call)
	}
}

// withdraw notes that the client has cancelled the request, and reports whether
// the caller is to tell the server. A request that is only being sent is no
// server's yet: whoever sends it tells it then. The call keeps its permits until
// the server answers, or for the grace that a server has that rightly answers
// nothing.
func (in *instance) withdraw(x *exchange) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.withdrawLocked(x)
}

func (in *instance) withdrawLocked(x *exchange) bool {
	if in.pending[x.number] != x || !x.sent || x.cancelSent {
		return false
	}
	x.cancelSent = true
	in.expectNoMoreLocked(x)
	return true
}

// expectNoMoreLocked gives the server the grace to answer a request that it may
// well leave without an answer.
func (in *instance) expectNoMoreLocked(x *exchange) {
	if x.timer != nil {
		x.timer.Stop()
	}
	x.timer = time.AfterFunc(in.up.d.limits.CancelGrace, func() {
		defer x.guard()
		if !in.forgetUnsettled(x, in.up.d.limits.LockDelay) {
			return
		}
		x.end(recovery.OutcomeCancelled, "")
		x.giveUp()
	})
}

// pass hands on a frame that no answer is due for. It never waits: what the
// client says next may be what a server that is stuck needs to hear. What a
// server has no room for that has long stopped reading is dropped.
func (in *instance) pass(f *wire.Frame, edits []wire.Edit) {
	if _, err := in.link.send(f, edits); errors.Is(err, wire.ErrQueueFull) {
		in.up.d.counters.droppedFrames.Add(1)
		in.up.d.log.Warn("dropping a message for a server that does not read its input", zap.String("server", in.up.server.Name))
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
	in.own[n] = &errand{done: done, timer: time.AfterFunc(limit, func() {
		defer in.up.conn.guard()
		in.finish(n, nil)
	})}
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
	in.left = true
	numbers := make([]int64, 0, len(in.pending))
	for n, x := range in.pending {
		if x.kind != kindInitialize && x.kind != kindPing && !x.cancelSent {
			numbers = append(numbers, n)
		}
		in.boundLocked(x)
	}
	in.mu.Unlock()
	for _, n := range numbers {
		in.sendCancel(n, "the client has disconnected")
	}
	if len(numbers) > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), leaveFlush)
		defer cancel()
		in.link.flush(ctx)
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
	defer in.up.conn.guard()
	err := in.host(ctx, pause)
	in.up.dropped(in)
	in.lost(err)
}

// host runs the link, always and to its end: what has been sent waits in it. A
// panic ends the session.
func (in *instance) host(ctx context.Context, pause time.Duration) (err error) {
	defer in.quit()
	defer func() {
		if p := recover(); p != nil {
			in.up.conn.fault(p)
			err = refuse(codeInternal, "interlock failed while it served %q", in.up.server.Name)
		}
	}()
	select {
	case <-ctx.Done():
	case <-time.After(pause):
	}
	return in.link.run(ctx, in)
}

// lost answers everything that the ended process has left open.
func (in *instance) lost(err error) {
	in.mu.Lock()
	in.ended = true
	if in.cause == nil {
		in.cause = in.explain(err)
	}
	open := in.takeOpenLocked()
	own := in.own
	in.own, in.tokens, in.kept = nil, nil, nil
	in.mu.Unlock()

	in.settleAll()
	in.abandon(open...)
	for _, e := range own {
		e.timer.Stop()
		e.done(nil)
	}
	for _, n := range in.up.conn.questions.Lapse(in) {
		in.up.conn.sendOwn(cancellation(n, "the server has ended"))
	}
	in.note(open)
}

// takeOpenLocked takes out all requests that have been sent and not been answered,
// in the order in which they were sent. What is being sent at this moment is left
// to its sender.
func (in *instance) takeOpenLocked() []*exchange {
	var open []*exchange
	for n, x := range in.pending {
		if x.timer != nil {
			x.timer.Stop()
		}
		if x.sent {
			open = append(open, x)
			delete(in.pending, n)
		}
	}
	slices.SortFunc(open, func(a, b *exchange) int { return cmp.Compare(a.number, b.number) })
	return open
}

// cut gives up what is in flight while the process runs on, to be ended with its
// session.
func (in *instance) cut(cause *refusal) {
	in.mu.Lock()
	in.ended = true
	if in.cause == nil {
		in.cause = cause
	}
	open := in.takeOpenLocked()
	for _, x := range open {
		in.lingerLocked(x, in.up.d.limits.CancelGrace+in.up.d.limits.LockDelay)
	}
	in.mu.Unlock()
	for _, x := range open {
		in.sendCancel(x.number, "the daemon is stopping")
	}
	in.abandon(open...)
}

// note keeps for status that a server does not start, or has ended by itself.
func (in *instance) note(open []*exchange) {
	in.mu.Lock()
	cause, left := in.cause, in.left
	in.mu.Unlock()
	probed := slices.ContainsFunc(open, func(x *exchange) bool { return x.kind == kindDiscover })
	switch {
	case left || probed:
		in.up.d.changed()
	case cause.code == codeStartFailed, cause.code == codeStartTimeout:
		fmt.Fprintf(in.up.d.serverLog(in.up.server.Name), "interlock: %s\n", cause.message)
		in.up.d.troubled(in.up.server.Name, status.UpstreamStartFailed, "could not be started")
	case cause.code == codeServerLost:
		in.up.d.troubled(in.up.server.Name, status.UpstreamCrashed, "ended by itself; it is started anew when it is needed")
	}
}

// abandon answers requests that the ended process has not answered, in the order
// given. Before that their runs end, all at the same time: so the recovery file is
// rewritten for all of them together, not for each.
func (in *instance) abandon(open ...*exchange) {
	in.mu.Lock()
	cause, left, pid := in.cause, in.left, in.pid
	in.mu.Unlock()
	answers := make([]*refusal, len(open))
	var ends sync.WaitGroup
	for i, x := range open {
		if x.kind != kindDiscover {
			ends.Go(func() {
				defer x.guard()
				answers[i] = x.endLost(cause, x.seq != 0 && x.seq <= in.link.begun())
			})
		}
	}
	ends.Wait()
	for i, x := range open {
		if x.kind != kindDiscover {
			x.refuse(answers[i])
			continue
		}
		if !left && pid != 0 { // else nothing has been learnt of the server
			in.up.d.eras.set(in.up.server, session.Handshake)
			in.up.forgive()
		}
		x.answerNoDiscover()
	}
}

// explain says why a process ended that was not told to.
func (in *instance) explain(err error) *refusal {
	var own *refusal
	var exit *proc.ExitError
	switch {
	case errors.As(err, &own):
		return own
	case errors.As(err, &exit):
		return refuse(codeServerLost, "%s", strings.TrimRight(exit.Error(), ". \n"))
	default:
		return refuse(codeServerLost, "server %q ended: %v", in.up.server.Name, err)
	}
}
