package mcpd

import (
	"fmt"
	"strings"
	"testing"

	"interlock/mcpd/internal/config"
)

// alive has the session answer a ping, and nothing else before.
func (c *client) alive() {
	c.t.Helper()
	c.send(`{"jsonrpc":"2.0","id":"alive","method":"ping"}`)
	c.want(`{"jsonrpc":"2.0","id":"alive","result":{}}`)
}

// TestOddFrames has input that is no message be answered, and the session live.
func TestOddFrames(t *testing.T) {
	t.Parallel()
	r := startRig(t, rigOptions{})
	c := r.dial()
	c.alive()
	for _, odd := range []struct {
		frame, id string // of the answer
		code      int
		text      string
	}{
		{`nonsense`, "null", rpcParseError, "parse error: invalid JSON at byte 0"},
		{`{"jsonrpc":"2.0","id":1,"method":"ping"`, "null", rpcParseError, "parse error"},
		{`{"jsonrpc":"2.0","id":1,"method":"ping"}}`, "null", rpcParseError, "more text"},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}", "null", rpcParseError, "UTF-8"},
		{`[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, "null", rpcInvalidRequest, "batches"},
		{`[]`, "null", rpcInvalidRequest, "batches"},
		{`42`, "null", rpcInvalidRequest, "invalid request: the message is not a JSON object"},
		{`{"jsonrpc":"2.0","id":null,"method":"ping"}`, "null", rpcInvalidRequest, "id"},
		{`{"jsonrpc":"2.0","id":1.5,"method":"ping"}`, "null", rpcInvalidRequest, "id"},
		{`{"jsonrpc":"2.0","id":{},"method":"ping"}`, "null", rpcInvalidRequest, "id"},
		{`{"jsonrpc":"2.0","id":"` + strings.Repeat("x", 1025) + `","method":"ping"}`, "null", rpcInvalidRequest, "id"},
		{`{"jsonrpc":"1.0","id":1,"method":"ping"}`, "1", rpcInvalidRequest, "jsonrpc"},
		{`{"jsonrpc":"2.0","id":1,"method":7}`, "1", rpcInvalidRequest, "method"},
		{`{"jsonrpc":"2.0","id":1,"method":"ping","Method":"tools/call"}`, "1", rpcInvalidRequest, `key "Method"`},
		{`{"jsonrpc":"2.0","id":1,"method":"ping","method":"ping"}`, "1", rpcInvalidRequest, `key "method"`},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"peek","n\u0061me":"write"}}`, "1", rpcInvalidRequest, `key "n\u0061me"`},
		{`{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}`, "null", rpcInvalidRequest, `key "id"`},
		{`{"jsonrpc":"2.0","id":1,"method":"interlock/hello","params":{}}`, "1", rpcMethodNotFound, "interlock/hello"},
	} {
		c.send("%s", odd.frame)
		c.wantError(odd.id, odd.code, odd.text)
		c.alive()
	}
	if got := r.d.counters.parseErrors.Load(); got != 17 {
		t.Errorf("%d parse errors counted, want 17", got)
	}
	r.servers.none()
}

// TestSilentFrames has input that is to be answered by nothing.
func TestSilentFrames(t *testing.T) {
	t.Parallel()
	r := startRig(t, rigOptions{})
	c := r.dial()
	c.alive()
	for _, frame := range []string{
		"", "   ", "\r",
		`{"jsonrpc":"2.0","id":1,"result":{}}`,
		`{"jsonrpc":"2.0","id":"x","error":{"code":1,"message":""}}`,
		`{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":""}}`,
		`{"jsonrpc":"2.0","id":1,"result":{},"Result":{}}`,
		`{"jsonrpc":"2.0","id":1,"result":{},"error":{}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled"}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{}}}`,
		`{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`,
		`{"jsonrpc":"2.0","method":"interlock/hello"}`,
	} {
		c.send("%s", frame)
		c.alive()
	}
	r.servers.none() // a notification is no reason to start one
}

func TestLineEndings(t *testing.T) {
	t.Parallel()
	c := startRig(t, rigOptions{}).dial()
	c.write("\ufeff" + `{"jsonrpc":"2.0","id":1,"method":"ping"}` + "\r\n\r\n\n" + `{"jsonrpc":"2.0","id":2,"method":"ping"}` + "\n")
	c.want(`{"jsonrpc":"2.0","id":1,"result":{}}`)
	c.want(`{"jsonrpc":"2.0","id":2,"result":{}}`)
	c.write(`{"jsonrpc":"2.0","id":3,"me`)
	c.halfClose()
	c.wantError("null", rpcParseError, "ended inside a message")
	c.wantEnd()
}

