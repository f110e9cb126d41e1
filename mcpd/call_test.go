package mcpd

import (
	"strings"
	"testing"
)

// TestBytes has everything but ids, tokens and the daemon's own members pass as
// it came, in both directions.
func TestBytes(t *testing.T) {
	t.Parallel()
	_, c, s := startSession(t, rigOptions{})
	c.send(`{ "params" : {"name":"peek","z":1,  "a":[1.0e2,-0,"\ud800\u0061"],"_meta":{"other":1,"interlock/lease":"x","progressToken":"t","interlock/actor":"me"}},"id":"i" , "method":"tools/call","jsonrpc":"2.0","extra":null}`)
	s.want(`{ "params" : {"name":"peek","z":1,  "a":[1.0e2,-0,"\ud800\u0061"],"_meta":{"other":1,"progressToken":2}},"id":2 , "method":"tools/call","jsonrpc":"2.0","extra":null}`)
	s.say(`{"result" : {"b":1e400,"content":[ ]},"jsonrpc":"2.0","more":[],"id":2}`)
	c.want(`{"result" : {"b":1e400,"content":[ ]},"jsonrpc":"2.0","more":[],"id":"i"}`)

	c.send(`{"jsonrpc":"2.0","method":"notifications/roots/list_changed","params":{"_meta":{"interlock/actor":"me","k":"v"}},"x":1}`)
	s.want(`{"jsonrpc":"2.0","method":"notifications/roots/list_changed","params":{"_meta":{"k":"v"}},"x":1}`)
	s.say(`{"method":"notifications/message","jsonrpc":"2.0","params":{"level":"info","data":{"id":7}}}`)
	c.want(`{"method":"notifications/message","jsonrpc":"2.0","params":{"level":"info","data":{"id":7}}}`)
	s.say(`{"jsonrpc":"2.0","id":"q","method":"roots/list","params":{"_meta":{"progressToken":5}}}`)
	c.want(`{"jsonrpc":"2.0","id":1,"method":"roots/list","params":{"_meta":{"progressToken":5}}}`)
	c.send(`{"jsonrpc":"2.0","id":1,"result":{"roots":[],"_meta":{"interlock/x":{}}}}`)
	s.want(`{"jsonrpc":"2.0","id":"q","result":{"roots":[],"_meta":{}}}`)
}

// TestIDs has ids come back as the bytes they were, and tells apart those that
// are different values.
func TestIDs(t *testing.T) {
	t.Parallel()
	_, c, s := startSession(t, rigOptions{})
	ids := []string{
		`1`, `"1"`, `9007199254740993`, `9007199254740992`, `-0`, `-1`, `""`, `"\u0062"`, `"a b"`, `"é\n"`,
		`123456789012345678901234567890`, `"` + strings.Repeat("x", 1024) + `"`,
	}
	var requests []message
	for _, id := range ids {
		c.call(id, "peek")
		requests = append(requests, s.takes("tools/call"))
	}
	for i, id := range ids {
		s.answer(requests[i], "{}")
		c.want(`{"jsonrpc":"2.0","id":` + id + `,"result":{}}`)
	}
}

// TestDuplicateIDs refuses an id in flight, in whatever spelling, and none other.
func TestDuplicateIDs(t *testing.T) {
	t.Parallel()
	_, c, s := startSession(t, rigOptions{})
	for id, same := range map[string]string{`"a"`: `"\u0061"`, `5`: `5`, `0`: `-0`} {
		c.call(id, "peek")
		request := s.takes("tools/call")
		c.call(same, "peek")
		c.wantError(same, rpcInvalidRequest, "in use")
		s.answer(request, "{}")
		c.want(`{"jsonrpc":"2.0","id":` + id + `,"result":{}}`)
		c.call(same, "peek") // it is free again
		s.answer(s.takes("tools/call"), "{}")
		c.want(`{"jsonrpc":"2.0","id":` + same + `,"result":{}}`)
	}
}

