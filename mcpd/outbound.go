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
	defer in.mu.Unlock()
	in.pid = pid
}

// receive takes one frame of the server. It runs on the reader of its output.
func (in *instance) receive(f *wire.Frame, env *wire.Envelope) {
	if err := wire.Scan(f.Bytes(), env); err != nil {
		in.noise(f.Bytes())
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

// noise keeps what is no message of MCP in the server's log: banners, log lines,
// what a child of it printed.
func (in *instance) noise(line []byte) {
	in.up.d.counters.parseErrors.Add(1)
	log := in.up.d.serverLog(in.up.server.Name)
	log.Write([]byte("stdout: "))
	log.Write(line)
	log.Write([]byte("\n"))
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
		if x.task && x.token != nil && len(in.tokens) < maxTokens {
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
		in.stray()
	}
}

// keepTokenLocked keeps the token of a request that became a task: progress on
// it may come until the task ends (MCP 2025-11-25, tasks).
func (in *instance) keepTokenLocked(n int64, token []byte) {
	if in.tokens == nil {
		in.tokens = make(map[int64][]byte)
	}
	in.tokens[n] = token
}

// answer gives the server's answer the client's id back and hands it on.
func (in *instance) answer(x *exchange, f *wire.Frame, env *wire.Envelope) {
	b := f.Bytes()
	s := x.conn.session
	switch x.kind {
	case kindInitialize:
		if env.Kind == wire.Result {
			in.up.memory.shake(env.Result.Of(b))
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
	}
	if !s.Settle(&x.Call) {
		return
	}
	edits := append(x.reply[:0], wire.Edit{Span: env.ID, With: x.id})
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
	in.up.d.eras.set(in.up.server, era)
}

// receiveQuestion hands a request of the server to the client, under an id that
// is unique in the client's session.
func (in *instance) receiveQuestion(f *wire.Frame, env *wire.Envelope) {
	b, c := f.Bytes(), in.up.conn
	id := env.ID.Of(b)
	if c.session.InputEnded() {
		in.link.sendOwn(appendRefusal(nil, id, false, session.EraUnknown,
			refuse(codeInputEnded, "the client has ended its input and answers no questions")))
		return
	}
	var key [64]byte
	n, ok := c.questions.Ask(in, string(wire.AppendIDKey(key[:0], id)), id)
	if !ok {
		in.link.sendOwn(appendRefusal(nil, id, false, session.EraUnknown,
			refuse(codeBusy, "the client has too many questions to answer")))
		return
	}
	c.deliver(f, []wire.Edit{{Span: env.ID, With: strconv.AppendInt(nil, n, 10)}})
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
		id, ok := in.clientID(env.RequestID.Of(b))
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

// find returns the request in flight that the server knows under the raw id.
func (in *instance) find(raw []byte) *exchange {
	n, ok := wire.ParseOwnID(raw)
	if !ok {
		return nil
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.pending[n]
}

// clientToken returns the client's progress token for the one the server names.
func (in *instance) clientToken(raw []byte) ([]byte, bool) {
	n, ok := wire.ParseOwnID(raw)
	if !ok {
		return nil, false
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if x := in.pending[n]; x != nil && x.token != nil {
		in.progressedLocked(x)
		return x.token, true
	}
	token, ok := in.tokens[n]
	return token, ok
}

// clientID returns the client's id of what the server cancels: a question of its
// own, or, in the stateless era, a stream that the client listens to.
func (in *instance) clientID(raw []byte) ([]byte, bool) {
	var key [64]byte
	if id, ok := in.up.conn.questions.Withdraw(in, string(wire.AppendIDKey(key[:0], raw))); ok {
		return id, true
	}
	if x := in.find(raw); x != nil {
		return x.id, true
	}
	return nil, false
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
