package mcpd

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"interlock/leases"
	"interlock/mcpd/internal/config"
	"interlock/recovery"
	"interlock/status"
)

// sharedServer is a server whose processes change one thing in common.
func sharedServer(more string) string {
	return `{"mcpServers": {"fake": {"command": "/bin/true", "state": "shared"` + more + `, "tools": {
		"peek": {"class": "read"}, "write": {"class": "mutate"}, "step": {"class": "mutate", "leaseHold": "1m"}, "last": {"class": "mutate", "leaseHold": "0s"},
		"get": {"class": "read", "resource": "file:{path}"}, "put": {"class": "mutate", "resource": "file:{path}"}, "sweep": {"class": "mutate", "resource": "tree:{path}"}}}}}`
}

// twoSessions has two clients, each with a server of its own.
func twoSessions(t testing.TB, o rigOptions) (r *rig, a, b *client, sa, sb *fakeServer) {
	t.Helper()
	if o.config == "" {
		o.config = sharedServer("")
	}
	r, a, sa = startSession(t, o)
	b = r.dial()
	return r, a, b, sa, b.shakeHands()
}

// put calls a tool with a path under the raw id, with members of _meta if there are any.
func (c *client) on(id, tool, path, meta string) {
	c.t.Helper()
	c.send(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q,"arguments":{"path":%q}%s}}`, id, tool, path, meta)
}

// waits has n calls wait for leases.
func (r *rig) waits(n int) {
	r.t.Helper()
	eventually(r.t, fmt.Sprint(n, " wait for leases"), func() bool { return len(r.d.leases.Waiting()) == n })
}

// served has the server get a call of the tool, and answers it.
func (c *client) served(s *fakeServer, id, tool string) {
	c.t.Helper()
	m := s.takes("tools/call")
	if !strings.Contains(m.raw, `"name":"`+tool+`"`) {
		c.t.Fatalf("the server got %s and not %s", m.raw, tool)
	}
	s.answer(m, "{}")
	c.want(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{}}`, id))
}

// TestOneHandAtATime lets a call that changes what another session is changing
// wait, and nothing else.
func TestOneHandAtATime(t *testing.T) {
	t.Parallel()
	r, a, b, sa, sb := twoSessions(t, rigOptions{})
	a.call("1", "write")
	first := sa.takes("tools/call")
	a.call("2", "write") // of the same owner: beside the first
	second := sa.takes("tools/call")
	b.call("1", "write")
	r.waits(1)
	a.call("3", "write") // behind the other client now
	r.waits(2)
	for c, s := range map[*client]*fakeServer{a: sa, b: sb} {
		c.call("9", "peek")
		c.served(s, "9", "peek")
	}
	if w := r.d.Snapshot().LeaseWaits; len(w) != 2 || w[0].Owner != "client-2" || w[0].BlockedBy.Owner != "client-1" || w[0].BlockedBy.Resource != "server:fake" {
		t.Errorf("waiting are %+v", w)
	}
	if s := r.d.Snapshot(); s.MutationLeaseOwner != "client-1" || len(s.Leases) != 1 || s.Leases[0].InFlight != 2 || s.Leases[0].Client != "editor" {
		t.Errorf("leases %+v of %s", s.Leases, s.MutationLeaseOwner)
	}
	sa.answer(first, "{}")
	a.recv()
	r.waits(2) // the second still runs
	sa.answer(second, "{}")
	a.recv()
	b.served(sb, "1", "write")
	a.served(sa, "3", "write")
	if l := r.d.leases.List(); len(l) != 0 {
		t.Errorf("leases are left: %+v", l)
	}
	calls, _, err := r.d.journal.History(10)
	ok(t, err)
	var epochs []uint64
	for _, c := range calls {
		if c.Tool == "write" && c.Resource != "server:fake" {
			t.Errorf("on record: %+v", c)
		}
		if c.Tool == "write" {
			epochs = append(epochs, c.Epoch)
		}
		if waited := c.WaitedFor != ""; c.Tool == "write" && waited != (c.Epoch > 1) {
			t.Errorf("waited for: %+v", c)
		}
	}
	if !slices.Equal(epochs, []uint64{1, 1, 2, 3}) {
		t.Errorf("epochs %v", epochs)
	}
}

