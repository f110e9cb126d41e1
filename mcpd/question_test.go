package mcpd

import (
	"fmt"
	"strings"
	"testing"

	"interlock/session"
)

// TestQuestions maps the ids of a server's requests both ways.
func TestQuestions(t *testing.T) {
	t.Parallel()
	r, c, s := startSession(t, rigOptions{})
	for i, id := range []string{`"q"`, `0`, `9007199254740993`, `"1"`} {
		s.say(`{"jsonrpc":"2.0","id":%s,"method":"roots/list"}`, id)
		c.want(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"roots/list"}`, i+1))
	}
	c.send(`{"jsonrpc":"2.0","id":2,"result":{"roots":[]}}`)
	s.want(`{"jsonrpc":"2.0","id":0,"result":{"roots":[]}}`)
	c.send(`{"jsonrpc":"2.0","id":3,"error":{"code":-1,"message":"no"}}`)
	s.want(`{"jsonrpc":"2.0","id":9007199254740993,"error":{"code":-1,"message":"no"}}`)
	c.send(`{"jsonrpc":"2.0","id":1.0,"result":{}}`) // as a client without integers writes it
	s.want(`{"jsonrpc":"2.0","id":"q","result":{}}`)
	stray := r.d.counters.strayFrames.Load()
	for _, id := range []string{"2", `"4"`, "99", "-1"} { // answered, another id, never asked
		c.send(`{"jsonrpc":"2.0","id":%s,"result":{}}`, id)
	}
	c.sync(s)
	if got := r.d.counters.strayFrames.Load() - stray; got != 4 {
		t.Errorf("%d stray frames counted, want 4", got)
	}
}

// TestQuestionWithdrawn has the server take a question back, as often as it
// likes, and the client's late answer be dropped.
func TestQuestionWithdrawn(t *testing.T) {
	t.Parallel()
	_, c, s := startSession(t, rigOptions{})
	const n = session.MaxQuestions + 10
	for i := range n {
		s.say(`{"jsonrpc":"2.0","id":"q%d","method":"elicitation/create"}`, i)
		asked := c.recv()
		s.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"q%d"}}`, i)
		c.want(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + string(asked.ID) + `}}`)
		c.send(`{"jsonrpc":"2.0","id":%s,"result":{}}`, asked.ID)
	}
	c.sync(s)
	s.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"unknown"}}`)
	c.sync(s)
}

func TestTooManyQuestions(t *testing.T) {
	t.Parallel()
	_, c, s := startSession(t, rigOptions{})
	for i := range session.MaxQuestions + 1 {
		s.say(`{"jsonrpc":"2.0","id":%d,"method":"roots/list"}`, i)
	}
	if got := refusalIn(t, s.recv(), fmt.Sprint(session.MaxQuestions)); got.Code != "busy" {
		t.Errorf("%+v", got)
	}
	for range session.MaxQuestions {
		c.recv()
	}
	c.sync(s)
}

// TestQuestionsLapse has the questions of a server that has ended be taken back.
func TestQuestionsLapse(t *testing.T) {
	t.Parallel()
	r, c, s := startSession(t, rigOptions{})
	s.say(`{"jsonrpc":"2.0","id":"q","method":"roots/list"}`)
	asked := c.recv()
	s.exit(0)
	if m := c.recv(); m.Method != "notifications/cancelled" || !strings.Contains(m.raw, `"requestId":`+string(asked.ID)+`,`) {
		t.Errorf("got %s", m.raw)
	}
	r.awaitLost(s)
	c.call("1", "peek")
	next := r.servers.take()
	next.takeHandshake()
	next.takes("notifications/initialized")
	call := next.takes("tools/call")
	c.send(`{"jsonrpc":"2.0","id":%s,"result":{}}`, asked.ID) // to the one that is gone
	next.answer(call, "{}")
	for range 2 {
		if m := c.recv(); !strings.HasSuffix(m.Method, "/list_changed") {
			t.Errorf("got %s", m.raw)
		}
	}
	c.want(`{"jsonrpc":"2.0","id":1,"result":{}}`)
	c.sync(next)
}

// TestQuestionsOfTwoSessions asks each client what its own server asks.
func TestQuestionsOfTwoSessions(t *testing.T) {
	t.Parallel()
	r := startRig(t, rigOptions{})
	a, b := r.dial(), r.dial()
	sa, sb := a.shakeHands(), b.shakeHands()
	sa.say(`{"jsonrpc":"2.0","id":1,"method":"a"}`)
	sb.say(`{"jsonrpc":"2.0","id":1,"method":"b"}`)
	a.want(`{"jsonrpc":"2.0","id":1,"method":"a"}`)
	b.want(`{"jsonrpc":"2.0","id":1,"method":"b"}`)
	a.send(`{"jsonrpc":"2.0","id":1,"result":"a"}`)
	b.send(`{"jsonrpc":"2.0","id":1,"result":"b"}`)
	sa.want(`{"jsonrpc":"2.0","id":1,"result":"a"}`)
	sb.want(`{"jsonrpc":"2.0","id":1,"result":"b"}`)
}
