package mcpd

import (
	"strings"
	"testing"
	"time"

	"interlock/mcpd/internal/config"
	"interlock/session"
)

const (
	discover = `{"jsonrpc":"2.0","id":"d","method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"modern","version":"3"}}}}`
	listenOn = `{"jsonrpc":"2.0","id":%s,"method":"subscriptions/listen","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`
	noMethod = `{"jsonrpc":"2.0","id":"d","error":{"code":-32601,"message":"method not found: server/discover"}}`
)

// probe sends server/discover and returns the server that got it.
func (c *client) probe() (*fakeServer, message) {
	c.t.Helper()
	c.send(discover)
	s := c.r.servers.take()
	return s, s.takes("server/discover")
}

// notProbed has a second session be answered without asking the server.
func notProbed(t *testing.T, r *rig) {
	t.Helper()
	c := r.dial()
	c.send(discover)
	c.want(noMethod)
	r.servers.none()
}

// TestDiscover passes the answer of a server of the stateless era on.
func TestDiscover(t *testing.T) {
	t.Parallel()
	r := startRig(t, rigOptions{})
	c := r.dial()
	s, m := c.probe()
	s.answer(m, `{"supportedVersions":["2026-07-28"]}`)
	c.want(`{"jsonrpc":"2.0","id":"d","result":{"supportedVersions":["2026-07-28"]}}`)
	c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"write","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"modern","version":"3"}}}}`)
	s.takes("tools/call")
	if got := r.d.Snapshot().Sessions[0]; got.Era != "stateless" || got.Client.Name != "modern" || got.Client.Version != "3" {
		t.Errorf("session %+v", got)
	}
	s.exit(0)
	if m := c.recv(); !strings.Contains(m.raw, `"resultType":"complete"`) {
		t.Errorf("a refusal for a stateless client: %s", m.raw)
	}
	r.awaitLost(s)
	c.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"peek"}}`)
	r.servers.take().takes("tools/call") // there is nothing to be said first
	other := r.dial()
	other.probe() // known to have it
}

// TestDiscoverVersion passes on that the server does not speak this version,
// which is no sign of the old era.
func TestDiscoverVersion(t *testing.T) {
	t.Parallel()
	r := startRig(t, rigOptions{})
	c := r.dial()
	s, m := c.probe()
	s.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32022,"message":"no","data":{"supported":["2027-01-01"]}}}`, m.ID)
	c.want(`{"jsonrpc":"2.0","id":"d","error":{"code":-32022,"message":"no","data":{"supported":["2027-01-01"]}}}`)
	if got := r.d.eras.of(r.d.config.Load().Servers[0]); got != session.Stateless {
		t.Errorf("taken for %v", got)
	}
}

// TestDiscoverUnknown passes the error of a server of the old era on, and asks it
// no more.
func TestDiscoverUnknown(t *testing.T) {
	t.Parallel()
	r := startRig(t, rigOptions{})
	c := r.dial()
	s, m := c.probe()
	s.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"what?"}}`, m.ID)
	c.want(`{"jsonrpc":"2.0","id":"d","error":{"code":-32601,"message":"what?"}}`)
	notProbed(t, r)
	c.send("%s", initialize)
	s.takeHandshake() // the same process goes on
}

// TestDiscoverSilent answers in the place of a server that does not, in time for
// the client to go on. What it says later is dropped, but learnt from: it was only
// slow.
func TestDiscoverSilent(t *testing.T) {
	t.Parallel()
	r := startRig(t, rigOptions{})
	c := r.dial()
	began := time.Now()
	s, m := c.probe()
	c.want(noMethod)
	if took := time.Since(began); took < probeTimeout || took > probeTimeout+bound/4 {
		t.Errorf("answered after %v", took)
	}
	notProbed(t, r)
	s.answer(m, "{}")
	c.sync(s)
	if got := r.d.eras.of(r.d.config.Load().Servers[0]); got != session.Stateless {
		t.Errorf("taken for %v", got)
	}
}

// TestDiscoverDies starts a server that died of the question anew, and at once.
func TestDiscoverDies(t *testing.T) {
	t.Parallel()
	r := startRig(t, rigOptions{})
	c := r.dial()
	s, _ := c.probe()
	s.exit(1)
	c.want(noMethod)
	r.awaitLost(s)
	began := time.Now()
	c.shakeHands()
	if took := time.Since(began); took > startPause*3/4 {
		t.Errorf("started after %v", took)
	}
	notProbed(t, r)
}

// TestDiscoverGone learns nothing of a server whose client leaves, or that is
// ended with the daemon, before it has answered.
func TestDiscoverGone(t *testing.T) {
	t.Parallel()
	r := startRig(t, rigOptions{})
	c := r.dial()
	s, _ := c.probe()
	c.close()
	s.awaitDone()
	eventually(t, "the session is over", func() bool { return len(r.d.open()) == 0 })
	if got := r.d.eras.of(r.d.config.Load().Servers[0]); got != session.EraUnknown {
		t.Errorf("taken for %v", got)
	}
}

// TestListen maps the id of a stream in whatever is said on it.
func TestListen(t *testing.T) {
	t.Parallel()
	r := startRig(t, rigOptions{})
	c := r.dial()
	c.send(listenOn, `"a"`)
	s := r.servers.take()
	first := s.takes("subscriptions/listen")
	c.send(listenOn, `9007199254740993`)
	second := s.takes("subscriptions/listen")
	update := func(id string) {
		s.say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}}`, id)
	}
	want := func(id string) {
		t.Helper()
		c.want(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":` + id + `}}}`)
	}
	update(string(first.ID))
	want(`"a"`)
	update(string(second.ID))
	want(`9007199254740993`)
	update("77") // no stream

	// The client ends one: it hears no more of it.
	c.cancel(`"a"`)
	if m := s.takes("notifications/cancelled"); requestID(t, m) != string(first.ID) {
		t.Errorf("the server is told %s", m.raw)
	}
	update(string(first.ID))
	c.sync(s)

	// The server ends the other, by word and by result.
	s.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`, second.ID)
	c.want(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9007199254740993}}`)
	s.answer(second, `{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":`+string(second.ID)+`}}`)
	c.want(`{"jsonrpc":"2.0","id":9007199254740993,"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":9007199254740993}}}`)
}

// TestListenEnded frees the place of a stream whose end the server has only
// announced.
func TestListenEnded(t *testing.T) {
	t.Parallel()
	r := startRig(t, rigOptions{limits: func(l *config.Limits) { l.ClientCalls, l.CancelGrace = 1, time.Millisecond }})
	c := r.dial()
	c.send(listenOn, "1")
	s := r.servers.take()
	stream := s.takes("subscriptions/listen")
	c.send(listenOn, "2")
	if got := c.refusal("2"); got.Code != "busy" {
		t.Errorf("a second stream: %+v", got)
	}
	s.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`, stream.ID)
	c.recv()
	eventually(t, "the stream is over", func() bool { return r.d.Snapshot().Sessions[0].InFlight == 0 })
	c.send(listenOn, "1")
	s.takes("subscriptions/listen")
	s.exit(0)
	if got := c.refusal("1"); got.Code != "server_lost" {
		t.Errorf("a stream whose server dies: %+v", got)
	}
}
