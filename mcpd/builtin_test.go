package mcpd

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"interlock/mcpd/internal/config"
	"interlock/mcpd/internal/endpoint"
	"interlock/mcpd/internal/proc"
	"interlock/mcpd/internal/wire"
)

// TestLocal uses the daemon's own file tools as a client of any server does.
func TestLocal(t *testing.T) {
	t.Parallel()
	r := startRig(t, rigOptions{})
	dir := t.TempDir()
	ok(t, os.WriteFile(filepath.Join(dir, "a"), []byte("content"), 0o600))
	c, _ := r.hello(`{"protocol":1,"servers":["local"],"cwd":` + string(quote(dir)) + `}`)
	c.send("%s", initialize)
	if m := c.recv(); string(m.ID) != `"init"` || m.Result == nil {
		t.Fatalf("got %s", m.raw)
	}
	c.send("%s", initialized)
	const n = 40
	for i := range n {
		c.send(`{"jsonrpc":"2.0","id":"c%d","method":"tools/call","params":{"name":"read_file","arguments":{"path":"a"}}}`, i)
	}
	answered := make(map[string]bool)
	for range n {
		m := c.recv()
		if !strings.Contains(m.raw, "content") {
			t.Fatalf("got %s", m.raw)
		}
		answered[string(m.ID)] = true
	}
	if len(answered) != n {
		t.Errorf("%d different answers", len(answered))
	}
	c.send(`{"jsonrpc":"2.0","id":1,"method":"no/such"}`)
	c.wantError("1", rpcMethodNotFound, "")
	if u := r.d.Snapshot().Upstreams; len(u) != 1 || u[0].State != "running" || u[0].PID != 0 {
		t.Errorf("upstreams %+v", u)
	}
	r.servers.none()
	c.halfClose()
	c.wantEnd()
}

// TestLocalUmask has the file tools create files as the client would.
func TestLocalUmask(t *testing.T) {
	t.Parallel()
	r := startRig(t, rigOptions{})
	dir := t.TempDir()
	c, _ := r.hello(`{"protocol":1,"servers":["local"],"umask":7,"cwd":` + string(quote(dir)) + `}`)
	c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"write_file","arguments":{"path":"d/f","content":"x"}}}`)
	c.recv()
	for name, want := range map[string]os.FileMode{"d": 0o770, "d/f": 0o660} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s has mode %v, want %v (%v)", name, info.Mode(), want, err)
		}
	}
}

// TestLocalLeaves has clients of the file tools leave with calls in flight.
func TestLocalLeaves(t *testing.T) {
	t.Parallel()
	r := startRig(t, rigOptions{})
	for range 20 {
		c, _ := r.hello(`{"protocol":1,"servers":["local"],"cwd":` + string(quote(t.TempDir())) + `}`)
		for i := range 30 {
			c.send(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"write_file","arguments":{"path":"f%d","content":"x"}}}`, i, i)
		}
		c.close()
	}
	eventually(t, "all sessions are over", func() bool { return len(r.d.open()) == 0 })
	if active, _ := r.d.journal.Active(10); len(active) != 0 {
		t.Errorf("active runs %+v", active)
	}
}

// TestBuiltinAfterItsEnd refuses what comes when the session is over, or could
// not be opened, as not sent, and makes nobody wait.
func TestBuiltinAfterItsEnd(t *testing.T) {
	t.Parallel()
	r := startRig(t, rigOptions{})
	c, _ := r.hello(`{"protocol":1,"servers":["local"]}`)
	c.send("%s", initialize)
	c.recv()
	in := r.instance()
	in.quit()
	eventually(t, "the session is over", func() bool {
		in.mu.Lock()
		defer in.mu.Unlock()
		return in.ended
	})
	if seq, err := in.link.send(wire.NewFrame([]byte(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)), nil); seq != 0 || err == nil {
		t.Errorf("sent as number %d: %v", seq, err)
	}
	if in.enter(&exchange{}) {
		t.Error("an ended instance takes a request")
	}
	// The id of an open session cannot be opened again.
	c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	c.recv()
	second := newInstance(in.up)
	second.quit = func() {}
	if err := second.link.run(t.Context(), second); err == nil {
		t.Fatal("opened twice")
	}
	if seq, err := second.link.send(wire.NewFrame([]byte(`{}`)), nil); seq != 0 || err == nil {
		t.Errorf("sent as number %d: %v", seq, err)
	}
}

// TestRealProcess runs a server that is a process.
func TestRealProcess(t *testing.T) {
	t.Parallel()
	r := startRig(t, rigOptions{spawner: proc.Direct{}, config: `{"mcpServers": {"sh": {"command": "/bin/sh", "args": ["-c",
		"echo started >&2; while read line; do case $line in *die*) exit 7;; *) echo '{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}';; esac; done"]}}}`})
	c := r.dial()
	c.send(`{"jsonrpc":"2.0","id":"x","method":"tools/list"}`)
	c.want(`{"jsonrpc":"2.0","id":"x","result":{}}`)
	c.send(`{"jsonrpc":"2.0","id":"y","method":"die"}`)
	if got := c.refusal(`"y"`); !strings.Contains(got.message, "exit status 7") || !strings.Contains(got.message, "started") {
		t.Errorf("%+v", got)
	}
	c.send(`{"jsonrpc":"2.0","id":"z","method":"prompts/list"}`) // by another process
	c.want(`{"jsonrpc":"2.0","id":"z","result":{}}`)
}

