package mcpd

import (
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"interlock/mcpd/internal/wire"
	"interlock/recovery"
	"interlock/session"
)

// kind tells apart the few methods that the daemon treats in a way of their own.
type kind uint8

const (
	kindOther kind = iota
	kindToolCall
	kindToolList
	kindPing
	kindInitialize
	kindDiscover
	kindSetLevel
	kindSubscribe
	kindUnsubscribe
	kindListen
	kindTaskResult
)

func kindOf(method []byte) kind {
	switch string(method) {
	case "tools/call":
		return kindToolCall
	case "tools/list":
		return kindToolList
	case "ping":
		return kindPing
	case "initialize":
		return kindInitialize
	case "server/discover":
		return kindDiscover
	case "logging/setLevel":
		return kindSetLevel
	case "resources/subscribe":
		return kindSubscribe
	case "resources/unsubscribe":
		return kindUnsubscribe
	case "subscriptions/listen":
		return kindListen
	case "tasks/result":
		return kindTaskResult
	default:
		return kindOther
	}
}

// exchange is one request of a client on its way to a server and back.
type exchange struct {
	session.Call
	conn  *conn
	up    *upstream // the server that it is for
	kind  kind
	task  bool   // the request asks for a task, whose progress outlives the answer
	held  bool   // frame is the exchange's own
	first bool   // of the pages of a list
	id    []byte // the client's, as written
	// token is the client's progress token as written, nil if it gave none.
	token []byte
	began time.Time

	// Of a tool call: whose it is, what is called, what it does, its leases, if it
	// has to do with any, and its record, if it has one.
	owner string
	tool  string
	class string
	turn  *turn
	run   *recovery.Run

	frame     *wire.Frame // the request, until it is forwarded
	places    places
	arguments wire.Span
	edits     [3]wire.Edit // room for those of the request
	reply     [2]wire.Edit // and of the answer, which may come before the request's are done with

	// inst and number are set when the exchange is forwarded, before the server
	// can answer: the process and the id it knows the request by.
	inst    atomic.Pointer[instance]
	number  int64
	decimal [12]byte // number, as the server reads it

	withdrawn atomic.Bool // the client has cancelled it
	waiting   atomic.Bool // for its turn, of which the client is told from time to time

	// guarded by instance.mu
	sent       bool        // it has been given to the server's queue, which may have refused it
	seq        uint64      // of the frame in that queue; 0 if it has not been queued
	cancelSent bool        // the server has been told that it is cancelled
	timer      *time.Timer // bound on a handshake, a probe or a call, or on a cancelled one
}

// places are where in a request the daemon puts words of its own.
type places struct {
	id    wire.Span
	token wire.Span   // of the progress token, if there is one
	cuts  []wire.Edit // members of _meta that are for the daemon only
	epoch epochPlace
}

// epochPlace is where a call is told the epoch of its lease: nowhere if at is 0.
type epochPlace struct {
	at            int
	before, after string
}

// edit puts the epoch in.
func (p *epochPlace) edit(epoch uint64) wire.Edit {
	text := strconv.AppendUint([]byte(p.before), epoch, 10)
	return wire.Edit{Span: wire.Span{Start: p.at, End: p.at}, With: append(text, p.after...)}
}

// appendEdits appends the edits that give the request a number.
func (p *places) appendEdits(dst []wire.Edit, number []byte) []wire.Edit {
	dst = append(dst, wire.Edit{Span: p.id, With: number})
	if p.token.Present() {
		dst = append(dst, wire.Edit{Span: p.token, With: number})
	}
	return append(dst, p.cuts...)
}

// appendCuts appends the edits that take out the members of the daemon's own.
func appendCuts(dst []wire.Edit, env *wire.Envelope) []wire.Edit {
	for _, own := range env.Own {
		dst = append(dst, wire.Edit{Span: own})
	}
	return dst
}

// guard is that of the connection; what the request holds is given back.
func (x *exchange) guard() {
	if p := recover(); p != nil {
		x.conn.fault(p)
		x.giveUp()
	}
}

// giveUp settles a request that was running and leaves it without an answer.
func (x *exchange) giveUp() {
	if x.settle() {
		x.conn.session.Answered(&x.Call)
	}
}