// TestLeaseHeld refuses a call that has waited as long as it may, and says for whom.
func TestLeaseHeld(t *testing.T) {
	t.Parallel()
	r, a, b, sa, sb := twoSessions(t, rigOptions{limits: func(l *config.Limits) { l.WaitLimit = 50 * time.Millisecond }})
	a.call("1", "write")
	m := sa.takes("tools/call")
	b.call("1", "write")
	got := b.refusal("1")
	if got.Code != "lease_held" || !got.isTool || got.Outcome != "not_sent" || got.RetrySafe == nil || !*got.RetrySafe || got.RetryAfterMs == 0 ||
		got.Resource != "server:fake" || got.Holder == nil || *got.Holder != (partyData{"client-1", "editor"}) || got.Calls != 1 || got.AgeMs < 50 {
		t.Errorf("refused with %+v", got)
	}
	b.call("2", "peek")
	b.served(sb, "2", "peek")
	sa.answer(m, "{}")
	a.recv()
	b.call("3", "write")
	b.served(sb, "3", "write")
	if n := r.d.Snapshot().Counters.RefusedLeases; n != 1 {
		t.Errorf("%d refused for want of a lease", n)
	}
	calls, _, err := r.d.journal.History(10)
	ok(t, err)
	if i := slices.IndexFunc(calls, func(c recovery.Call) bool { return c.Reason == "lease_held" }); i < 0 || calls[i].WaitedFor != "client-1" || calls[i].WaitedMS < 50 {
		t.Errorf("the history has %+v", calls)
	}
}

// TestHeldOver keeps a lease from one call to the next, as the tool asks for.
func TestHeldOver(t *testing.T) {
	t.Parallel()
	r, a, b, sa, sb := twoSessions(t, rigOptions{})
	a.call("1", "step")
	a.served(sa, "1", "step")
	b.call("1", "write")
	r.waits(1)
	a.call("2", "step") // goes before
	a.served(sa, "2", "step")
	r.waits(1)
	a.call("3", "last")
	a.served(sa, "3", "last")
	b.served(sb, "1", "write")
}

// TestGivenUpWhileWaiting has nothing come of a call whose client does not wait for
// its lease any more, and those behind it go on.
func TestGivenUpWhileWaiting(t *testing.T) {
	t.Parallel()
	for name, giveUp := range map[string]func(c *client){
		"cancelled": func(c *client) { c.cancel("1") }, "left": (*client).close,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, a, b, sa, sb := twoSessions(t, rigOptions{})
			c := r.dial()
			sc := c.shakeHands()
			a.call("1", "write")
			m := sa.takes("tools/call")
			b.call("1", "write")
			r.waits(1)
			c.call("1", "write")
			r.waits(2)
			giveUp(b)
			r.waits(1)
			sa.answer(m, "{}")
			a.recv()
			c.served(sc, "1", "write")
			if name == "cancelled" {
				b.sync(sb)
			}
		})
	}
}

