package mcpd

import (
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"interlock/mcpd/internal/config"
	"interlock/recovery"
)

// TestServerDies answers what is in flight at once when its server ends: what a
// byte of was sent is of unknown outcome, but for a call that only reads.
func TestServerDies(t *testing.T) {
	t.Parallel()
	r, c, s := startSession(t, rigOptions{})
	c.call("1", "write")
	c.call("2", "peek")
	c.send(`{"jsonrpc":"2.0","id":3,"method":"resources/list"}`)
	for range 3 {
		s.recv()
	}
	s.complain("something is wrong\n")
	s.exit(3)
	first := c.refusal("1")
	if first.Code != "server_lost" || !first.isTool || first.Outcome != "unknown" || *first.RetrySafe || first.Run == "" ||
		!strings.Contains(first.message, "exit status 3") || !strings.Contains(first.message, "something is wrong") || !strings.Contains(first.message, "check before you repeat it") {
		t.Errorf("a call that changes something: %+v", first)
	}
	if got := c.refusal("2"); got.Code != "server_lost" || got.Outcome != "unknown" || !*got.RetrySafe || got.Run != "" || !strings.Contains(got.message, "safe to repeat") {
		t.Errorf("a call that reads: %+v", got)
	}
	if got := c.refusal("3"); got.number != int(codeServerLost) || got.Outcome != "unknown" {
		t.Errorf("no call of a tool: %+v", got)
	}
	if strings.Count(first.message, `"fake"`) != 1 || strings.Contains(first.message, "context") {
		t.Errorf("told %q", first.message)
	}
	if p := r.d.journal.Pending(); len(p) != 1 || p[0].RequestID != first.Run || p[0].Outcome != recovery.OutcomeUnknown || p[0].Reason != "server_lost" {
		t.Errorf("pending %+v", p)
	}
	if got := r.d.counters.exited.Load(); got != 1 {
		t.Errorf("%d exits counted", got)
	}
	r.awaitLog(`"server":"fake","code":"upstream_crashed"}`)
}

// awaitLog waits for a line of the daemon's log with this end.
func (r *rig) awaitLog(end string) {
	r.t.Helper()
	eventually(r.t, "logged: "+end, func() bool { return strings.Contains(r.log.String(), end+"\n") })
}

// TestNotSent has a call count as not sent, and be no pending run, if it came
// when its server did not read any more, or could not be started.
func TestNotSent(t *testing.T) {
	t.Parallel()
	want := func(t *testing.T, r *rig, c *client, ids ...string) {
		t.Helper()
		for _, id := range ids {
			if got := c.refusal(id); got.Outcome != "not_sent" || !*got.RetrySafe || !strings.Contains(got.message, "not sent") || strings.Contains(got.message, "context") {
				t.Errorf("%+v", got)
			}
		}
		if p := r.d.journal.Pending(); len(p) != 0 {
			t.Errorf("pending %+v", p)
		}
	}
	t.Run("input closed", func(t *testing.T) {
		t.Parallel()
		r := startRig(t, rigOptions{})
		r.servers.behave(manner{deaf: true})
		c := r.dial()
		c.send(`{"jsonrpc":"2.0","method":"notifications/x"}`)
		c.send(`{"jsonrpc":"2.0","id":0,"method":"tools/list"}`)
		s := r.servers.take()
		eventually(t, "the first is in the pipe", func() bool { return r.instance().link.begun() == 1 })
		s.stdio[0].Close() // it does not end before it is told to
		c.call("1", "write")
		c.call("2", "write")
		c.call("3", "write")
		if got := c.refusal("0"); got.Outcome != "unknown" {
			t.Errorf("what was in the pipe: %+v", got)
		}
		want(t, r, c, "1", "2", "3")
	})
	t.Run("start fails", func(t *testing.T) {
		t.Parallel()
		r := startRig(t, rigOptions{})
		r.servers.behave(manner{fail: syscall.ENOEXEC})
		var all []*client
		for range 30 { // each meets the end of its server at another moment
			c := r.dial()
			all = append(all, c)
			c.call("1", "write")
			c.call("2", "write")
		}
		for _, c := range all {
			want(t, r, c, "1", "2")
		}
	})
	t.Run("in the pause", func(t *testing.T) {
		t.Parallel()
		r, c, s := startSession(t, rigOptions{})
		s.exit(0)
		r.awaitLost(s)
		r.servers.behave(manner{fail: syscall.ENOEXEC})
		c.call("1", "write")
		c.call("2", "write")
		want(t, r, c, "1", "2")
	})
}

