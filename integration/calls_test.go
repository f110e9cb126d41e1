package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// refusal gives the text with which a call was turned down, in either form.
func refusal(t testing.TB, m *message) string {
	t.Helper()
	if m.Error != nil {
		return m.Error.Message
	}
	var result struct {
		IsError bool
		Content []struct{ Text string }
	}
	if err := json.Unmarshal(m.Result, &result); err != nil || !result.IsError || len(result.Content) == 0 {
		t.Fatalf("not a refusal: %s", m.raw)
	}
	return result.Content[0].Text
}

// TestIDs has ids in flight that a careless reader takes for one another.
func TestIDs(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, w way) {
		r := newRig(t)
		r.servers["fake"] = r.fake()
		c := r.open(w, "fake").ready()
		ids := []string{"1", `"1"`, "9007199254740992", "9007199254740993", "-1", "0", `""`, `"\u0031 "`, `"` + strings.Repeat("x", 1000) + `"`}
		for i, id := range ids {
			c.sendCall(id, "hold", fmt.Sprintf(`{"key":"<%d>"}`, i))
		}
		r.logged(len(ids), "hold", "<")
		for i := len(ids) - 1; i >= 0; i-- {
			c.call(fmt.Sprintf(`"release %d"`, i), "release", fmt.Sprintf(`{"key":"<%d>"}`, i))
			if got := textOf(t, c.answer(ids[i])); got != fmt.Sprintf("held <%d>", i) {
				t.Errorf("the answer to %s is %q", ids[i], got)
			}
		}
		c.nothingMore()
	})
}

// TestDuplicateID uses an id twice at once: the second use is refused, the
// first is answered once, and then the id is free again.
func TestDuplicateID(t *testing.T) {
	t.Parallel()
	eachRelay(t, func(t *testing.T, w way) {
		r := newRig(t)
		r.servers["fake"] = r.fake()
		c := r.open(w, "fake").ready()
		c.sendCall("1", "hold", `{"key":"first"}`)
		r.logged(1, "hold", "first")
		c.sendCall("1", "hold", `{"key":"second"}`)
		m := c.take("refusal", func(m *message) bool { return m.Error != nil })
		if m.Error.Code != -32600 {
			t.Errorf("refused with %s", m.raw)
		}
		c.call("2", "release", `{"key":"first"}`)
		if got := textOf(t, c.answer("1")); got != "held first" {
			t.Error(got)
		}
		if m := c.call("1", "echo", `{"again":true}`); m.Result == nil {
			t.Error(m.raw)
		}
		c.nothingMore()
		if len(r.events("hold")) != 1 {
			t.Error("the second call reached the server")
		}
	})
}

// TestServerAnswersBadly has a server send answers that belong to nobody: the
// caller gets the right one only, and another session nothing.
func TestServerAnswersBadly(t *testing.T) {
	t.Parallel()
	eachRelay(t, func(t *testing.T, w way) {
		r := newRig(t)
		r.servers["fake"] = r.fake()
		c, other := r.open(w, "fake").ready(), r.open(w, "fake").ready()
		for i, test := range []struct{ tool, answer, end string }{
			{"stray", "the right answer", "after the stray answers"},
			{"twice", "first answer", "after the second answer"},
		} {
			if got := textOf(t, c.call(fmt.Sprint(i), test.tool, "{}")); got != test.answer {
				t.Errorf("%s: %s", test.tool, got)
			}
			c.take("log message", func(m *message) bool { return strings.Contains(m.raw, test.end) })
		}
		c.nothingMore()
		other.nothingMore()
	})
}

// TestLateProgress has a server report progress on a call that it has answered.
func TestLateProgress(t *testing.T) {
	t.Parallel()
	eachRelay(t, func(t *testing.T, w way) {
		r := newRig(t)
		r.servers["fake"] = r.fake()
		c := r.open(w, "fake").ready()
		for _, token := range []string{"1", `"1"`} {
			c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"progress","arguments":{"n":2,"kind":"late"},"_meta":{"progressToken":%s}}}`, token)
			for range 2 {
				m := c.take("progress", isMethod("notifications/progress"))
				if !strings.Contains(m.raw, `"progressToken":`+token+`,`) {
					t.Errorf("the token %s came back in %s", token, m.raw)
				}
			}
			c.answer("1")
			c.take("log message", isMethod("notifications/message"))
		}
		c.nothingMore()
	})
}

// TestCancel cancels a call: the server hears of it once, under the id that it
// knows; a cancellation of nothing reaches nobody.
func TestCancel(t *testing.T) {
	t.Parallel()
	eachRelay(t, func(t *testing.T, w way) {
		r := newRig(t)
		r.servers["fake"] = r.fake()
		c := r.open(w, "fake").ready()
		c.sendCall(`"abc"`, "hold", `{"key":"k"}`)
		r.logged(1, "hold", "k")
		c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"never","reason":"r"}}`)
		c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"abc","reason":"r","vendor":1.0}}`)
		r.logged(1, "cancel", "hold")
		if seen := r.logged(1, "in", "notifications/cancelled"); !strings.Contains(seen[0].detail, `"reason":"r","vendor":1.0`) {
			t.Errorf("the server saw %s", seen[0].detail)
		}
		c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"abc"}}`)
		c.nothingMore()
		if n := len(r.events("cancel")); n != 1 {
			t.Errorf("the server heard %d cancellations", n)
		}
	})
}

