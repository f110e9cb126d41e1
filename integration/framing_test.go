package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestMalformed sends what is no proper request, each followed by a proper
// one: the error comes, under no other request's id, and the session lives.
func TestMalformed(t *testing.T) {
	t.Parallel()
	const null = "null"
	call := func(rest string) string { return `{"jsonrpc":"2.0","id":8,` + rest + `}` }
	tests := []malformed{
		{name: "text", line: `not json at all`, code: -32700},
		{name: "cut off", line: `{"jsonrpc":"2.0","id":8,"method":`, code: -32700},
		{name: "two on a line", line: `{"jsonrpc":"2.0","id":8,"method":"ping"}{"jsonrpc":"2.0","id":9,"method":"ping"}`, code: -32700},
		{name: "single quotes", line: `{'jsonrpc':'2.0','id':8,'method':'ping'}`, code: -32700},
		{name: "NUL", line: "\x00", code: -32700},
		{name: "raw control character", line: "{\"jsonrpc\":\"2.0\",\"id\":8,\"method\":\"pi\tng\"}", code: -32700},
		{name: "invalid UTF-8", line: call("\"method\":\"tools/call\",\"params\":{\"name\":\"echo\",\"arguments\":{\"s\":\"a\xffb\"}}"), code: -32700, ids: []string{null, "8"}},
		{name: "number", line: `42`, code: -32600},
		{name: "null", line: `null`, code: -32600},
		{name: "empty object", line: `{}`, code: -32600},
		{name: "batch", line: `[{"jsonrpc":"2.0","id":8,"method":"ping"}]`, code: -32600},
		{name: "empty batch", line: `[]`, code: -32600},
		{name: "no version", line: `{"id":8,"method":"ping"}`, code: -32600, ids: []string{null, "8"}},
		{name: "other version", line: `{"jsonrpc":"1.0","id":8,"method":"ping"}`, code: -32600, ids: []string{null, "8"}},
		{name: "method a number", line: call(`"method":5`), code: -32600, ids: []string{null, "8"}},
		{name: "id null", line: `{"jsonrpc":"2.0","id":null,"method":"ping"}`, code: -32600},
		{name: "id a fraction", line: `{"jsonrpc":"2.0","id":1.5,"method":"ping"}`, code: -32600},
		{name: "id with exponent", line: `{"jsonrpc":"2.0","id":1e2,"method":"ping"}`, code: -32600},
		{name: "id a truth value", line: `{"jsonrpc":"2.0","id":true,"method":"ping"}`, code: -32600},
		{name: "id an object", line: `{"jsonrpc":"2.0","id":{},"method":"ping"}`, code: -32600},
		{name: "id a list", line: `{"jsonrpc":"2.0","id":[8],"method":"ping"}`, code: -32600},
		{name: "id too long", line: `{"jsonrpc":"2.0","id":"` + strings.Repeat("i", 1100) + `","method":"ping"}`, code: -32600},
		{name: "id twice", line: `{"jsonrpc":"2.0","id":8,"id":9,"method":"ping"}`, code: -32600, ids: []string{null, "8", "9"}, names: "id"},
		{name: "method twice", line: call(`"method":"ping","method":"tools/list"`), code: -32600, ids: []string{null, "8"}, names: "method"},
		{name: "method in other case", line: call(`"method":"ping","Method":"tools/list"`), code: -32600, ids: []string{null, "8"}, names: "Method"},
		{name: "method escaped", line: call(`"m\u0065thod":"ping"`), code: -32600, ids: []string{null, "8"}, names: "thod"},
		{name: "params twice", line: call(`"method":"tools/call","params":{"name":"echo"},"params":{"name":"count"}`), code: -32600, ids: []string{null, "8"}, names: "params"},
		{name: "tool twice", line: call(`"method":"tools/call","params":{"name":"echo","name":"count"}`), code: -32600, ids: []string{null, "8"}, names: "name"},
		{name: "tool in other case", line: call(`"method":"tools/call","params":{"name":"echo","NAME":"count"}`), code: -32600, ids: []string{null, "8"}, names: "NAME"},
		{name: "tool escaped", line: call(`"method":"tools/call","params":{"n\u0061me":"count"}`), code: -32600, ids: []string{null, "8"}, names: "me"},
		{name: "meta twice", line: call(`"method":"tools/call","params":{"name":"echo","_meta":{},"_meta":{"progressToken":1}}`), code: -32600, ids: []string{null, "8"}, names: "_meta"},
		{name: "token twice", line: call(`"method":"tools/call","params":{"name":"echo","_meta":{"progressToken":1,"progressToken":2}}`), code: -32600, ids: []string{null, "8"}, names: "progressToken"},
	}
	eachRelay(t, func(t *testing.T, w way) {
		r := newRig(t)
		r.servers["fake"] = r.fake()
		for _, test := range tests {
			t.Run(test.name, func(t *testing.T) { test.try(t, r.in(t), w) })
		}
		for _, e := range r.events("in") {
			if strings.Contains(e.detail, `"count"`) {
				t.Errorf("a server was sent %s", e.detail)
			}
		}
	})
}

