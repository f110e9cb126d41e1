package mcpd

import (
	"encoding/json"
	"strconv"

	"interlock/mcpd/internal/wire"
	"interlock/recovery"
	"interlock/session"
)

// newInstance returns an instance that is about to start; requests may be
// entered and sent at once.
func newInstance(u *upstream) *instance {
	in := &instance{
		up:      u,
		pending: make(map[int64]*exchange),
		own:     make(map[int64]*errand),
	}
	if s := u.d.builtin(u.server); s != nil {
		in.link = newBuiltinLink(in, s)
	} else {
		in.link = newChildLink(in)
	}
	return in
}

// runs records the process that the instance is.
func (in *instance) runs(pid int) {
	in.mu.Lock()
	in.pid = pid
	in.mu.Unlock()
	in.up.d.changed()
}

// receive takes one frame of the server. It runs on the reader of its output.
func (in *instance) receive(f *wire.Frame, env *wire.Envelope) {
	if err := wire.Scan(f.Bytes(), env); err != nil {
		in.receiveMalformed(f.Bytes(), env, err)
		return
	}
	switch env.Kind {
	case wire.Request:
		in.receiveQuestion(f, env)
	case wire.Notification:
		in.receiveNotification(f, env)
	default:
		in.receiveAnswer(f, env)
	}
}

// receiveMalformed takes what is no message that can be passed on. Most of it
// never was to be one; but who waits for it to be is told.
func (in *instance) receiveMalformed(b []byte, env *wire.Envelope, err error) {
	in.noise(b)
	switch {
	case !env.ID.Present():
	case env.Kind == wire.Request && env.Method.Present():
		in.link.sendOwn(appendRPCError(nil, env.ID.Of(b), rpcInvalidRequest, err.Error()))
	case env.Kind == wire.Result || env.Kind == wire.Error:
		if x := in.find(env.ID.Of(b)); x != nil && in.forget(x) {
			x.end(recovery.OutcomeOK, "the answer was malformed")
			x.refuse(refuse(codeInternal, "the answer of server %q was malformed and could not be passed on: %v", in.up.server.Name, err))
		}
	}
}

// maxNoise is how much of a line that is no message is kept.
const maxNoise = 8 << 10

// noise keeps what is no message of MCP in the server's log: banners, log lines,
// what a child of it printed.
func (in *instance) noise(line []byte) {
	in.up.d.counters.parseErrors.Add(1)
	text := append([]byte("stdout: "), line[:min(len(line), maxNoise)]...)
	in.up.d.serverLog(in.up.server.Name).Write(append(text, '\n'))
}

func (in *instance) receiveAnswer(f *wire.Frame, env *wire.Envelope) {
	b := f.Bytes()
	n, ok := wire.ParseOwnID(env.ID.Of(b))
	if !ok {
		in.stray()
		return
	}
	in.mu.Lock()
	x := in.pending[n]
	if x != nil {
		in.forgetLocked(x)
		if x.task && x.token != nil && env.Kind == wire.Result {
			in.keepTokenLocked(n, x.token)
		}
	}
	in.mu.Unlock()
	if x != nil {
		in.answer(x, f, env)
		return
	}
	var result []byte
	if env.Kind == wire.Result {
		result = env.Result.Of(b)
	}
	if !in.finish(n, result) {
		in.answeredLate(n, env)
		in.settleLate(n)
		in.stray()
	}
}

// keepTokenLocked keeps the token of a request that became a task: progress on
// it may come until the task ends (MCP 2025-11-25, tasks). Nobody says when that
// is, so the oldest give way.
func (in *instance) keepTokenLocked(n int64, token []byte) {
	if in.tokens == nil {
		in.tokens = make(map[int64][]byte)
	}
	if len(in.kept) == maxTokens {
		delete(in.tokens, in.kept[0])
		in.kept = in.kept[1:]
	}
	in.tokens[n] = token
	in.kept = append(in.kept, n)
}

// answer gives the server's answer the client's id back and hands it on.
func (in *instance) answer(x *exchange, f *wire.Frame, env *wire.Envelope) {
	b := f.Bytes()
	s := x.conn.session
	switch x.kind {
	case kindInitialize:
		if env.Kind == wire.Result {
			in.up.memory.shake(env.Result.Of(b))
			in.up.d.recovered(in.up.server.Name)
			s.Greet(session.Handshake, in.up.memory.client())
		}
	case kindDiscover:
		in.learnEra(b, env)
	case kindToolList:
		if env.Kind == wire.Result {
			in.up.classes.learn(env.Result.Of(b), x.first && !env.NextCursor.Present())
		}
	case kindToolCall:
		x.end(outcomeOf(b, env), "")
		if id := x.taskOf(b, env); id != nil {
			in.followTask(x, id)
		}
	}
	if !x.settle() {
		return
	}
	edits := append(x.reply[:0], wire.Edit{Span: env.ID, With: x.id})
	if own := x.conn.own; own != nil && x.up != own {
		edits = x.addOwnTools(edits, b, env)
	}
	if x.turn != nil && x.turn.stale != nil {
		edits = x.warnStale(edits, b, env)
	}
	if x.kind == kindListen && env.SubscriptionID.Present() {
		edits = append(edits, wire.Edit{Span: env.SubscriptionID, With: x.id})
	}
	x.conn.deliver(f, edits)
	s.Answered(&x.Call)
}