// awaitRunning waits until the daemon knows the process of the server.
func (r *rig) awaitRunning(s *fakeServer) {
	r.t.Helper()
	eventually(r.t, "the daemon knows the process", func() bool {
		u := r.d.Snapshot().Upstreams
		return len(u) > 0 && u[len(u)-1].PID == s.pid
	})
}

// TestRestart starts a server anew when it is needed, and tells it first what the
// session has told the one before: under ids of the daemon's, without what is
// the daemon's own. The client is told to read the lists anew.
func TestRestart(t *testing.T) {
	t.Parallel()
	r := startRig(t, rigOptions{})
	c := r.dial()
	c.send(`{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"2025-06-18","_meta":{"interlock/actor":"a","k":1,"progressToken":"p"}}}`)
	s := r.servers.take()
	s.takeHandshake()
	c.recv()
	c.send(`{"jsonrpc":"2.0","method":"notifications/initialized","params":{"_meta":{"interlock/actor":"a"}}}`)
	s.takes("notifications/initialized")
	request := func(method, params string) {
		c.send(`{"jsonrpc":"2.0","id":"r","method":%q,"params":{%s}}`, method, params)
		s.answer(s.takes(method), "{}")
		c.want(`{"jsonrpc":"2.0","id":"r","result":{}}`)
	}
	request("logging/setLevel", `"level":"info"`)
	request("logging/setLevel", `"level":"debug"`)
	request("resources/subscribe", `"uri":"a:1"`)
	request("resources/subscribe", `"uri":"a:2","_meta":{"progressToken":7,"interlock/lease":"x"}`)
	request("resources/subscribe", `"uri":"a:3"`)
	request("resources/unsubscribe", `"uri":"a:1"`)
	s.exit(0)
	r.awaitLost(s)
	c.send(`{"jsonrpc":"2.0","id":"local","method":"ping"}`)
	c.want(`{"jsonrpc":"2.0","id":"local","result":{}}`) // no reason to start a server
	c.send(`{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`)
	r.servers.none()

	c.call(`"c"`, "write")
	next := r.servers.take()
	if m := next.recv(); !strings.Contains(m.raw, `"params":{"protocolVersion":"2025-06-18","_meta":{"k":1,"progressToken":`+string(m.ID)+`}}`) {
		t.Errorf("the handshake: %s", m.raw)
	} else {
		next.answer(m, handshake)
	}
	next.want(`{"jsonrpc":"2.0","method":"notifications/initialized","params":{"_meta":{}}}`)
	if m := next.takes("logging/setLevel"); !strings.Contains(m.raw, `"level":"debug"`) {
		t.Errorf("the level: %s", m.raw)
	}
	subscription := next.takes("resources/subscribe")
	if !strings.HasSuffix(subscription.raw, `"params":{"uri":"a:2","_meta":{"progressToken":`+string(subscription.ID)+`}}}`) {
		t.Errorf("the first subscription: %s", subscription.raw)
	}
	if m := next.takes("resources/subscribe"); !strings.Contains(m.raw, `"a:3"`) {
		t.Errorf("the second subscription: %s", m.raw)
	}
	next.answer(subscription, "{}") // nothing of the client's
	next.answer(next.takes("tools/call"), "{}")
	var changed []string
	for range 2 {
		changed = append(changed, c.recv().Method)
	}
	slices.Sort(changed)
	if !slices.Equal(changed, []string{"notifications/resources/list_changed", "notifications/tools/list_changed"}) {
		t.Errorf("the client is told %q", changed)
	}
	c.want(`{"jsonrpc":"2.0","id":"c","result":{}}`)
	if u := r.d.Snapshot().Upstreams; len(u) != 1 || u[0].Restarts != 1 || u[0].PID != next.pid {
		t.Errorf("upstreams %+v", u)
	}
}

