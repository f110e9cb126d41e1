package integration

import (
	"fmt"
	"strings"
	"testing"
)

// TestState keeps a state for each client, which ends with it.
func TestState(t *testing.T) {
	t.Parallel()
	eachRelay(t, func(t *testing.T, w way) {
		r := newRig(t)
		r.servers["fake"] = r.fake()
		a, b := r.open(w, "fake").ready(), r.open(w, "fake").ready()
		for i, want := range []string{"1", "2"} {
			for _, c := range []*client{a, b} {
				if got := textOf(t, c.call(fmt.Sprint(i), "count", "{}")); got != want {
					t.Errorf("the client's call %s is number %s", want, got)
				}
			}
		}
		pid := fmt.Sprint(environmentOf(t, b.call("2", "env", "{}")).PID)
		b.closeInput()
		eventually(t, "the closed client's server is gone", func() error { return alive(pid) })
		if got := textOf(t, a.call("2", "count", "{}")); got != "3" {
			t.Errorf("after the other client's end, the third call is number %s", got)
		}
	})
}

// TestNotifications tells each of two sessions what is its own: updates of what it
// has subscribed, logs from its level on, changes of its lists.
func TestNotifications(t *testing.T) {
	t.Parallel()
	eachRelay(t, func(t *testing.T, w way) {
		r := newRig(t)
		r.servers["fake"] = r.fake()
		a, b := r.open(w, "fake").ready(), r.open(w, "fake").ready()
		request := func(c *client, method, params string) string {
			t.Helper()
			c.send(`{"jsonrpc":"2.0","id":"r","method":%q,"params":%s}`, method, params)
			m := c.answer(`"r"`)
			if m.Error != nil {
				t.Errorf("%s: %s", method, m.raw)
			}
			return m.raw
		}
		request(a, "resources/subscribe", `{"uri":"x:of a"}`)
		request(a, "resources/subscribe", `{"uri":"x:of both"}`)
		request(b, "resources/subscribe", `{"uri":"x:of both"}`)
		request(a, "logging/setLevel", `{"level":"error"}`)
		request(b, "logging/setLevel", `{"level":"critical"}`)
		const updated, logged, changed = "notifications/resources/updated", "notifications/message", "notifications/tools/list_changed"
		for _, test := range []struct {
			client    *client // that causes it
			tool      string
			arguments string
			method    string
			words     []string // of what comes to that client alone, in order
		}{
			{b, "touch", `{"uri":"x:of a"}`, updated, nil},
			{a, "touch", `{"uri":"x:of a"}`, updated, []string{"x:of a"}},
			{a, "touch", `{"uri":"x:of both"}`, updated, []string{"x:of both"}},
			{b, "touch", `{"uri":"x:of both"}`, updated, []string{"x:of both"}},
			{a, "levels", `{}`, logged, []string{"error", "critical", "alert", "emergency"}},
			{b, "levels", `{}`, logged, []string{"critical", "alert", "emergency"}},
			{a, "grow", `{}`, changed, []string{""}},
		} {
			test.client.call("1", test.tool, test.arguments)
			for _, word := range test.words {
				if m := test.client.take(word, isMethod(test.method)); !strings.Contains(m.raw, word) {
					t.Errorf("%s: %s, want %s", test.tool, m.raw, word)
				}
			}
			a.nothingMore()
			b.nothingMore()
		}
		if !strings.Contains(request(a, "tools/list", `{}`), "grown-1") || strings.Contains(request(b, "tools/list", `{}`), "grown-1") {
			t.Error("the new tool is not its own session's alone")
		}
		request(a, "resources/unsubscribe", `{"uri":"x:of both"}`)
		for c, want := range map[*client]bool{a: false, b: true} {
			c.call("1", "touch", `{"uri":"x:of both"}`)
			if _, err := c.next(0, isMethod(updated)); (err == nil) != want {
				t.Errorf("an update after one of two has unsubscribed: %v", err)
			}
		}
	})
}

// TestQuestions sends a server's questions to the client whose server it is, while
// another is asked under the same ids.
func TestQuestions(t *testing.T) {
	t.Parallel()
	eachRelay(t, func(t *testing.T, w way) {
		r := newRig(t)
		r.servers["fake"] = r.fake()
		var clients []*client
		for range 2 {
			c := r.open(w, "fake")
			c.initialize("2025-06-18", `{"roots":{}}`)
			c.sendCall("1", "ask", `{"method":"roots/list","n":3}`)
			clients = append(clients, c)
		}
		for i, c := range clients {
			for range 3 {
				m := c.take("question", isMethod("roots/list"))
				c.send(`{"jsonrpc":"2.0","id":%s,"result":{"roots":[{"uri":"file:///of/%d"}]}}`, m.ID, i)
			}
		}
		for i, c := range clients {
			if got := textOf(t, c.answer("1")); strings.Count(got, fmt.Sprintf("file:///of/%d", i)) != 3 {
				t.Errorf("the server of client %d got %s", i, got)
			}
			c.nothingMore()
		}
	})
}

// TestQuestionNobodyCanAnswer asks a client for what it cannot do: the client may
// be asked and refuse, as it would without interlock, or the server is told at once.
func TestQuestionNobodyCanAnswer(t *testing.T) {
	t.Parallel()
	eachRelay(t, func(t *testing.T, w way) {
		r := newRig(t)
		r.servers["fake"] = r.fake()
		c := r.open(w, "fake").ready()
		c.sendCall("1", "ask", `{"method":"sampling/createMessage","params":{}}`)
		m := c.take("question or answer", func(m *message) bool { return m.Method == "sampling/createMessage" || isAnswer("1")(m) })
		if m.Method != "" {
			c.send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no sampling here"}}`, m.ID)
			m = c.answer("1")
		}
		if got := textOf(t, m); !strings.Contains(got, `"error"`) || !strings.Contains(got, "-32601") {
			t.Errorf("the server got %s", got)
		}
		c.nothingMore()
	})
}

// TestPagesOfTools lists in pages whose last one points at itself: the client
// sees that as it is, and a daemon that reads the list for its own ends stops.
func TestPagesOfTools(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, w way) {
		r := newRig(t)
		r.servers["fake"] = r.fake("-pages")
		c := r.open(w, "fake").ready()
		seen := map[string]bool{}
		cursor := ""
		for {
			c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{%s}}`, cursor)
			result := string(c.answer("1").Result)
			from, to, ok := member(result, "nextCursor")
			if !ok || seen[result[from:to]] {
				break
			}
			seen[result[from:to]] = true
			cursor = `"cursor":` + result[from:to]
		}
		if len(seen) < 20 {
			t.Errorf("only %d pages", len(seen))
		}
		c.send(`{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{"cursor":"made up"}}`)
		if m := c.answer("2"); m.Error == nil {
			t.Errorf("a made-up cursor gives %s", m.raw)
		}
		c.nothingMore()
	})
}