// TestUnsettled keeps the lease of a call that its client has given up, as long as
// its server may be at work on it.
func TestUnsettled(t *testing.T) {
	t.Parallel()
	const soon, never = 10 * time.Millisecond, time.Hour
	type limits = func(l *config.Limits)
	giveUp := map[string]struct {
		limits limits
		do     func(r *rig, a *client, sa *fakeServer)
	}{
		"cancelled": {func(l *config.Limits) { l.CancelGrace = soon }, func(r *rig, a *client, sa *fakeServer) {
			a.cancel("1")
			sa.takes("notifications/cancelled")
			eventually(r.t, "its permit is free", func() bool { return r.d.Snapshot().Sessions[0].InFlight == 0 })
		}},
		"deadline": {func(l *config.Limits) { l.CallTimeout = soon }, func(r *rig, a *client, sa *fakeServer) {
			sa.takes("notifications/cancelled")
			if got := a.refusal("1"); got.Code != "call_deadline" || got.Outcome != "unknown" {
				r.t.Errorf("refused with %+v", got)
			}
		}},
	}
	settle := map[string]struct {
		limits limits
		do     func(a *client, sa *fakeServer, call message)
	}{
		"answered":  {func(l *config.Limits) { l.LockDelay = never }, func(_ *client, sa *fakeServer, call message) { sa.answer(call, "{}") }},
		"ended":     {func(l *config.Limits) { l.LockDelay = never }, func(_ *client, sa *fakeServer, _ message) { sa.exit(0) }},
		"left":      {func(l *config.Limits) { l.LockDelay = never }, func(a *client, _ *fakeServer, _ message) { a.close() }},
		"lockDelay": {func(l *config.Limits) { l.LockDelay = 200 * time.Millisecond }, func(*client, *fakeServer, message) {}},
	}
	for gave, g := range giveUp {
		for settled, s := range settle {
			t.Run(gave+" "+settled, func(t *testing.T) {
				t.Parallel()
				r, a, b, sa, sb := twoSessions(t, rigOptions{limits: func(l *config.Limits) { g.limits(l); s.limits(l) }})
				a.call("1", "write")
				call := sa.takes("tools/call")
				g.do(r, a, sa)
				b.call("1", "peek") // the other server is there
				b.served(sb, "1", "peek")
				b.call("2", "write")
				r.waits(1)
				began := time.Now()
				s.do(a, sa, call)
				m := sb.takes("tools/call")
				if took := time.Since(began); settled == "lockDelay" && took < 100*time.Millisecond {
					t.Errorf("the next call was sent after %v", took)
				}
				sb.answer(m, "{}")
				b.want(`{"jsonrpc":"2.0","id":2,"result":{}}`)
				if l := r.d.leases.List(); len(l) != 0 {
					t.Errorf("leases are left: %+v", l)
				}
			})
		}
	}
}

// TestTask keeps the lease of a call that has become a task until that has ended.
func TestTask(t *testing.T) {
	t.Parallel()
	r, a, b, sa, sb := twoSessions(t, rigOptions{})
	a.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"write","task":{"ttl":60000}}}`)
	sa.answer(sa.takes("tools/call"), `{"task":{"taskId":"t\u0031","status":"working"}}`)
	a.recv()
	b.call("1", "write")
	r.waits(1)
	ask := sa.takes("tasks/get")
	if string(ask.Params) != `{"taskId":"t\u0031"}` {
		t.Errorf("asked for %s", ask.Params)
	}
	sa.answer(ask, `{"taskId":"t1","status":"input_required"}`)
	ask = sa.takes("tasks/get")
	r.waits(1)
	sa.answer(ask, `{"taskId":"t1","status":"completed"}`)
	b.served(sb, "1", "write")
	a.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"write","task":{}}}`)
	sa.answer(sa.takes("tools/call"), `{"task":{"taskId":"t2","status":"working"}}`)
	a.recv()
	b.call("2", "write")
	r.waits(1)
	sa.exit(0)
	b.served(sb, "2", "write")
}

// TestSessionEndsUnderACall gives what the ended session was changing to the next
// one only when its server is gone.
func TestSessionEndsUnderACall(t *testing.T) {
	t.Parallel()
	r, a, b, sa, sb := twoSessions(t, rigOptions{})
	sa.quit = make(chan struct{}) // it does not end with its input
	a.call("1", "write")
	sa.takes("tools/call")
	b.call("1", "write")
	r.waits(1)
	a.close()
	sa.takes("notifications/cancelled")
	if w := r.d.leases.Waiting(); len(w) != 1 {
		t.Errorf("waiting are %+v", w)
	}
	b.served(sb, "1", "write")
	select {
	case <-sa.done:
	default:
		t.Error("the next call was sent before the first one's server was gone")
	}
	if p := r.d.journal.Pending(); len(p) != 1 || p[0].OwnerID != "client-1" || p[0].Resource != "server:fake" {
		t.Errorf("pending are %+v", p)
	}
}

// TestFiles conflicts where one is the other, or is in the other's tree.
func TestFiles(t *testing.T) {
	t.Parallel()
	r, a, b, sa, sb := twoSessions(t, rigOptions{})
	a.on("1", "put", "/nowhere/a/x", "")
	m := sa.takes("tools/call")
	b.on("1", "put", "/nowhere/a/y", "")
	b.served(sb, "1", "put")
	b.on("2", "sweep", "/nowhere/b/../a", "")
	b.on("3", "put", "/nowhere/a/./x", "")
	r.waits(2)
	sa.answer(m, "{}")
	a.recv()
	for range 2 {
		call := sb.takes("tools/call")
		sb.answer(call, "{}")
		b.recv()
	}
}

