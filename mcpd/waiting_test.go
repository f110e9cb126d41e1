package mcpd

import (
	"encoding/json"
	"testing"
	"time"

	"interlock/mcpd/internal/config"
)

// TestProgressWhileWaiting tells a client that has asked for progress that its
// call waits, below the values that its server begins with.
func TestProgressWhileWaiting(t *testing.T) {
	t.Parallel()
	_, c, s := startSession(t, rigOptions{limits: func(l *config.Limits) {
		l.ClientCalls, l.WaitLimit = 1, 2*time.Second
	}})
	c.call("1", "peek")
	first := s.takes("tools/call")
	c.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"peek","_meta":{"progressToken":"t"}}}`)
	last := -2.0
	for range 2 {
		m := c.recv()
		var p struct {
			ProgressToken string
			Progress      float64
			Message       string
		}
		if m.Method != "notifications/progress" || json.Unmarshal(m.Params, &p) != nil {
			t.Fatalf("got %s", m.raw)
		}
		if p.ProgressToken != "t" || p.Progress <= last || p.Progress >= 0 || p.Message == "" {
			t.Errorf("progress %s after %v", m.raw, last)
		}
		last = p.Progress
	}
	s.answer(first, "{}")
	c.want(`{"jsonrpc":"2.0","id":1,"result":{}}`)
	s.answer(s.takes("tools/call"), "{}")
	c.want(`{"jsonrpc":"2.0","id":2,"result":{}}`)
}

// TestProgressPace does not flood a client where waits are not bounded in time.
func TestProgressPace(t *testing.T) {
	t.Parallel()
	_, c, s := startSession(t, rigOptions{limits: func(l *config.Limits) {
		l.ClientCalls, l.WaitLimit = 1, time.Millisecond
	}})
	c.call("1", "peek")
	first := s.takes("tools/call")
	c.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"peek","_meta":{"progressToken":"t"}}}`)
	if got := c.refusal("2"); got.Code != "busy" {
		t.Errorf("%+v", got)
	}
	s.answer(first, "{}")
	c.want(`{"jsonrpc":"2.0","id":1,"result":{}}`)
}