func TestProgress(t *testing.T) {
	t.Parallel()
	r, c, s := startSession(t, rigOptions{})
	call := func(id, token string) message {
		c.send(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"peek","_meta":{"progressToken":%s}}}`, id, token)
		return s.takes("tools/call")
	}
	first, other := call("1", `"t"`), call("2", `9007199254740993`)
	progress := func(token string) {
		s.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1,"progressToken":%s}}`, token)
	}
	progress(string(first.ID))
	c.want(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1,"progressToken":"t"}}`)
	progress(string(other.ID) + ".0") // as a server without integers writes it
	c.want(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1,"progressToken":9007199254740993}}`)

	s.answer(first, "{}")
	c.want(`{"jsonrpc":"2.0","id":1,"result":{}}`)
	c.cancel("2")
	s.takes("notifications/cancelled")
	stray := r.d.counters.strayFrames.Load()
	progress(string(first.ID)) // late: answered
	progress(string(other.ID)) // late: cancelled
	progress("77")
	progress(`"t"`)
	c.sync(s)
	if got := r.d.counters.strayFrames.Load() - stray; got != 4 {
		t.Errorf("%d stray frames counted, want 4", got)
	}
}

// TestTaskTokens keeps the token of a request that became a task, of which there
// may be progress after the answer.
func TestTaskTokens(t *testing.T) {
	t.Parallel()
	_, c, s := startSession(t, rigOptions{})
	start := func(token int) message {
		c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"peek","task":{},"_meta":{"progressToken":"t%d"}}}`, token)
		m := s.takes("tools/call")
		s.answer(m, `{"task":{"taskId":"x"}}`)
		c.recv()
		return m
	}
	first := start(0)
	s.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s}}`, first.ID)
	c.want(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t0"}}`)
	var last message
	for i := range maxTokens {
		last = start(i + 1)
	}
	// The newest are kept: the oldest tasks are the likeliest to be over.
	s.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s}}`, first.ID)
	s.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s}}`, last.ID)
	c.want(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t1024"}}`)
}

func TestErrorAnswer(t *testing.T) {
	t.Parallel()
	_, c, s := startSession(t, rigOptions{})
	c.call("1", "peek")
	m := s.takes("tools/call")
	s.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"no"}}`, m.ID)
	c.want(`{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no"}}`)
	s.say(`{"jsonrpc":"2.0","id":%s,"result":{}}`, m.ID) // once more
	s.say(`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"what"}}`)
	c.sync(s)
}

// TestMalformedAnswer has a server's answer that cannot be passed on end its
// call, and one of its questions be refused.
func TestMalformedAnswer(t *testing.T) {
	t.Parallel()
	_, c, s := startSession(t, rigOptions{})
	for _, answer := range []string{
		`{"jsonrpc":"2.0","id":%s,"result":{},"Result":{"isError":true}}`,
		`{"jsonrpc":"2.0","id":%s,"result":{},"error":{"code":1,"message":""}}`,
		`{"jsonrpc":"1.0","id":%s,"result":{}}`,
	} {
		c.call("1", "peek")
		s.say(answer, s.takes("tools/call").ID)
		if got := c.refusal("1"); got.Code != "internal" || !strings.Contains(got.message, "answer of server") {
			t.Errorf("%s: %+v", answer, got)
		}
	}
	s.say(`{"jsonrpc":"2.0","id":"q","method":"roots/list","Method":"x"}`)
	if m := s.recv(); string(m.ID) != `"q"` || m.Error == nil {
		t.Errorf("to a malformed question: %s", m.raw)
	}
}

func TestNoise(t *testing.T) {
	t.Parallel()
	r, c, s := startSession(t, rigOptions{})
	s.say("Fake server ready\n\n{\"level\":\"info\"}\n[1,2]\n42\n\x1b[32mok\x1b[0m\n{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":")
	s.complain("a complaint\n")
	c.sync(s)
	eventually(t, "the noise is in the server's log", func() bool {
		return strings.Contains(r.server.String(), "stdout: Fake server ready\n") && strings.Contains(r.server.String(), "a complaint")
	})
}