// leaseOf is what the lease tools answer.
func leaseOf(t testing.TB, m message) leaseData {
	t.Helper()
	var r struct {
		StructuredContent leaseData
		IsError           bool
	}
	ok(t, json.Unmarshal(m.Result, &r))
	if r.IsError {
		t.Fatalf("refused: %s", m.raw)
	}
	return r.StructuredContent
}

// acquire gets a lease with the tool of the daemon's own.
func (c *client) acquire(tool, arguments string) leaseData {
	c.t.Helper()
	c.send(`{"jsonrpc":"2.0","id":"acquire","method":"tools/call","params":{"name":%q,"arguments":%s}}`, tool, arguments)
	return leaseOf(c.t, c.recv())
}

// TestExplicit wants a handle with each call that changes something, and takes it
// only from its owner.
func TestExplicit(t *testing.T) {
	t.Parallel()
	r := startRig(t, rigOptions{config: sharedServer(`, "mutations": "explicit"`)})
	a, _ := r.hello(`{"protocol":1,"servers":["fake"],"leases":true}`)
	sa := a.shakeHands()
	a.call("1", "write")
	if got := a.refusal("1"); got.Code != "lease_required" || got.Outcome != "not_sent" || !strings.Contains(got.message, "lease_acquire") {
		t.Errorf("refused with %+v", got)
	}
	a.call("2", "peek")
	a.served(sa, "2", "peek")
	lease := a.acquire("interlock__lease_acquire", `{"resource":"server:fake","ttlMs":60000}`)
	if lease.OwnerID != "client-1" || lease.Resource != "server:fake" || lease.Epoch == 0 || lease.Handle == "" || time.Until(lease.ExpiresAt) < 30*time.Second {
		t.Errorf("lease %+v", lease)
	}
	a.call("3", "write") // the connection alone is no proof
	if got := a.refusal("3"); got.Code != "lease_required" {
		t.Errorf("refused with %+v", got)
	}
	with := func(handle any) string {
		b, err := json.Marshal(handle)
		ok(t, err)
		return `,"_meta":{"interlock/lease":` + string(b) + `}`
	}
	for i, meta := range []string{with(lease.Handle), with([]leases.Handle{lease.Handle})} {
		id := fmt.Sprint(10 + i)
		a.on(id, "write", "", meta)
		m := sa.takes("tools/call")
		if strings.Contains(m.raw, "interlock") {
			t.Errorf("the server sees %s", m.raw)
		}
		sa.answer(m, "{}")
		a.recv()
	}
	b, _ := r.hello(`{"protocol":1,"servers":["fake"],"leases":true}`)
	b.shakeHands()
	for meta, want := range map[string]string{
		with(lease.Handle): "lease_not_owner", with("7.AAAAAAAAAAAAAAAAAAAAAA"): "lease_not_found", with("x"): "lease_invalid", with(7): "lease_invalid",
		with(strings.Replace(string(lease.Handle), ".", ".A", 1)): "lease_invalid",
	} {
		b.on("1", "write", "", meta)
		if got := b.refusal("1"); got.Code != want {
			t.Errorf("with %s refused with %+v, want %s", meta, got, want)
		}
	}
	a.send(`{"jsonrpc":"2.0","id":20,"method":"tools/call","params":{"name":"interlock__lease_release","arguments":{"handle":%q}}}`, lease.Handle)
	if got := leaseOf(t, a.recv()); !got.Released || got.Handle != "" {
		t.Errorf("released: %+v", got)
	}
	a.on("21", "write", "", with(lease.Handle))
	if got := a.refusal("21"); got.Code != "lease_expired" {
		t.Errorf("refused with %+v", got)
	}
}

