package integration

import (
	"fmt"
	"strings"
	"testing"
)

// TestState keeps one state for clients of a shared server, and one for each
// client of an isolated one, which ends with its client.
func TestState(t *testing.T) {
	t.Parallel()
	eachRelay(t, func(t *testing.T, w way) {
		r := newRig(t)
		r.servers["shared"], r.servers["isolated"] = r.fake().shared(), r.fake()
		for name, want := range map[string]string{"shared": "1 2 3", "isolated": "1 1 2"} {
			a, b := r.open(w, name).ready(), r.open(w, name).ready()
			got := []string{textOf(t, a.call("1", "count", "{}")), textOf(t, b.call("1", "count", "{}")), textOf(t, a.call("2", "count", "{}"))}
			if counts := strings.Join(got, " "); counts != want {
				t.Errorf("%s: %s, want %s", name, counts, want)
			}
			if name == "isolated" {
				pid := fmt.Sprint(environmentOf(t, b.call("2", "env", "{}")).PID)
				b.closeInput()
				eventually(t, "the closed client's server is gone", func() error { return alive(pid) })
				a.settle()
			}
		}
	})
}

// TestNotificationsOfShared sends each session of a shared server what is its
// own: updates of what it subscribed, logs at its level, changes of lists.
func TestNotificationsOfShared(t *testing.T) {
	t.Parallel()
	eachRelay(t, func(t *testing.T, w way) {
		r := newRig(t)
		r.servers["fake"] = r.fake().shared()
		a, b := r.open(w, "fake").ready(), r.open(w, "fake").ready()

		request := func(c *client, method, params string) {
			t.Helper()
			c.send(`{"jsonrpc":"2.0","id":"r","method":%q,"params":%s}`, method, params)
			if m := c.answer(`"r"`); m.Error != nil {
				t.Errorf("%s: %s", method, m.raw)
			}
		}
		updates := func(c *client, uri string) (n int) {
			c.settle()
			for {
				if _, err := c.next(0, func(m *message) bool {
					return m.Method == "notifications/resources/updated" && strings.Contains(m.raw, uri)
				}); err != nil {
					return n
				}
				n++
			}
		}
		request(a, "resources/subscribe", `{"uri":"x:both"}`)
		request(b, "resources/subscribe", `{"uri":"x:both"}`)
		request(a, "resources/subscribe", `{"uri":"x:a"}`)
		b.call("1", "touch", `{"uri":"x:both"}`)
		b.call("1", "touch", `{"uri":"x:a"}`)
		if na, nb, only := updates(a, "x:both"), updates(b, "x:both"), updates(b, "x:a"); na != 1 || nb != 1 || only != 0 {
			t.Errorf("updates of both: %d and %d; of a's own at b: %d", na, nb, only)
		}
		request(b, "resources/unsubscribe", `{"uri":"x:both"}`)
		b.call("1", "touch", `{"uri":"x:both"}`)
		if na, nb := updates(a, "x:both"), updates(b, "x:both"); na != 1 || nb != 0 {
			t.Errorf("after b left, updates: %d and %d", na, nb)
		}
		updates(a, "x:a")

		request(a, "logging/setLevel", `{"level":"error"}`)
		request(b, "logging/setLevel", `{"level":"debug"}`)
		a.call("2", "levels", `{}`)
		for c, want := range map[*client]string{a: "error critical alert emergency", b: "debug info notice warning error critical alert emergency"} {
			c.settle()
			var got []string
			for {
				m, err := c.next(0, isMethod("notifications/message"))
				if err != nil {
					break
				}
				_, level, _ := strings.Cut(m.raw, `"level":"`)
				level, _, _ = strings.Cut(level, `"`)
				got = append(got, level)
			}
			if levels := strings.Join(got, " "); levels != want {
				t.Errorf("logs at %s, want %s", levels, want)
			}
		}

		a.call("3", "grow", `{}`)
		for _, c := range []*client{a, b} {
			c.take("change", isMethod("notifications/tools/list_changed"))
			c.send(`{"jsonrpc":"2.0","id":"list","method":"tools/list"}`)
			if m := c.answer(`"list"`); !strings.Contains(m.raw, "grown-1") {
				t.Error("the new tool is not listed")
			}
			c.nothingMore()
		}
	})
}

