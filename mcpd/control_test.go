package mcpd

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap/zapcore"

	"interlock/status"
)

func TestControl(t *testing.T) {
	t.Parallel()
	r := startRig(t, rigOptions{})
	c := r.dial()
	c.send(`{"jsonrpc":"2.0","id":"s","method":"interlock/status"}`)
	var s status.Snapshot
	ok(t, json.Unmarshal(c.recv().Result, &s))
	if s.State != status.StateRunning || s.Socket != r.paths.Socket || s.ClientSessions != 0 {
		t.Errorf("status %+v", s)
	}
	c.send(`{"jsonrpc":"2.0","id":1,"method":"interlock/recovery"}`)
	if m := c.recv(); m.Result == nil {
		t.Errorf("recovery: %s", m.raw)
	}
	c.send(`{"jsonrpc":"2.0","id":1,"method":"interlock/nonsense"}`)
	if got := c.refusal("1"); got.Code != "unknown_method" || !strings.Contains(got.message, "interlock/nonsense") {
		t.Errorf("%+v", got)
	}
	c.send(`{"jsonrpc":"2.0","id":1,"method":"interlock/recovery.ack","params":7}`)
	if got := c.refusal("1"); got.Code != "internal" {
		t.Errorf("%+v", got)
	}
	c.send(`{"jsonrpc":"2.0","method":"interlock/status"}`) // no request: no answer
	c.send(`nonsense`)
	c.wantError("null", rpcParseError, "parse error")
	c.wantEnd()
}

// TestControlHalfClosed answers who asks and ends the input at once, as nc does.
func TestControlHalfClosed(t *testing.T) {
	t.Parallel()
	r := startRig(t, rigOptions{})
	gate := make(chan struct{})
	c := r.dialGated(gate)
	const n = 2000 // more answers than the kernel takes
	c.write(strings.Repeat(`{"jsonrpc":"2.0","id":1,"method":"interlock/recovery"}`+"\n", n))
	c.halfClose()
	close(gate)
	for range n {
		c.recv()
	}
	c.wantEnd()
}

func TestControlStop(t *testing.T) {
	t.Parallel()
	r := startRig(t, rigOptions{})
	idle := r.dial()
	idle.alive()
	c := r.dial()
	c.send(`{"jsonrpc":"2.0","id":1,"method":"interlock/stop"}`)
	if m := c.recv(); m.Result == nil {
		t.Errorf("stop: %s", m.raw)
	}
	idle.wantEnd()
	r.awaitEnd()
}

// TestReload has new sessions get what the file now says, and open ones keep
// what they have.
func TestReload(t *testing.T) {
	t.Parallel()
	r, old, s := startSession(t, rigOptions{})
	reload := func() {
		select {
		case r.reload <- nil:
		case <-time.After(bound):
			t.Fatal("nobody reloads")
		}
	}
	r.configure(`{"mcpServers": {"fake": {"command": "/bin/false"}, "more": {"command": "/bin/true"}}}`)
	reload()
	eventually(t, "the new file is in force", func() bool { return len(r.d.config.Load().Servers) == 2 })
	old.sync(s)
	c, m := r.hello(`{"protocol":1,"servers":["more"]}`)
	if m.Result == nil {
		t.Fatalf("a new server: %s", m.raw)
	}
	c.close()
	c, _ = r.hello(`{"protocol":1,"servers":["fake"]}`)
	c.send("%s", initialize)
	if got := r.servers.take().spec.Path; got != "/bin/false" {
		t.Errorf("a new session runs %s", got)
	}
	s.exit(0)
	r.awaitLost(s)
	old.call("1", "peek") // its next process is still the old one's
	if got := r.servers.take().spec.Path; got != "/bin/true" {
		t.Errorf("an old session runs %s", got)
	}
}

// panicking is a log that fails.
type panicking struct{ zapcore.Core }

func (panicking) Enabled(zapcore.Level) bool { return true }
func (p panicking) Check(e zapcore.Entry, c *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if e.Message == "asked to stop" {
		panic("a fault of the test's")
	}
	return c
}

// TestPanic has a fault end the connection that met it, with a finding, and
// nothing else.
func TestPanic(t *testing.T) {
	t.Parallel()
	wantFinding := func(t *testing.T, r *rig) {
		t.Helper()
		found := r.d.Snapshot().Findings
		is := func(f status.Finding) bool { return f.Code == status.DaemonPanic }
		if !slices.ContainsFunc(found, is) || r.d.counters.panics.Load() != 1 {
			t.Errorf("findings %+v", found)
		}
	}
	t.Run("reading a client", func(t *testing.T) {
		t.Parallel()
		r := startRig(t, rigOptions{log: panicking{zapcore.NewNopCore()}})
		other := r.dial()
		other.alive()
		c := r.dial()
		c.send(`{"jsonrpc":"2.0","id":1,"method":"interlock/stop"}`)
		c.recv()
		c.wantEnd()
		wantFinding(t, r)
		other.alive()
	})
	t.Run("reading a server", func(t *testing.T) {
		t.Parallel()
		r := startRig(t, rigOptions{serverLog: func(string) io.Writer { return faulty{} }})
		other := r.dial()
		otherServer := other.shakeHands()
		c := r.dial()
		s := c.shakeHands()
		c.call("1", "write")
		s.takes("tools/call")
		s.say("nonsense")
		s.awaitDone()
		if line, more := c.next(); more { // the answer may come before the end
			if got := refusalIn(t, parse(t, line), "1"); got.Code != "internal" || got.Outcome != "unknown" {
				t.Errorf("%+v", got)
			}
			c.wantEnd()
		}
		wantFinding(t, r)
		other.sync(otherServer)
	})
}

type faulty struct{}

func (faulty) Write(p []byte) (int, error) {
	if strings.Contains(string(p), "nonsense") {
		panic("a fault of the test's")
	}
	return len(p), nil
}

// TestSilentDaemon has a daemon that takes connections and says nothing be named,
// with what to do.
func TestSilentDaemon(t *testing.T) {
	t.Parallel()
	dir := must(os.MkdirTemp("", "il"))
	t.Cleanup(func() { os.RemoveAll(dir) })
	place := Place{Dir: dir}
	paths := must(place.paths())
	ln := must(net.Listen("unix", paths.Socket))
	defer ln.Close()
	ok(t, os.WriteFile(paths.Status, []byte(`{"protocolVersion":1,"pid":4711,"socket":"`+paths.Socket+`"}`), 0o600))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := Status(ctx, place)
	if err == nil || !strings.Contains(err.Error(), "pid 4711") || !strings.Contains(err.Error(), "interlock --dir "+dir+" daemon stop") {
		t.Errorf("%v", err)
	}
}