// TestAcquired keeps others out while the owner's own calls go on, handle or not.
func TestAcquired(t *testing.T) {
	t.Parallel()
	r := startRig(t, rigOptions{config: sharedServer("")})
	dir := must(filepath.EvalSymlinks(t.TempDir()))
	a, _ := r.hello(`{"protocol":1,"servers":["fake"],"leases":true,"cwd":` + string(quote(dir)) + `}`)
	sa := a.shakeHands()
	b, _ := r.hello(`{"protocol":1,"servers":["fake"],"leases":true,"cwd":"/"}`)
	sb := b.shakeHands()
	lease := a.acquire("interlock__lease_acquire", `{"resource":"tree:src"}`)
	if lease.Resource != "tree:"+dir+"/src" {
		t.Errorf("leased is %s", lease.Resource)
	}
	a.on("1", "put", "src/x", "")
	b.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"interlock__lease_acquire","arguments":{"resources":["free",%s]}}}`, quote("file:"+dir+"/src/y"))
	if got := b.refusal("1"); got.Code != "lease_held" || got.Resource != "tree:"+dir+"/src" || got.Holder.Owner != "client-1" {
		t.Errorf("refused with %+v", got)
	}
	b.on("2", "put", dir+"/src/y", "")
	r.waits(1)
	m := sa.takes("tools/call")
	sa.answer(m, "{}")
	a.recv()
	b.send(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"interlock__lease_list"}}`)
	if got := b.recv(); strings.Contains(got.raw, "handle") || strings.Contains(got.raw, strings.Split(string(lease.Handle), ".")[1]) || !strings.Contains(got.raw, "tree:"+dir+"/src") {
		t.Errorf("listed is %s", got.raw)
	}
	a.close()
	b.served(sb, "2", "put")
}

// TestActors are owners of their own, and end with the session that speaks for them.
func TestActors(t *testing.T) {
	t.Parallel()
	r, a, b, sa, sb := twoSessions(t, rigOptions{})
	actor := func(name string) string { return `,"_meta":{"interlock/actor":"` + name + `"}` }
	a.on("1", "write", "", actor("red"))
	m := sa.takes("tools/call")
	a.on("2", "write", "", actor("blue"))
	r.waits(1)
	if w := r.d.leases.Waiting(); w[0].Owner != "client-1/blue" || w[0].Blocked.Owner != "client-1/red" {
		t.Errorf("waiting are %+v", w)
	}
	sa.answer(m, "{}")
	a.recv()
	a.served(sa, "2", "write")
	for _, bad := range []string{"", "a b", strings.Repeat("x", maxActor+1), `\u0007`} {
		a.on("3", "write", "", actor(bad))
		if got := a.refusal("3"); got.Code != "lease_invalid" {
			t.Errorf("actor %q is refused with %+v", bad, got)
		}
	}
	a.on("4", "step", "", actor("red"))
	a.served(sa, "4", "step")
	b.call("1", "write")
	r.waits(1)
	a.close()
	b.served(sb, "1", "write")
}

// TestLeaseTools stand beside the tools of a server that is asked for with them.
func TestLeaseTools(t *testing.T) {
	t.Parallel()
	r := startRig(t, rigOptions{})
	for answer, want := range map[string]string{
		`{"tools":[{"name":"x"}]}`:                   `{"tools":[{"name":"x"},OWN]}`,
		`{"tools":[ ],"_meta":{"tools":[]}}`:         `{"tools":[ OWN],"_meta":{"tools":[]}}`,
		`{"tools":[{"name":"x"}],"nextCursor":"n"}`:  `{"tools":[{"name":"x"}],"nextCursor":"n"}`,
		`{"tools":[{"name":"x"}],"nextCursor":null}`: `{"tools":[{"name":"x"},OWN],"nextCursor":null}`,
	} {
		c, _ := r.hello(`{"protocol":1,"servers":["fake"],"leases":true}`)
		s := c.shakeHands()
		c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
		s.answer(s.takes("tools/list"), answer)
		want = strings.Replace(want, "OWN", string(r.d.leaseTools), 1)
		if got := c.recv(); string(got.Result) != want {
			t.Errorf("got %s, want %s", got.Result, want)
		}
		var list struct{ Tools []struct{ Name string } }
		ok(t, json.Unmarshal([]byte(want), &list))
		if n := len(list.Tools); strings.Contains(want, "lease_") && list.Tools[n-1].Name != "interlock__lease_list" {
			t.Errorf("the tools are %+v", list)
		}
		c.close()
	}
	c, _ := r.hello(`{"protocol":1,"servers":["fake"],"leases":true}`)
	c.send("%s", initialize)
	s := r.servers.take()
	s.answer(s.takes("initialize"), `{"protocolVersion":"2025-06-18","capabilities":{"logging":{}},"serverInfo":{"name":"n","version":"1"}}`)
	if got := c.recv(); string(got.Result) != `{"protocolVersion":"2025-06-18","capabilities":{"tools":{},"logging":{}},"serverInfo":{"name":"n","version":"1"}}` {
		t.Errorf("a server without tools: %s", got.raw)
	}
	c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	s.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no tools"}}`, s.takes("tools/list").ID)
	c.want(`{"jsonrpc":"2.0","id":1,"result":{"tools":[` + string(r.d.leaseTools) + `]}}`)
	plain := r.dial()
	ps := plain.shakeHands()
	plain.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	ps.answer(ps.takes("tools/list"), `{"tools":[]}`)
	plain.want(`{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}`)
}

