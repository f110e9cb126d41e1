package integration

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestCrash has a server end in the middle of calls, in every way that a
// server ends: the calls are answered at once with who it was, whoever made
// them, and the next call finds a new process.
func TestCrash(t *testing.T) {
	t.Parallel()
	for name, end := range map[string][2]string{
		"exits": {"crash", `{"kind":"exit"}`}, "is killed": {"crash", `{"kind":"kill"}`}, "closes its output": {"mute", `{}`},
	} {
		t.Run(name, func(t *testing.T) {
			eachRelay(t, func(t *testing.T, w way) {
				r := newRig(t)
				r.servers["fragile"] = r.fake().shared()
				a, b := r.open(w, "fragile").ready(), r.open(w, "fragile").ready()
				b.sendCall("1", "hold", `{"key":"of b"}`)
				r.logged(1, "hold", "of b")
				a.sendCall("1", end[0], end[1])
				for _, c := range []*client{a, b} {
					if why := refusal(t, c.answer("1")); !strings.Contains(why, "fragile") {
						t.Errorf("%q does not name the server", why)
					}
				}
				for _, c := range []*client{a, b} {
					c.settle()
				}
				if starts := r.logged(2, "start", ""); len(starts) != 2 {
					t.Errorf("the server started %d times", len(starts))
				}
				eventually(t, "the first process is gone", func() error {
					return alive(r.events("start")[0].pid)
				})
			})
		})
	}
}

// TestCrashAlone has the only session's own server crash: the session goes on.
func TestCrashAlone(t *testing.T) {
	t.Parallel()
	eachRelay(t, func(t *testing.T, w way) {
		r := newRig(t)
		r.servers["fragile"] = r.fake()
		c := r.open(w, "fragile").ready()
		for range 2 {
			refusal(t, c.call("1", "crash", `{"kind":"kill"}`))
			c.settle()
		}
	})
}

// TestSilentPing has servers that do not answer pings, or refuse them: nobody
// takes them for dead, and nothing is started anew.
func TestSilentPing(t *testing.T) {
	t.Parallel()
	for _, ping := range []string{"ignore", "refuse"} {
		t.Run(ping, func(t *testing.T) {
			eachRelay(t, func(t *testing.T, w way) {
				r := newRig(t)
				r.servers["fake"] = r.fake("-ping", ping)
				c := r.open(w, "fake").ready()
				c.sendCall("1", "sleep", `{"ms":2000}`)
				c.settle()
				if got := textOf(t, c.answer("1")); got != "slept" {
					t.Error(got)
				}
				if starts := r.events("start"); len(starts) != 1 {
					t.Errorf("the server started %d times", len(starts))
				}
			})
		})
	}
}

// TestDiscover meets servers that do not know server/discover, in every way
// that they show it: the client hears -32601, and initialize works.
func TestDiscover(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"refuse", "ignore", "exit"} {
		t.Run(how, func(t *testing.T) {
			eachRelay(t, func(t *testing.T, w way) {
				r := newRig(t)
				r.servers["fake"] = r.fake("-discover", how)
				for range 2 {
					c := r.open(w, "fake")
					c.send(`{"jsonrpc":"2.0","id":"probe-1","method":"server/discover","params":{"_meta":%s}}`, modernMeta)
					m, err := c.next(5*time.Second, isAnswer(`"probe-1"`))
					if err != nil {
						t.Fatalf("server/discover: %v\n%s", err, c.stderr())
					}
					if m.Error == nil || m.Error.Code != -32601 {
						t.Errorf("server/discover: %s", m.raw)
					}
					c.ready()
					c.nothingMore()
				}
				probes := 0
				for _, e := range r.events("in") {
					if strings.Contains(e.detail, "server/discover") {
						probes++
					}
				}
				if probes > 1 {
					t.Errorf("a server known to be old was probed %d times", probes)
				}
			})
		})
	}
}

// TestOneHandshake has two clients at a server that ends on a second
// initialize.
func TestOneHandshake(t *testing.T) {
	t.Parallel()
	eachRelay(t, func(t *testing.T, w way) {
		r := newRig(t)
		r.servers["fake"] = r.fake("-once").shared()
		a, b := r.open(w, "fake"), r.open(w, "fake")
		first, second := a.initialize("2025-06-18", "{}"), b.initialize("2025-06-18", "{}")
		if first.raw != second.raw {
			t.Errorf("two handshakes:\n%s%s", first.raw, second.raw)
		}
		a.settle()
		b.settle()
		if starts := r.events("start"); len(starts) != 1 {
			t.Errorf("the server started %d times", len(starts))
		}
	})
}