// TestCancelAtOnce sends the cancellation together with the call, many times:
// however it goes, no call runs on.
func TestCancelAtOnce(t *testing.T) {
	t.Parallel()
	eachRelay(t, func(t *testing.T, w way) {
		r := newRig(t)
		r.servers["fake"] = r.fake()
		c := r.open(w, "fake").ready()
		c.settle()
		const calls = 100
		for i := range calls {
			text := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"hold","arguments":{"key":"k%d"}}}`+"\n"+
				`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`+"\n", i, i, i)
			if err := c.write(text); err != nil {
				t.Fatal(err)
			}
		}
		c.settle()
		begun := 0
		for _, e := range r.events("in") {
			if strings.Contains(e.detail, `"hold"`) {
				begun++
			}
		}
		r.logged(begun, "cancel", "hold")
		c.nothingMore()
	})
}

// TestCancelQueued cancels calls that wait for their turn: none of them starts.
func TestCancelQueued(t *testing.T) {
	t.Parallel()
	eachRelay(t, func(t *testing.T, w way) {
		r := newRig(t)
		r.servers["fake"] = r.fake()
		c := r.open(w, "fake").ready()
		const running = 16 // at once, for one client
		for i := range running {
			c.sendCall(fmt.Sprint(i), "hold", fmt.Sprintf(`{"key":"running %d"}`, i))
		}
		r.logged(running, "hold", "running")
		for i := running; i < running+10; i++ {
			c.sendCall(fmt.Sprint(i), "hold", `{"key":"waiting"}`)
			c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, i)
		}
		for i := range running {
			c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, i)
		}
		r.logged(running, "cancel", "running")
		c.nothingMore()
		if n := len(r.logged(0, "hold", "waiting")); n > 0 {
			t.Errorf("%d cancelled calls started", n)
		}
	})
}

// TestLateAnswer has a server answer a call that was cancelled, when its id is
// in use again, and in use by another session too.
func TestLateAnswer(t *testing.T) {
	t.Parallel()
	eachRelay(t, func(t *testing.T, w way) {
		r := newRig(t)
		r.servers["fake"] = r.fake()
		c, other := r.open(w, "fake").ready(), r.open(w, "fake").ready()
		c.send(`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"late","arguments":{},"_meta":{"progressToken":5}}}`)
		c.take("progress", isMethod("notifications/progress"))
		other.sendCall("5", "hold", `{"key":"other"}`)
		r.logged(1, "hold", "other")
		c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}`)
		c.take("log message", isMethod("notifications/message"))
		if m := c.call("5", "echo", `{"mine":5}`); !strings.Contains(m.raw, `{"mine":5}`) {
			t.Error(m.raw)
		}
		other.call("6", "release", `{"key":"other"}`)
		if got := textOf(t, other.answer("5")); got != "held other" {
			t.Error(got)
		}
		c.nothingMore()
		other.nothingMore()
	})
}

// TestCancelOfAnother has two clients with the same id in flight:
// a cancellation touches the sender's call only, and so does a client's end.
func TestCancelOfAnother(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*client){
		"cancelled": func(c *client) {
			c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`)
			c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9}}`)
		},
		"vanished": (*client).vanish,
	} {
		t.Run(name, func(t *testing.T) {
			eachRelay(t, func(t *testing.T, w way) {
				r := newRig(t)
				r.servers["fake"] = r.fake()
				a, b := r.open(w, "fake").ready(), r.open(w, "fake").ready()
				a.sendCall("7", "hold", `{"key":"of a"}`)
				a.sendCall("9", "hold", `{"key":"too of a"}`)
				b.sendCall("7", "hold", `{"key":"of b"}`)
				r.logged(3, "hold", "of ")
				end(b)
				r.logged(1, "cancel", "of b")
				for id, key := range map[string]string{"7": "of a", "9": "too of a"} {
					a.call(`"r`+id+`"`, "release", `{"key":"`+key+`"}`)
					if got := textOf(t, a.answer(id)); got != "held "+key {
						t.Error(got)
					}
				}
				a.nothingMore()
				if n := len(r.logged(1, "cancel", "")); n != 1 {
					t.Errorf("%d cancellations", n)
				}
			})
		})
	}
}

// TestHalfClose ends the input with calls in flight, as `… | interlock connect`
// does: they are answered, and then it ends well.
func TestHalfClose(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, w way) {
		r := newRig(t)
		r.servers["fake"] = r.fake()
		c := r.open(w, "fake")
		lines := `{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"sleep","arguments":{"ms":400}}}
{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{"n":2}}}
`
		if err := c.write(lines); err != nil {
			t.Fatal(err)
		}
		c.closeInput()
		c.answer(`"init"`)
		c.answer("2")
		if got := textOf(t, c.answer("1")); got != "slept" {
			t.Error(got)
		}
		c.ended()
		if left := c.leftover(); left != "" {
			t.Errorf("more came: %s", left)
		}
		if c.cmd != nil && c.exitCode() != 0 {
			t.Errorf("exit code %d\n%s", c.exitCode(), c.stderr())
		}
	})
}

// TestEarlyRequest writes handshake and request in one go to a server that
// refuses whatever comes before the handshake is done.
func TestEarlyRequest(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, w way) {
		r := newRig(t)
		gate := filepath.Join(r.dir, "gate")
		r.servers["fake"] = r.fake("-strict", "-gate", gate)
		c := r.open(w, "fake")
		lines := `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":1,"method":"tools/list"}
`
		if err := c.write(lines); err != nil {
			t.Fatal(err)
		}
		r.logged(1, "in", "initialize")
		if err := os.WriteFile(gate, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		c.answer("0")
		if m := c.answer("1"); m.Result == nil {
			t.Error(m.raw)
		}
	})
}