// malformed is a line that is refused.
type malformed struct {
	name, line string
	code       int
	ids        []string // one of which the error bears; null when there are none here
	names      string   // what the message must name
}

func (test malformed) try(t *testing.T, r *rig, w way) {
	if test.ids == nil {
		test.ids = []string{"null"}
	}
	c := r.open(w, "fake").ready()
	defer c.close()
	key := test.name + "."
	c.sendCall("7", "hold", `{"key":"`+key+`"}`)
	r.logged(1, "hold", key)
	c.send("%s", test.line)
	m := c.take("error", func(m *message) bool { return m.Error != nil })
	if m.Error.Code != test.code || !slices.Contains(test.ids, string(m.ID)) {
		t.Errorf("got %swant code %d and id %v", m.raw, test.code, test.ids)
	}
	if !strings.Contains(m.Error.Message, test.names) {
		t.Errorf("%q does not name %q", m.Error.Message, test.names)
	}
	c.call("10", "release", `{"key":"`+key+`"}`)
	if got := textOf(t, c.answer("7")); got != "held "+key {
		t.Errorf("the call in flight: %s", got)
	}
	c.nothingMore()
}

// TestTolerated sends proper requests in forms that a reader must not stumble
// over.
func TestTolerated(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"BOM":         "\ufeff%s\n",
		"CRLF":        "%s\r\n",
		"blank lines": "\n\r\n  \n%s\n\n",
		"white space": " \t%s \t \n",
	} {
		t.Run(name, func(t *testing.T) {
			eachRelay(t, func(t *testing.T, w way) {
				r := newRig(t)
				r.servers["fake"] = r.fake()
				var c *client
				if w == socket { // without hello, so that a byte order mark stands at the start
					c = r.dial()
				} else {
					c = r.open(w, "fake")
				}
				if err := c.write(fmt.Sprintf(text, `{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`)); err != nil {
					t.Fatal(err)
				}
				c.answer(`"init"`)
				c.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
				if name != "BOM" {
					if err := c.write(fmt.Sprintf(text, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"a":1}}}`)); err != nil {
						t.Fatal(err)
					}
					c.answer("1")
				}
				c.nothingMore()
			})
		})
	}
}

// TestPieces sends a line in pieces that cut characters in two, and gets an
// answer that the server writes byte by byte.
func TestPieces(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, w way) {
		r := newRig(t)
		r.servers["fake"] = r.fake()
		c := r.open(w, "fake").ready()
		line := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"s":"hé 🦀漢"}}}` + "\n"
		for i := range len(line) {
			if err := c.write(line[i : i+1]); err != nil {
				t.Fatal(err)
			}
		}
		if m := c.answer("1"); !strings.Contains(m.raw, `{"s":"hé 🦀漢"}`) {
			t.Error(m.raw)
		}
		if got := textOf(t, c.call("2", "drip", `{"text":"t"}`)); got != "té漢🦀" {
			t.Error(got)
		}
		c.nothingMore()
	})
}

// TestUnterminated ends the input in the middle of a line: that is an error,
// and what came before is answered all the same.
func TestUnterminated(t *testing.T) {
	t.Parallel()
	eachRelay(t, func(t *testing.T, w way) {
		r := newRig(t)
		r.servers["fake"] = r.fake()
		c := r.open(w, "fake").ready()
		c.sendCall("1", "sleep", `{"ms":200}`)
		if err := c.write(`{"jsonrpc":"2.0","id":2,"method":"ping"}`); err != nil {
			t.Fatal(err)
		}
		c.closeInput()
		c.take("parse error", isError(-32700))
		if got := textOf(t, c.answer("1")); got != "slept" {
			t.Error(got)
		}
		c.ended()
		if left := c.leftover(); left != "" {
			t.Errorf("more came: %s", left)
		}
	})
}

// TestServerNoise has a server print what is no message: none of it reaches the
// client, and the answers around it do.
func TestServerNoise(t *testing.T) {
	t.Parallel()
	eachRelay(t, func(t *testing.T, w way) {
		r := newRig(t)
		r.servers["fake"] = r.fake("-banner")
		c := r.open(w, "fake").ready()
		if got := textOf(t, c.call("1", "noise", "{}")); got != "between noises" {
			t.Error(got)
		}
		c.nothingMore()
	})
}

// TestStrayAnswer has a client answer what nobody asked: the server hears
// nothing of it, and the session lives.
func TestStrayAnswer(t *testing.T) {
	t.Parallel()
	eachRelay(t, func(t *testing.T, w way) {
		r := newRig(t)
		r.servers["fake"] = r.fake()
		c := r.open(w, "fake").ready()
		for _, id := range []string{"0", "1", `"q-1"`, "99999"} {
			c.send(`{"jsonrpc":"2.0","id":%s,"result":{}}`, id)
			c.send(`{"jsonrpc":"2.0","id":%s,"error":{"code":1,"message":"m"}}`, id)
		}
		c.nothingMore()
		if strays := r.events("stray"); len(strays) > 0 {
			t.Errorf("the server got %v", strays)
		}
	})
}
