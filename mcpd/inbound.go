package mcpd

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"interlock/mcpd/internal/config"
	"interlock/mcpd/internal/wire"
	"interlock/session"
)

// handle takes one frame of the client. It runs on the connection's reader.
func (c *conn) handle(f *wire.Frame) {
	b := f.Bytes()
	if err := wire.Scan(b, &c.env); err != nil {
		c.answerMalformed(b, err)
		return
	}
	if c.refusal != nil {
		if c.env.Kind == wire.Request {
			toolCall := kindOf(c.env.MethodName(b)) == kindToolCall
			c.sendOwn(appendRefusal(nil, c.env.ID.Of(b), toolCall, session.EraUnknown, c.refusal))
		}
		return
	}
	switch c.env.Kind {
	case wire.Request:
		c.handleRequest(f)
	case wire.Notification:
		c.handleNotification(f)
	default:
		c.handleAnswer(f)
	}
}

// answerMalformed answers what is not a message, under its id where it has one.
func (c *conn) answerMalformed(b []byte, err error) {
	c.d.counters.parseErrors.Add(1)
	var syntax *wire.SyntaxError
	if errors.As(err, &syntax) {
		c.sendOwn(appendRPCError(nil, nil, rpcParseError, "parse error: "+syntax.Error()))
		return
	}
	if c.env.Kind == wire.Result || c.env.Kind == wire.Error {
		return // an answer is not answered
	}
	var id []byte
	if c.env.ID.Present() {
		id = c.env.ID.Of(b)
	}
	c.sendOwn(appendRPCError(nil, id, rpcInvalidRequest, err.Error()))
}

func (c *conn) handleRequest(f *wire.Frame) {
	b, env := f.Bytes(), &c.env
	method := env.MethodName(b)
	if isOwnMethod(method) {
		c.sendOwn(appendRPCError(nil, env.ID.Of(b), rpcMethodNotFound, "method not found: "+string(method)+" is not for a session that is under way"))
		return
	}
	x := &exchange{conn: c, up: c.server, kind: kindOf(method), began: time.Now(), frame: f}
	x.places = places{id: env.ID, token: env.MetaToken, cuts: appendCuts(nil, env)}
	x.id = append(x.id, env.ID.Of(b)...)
	if env.MetaToken.Present() {
		x.token = append(x.token, env.MetaToken.Of(b)...)
	}
	x.task = env.Task.Present()
	switch x.kind {
	case kindToolCall:
		x.tool, x.owner = text(env.Name.Of(b)), c.session.Owner()
		x.arguments = env.Arguments
		c.address(x, env)
	case kindToolList:
		x.first = !env.Cursor.Present()
	}
	var key [64]byte
	if err := c.session.Begin(&x.Call, x, string(wire.AppendIDKey(key[:0], x.id))); err != nil {
		c.refuseBegin(x, err)
		return
	}
	c.d.counters.calls.Add(1)
	if env.MetaVersion.Present() && c.session.Era() == session.EraUnknown && x.kind != kindDiscover {
		c.session.Greet(session.Stateless, statelessClient(env.Meta.Of(b)))
	}
	if err := c.submit(x, b); err != nil && !errors.Is(err, session.ErrCancelled) {
		x.Refuse(err)
	}
}

func (c *conn) refuseBegin(x *exchange, err error) {
	if errors.Is(err, session.ErrDuplicate) {
		c.sendOwn(appendRPCError(nil, x.id, rpcInvalidRequest, err.Error()))
		return
	}
	x.Refuse(err)
}

// address finds the server that a tool call is for, and what is put into it besides.
func (c *conn) address(x *exchange, env *wire.Envelope) {
	if tool, ok := strings.CutPrefix(x.tool, ownPrefix); ok && c.own != nil {
		x.up, x.tool = c.own, tool
		x.places.cuts = []wire.Edit{{Span: env.Name, With: quote(tool)}}
		return
	}
	switch {
	case x.up.server.Builtin == config.BuiltinInterlock:
		x.places.cuts = nil // it reads the daemon's own members
	case x.up.policy.PassEpoch && env.Meta.Present():
		x.places.epoch = epochPlace{at: env.Meta.Start + 1, before: `"interlock/epoch":`}
		if env.MetaKept {
			x.places.epoch.after = ","
		}
	case x.up.policy.PassEpoch:
		x.places.epoch = epochPlace{at: env.Params.Start + 1, before: `"_meta":{"interlock/epoch":`, after: "},"}
	}
}