// learnEra remembers what the answer to server/discover says of the server. An
// error from the range of the stateless revisions comes from one that has it.
func (in *instance) learnEra(b []byte, env *wire.Envelope) {
	era := session.Stateless
	if env.Kind == wire.Error {
		var e struct{ Code int }
		if json.Unmarshal(env.Error.Of(b), &e) != nil || e.Code > -32020 || e.Code < -32099 {
			era = session.Handshake
		}
	}
	if era == session.Stateless {
		in.up.d.recovered(in.up.server.Name)
	}
	in.up.d.eras.set(in.up.server, era)
}

// receiveQuestion hands a request of the server to the client, under an id that
// is unique in the client's session.
func (in *instance) receiveQuestion(f *wire.Frame, env *wire.Envelope) {
	b, c := f.Bytes(), in.up.conn
	id := env.ID.Of(b)
	var key [64]byte
	n, ok := c.questions.Ask(in, string(wire.AppendIDKey(key[:0], id)), id)
	if !ok {
		in.refuseQuestion(id)
		return
	}
	c.deliver(f, []wire.Edit{{Span: env.ID, With: strconv.AppendInt(nil, n, 10)}})
}

// refuseQuestion tells the server that the client will not answer.
func (in *instance) refuseQuestion(id []byte) {
	r := refuse(codeBusy, "the client has too many questions to answer")
	if in.up.conn.session.InputEnded() {
		r = refuse(codeInputEnded, "the client has ended its input and answers no questions")
	}
	in.link.sendOwn(appendRefusal(nil, id, false, session.EraUnknown, r))
}

// receiveNotification hands a notification on to the client, with what names
// something of the client's in the client's words.
func (in *instance) receiveNotification(f *wire.Frame, env *wire.Envelope) {
	b := f.Bytes()
	var space [2]wire.Edit
	edits := space[:0]
	switch string(env.MethodName(b)) {
	case "notifications/progress":
		token, ok := in.clientToken(env.ProgressToken.Of(b))
		if !ok {
			in.stray() // late: the client no longer knows the token
			return
		}
		edits = append(edits, wire.Edit{Span: env.ProgressToken, With: token})
	case "notifications/cancelled":
		id, ok := in.receiveCancel(env.RequestID.Of(b))
		if !ok {
			in.stray()
			return
		}
		edits = append(edits, wire.Edit{Span: env.RequestID, With: id})
	case "notifications/tools/list_changed":
		in.up.classes.forget()
	}
	if env.SubscriptionID.Present() {
		x := in.find(env.SubscriptionID.Of(b))
		if x == nil {
			in.stray()
			return
		}
		edits = append(edits, wire.Edit{Span: env.SubscriptionID, With: x.id})
	}
	in.up.conn.deliver(f, edits)
}

// find returns the request in flight that the server knows under the raw id. One
// that the client has cancelled is as good as gone: it wants to hear no more of it.
func (in *instance) find(raw []byte) *exchange {
	n, ok := wire.ParseOwnID(raw)
	if !ok {
		return nil
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.wantedLocked(n)
}

func (in *instance) wantedLocked(n int64) *exchange {
	if x := in.pending[n]; x != nil && !x.withdrawn.Load() {
		return x
	}
	return nil
}

// clientToken returns the client's progress token for the one the server names.
func (in *instance) clientToken(raw []byte) ([]byte, bool) {
	n, ok := wire.ParseOwnID(raw)
	if !ok {
		return nil, false
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if x := in.wantedLocked(n); x != nil && x.token != nil {
		in.progressedLocked(x)
		return x.token, true
	}
	token, ok := in.tokens[n]
	return token, ok
}

// receiveCancel takes the server's word that it wants no answer to a question of
// its own any more or, in the stateless era, that a stream is over that the client
// listens to. It returns the client's id of it. After the end of a stream its
// result may still come.
func (in *instance) receiveCancel(raw []byte) (id []byte, ok bool) {
	var key [64]byte
	if id, ok := in.up.conn.questions.Withdraw(in, string(wire.AppendIDKey(key[:0], raw))); ok {
		return id, true
	}
	x := in.find(raw)
	if x == nil {
		return nil, false
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if x.kind == kindListen && in.pending[x.number] == x {
		in.expectNoMoreLocked(x)
	}
	return x.id, true
}

// receiveDiscarded answers the request whose answer was too large to pass on.
func (in *instance) receiveDiscarded(e *wire.DiscardedError) {
	in.up.d.counters.droppedFrames.Add(1)
	r := refuse(codeTooLarge, "the answer of server %q is larger than interlock passes on (%d bytes) and was dropped", in.up.server.Name, in.up.d.limits.Frame)
	if e.Reason != wire.TooLarge {
		r = refuse(codeBusy, "interlock had no memory left for the answer of server %q, or it stopped arriving, and it was dropped", in.up.server.Name)
	}
	if e.HasMethod {
		if e.ID != nil {
			in.link.sendOwn(appendRefusal(nil, e.ID, false, session.EraUnknown, r))
		}
		return
	}
	if x := in.find(e.ID); x != nil && in.forget(x) {
		x.end(recovery.OutcomeOK, "the answer was dropped")
		x.refuse(r)
	}
}

// stray counts a frame that answers or names nothing of ours.
func (in *instance) stray() { in.up.d.counters.strayFrames.Add(1) }
