package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestCrash has a session's server end in the middle of calls, in every way that a
// server ends, and more than once: all calls to it are answered at once with who
// it was, the next one finds a new process, with the one handshake that it may
// have behind it, and another session's process of the same entry lives on.
func TestCrash(t *testing.T) {
	t.Parallel()
	for name, end := range map[string][2]string{
		"exits": {"crash", `{"kind":"exit"}`}, "is killed": {"crash", `{"kind":"kill"}`}, "closes its output": {"mute", `{}`},
	} {
		t.Run(name, func(t *testing.T) {
			eachRelay(t, func(t *testing.T, w way) {
				r := newRig(t)
				r.servers["fragile"] = r.fake("-once", "-strict")
				c, other := r.open(w, "fragile").ready(), r.open(w, "fragile").ready()
				other.sendCall("1", "hold", `{"key":"of the other"}`)
				r.logged(1, "hold", "of the other")
				for n := range 2 {
					c.sendCall("1", "hold", `{"key":"own"}`)
					held := r.logged(n+1, "hold", "own")
					c.sendCall("2", end[0], end[1])
					for _, id := range []string{"1", "2"} {
						if why := refusal(t, c.answer(id)); !strings.Contains(why, "fragile") {
							t.Errorf("%q does not name the server", why)
						}
					}
					c.settle()
					c.take("change", isMethod("notifications/tools/list_changed")) // for another program may have taken its place
					eventually(t, "the process is gone", func() error { return alive(held[n].pid) })
				}
				other.call("2", "release", `{"key":"of the other"}`)
				if got := textOf(t, other.answer("1")); got != "held of the other" {
					t.Error(got)
				}
				if starts := r.logged(4, "start", ""); len(starts) != 4 {
					t.Errorf("the server started %d times", len(starts))
				}
				c.nothingMore()
				other.nothingMore()
			})
		})
	}
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

// TestSlowStart has a client wait for a slow server, which holds up no other, and
// what it sent meanwhile is answered.
func TestSlowStart(t *testing.T) {
	t.Parallel()
	eachRelay(t, func(t *testing.T, w way) {
		r := newRig(t)
		gate := filepath.Join(r.dir, "gate")
		r.servers["slow"], r.servers["quick"] = r.fake("-gate", gate), r.fake()
		c := r.open(w, "slow")
		c.send(`{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`)
		r.logged(1, "in", "initialize")
		c.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		c.sendCall("1", "count", "{}")
		r.open(w, "quick").ready().settle()
		if _, err := c.next(0, func(*message) bool { return true }); err == nil {
			t.Error("somebody answered for the server")
		}
		if err := os.WriteFile(gate, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if m := c.answer(`"init"`); m.Result == nil {
			t.Error(m.raw)
		}
		if got := textOf(t, c.answer("1")); got != "1" {
			t.Errorf("the call was made %s times", got)
		}
		c.nothingMore()
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

// TestDaemonKilled kills the daemon under a bridge with calls in flight. The
// bridge says so and ends, and no process is left. Under the next daemon, which the
// client's next start brings, the call that may have changed something is pending.
func TestDaemonKilled(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, w way) {
		r := newRig(t)
		r.servers["oracle"] = r.oracle()
		c := r.open(w, "oracle").ready()
		c.oracleCall("read", "read", "hang")
		c.oracleCall("write", "write", "hang")
		r.awaitSeen("read", "write")
		r.kill()
		c.ended()
		if code := c.exitCode(); code != 6 {
			t.Errorf("exit code %d, want 6", code)
		}
		if said := c.stderr(); said != "interlock: the daemon has ended the session\n" {
			t.Errorf("the bridge said %q", said)
		}
		if left := c.leftover(); left != "" {
			t.Errorf("a call that nobody answered got %s", left)
		}
		eventually(t, "no process is left", func() error {
			if left := processesOf(r.dir); len(left) > 0 {
				return fmt.Errorf("%v", left)
			}
			return nil
		})
		again := r.run(r.command("connect", "oracle", "--config", r.config())).ready()
		r.awaitPending("write")
		again.oracleCall("after", "write", "")
		if m := again.answer(`"after"`); m.Error != nil {
			t.Error(m.raw)
		}
		r.sentOnce()
	}, bridge)
}

// TestConnectStarts has the first client start the daemon, and all of many at
// once find the same one.
func TestConnectStarts(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, w way) {
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
	}, bridge)
}