// TestQuestions sends a server's question to the client whose call it is for,
// and to nobody else; also under ids that several clients use.
func TestQuestions(t *testing.T) {
	t.Parallel()
	eachRelay(t, func(t *testing.T, w way) {
		r := newRig(t)
		r.servers["isolated"], r.servers["shared"] = r.fake(), r.fake().shared()
		for _, name := range []string{"isolated", "shared"} {
			var clients []*client
			for range 2 {
				c := r.open(w, name)
				c.initialize("2025-06-18", `{"roots":{}}`)
				clients = append(clients, c)
			}
			for i, c := range clients {
				c.sendCall("1", "ask", `{"method":"roots/list","n":3}`)
				for range 3 {
					m := c.take("question", isMethod("roots/list"))
					c.send(`{"jsonrpc":"2.0","id":%s,"result":{"roots":[{"uri":"file:///of/%d"}]}}`, m.ID, i)
				}
				if got := textOf(t, c.answer("1")); strings.Count(got, fmt.Sprintf("file:///of/%d", i)) != 3 {
					t.Errorf("%s: the server got %s", name, got)
				}
			}
			for _, c := range clients {
				c.nothingMore()
			}
		}
	})
}

// TestQuestionNobodyCanAnswer asks a client for what it cannot do: the server
// is told at once.
func TestQuestionNobodyCanAnswer(t *testing.T) {
	t.Parallel()
	eachRelay(t, func(t *testing.T, w way) {
		r := newRig(t)
		r.servers["fake"] = r.fake().shared()
		c := r.open(w, "fake").ready()
		c.sendCall("1", "ask", `{"method":"sampling/createMessage","params":{}}`)
		// The client may be asked and refuse, as it would without interlock.
		if m, err := c.next(patience, func(m *message) bool { return m.Method == "sampling/createMessage" || isAnswer("1")(m) }); err != nil {
			t.Fatal(err)
		} else if m.Method != "" {
			c.send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no sampling here"}}`, m.ID)
			m = c.answer("1")
			if got := textOf(t, m); !strings.Contains(got, "-32601") {
				t.Errorf("the server got %s", got)
			}
		} else if got := textOf(t, m); !strings.Contains(got, `"error"`) {
			t.Errorf("the server got %s", got)
		}
		c.nothingMore()
	})
}

// TestQuestionForTwo has a shared server ask while two clients have calls in
// flight: nobody but the one whose call it is may be asked, so nobody is.
func TestQuestionForTwo(t *testing.T) {
	t.Parallel()
	eachRelay(t, func(t *testing.T, w way) {
		r := newRig(t)
		r.servers["fake"] = r.fake().shared()
		a, b := r.open(w, "fake"), r.open(w, "fake")
		for _, c := range []*client{a, b} {
			c.initialize("2025-06-18", `{"roots":{}}`)
		}
		b.sendCall("1", "hold", `{"key":"of b"}`)
		r.logged(1, "hold", "of b")
		m := a.call("1", "ask", `{"method":"roots/list"}`)
		if m.Error == nil && !strings.Contains(m.raw, "error") {
			t.Errorf("somebody answered: %s", m.raw)
		}
		b.call("2", "release", `{"key":"of b"}`)
		if got := textOf(t, b.answer("1")); got != "held of b" {
			t.Error(got)
		}
		for _, c := range []*client{a, b} {
			if _, err := c.next(0, isMethod("roots/list")); err == nil {
				t.Error("a client was asked")
			}
		}
		// From here on one client at a time has calls there, and questions find their way.
		a.sendCall("3", "ask", `{"method":"roots/list"}`)
		question := a.take("question", isMethod("roots/list"))
		b.sendCall("3", "count", `{}`)
		a.send(`{"jsonrpc":"2.0","id":%s,"result":{"roots":[]}}`, question.ID)
		a.answer("3")
		b.answer("3")
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