// submit gives a begun request its turn.
func (c *conn) submit(x *exchange, b []byte) error {
	switch x.kind {
	case kindPing:
		if !c.server.running() {
			c.session.Abandon(&x.Call)
			c.sendOwn(appendResult(nil, x.id, []byte("{}")))
			return nil
		}
		return c.session.Pass(&x.Call)
	case kindInitialize:
		c.server.memory.rememberHandshake(b, x.places)
		return c.session.Pass(&x.Call)
	case kindDiscover:
		if c.d.eras.of(c.server.server) == session.Handshake {
			c.session.Abandon(&x.Call)
			c.sendOwn(appendRPCError(nil, x.id, rpcMethodNotFound, "method not found: server/discover"))
			return nil
		}
		return c.session.Pass(&x.Call)
	case kindToolCall:
		return c.callTool(x, b)
	case kindListen:
		return c.session.SubmitLong(&x.Call, true)
	case kindTaskResult:
		return c.session.SubmitLong(&x.Call, false)
	case kindSetLevel:
		c.server.memory.rememberLevel(b, x.places)
	case kindSubscribe:
		c.server.memory.subscribe(string(c.env.URI.Of(b)), b, x.places)
	case kindUnsubscribe:
		c.server.memory.unsubscribe(string(c.env.URI.Of(b)))
	}
	return c.session.Submit(&x.Call)
}

// callTool gives a begun tool call its turn. One whose class is not known yet waits
// for the server's list.
func (c *conn) callTool(x *exchange, b []byte) error {
	if x.up.server.Builtin == config.BuiltinInterlock {
		x.class = classRead                         // of the daemon itself, which keeps its own order
		return c.session.SubmitLong(&x.Call, false) // they take no permit, and some wait
	}
	rule := x.up.policy.Tool(x.tool)
	if err := x.prepare(rule, b, &c.env); err != nil {
		c.session.GiveUp(&x.Call, err)
		return nil
	}
	waits, ask, err := x.up.classes.hold(rule, x)
	if err != nil {
		return err
	}
	if ask {
		x.up.readTools(protocolMeta(c.env.Meta.Of(b)))
	}
	if !waits {
		x.proceed()
	}
	return nil
}

func (c *conn) handleNotification(f *wire.Frame) {
	b, env := f.Bytes(), &c.env
	method := env.MethodName(b)
	switch {
	case string(method) == "notifications/cancelled":
		c.cancel(f)
		return
	case string(method) == "notifications/initialized":
		c.server.memory.rememberInitialized(b, appendCuts(nil, env))
	case isOwnMethod(method), kindOf(method) == kindToolCall:
		// A call without an id is none: a server that carried it out all the same
		// would do so without a lease and without a record.
		c.d.counters.strayFrames.Add(1)
		return
	}
	c.server.notify(f, appendCuts(nil, env))
}

// cancel gives up the client's call and passes the cancellation on under the id
// that the server knows. One for no call in flight has come too late.
func (c *conn) cancel(f *wire.Frame) {
	b := f.Bytes()
	var key [64]byte
	work, running := c.session.Cancel(string(wire.AppendIDKey(key[:0], c.env.RequestID.Of(b))))
	if work == nil {
		c.d.counters.strayFrames.Add(1)
		return
	}
	x := work.(*exchange)
	x.withdrawn.Store(true)
	if !running {
		x.Drop()
		return
	}
	if in := x.inst.Load(); in != nil && in.withdraw(x) {
		number := strconv.AppendInt(nil, x.number, 10)
		in.pass(f, appendCuts([]wire.Edit{{Span: c.env.RequestID, With: number}}, &c.env))
	}
}

// handleAnswer passes the client's answer on to the server that asked.
func (c *conn) handleAnswer(f *wire.Frame) {
	b := f.Bytes()
	n, ok := wire.ParseOwnID(c.env.ID.Of(b))
	if !ok {
		c.d.counters.strayFrames.Add(1)
		return
	}
	in, id, ok := c.questions.Answer(n)
	if !ok {
		c.d.counters.strayFrames.Add(1)
		return
	}
	in.pass(f, appendCuts([]wire.Edit{{Span: c.env.ID, With: id}}, &c.env))
}

// text returns the string that a raw JSON string stands for, "" for another value.
func text(raw []byte) string {
	if len(raw) < 2 || raw[0] != '"' {
		return ""
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1])
	}
	return string(wire.AppendText(nil, raw))
}

// isOwnMethod reports whether the method is the daemon's, whatever follows.
func isOwnMethod(method []byte) bool {
	const prefix = "interlock/"
	return len(method) >= len(prefix) && string(method[:len(prefix)]) == prefix
}

// statelessClient reads who a stateless client says it is from its request's _meta.
func statelessClient(meta []byte) session.Client {
	var m struct {
		Info session.Client `json:"io.modelcontextprotocol/clientInfo"`
	}
	if json.Unmarshal(meta, &m) != nil {
		return session.Client{}
	}
	return m.Info
}

// handshakeClient reads who a client says it is from its initialize request.
func handshakeClient(frame []byte) session.Client {
	var m struct {
		Params struct {
			Info session.Client `json:"clientInfo"`
		} `json:"params"`
	}
	if json.Unmarshal(frame, &m) != nil {
		return session.Client{}
	}
	return m.Params.Info
}
