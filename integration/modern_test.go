package integration

import (
	"fmt"
	"strings"
	"testing"
)

// modernMeta is what revision 2026-07-28 puts into every request.
const modernMeta = `{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/clientCapabilities":{"elicitation":{}},"vendor/n":1.0}`

// modernCall is a tools/call of that revision.
func modernCall(id, tool, rest string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q,%s"_meta":%s}}`, id, tool, rest, modernMeta)
}

// TestStateless speaks revision 2026-07-28 with a server that does: what each
// request carries reaches the server, what the server needs reaches the client,
// and nobody shakes hands.
func TestStateless(t *testing.T) {
	t.Parallel()
	hold := func(t *testing.T, w way) []string {
		r := newRig(t)
		r.servers["fake"] = r.fake("-discover", "serve")
		c := r.open(w, "fake")
		for i, line := range []string{
			`{"jsonrpc":"2.0","id":"d","method":"server/discover","params":{"_meta":` + modernMeta + `}}`,
			modernCall("1", "params", `"arguments":{"n":9007199254740993},`),
			modernCall("2", "need", `"arguments":{},`),
			modernCall("3", "need", `"arguments":{},"inputResponses":{"k":{"action":"accept","content":{"n":1.0}}},"requestState":"opaque+/==<&>",`),
			modernCall("4", "aged", `"arguments":{},`),
			`{"jsonrpc":"2.0","id":5,"method":"tools/list","params":{"_meta":` + modernMeta + `}}`,
		} {
			c.send("%s", line)
			from, to, _ := member(line, "id")
			if m := c.answer(line[from:to]); i != 4 && m.Result == nil {
				t.Errorf("%s got %s", line, m.raw)
			}
		}
		if w != direct {
			for _, e := range r.events("in") {
				if strings.Contains(e.detail, `"initialize"`) {
					t.Error("the server was sent an initialize")
				}
			}
		}
		return c.transcript()
	}
	want := hold(t, direct)
	eachWay(t, func(t *testing.T, w way) {
		compare(t, "the client sees", hold(t, w), want)
	})
}

// TestListen has two clients listen under one id, and one of them under two:
// each hears what its own server has for it, under the ids that it gave.
func TestListen(t *testing.T) {
	t.Parallel()
	eachRelay(t, func(t *testing.T, w way) {
		r := newRig(t)
		r.servers["fake"] = r.fake("-discover", "serve")
		listens := map[*client][]string{r.open(w, "fake"): {"11", `"11"`}, r.open(w, "fake"): {"11"}}
		about := func(id string) func(*message) bool {
			return func(m *message) bool {
				return m.ID == nil && strings.Contains(m.raw, `"io.modelcontextprotocol/subscriptionId":`+id+"}")
			}
		}
		for c, ids := range listens {
			for _, id := range ids {
				c.send(`{"jsonrpc":"2.0","id":%s,"method":"subscriptions/listen","params":{"notifications":{"resources":["x:y"]},"_meta":%s}}`, id, modernMeta)
				c.take("acknowledgement", about(id))
			}
		}
		for c, ids := range listens {
			uri := fmt.Sprintf("x:one of %d", len(ids))
			c.send("%s", modernCall("1", "touch", `"arguments":{"uri":"`+uri+`"},`))
			c.answer("1")
			for _, id := range ids {
				if m := c.take("update", about(id)); m.Method != "notifications/resources/updated" || !strings.Contains(m.raw, uri) {
					t.Error(m.raw)
				}
			}
		}
		for c, ids := range listens {
			c.send("%s", modernCall("2", "unlistens", `"arguments":{},`))
			c.answer("2")
			for _, id := range ids {
				if m := c.answer(id); !strings.Contains(string(m.Result), `"io.modelcontextprotocol/subscriptionId":`+id+"}") {
					t.Error(m.raw)
				}
			}
		}
		for c := range listens {
			c.send("%s", modernCall(`"last"`, "echo", `"arguments":{},`))
			c.answer(`"last"`)
			if left := c.leftover(); left != "" {
				t.Errorf("more came: %s", left)
			}
		}
	})
}