// TestPassEpoch tells a server that asks for it under which epoch it is called.
func TestPassEpoch(t *testing.T) {
	t.Parallel()
	_, a, s := startSession(t, rigOptions{config: sharedServer(`, "passEpoch": true`)})
	for i, c := range []struct{ params, want string }{
		{`{"name":"write"}`, `{"_meta":{"interlock/epoch":1},"name":"write"}`},
		{`{"name":"write","_meta":{}}`, `{"name":"write","_meta":{"interlock/epoch":2}}`},
		{`{"_meta": {"interlock/actor":"x"},"name":"write"}`, `{"_meta": {"interlock/epoch":3},"name":"write"}`},
		{`{"name":"write","_meta":{"a":1,"interlock/actor":"x"}}`, `{"name":"write","_meta":{"interlock/epoch":4,"a":1}}`},
		{`{"name":"write","_meta":{"interlock/actor":"x","interlock/epoch":9,"b":2}}`, `{"name":"write","_meta":{"interlock/epoch":5,"b":2}}`},
		{`{"name":"peek","_meta":{"interlock/epoch":9}}`, `{"name":"peek","_meta":{}}`},
	} {
		a.send(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":%s}`, i, c.params)
		m := s.takes("tools/call")
		if string(m.Params) != c.want {
			t.Errorf("the server gets %s, want %s", m.Params, c.want)
		}
		s.answer(m, "{}")
		a.recv()
	}
}

// TestStaleWrite warns of a write over somebody else's newer one, or refuses it.
func TestStaleWrite(t *testing.T) {
	t.Parallel()
	for _, guard := range []string{"off", "warn", "refuse"} {
		t.Run(guard, func(t *testing.T) {
			t.Parallel()
			r, a, b, sa, sb := twoSessions(t, rigOptions{config: sharedServer(`, "guard": "` + guard + `"`)})
			const result = `{"content":[{"type":"text","text":"done"}]}`
			serve := func(c *client, s *fakeServer, tool string) message {
				c.on("1", tool, "/nowhere/x", "")
				s.answer(s.takes("tools/call"), result)
				return c.recv()
			}
			serve(a, sa, "get")
			serve(b, sb, "put") // b has never read it
			if guard == "refuse" {
				a.on("1", "put", "/nowhere/x", "")
				if got := a.refusal("1"); got.Code != "stale_write" || got.Outcome != "not_sent" || got.Holder.Owner != "client-2" || !strings.Contains(got.message, "read it again") {
					t.Errorf("refused with %+v", got)
				}
				serve(a, sa, "get")
			}
			got := string(serve(a, sa, "put").Result)
			warned := strings.Contains(got, "was changed by client-2")
			if warned != (guard == "warn") || !json.Valid([]byte(got)) || !strings.HasPrefix(got, `{"content":[{"type":"text","text":"done"}`) {
				t.Errorf("answered with %s", got)
			}
			found := slices.ContainsFunc(r.d.Snapshot().Findings, func(f status.Finding) bool { return f.Code == "stale_write" })
			if found != (guard != "off") {
				t.Errorf("a finding: %t", found)
			}
			if got := string(serve(a, sa, "put").Result); strings.Contains(got, "changed by") {
				t.Errorf("a write over its own: %s", got)
			}
		})
	}
}

// TestBreak ends a lease that others wait for, and what was not sent under it is not.
func TestBreak(t *testing.T) {
	t.Parallel()
	r, a, b, sa, sb := twoSessions(t, rigOptions{limits: func(l *config.Limits) { l.ClientCalls = 1 }})
	a.call("1", "write")
	m := sa.takes("tools/call")
	a.call("2", "write") // has the lease, and waits for a permit
	eventually(t, "both use the lease", func() bool { return r.d.Snapshot().Leases[0].InFlight == 2 })
	b.call("1", "write")
	r.waits(1)
	was, err := BreakLease(t.Context(), Place{Dir: r.paths.Dir}, "server:fake")
	if err != nil || was.Owner != "client-1" || was.InFlight != 2 {
		t.Errorf("broken was %+v, %v", was, err)
	}
	b.served(sb, "1", "write")
	sa.answer(m, "{}")
	a.want(`{"jsonrpc":"2.0","id":1,"result":{}}`)
	if got := a.refusal("2"); got.Code != "lease_broken" || got.Outcome != "not_sent" {
		t.Errorf("refused with %+v", got)
	}
	if _, err := BreakLease(t.Context(), Place{Dir: r.paths.Dir}, "server:fake"); err == nil || !strings.Contains(err.Error(), "nobody has a lease") {
		t.Errorf("broken again: %v", err)
	}
	calls, _, err := r.d.journal.History(10)
	ok(t, err)
	if !slices.ContainsFunc(calls, func(c recovery.Call) bool { return c.Reason == "broken by hand" && c.Resource == "server:fake" }) {
		t.Errorf("the history has %+v", calls)
	}
	if !strings.Contains(r.log.String(), "lease broken by hand") {
		t.Error("the log says nothing of it")
	}
}

// TestMaxRequests sends a server no more at a time than it takes.
func TestMaxRequests(t *testing.T) {
	t.Parallel()
	_, a, s := startSession(t, rigOptions{config: sharedServer(`, "maxRequests": 1`)})
	a.call("1", "write")
	first := s.takes("tools/call")
	a.call("2", "peek")
	a.sync(s) // it passes, and nothing else has
	s.answer(first, "{}")
	a.recv()
	a.served(s, "2", "peek")
}

// TestCallWithoutAnID is sent to nobody: there would be no lease and no record of it.
func TestCallWithoutAnID(t *testing.T) {
	t.Parallel()
	r, a, s := startSession(t, rigOptions{config: sharedServer("")})
	a.send(`{"jsonrpc":"2.0","method":"tools/call","params":{"name":"write"}}`)
	a.sync(s)
	if n := r.d.counters.strayFrames.Load(); n != 1 {
		t.Errorf("%d stray frames", n)
	}
}

// TestDrainWhileWaiting answers a call that waits for a lease when the daemon ends.
func TestDrainWhileWaiting(t *testing.T) {
	t.Parallel()
	r, a, b, sa, _ := twoSessions(t, rigOptions{limits: func(l *config.Limits) { l.DrainTimeout = 50 * time.Millisecond }})
	a.call("1", "write")
	sa.takes("tools/call")
	b.call("1", "write")
	r.waits(1)
	r.stop()
	if got := a.refusal("1"); got.Code != "draining" || got.Outcome != "unknown" {
		t.Errorf("the call that ran: %+v", got)
	}
	if got := b.refusal("1"); got.Code != "draining" {
		t.Errorf("the call that waited: %+v", got)
	}
	r.awaitEnd()
	if p := r.d.journal.Pending(); len(p) != 1 || p[0].OwnerID != "client-1" {
		t.Errorf("pending %+v", p)
	}
}

// TestBlockedByConflict refuses what touches a file that an interrupted call was to
// change, however either is named.
func TestBlockedByConflict(t *testing.T) {
	t.Parallel()
	config := strings.Replace(sharedServer(""), "{", `{"recovery": {"pending": "block"}, `, 1)
	r, a, s := startSession(t, rigOptions{config: config})
	a.on("1", "put", "/nowhere/a/x", "")
	s.takes("tools/call")
	s.exit(1)
	if got := a.refusal("1"); got.Outcome != "unknown" {
		t.Errorf("cut off: %+v", got)
	}
	a.on("2", "sweep", "/nowhere/a", "")
	if got := a.refusal("2"); got.Code != "recovery_pending" || len(got.Pending) != 1 {
		t.Errorf("refused with %+v", got)
	}
	a.on("3", "put", "/nowhere/a/y", "")
	next := r.servers.take()
	next.takeHandshake()
	next.takes("notifications/initialized")
	next.answer(next.takes("tools/call"), "{}")
	for a.recv().Method != "" { // what may have changed with the process
	}
}