// TestRestartRefused has a new process that does not take the handshake be ended,
// and the call be told that it was not sent.
func TestRestartRefused(t *testing.T) {
	t.Parallel()
	for name, wait := range map[string]time.Duration{"refused": bound, "not answered": 1500 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, c, s := startSession(t, rigOptions{limits: func(l *config.Limits) { l.StartTimeout = wait }})
			s.exit(0)
			r.awaitLost(s)
			c.call("1", "write")
			next := r.servers.take()
			m := next.takes("initialize")
			if name == "refused" {
				next.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-1,"message":"no"}}`, m.ID)
			}
			if got := c.refusal("1"); got.Code != "server_start_failed" || got.Outcome != "not_sent" || !strings.Contains(got.message, "started anew") {
				t.Errorf("%+v", got)
			}
			next.awaitDone()
		})
	}
}

// TestRestartPause starts at most one process a second, however fast they die.
func TestRestartPause(t *testing.T) {
	t.Parallel()
	r, c, s := startSession(t, rigOptions{})
	began := time.Now()
	for _, id := range []string{"1", "2"} {
		s.exit(1)
		r.awaitLost(s)
		c.call(id, "peek")
		s = r.servers.take()
		s.exit(1)
		if got := c.refusal(id); got.Code != "server_lost" {
			t.Errorf("%+v", got)
		}
	}
	if took := time.Since(began); took < 2*startPause-200*time.Millisecond {
		t.Errorf("three starts within %v", took)
	}
}

// TestStdoutClosed ends a process that lives on without its output.
func TestStdoutClosed(t *testing.T) {
	t.Parallel()
	_, c, s := startSession(t, rigOptions{})
	c.call("1", "write")
	s.takes("tools/call")
	s.stdio[1].Close()
	if got := c.refusal("1"); got.Code != "server_lost" || got.Outcome != "unknown" {
		t.Errorf("%+v", got)
	}
	s.awaitDone()
}

// TestStartTimeout ends a server that does not answer the handshake in time.
func TestStartTimeout(t *testing.T) {
	t.Parallel()
	r := startRig(t, rigOptions{limits: func(l *config.Limits) { l.StartTimeout = 50 * time.Millisecond }})
	c := r.dial()
	c.send("%s", initialize)
	s := r.servers.take()
	s.takes("initialize")
	if got := c.refusal(`"init"`); got.Code != "server_start_timeout" || got.number != int(codeStartTimeout) || !strings.Contains(got.message, "50ms") ||
		!strings.Contains(got.message, r.d.options.Command+" daemon logs --server fake") {
		t.Errorf("%+v", got)
	}
	s.awaitDone()
	r.awaitLost(s)
	c.alive()
	r.awaitLog(`"server":"fake","code":"upstream_start_failed"}`)
}

// TestTwoSessions has the death of one session's server not concern another's.
func TestTwoSessions(t *testing.T) {
	t.Parallel()
	r := startRig(t, rigOptions{})
	a, b := r.dial(), r.dial()
	sa, sb := a.shakeHands(), b.shakeHands()
	a.call("1", "peek")
	b.call("1", "peek")
	sa.takes("tools/call")
	call := sb.takes("tools/call")
	sa.exit(1)
	a.refusal("1")
	sb.answer(call, `{"of":"b"}`)
	b.want(`{"jsonrpc":"2.0","id":1,"result":{"of":"b"}}`)
	a.close()
	b.sync(sb)
}

// TestFewStartAtOnce has a server wait whose start would be one too many, until
// another has said something, has ended, or could not be started.
func TestFewStartAtOnce(t *testing.T) {
	t.Parallel()
	r := startRig(t, rigOptions{})
	n := 0
	for r.d.starting.TryAcquire(1) {
		n++
	}
	r.d.starting.Release(int64(n))
	var clients []*client
	var servers []*fakeServer
	for range n {
		c := r.dial()
		c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
		clients = append(clients, c)
		servers = append(servers, r.servers.take())
	}
	if r.d.starting.TryAcquire(1) {
		t.Fatalf("%d servers have said nothing yet, and another may start", n)
	}
	more := func() {
		c := r.dial()
		c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
		r.servers.take()
	}
	servers[0].answer(servers[0].recv(), `{"tools":[]}`)
	clients[0].recv()
	more()
	servers[1].exit(1)
	more()
	clients[2].close()
	r.servers.behave(manner{fail: syscall.ENOEXEC})
	c := r.dial()
	c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	c.refusal("1")
	r.servers.behave(manner{})
	more()
}