// TestOversized has frames over the limit be dropped in both directions, and who
// waits for an answer be told.
func TestOversized(t *testing.T) {
	t.Parallel()
	r, c, s := startSession(t, rigOptions{limits: func(l *config.Limits) { l.Frame = 128 << 10 }})
	big := strings.Repeat("x", 200<<10)

	for _, frame := range []string{
		`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"peek","arguments":"%s"}}`,
		`{"jsonrpc":"2.0","method":"tools/call","params":{"name":"peek","arguments":"%s"},"id":7}`,
	} {
		c.send(frame, big)
		if got := c.refusal("7"); got.Code != "frame_too_large" || got.number != int(codeTooLarge) {
			t.Errorf("a request: %+v", got)
		}
	}
	c.send(`{"jsonrpc":"2.0","method":"notifications/x","params":"%s"}`, big)
	c.refusal("null")

	c.call("8", "peek")
	s.say(`{"jsonrpc":"2.0","id":%s,"result":"%s"}`, s.takes("tools/call").ID, big)
	if got := c.refusal("8"); got.Code != "frame_too_large" || !got.isTool {
		t.Errorf("an answer: %+v", got)
	}

	s.say(`{"jsonrpc":"2.0","id":"q","method":"sampling/createMessage","params":"%s"}`, big)
	if got := refusalIn(t, s.recv(), `"q"`); got.Code != "frame_too_large" {
		t.Errorf("a question: %+v", got)
	}

	s.say(`{"jsonrpc":"2.0","id":"q","method":"sampling/createMessage"}`)
	c.send(`{"jsonrpc":"2.0","id":%s,"result":"%s"}`, c.recv().ID, big)
	if got := refusalIn(t, s.recv(), `"q"`); got.Code != "frame_too_large" {
		t.Errorf("an answer to a question: %+v", got)
	}
	c.sync(s)
	if got := r.d.counters.droppedFrames.Load(); got != 6 {
		t.Errorf("%d dropped frames counted, want 6", got)
	}
}

// TestLargestFrames has what is just within the limit pass, and what comes right
// behind it too, however slowly the other side reads.
func TestLargestFrames(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	r := startRig(t, rigOptions{})
	r.servers.behave(manner{deaf: true})
	c := r.dialGated(gate)
	big := strings.Repeat("x", 9<<20) // more than either queue holds otherwise
	c.send("%s", initialize)
	s := r.servers.take()
	c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"peek","arguments":"%s"}}`, big)
	for i := range 5 {
		c.call(fmt.Sprint(2+i), "peek")
		c.send(`{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`)
	}
	close(s.hearing)
	s.takeHandshake()
	call := s.takes("tools/call")
	for range 5 {
		s.takes("tools/call")
		s.takes("notifications/roots/list_changed")
	}

	// The other way: the client is still not reading.
	s.say(`{"jsonrpc":"2.0","method":"notifications/x"}`)
	s.say(`{"jsonrpc":"2.0","id":%s,"result":"%s"}`, call.ID, big)
	c.send(`{"jsonrpc":"2.0","id":2,"method":"ping"}`) // answered by the daemon: in use
	s.say(`{"jsonrpc":"2.0","method":"notifications/y"}`)
	close(gate)
	if got := c.recv(); string(got.ID) != `"init"` {
		t.Fatalf("got %.200s", got.raw)
	}
	got := map[string]int{}
	for range 4 {
		m := c.recv()
		got[m.Method+string(m.ID)] = len(m.raw)
	}
	if got["1"] < len(big) || got["notifications/x"] == 0 || got["notifications/y"] == 0 || got["2"] == 0 {
		t.Errorf("the client got %v", got)
	}
}

// TestNoRoom has a frame for which the budget has no room be refused as busy.
func TestNoRoom(t *testing.T) {
	t.Parallel()
	r := startRig(t, rigOptions{limits: func(l *config.Limits) { l.SessionBudget = 128 << 10 }})
	c := r.dial()
	c.alive()
	c.send(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"peek","arguments":"%s"}}`, strings.Repeat("x", 1<<20))
	if got := c.refusal("7"); got.Code != "busy" || got.RetryAfterMs == 0 {
		t.Errorf("%+v", got)
	}
	c.alive()
}