// TestSlowStart has two clients wait for one slow server: it starts once, and
// holds up nobody else.
func TestSlowStart(t *testing.T) {
	t.Parallel()
	eachRelay(t, func(t *testing.T, w way) {
		r := newRig(t)
		gate := filepath.Join(r.dir, "gate")
		r.servers["slow"], r.servers["quick"] = r.fake("-gate", gate).shared(), r.fake()
		waiting := []*client{r.open(w, "slow"), r.open(w, "slow")}
		for _, c := range waiting {
			c.send(`{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`)
		}
		r.logged(1, "in", "initialize")
		r.open(w, "quick").ready().settle()
		if err := os.WriteFile(gate, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, c := range waiting {
			if m := c.answer(`"init"`); m.Result == nil {
				t.Error(m.raw)
			}
		}
		if handshakes := r.logged(2, "in", `"initialize"`); len(handshakes) != 2 {
			t.Errorf("%d handshakes with two servers", len(handshakes))
		}
	})
}

// TestBadEntries has servers that cannot start beside one that can: each is
// refused by name, with what was looked for where, and the good one serves.
func TestBadEntries(t *testing.T) {
	t.Parallel()
	eachRelay(t, func(t *testing.T, w way) {
		r := newRig(t)
		r.servers["good"] = r.fake()
		r.servers["missing"] = server{Command: "no-such-program-here"}
		r.servers["ending"] = server{Command: "sh", Args: []string{"-c", "echo the reason is this >&2; exit 3"}}
		for name, words := range map[string][]string{
			"missing": {"missing", "no-such-program-here", "PATH"}, "ending": {"ending", "the reason is this"},
		} {
			c := r.open(w, name)
			c.send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`)
			m := c.answer("1")
			if m.Error == nil {
				t.Fatalf("%s: %s", name, m.raw)
			}
			for _, word := range words {
				if !strings.Contains(m.Error.Message+string(m.Error.Data), word) {
					t.Errorf("%s: %sdoes not say %q", name, m.raw, word)
				}
			}
		}
		r.open(w, "good").ready().settle()
	})
}

// TestNames reaches every server by exactly its name.
func TestNames(t *testing.T) {
	t.Parallel()
	eachRelay(t, func(t *testing.T, w way) {
		r := newRig(t)
		list := []string{"a.b", "a_b", "A.B", "io.example/server", "with space", "..", "работа", "a%2Eb", strings.Repeat("long", 30)}
		for _, name := range list {
			s := r.fake()
			s.Env = map[string]string{"OWN_NAME": name}
			r.servers[name] = s
		}
		for _, name := range list {
			m := r.open(w, name).ready().call("1", "env", `{"names":["OWN_NAME"]}`)
			if got := environmentOf(t, m).Env["OWN_NAME"]; got == nil || *got != name {
				t.Errorf("%q reaches %s", name, m.raw)
			}
		}
	})
}

// TestNothingOutlives ends clients and daemons, with SIGKILL too, and looks for
// a server that ignores the end of its input and SIGTERM, and for its children
// that do likewise. One that has made itself a daemon ends with interlock's.
func TestNothingOutlives(t *testing.T) {
	t.Parallel()
	if !slices.Contains(ways(), socket) {
		t.Skip("the flag -ways leaves interlock out")
	}
	session, all := []string{"child"}, []string{"child", "daemonized"}
	for _, test := range []struct {
		name string
		end  func(*rig, *client)
		ends []string
	}{
		{"the client closes", func(_ *rig, c *client) { c.closeInput() }, session},
		{"the client vanishes", func(_ *rig, c *client) { c.vanish() }, session},
		{"the daemon stops", func(r *rig, _ *client) { r.stop() }, all},
		{"the daemon is killed", func(r *rig, _ *client) { r.kill() }, all},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.servers["stubborn"] = r.fake("-stay", "-child")
			c := r.open(socket, "stubborn").ready()
			c.settle()
			test.end(r, c)
			pids := []string{r.events("start")[0].pid}
			for _, event := range test.ends {
				pids = append(pids, r.logged(1, event, "")[0].detail)
			}
			for _, pid := range pids {
				eventually(t, "process "+pid+" is gone", func() error { return alive(pid) })
			}
		})
	}
}

// TestDaemonKilled kills the daemon under a bridge: what was in flight is
// answered, nothing is sent twice, and the session goes on with a new daemon.
func TestDaemonKilled(t *testing.T) {
	t.Parallel()
	eachRelay(t, func(t *testing.T, w way) {
		if w != bridge {
			t.Skip("only a bridge outlives its daemon")
		}
		r := newRig(t)
		r.servers["fake"] = r.fake()
		c := r.open(w, "fake").ready()
		c.sendCall("1", "hold", `{"key":"k"}`)
		r.logged(1, "hold", "k")
		r.kill()
		refusal(t, c.answer("1"))
		c.settle()
		if n := len(r.events("hold")); n != 1 {
			t.Errorf("the call was sent %d times", n)
		}
	})
}

// TestConnectStarts has the first client start the daemon, and all of many at
// once find the same one.
func TestConnectStarts(t *testing.T) {
	t.Parallel()
	eachRelay(t, func(t *testing.T, w way) {
		if w != bridge {
			t.Skip("only a bridge starts a daemon")
		}
		r := newRig(t)
		r.servers["fake"] = r.fake()
		config := r.config()
		var clients []*client
		for range 8 {
			clients = append(clients, r.run(r.command("connect", "fake", "--config", config)))
		}
		for _, c := range clients {
			c.ready().settle()
		}
		daemons := slices.DeleteFunc(processesOf(r.dir), func(p process) bool { return !strings.Contains(p.command, "daemon serve") })
		if len(daemons) != 1 {
			t.Errorf("there are %d daemons: %v", len(daemons), daemons)
		}
	})
}