// TestReject tells a refused peer of our own user why, and a stranger nothing.
func TestReject(t *testing.T) {
	t.Parallel()
	for own, want := range map[bool]string{true: "peer_refused", false: ""} {
		r := startRig(t, rigOptions{})
		c := r.dial()
		c.alive()
		nc := r.d.open()[0].nc
		reject(nc, &endpoint.PeerError{Own: own, Message: "confined", Remedy: "do something"})
		line, _ := c.next()
		if want == "" {
			if line != "" {
				t.Errorf("a stranger is told %s", line)
			}
			continue
		}
		if got := refusalIn(t, parse(t, line), "null"); got.Code != want || got.message != "confined; do something" {
			t.Errorf("%+v", got)
		}
	}
}

// TestUnknownTool reads the server's list before the first call of a tool that
// nothing is known of. Calls keep their order meanwhile.
func TestUnknownTool(t *testing.T) {
	t.Parallel()
	r, c, s := startSession(t, rigOptions{})
	for i, tool := range []string{"reads", "peek", "writes", "other"} {
		c.call(fmt.Sprint(i), tool)
	}
	list := s.takes("tools/list")
	s.answer(list, `{"tools":[{"name":"reads","annotations":{"readOnlyHint":true}}],"nextCursor":"more"}`)
	list = s.takes("tools/list")
	if !strings.Contains(string(list.Params), `"cursor":"more"`) {
		t.Errorf("the next page is asked for by %s", list.raw)
	}
	s.answer(list, `{"tools":[{"name":"writes","annotations":{"readOnlyHint":false}},{"name":"other"}]}`)
	var calls []message
	for _, want := range []string{"reads", "peek", "writes", "other"} {
		m := s.takes("tools/call")
		if !strings.Contains(m.raw, `"name":"`+want+`"`) {
			t.Fatalf("got %s, want a call of %s", m.raw, want)
		}
		calls = append(calls, m)
	}
	classes := make(map[string]string)
	active, _ := r.d.journal.Active(10)
	for _, run := range active {
		classes[run.Tool] = run.Class
	}
	if want := map[string]string{"writes": "mutate", "other": "unknown"}; !maps.Equal(classes, want) {
		t.Errorf("on record are %v, want %v", classes, want)
	}
	for i, m := range calls {
		s.answer(m, "{}")
		c.want(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{}}`, i))
	}
	c.call("5", "new") // in no list: unknown, and nobody is asked again
	s.answer(s.takes("tools/call"), "{}")
	c.recv()
	s.say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	c.recv()
	c.call("6", "reads")
	s.takes("tools/list")
	s.exit(0) // the call was not sent, so the next process has it
	next := r.servers.take()
	next.takeHandshake()
	next.takes("notifications/initialized")
	next.takes("tools/call")
}

// TestUnknownToolStateless tells a server of the stateless era with the daemon's
// own request what the client's said.
func TestUnknownToolStateless(t *testing.T) {
	t.Parallel()
	r := startRig(t, rigOptions{})
	c := r.dial()
	c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"n","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","progressToken":1,"other":2}}}`)
	s := r.servers.take()
	list := s.takes("tools/list")
	if string(list.Params) != `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}` {
		t.Errorf("asked with %s", list.Params)
	}
	s.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no tools"}}`, list.ID)
	s.takes("tools/call")
}

// TestPermits has no way in which calls end keep a permit: afterwards as many run
// as before.
func TestPermits(t *testing.T) {
	t.Parallel()
	const n = 3
	r := startRig(t, rigOptions{limits: func(l *config.Limits) {
		l.Calls, l.CancelGrace, l.Frame = n, time.Millisecond, 64<<10
	}})
	big := strings.Repeat("x", 80<<10)
	for name, end := range map[string]func(c *client, s *fakeServer, m message){
		"answer": func(c *client, s *fakeServer, m message) { s.answer(m, "{}"); c.recv() },
		"error": func(c *client, s *fakeServer, m message) {
			s.say(`{"jsonrpc":"2.0","id":%s,"error":{}}`, m.ID)
			c.recv()
		},
		"large answer":     func(c *client, s *fakeServer, m message) { s.answer(m, `"`+big+`"`); c.recv() },
		"malformed answer": func(c *client, s *fakeServer, m message) { s.answer(m, `1,"id":2`); s.answer(m, "{}"); c.recv() },
		"cancelled":        func(c *client, s *fakeServer, m message) { c.cancel("1"); s.takes("notifications/cancelled") },
		"server gone":      func(c *client, s *fakeServer, m message) { s.exit(1); c.recv() },
		"client gone":      func(c *client, s *fakeServer, m message) { c.close(); s.awaitDone() },
	} {
		for range n + 1 {
			c := r.dial()
			s := c.shakeHands()
			c.call("1", "peek")
			end(c, s, s.takes("tools/call"))
			c.close()
		}
		eventually(t, "the sessions are over", func() bool { return len(r.d.open()) == 0 })
		var all []*client
		for range n {
			c := r.dial()
			s := c.shakeHands()
			c.call("1", "peek")
			s.takes("tools/call") // it runs
			all = append(all, c)
		}
		for _, c := range all {
			c.close()
		}
		eventually(t, name, func() bool { return len(r.d.open()) == 0 })
	}
}