// Forward records the request, if it is a call of a kind that is, and sends it to
// its server, which is started if it does not run.
func (x *exchange) Forward() {
	defer x.guard()
	x.waiting.Store(false)
	frame := x.frame
	x.frame = nil
	defer frame.Release()
	err := x.admit()
	if err == nil {
		err = x.record(frame)
	}
	if err != nil {
		r := refusalOf(err)
		x.noteRefused(r)
		x.refuse(r)
		return
	}
	in, err := x.up.take(x)
	if err != nil {
		x.end(recovery.OutcomeNotSent, err.Error())
		x.refuse(refusalOf(err))
		return
	}
	if x.withdrawn.Load() {
		if in.forget(x) {
			x.end(recovery.OutcomeNotSent, "cancelled")
			x.settle()
		}
		return
	}
	id := strconv.AppendInt(x.decimal[:0], x.number, 10)
	edits := x.edits[:0]
	if x.places.epoch.at > 0 && x.turn != nil && x.turn.use.Epoch() > 0 {
		edits = append(edits, x.places.epoch.edit(x.turn.use.Epoch())) // before a cut at the same place
	}
	seq, err := in.link.send(frame, x.places.appendEdits(edits, id))
	if errors.Is(err, wire.ErrQueueFull) && in.forget(x) {
		x.end(recovery.OutcomeNotSent, "the server did not read its input")
		x.refuse(deaf(x.up.server.Name))
		return
	}
	// A closed queue is that of a server that has just been lost, or is being
	// ended: whoever ends it answers all that was taken.
	in.sent(x, seq)
}

// deaf says that a request has found no room before a server that does not read.
func deaf(server string) *refusal {
	return refuse(codeBusy, "server %q does not read its input, of which too much is waiting. The call was not sent; try again in a moment.", server).notSent().later()
}

// Hold keeps the request's frame for as long as it waits.
func (x *exchange) Hold() {
	if x.held {
		return
	}
	x.frame, x.held = x.frame.Keep(), true
	if x.token != nil {
		x.waiting.Store(true)
		x.sayWaiting(0)
	}
}

const (
	// minWaitingPace is the least time between two notes that a request waits, and
	// maxWaitingNotes how many there are at the most.
	minWaitingPace  = 100 * time.Millisecond
	maxWaitingNotes = 1000
)

// sayWaiting tells the client from now on, a few times in the longest wait there
// is, that its request waits: some give up on one that says nothing for a minute.
// Progress must rise (MCP, progress): what is told here stays below zero, where
// servers begin.
func (x *exchange) sayWaiting(told int) {
	if told == maxWaitingNotes {
		return
	}
	time.AfterFunc(max(x.conn.d.limits.WaitLimit/5, minWaitingPace), func() {
		defer x.conn.guard()
		if !x.waiting.Load() || x.withdrawn.Load() {
			return
		}
		x.conn.sendOwn(fmt.Appendf(nil,
			`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%.3f,"message":"waiting for a turn"}}`,
			x.token, float64(told-maxWaitingNotes)/maxWaitingNotes))
		x.sayWaiting(told + 1)
	})
}

// Refuse answers a request that the session does not take, or that no permit
// became free for.
func (x *exchange) Refuse(err error) {
	defer x.conn.guard()
	x.Drop()
	r := refusalOf(err)
	x.noteRefused(r)
	x.answerRefusal(r)
}

func (x *exchange) answerRefusal(r *refusal) {
	switch {
	case r.code == codeBusy:
		x.conn.d.counters.refusedBusy.Add(1)
	case r.code.isLease():
		x.conn.d.counters.refusedLeases.Add(1)
	}
	x.conn.sendOwn(appendRefusal(nil, x.id, x.kind == kindToolCall, x.conn.session.Era(), r))
}

// refuse settles a request that was running and answers it.
func (x *exchange) refuse(r *refusal) {
	if x.settle() {
		x.answerRefusal(r)
		x.conn.session.Answered(&x.Call)
	}
}

// Drop gives back the request's frame and its place in line for leases where it has
// not been forwarded.
func (x *exchange) Drop() {
	x.leave()
	x.waiting.Store(false)
	if x.frame != nil {
		x.frame.Release()
		x.frame = nil
	}
}
