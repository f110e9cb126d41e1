package mcpd

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"interlock/mcpd/internal/config"
	"interlock/mcpd/internal/endpoint"
)

const severalServers = `{"mcpServers": {
	"one": {"command": "/bin/true", "env": {"OWN": "set", "FROM": "${GIVEN:-nothing}"}},
	"two": {"command": "/bin/true", "cwd": "sub"},
	"off": {"command": "/bin/true", "disabled": true},
	"bad": {"command": 7},
	"gone": {"command": "no-such-program"},
	"needs": {"command": "/bin/true", "args": ["${NEEDED}"]}}}`

func TestHello(t *testing.T) {
	t.Parallel()
	r := startRig(t, rigOptions{config: severalServers})
	c, m := r.hello(`{"protocol":1,"servers":["one"],"build":"x","project":"/p","new":{"a":[1]}}`)
	var w Welcome
	ok(t, json.Unmarshal(m.Result, &w))
	if w.Protocol != 1 || w.Session != "session-1" || w.Owner != "client-1" || w.Instance == "" || w.PID == 0 {
		t.Errorf("welcome %s", m.raw)
	}
	c.alive()
	s := r.d.Snapshot().Sessions
	if len(s) != 1 || s[0].Server != "one" || s[0].Project != "/p" || s[0].PID == 0 {
		t.Errorf("sessions %+v", s)
	}
}

// TestHelloRefused has a hello that gets no session, and every request after it,
// be told why.
func TestHelloRefused(t *testing.T) {
	t.Parallel()
	r := startRig(t, rigOptions{config: severalServers})
	for name, refusal := range map[string]struct {
		hello, code, text string
		servers           []string
	}{
		"unknown server":  {`{"protocol":1,"servers":["three"]}`, "no_server", `no server "three"`, []string{"one", "two", "gone", "needs"}},
		"several servers": {`{"protocol":1,"servers":["one","two"]}`, "no_server", "2 are asked for", []string{"one", "two", "gone", "needs"}},
		"no server named": {`{"protocol":1}`, "no_server", "4 are configured. Name one: interlock --dir ", []string{"one", "two", "gone", "needs"}},
		"none wanted":     {`{"protocol":1,"servers":[]}`, "no_server", "0 are asked for", []string{"one", "two", "gone", "needs"}},
		"disabled":        {`{"protocol":1,"servers":["off"]}`, "no_server", "disabled", nil},
		"broken entry":    {`{"protocol":1,"servers":["bad"]}`, "no_server", "out of service", nil},
		"other version":   {`{"protocol":2,"servers":["one"]}`, "version_skew", "protocol 2", nil},
		"no version":      {`{}`, "version_skew", "protocol 0", nil},
		"other file":      {`{"protocol":1,"servers":["one"],"config":"/etc/other.json"}`, "no_server", "/etc/other.json", nil},
		"nested":          {`{"protocol":1,"servers":["one"],"depth":9}`, "no_server", "9 levels deep", nil},
		"no object":       {`[1]`, "internal", "reading hello", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, m := r.hello(refusal.hello)
			got := refusalIn(t, m, "0")
			if got.Code != refusal.code || !strings.Contains(got.message, refusal.text) || !slices.Equal(got.Servers, refusal.servers) {
				t.Errorf("refused: %+v", got)
			}
			c.call("1", "peek")
			if again := c.refusal("1"); !again.isTool || again.message != got.message {
				t.Errorf("a tool call is told %+v", again)
			}
			c.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
			c.send(`{"jsonrpc":"2.0","id":2,"method":"initialize"}`)
			if again := c.refusal("2"); again.isTool || again.number == 0 || again.message != got.message {
				t.Errorf("initialize is told %+v", again)
			}
		})
	}
}

// TestHelloSameFile has a bridge that names the daemon's own file be served.
func TestHelloSameFile(t *testing.T) {
	t.Parallel()
	r := startRig(t, rigOptions{})
	c, m := r.hello(`{"protocol":1,"servers":["fake"],"config":` + string(quote(r.config)) + `}`)
	if m.Result == nil {
		t.Fatalf("refused: %s", m.raw)
	}
	c.alive()
}

// TestPlace has the server run in the place that the hello says.
func TestPlace(t *testing.T) {
	t.Parallel()
	r := startRig(t, rigOptions{config: severalServers})
	dir := t.TempDir()
	c, _ := r.hello(`{"protocol":1,"servers":["one"],"cwd":` + string(quote(dir)) + `,"umask":63,"env":["PATH=/bin","GIVEN=x","INTERLOCK_SECRET=1","OWN=other"]}`)
	c.send("%s", initialize)
	s := r.servers.take()
	if s.spec.Dir != dir || *s.spec.Umask != 63 || s.spec.Path != "/bin/true" {
		t.Errorf("runs %s in %s, umask %o", s.spec.Path, s.spec.Dir, *s.spec.Umask)
	}
	for name, want := range map[string]string{"PATH": "/bin", "GIVEN": "x", "OWN": "set", "FROM": "x"} {
		if got, _ := s.env(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if _, set := s.env("INTERLOCK_SECRET"); set {
		t.Error("a variable of interlock's own was passed on")
	}
	if _, set := s.env("HOME"); set {
		t.Error("a variable of the daemon's was passed on")
	}
}

// TestStartFails has a server that cannot be started be explained, and the call
// count as not sent.
func TestStartFails(t *testing.T) {
	t.Parallel()
	r := startRig(t, rigOptions{config: severalServers})
	for _, server := range []struct{ name, cwd, text string }{
		{"gone", "/", "no-such-program"},
		{"needs", "/", "NEEDED"},
		{"two", "/", `working directory "/sub"`},
		{"one", "/no/such/place", `working directory "/no/such/place"`},
	} {
		t.Run(server.name, func(t *testing.T) {
			t.Parallel()
			c, _ := r.hello(`{"protocol":1,"servers":["` + server.name + `"],"cwd":"` + server.cwd + `","env":["PATH=/bin"]}`)
			for _, id := range []string{"1", "2"} { // the second after a pause
				c.send(`{"jsonrpc":"2.0","id":%s,"method":"initialize"}`, id)
				got := c.refusal(id)
				if got.Code != "server_start_failed" || got.Outcome != "not_sent" || !*got.RetrySafe || !strings.Contains(got.message, server.text) {
					t.Errorf("%+v", got)
				}
			}
			r.awaitLog(`"server":"` + server.name + `","code":"upstream_start_failed"}`)
		})
	}
}

// TestSocketServers has a client without hello get the server that the
// configuration names.
func TestSocketServers(t *testing.T) {
	t.Parallel()
	for servers, want := range map[string]string{`["two"]`: "two", `["one","two"]`: "", `[]`: ""} {
		r := startRig(t, rigOptions{config: `{"socket": {"servers": ` + servers + `}, ` + severalServers[1:]})
		c := r.dial()
		c.send(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
		if want == "" {
			if got := c.refusal("1"); got.Code != "no_server" {
				t.Errorf("%s: %+v", servers, got)
			}
			continue
		}
		c.recv()
		if s := r.d.Snapshot().Sessions; len(s) != 1 || s[0].Server != want {
			t.Errorf("%s: sessions %+v", servers, s)
		}
	}
}

// TestBrokenConfiguration has a file that cannot be understood serve nobody but
// those who want what is built in, and everybody else be told.
func TestBrokenConfiguration(t *testing.T) {
	t.Parallel()
	r := startRig(t, rigOptions{config: `{"mcpServers": `})
	for _, hello := range []string{`{"protocol":1,"servers":["memory"]}`, `{"protocol":1}`} {
		c, m := r.hello(hello)
		if got := refusalIn(t, m, "0"); got.Code != "config_broken" || !strings.Contains(got.message, filepath.Base(r.config)) {
			t.Errorf("%+v", got)
		}
		c.close()
	}
	for _, name := range []string{"local", "interlock"} {
		c, _ := r.hello(`{"protocol":1,"servers":["` + name + `"]}`)
		c.send("%s", initialize)
		if m := c.recv(); !strings.Contains(string(m.Result), `"serverInfo":{"name":"`+name+`"`) {
			t.Errorf("%s answers %s", name, m.raw)
		}
		c.close()
	}
}

// TestMissingConfiguration has a server that cannot be there yet be explained.
func TestMissingConfiguration(t *testing.T) {
	t.Parallel()
	r := startRig(t, rigOptions{})
	cfg := must(config.Load(filepath.Join(t.TempDir(), "config.json"), false))
	r.d.configure(cfg)
	_, m := r.hello(`{"protocol":1,"servers":["nope"]}`)
	got := refusalIn(t, m, "0")
	if want := "there is no configuration file " + cfg.Path + " yet; without one there is the built-in server local"; !strings.Contains(got.message, want) || !slices.Equal(got.Servers, []string{"local"}) {
		t.Errorf("%+v", got)
	}
}

// TestCommand has commands to be pasted mean the same in any directory.
func TestCommand(t *testing.T) {
	t.Setenv("INTERLOCK_DIR", "/usual")
	t.Chdir(t.TempDir())
	cwd := must(os.Getwd())
	for want, p := range map[string]Place{
		"interlock":                     {},
		"interlock --dir " + cwd + "/a": {Dir: "a"},
		"interlock --socket " + cwd + "/s --status " + cwd + "/t --config " + cwd + "/c": {Dir: "/usual/", Socket: "s", Status: "./t", Config: "x/../c"},
	} {
		if got := p.Command(); got != want {
			t.Errorf("%+v: %s, want %s", p, got, want)
		}
	}
}

// TestFirstFrame opens a session with whatever the first whole frame is.
func TestFirstFrame(t *testing.T) {
	t.Parallel()
	r := startRig(t, rigOptions{limits: func(l *config.Limits) { l.Frame = 64 << 10 }})
	for _, frame := range []string{"nonsense", `{"jsonrpc":"2.0","method":"notifications/x"}`, `{"jsonrpc":"2.0","id":1,"result":{}}`, strings.Repeat("x", 100<<10)} {
		c := r.dial()
		c.send("%s", frame)
		c.send(`{"jsonrpc":"2.0","id":"alive","method":"ping"}`)
		if m := c.recv(); string(m.ID) != `"alive"` {
			c.want(`{"jsonrpc":"2.0","id":"alive","result":{}}`)
		}
		c.close()
	}
	c := r.dial()
	c.halfClose()
	c.wantEnd()
}

// TestSilentConnections has the oldest of too many connections that say nothing
// go, and none that has spoken.
func TestSilentConnections(t *testing.T) {
	t.Parallel()
	r := startRig(t, rigOptions{limits: func(l *config.Limits) { l.PendingConnections = 2 }})
	speaks := r.dial()
	speaks.alive()
	var silent []*client
	for n := range 3 {
		silent = append(silent, r.dial())
		eventually(t, "the connection is accepted", func() bool { return r.d.counters.accepted.Load() == uint64(2+n) })
	}
	silent[0].wantEnd()
	silent[1].alive()
	silent[2].alive()
	speaks.alive()
}

func TestSessionLimit(t *testing.T) {
	t.Parallel()
	r := startRig(t, rigOptions{limits: func(l *config.Limits) { l.Sessions = 1 }})
	first := r.dial()
	first.alive()
	began := time.Now()
	second := r.dial()
	second.send(`{"jsonrpc":"2.0","id":1,"method":"initialize"}`)
	if got := second.refusal("1"); got.Code != "session_limit" || got.number != int(codeSessionLimit) {
		t.Errorf("%+v", got)
	}
	second.call("2", "peek")
	if got := second.refusal("2"); got.Code != "session_limit" || !got.isTool {
		t.Errorf("%+v", got)
	}
	// A large frame does not make the connection last longer.
	second.send(`{"jsonrpc":"2.0","id":3,"method":"initialize","params":"%s"}`, strings.Repeat("x", 100<<10))
	second.refusal("3")
	second.wantEnd()
	if took := time.Since(began); took < refusedLinger {
		t.Errorf("closed after %v", took)
	}
	control := r.dial()
	control.send(`{"jsonrpc":"2.0","id":1,"method":"interlock/status"}`)
	if m := control.recv(); m.Result == nil {
		t.Errorf("status at the limit: %s", m.raw)
	}
	first.close()
	eventually(t, "the place is free", func() bool { return len(r.d.sessions.All()) == 0 })
	r.dial().alive()
	if got := r.d.counters.refusedSessions.Load(); got != 1 {
		t.Errorf("%d refused sessions counted", got)
	}
}

// TestBridgeRefused tells the client of a bridge that the daemon does not serve
// why: the connection is closed before the daemon has read anything.
func TestBridgeRefused(t *testing.T) {
	t.Parallel()
	dir := must(os.MkdirTemp("", "il"))
	t.Cleanup(func() { os.RemoveAll(dir) })
	place := Place{Dir: filepath.Join(dir, "d")}
	paths := must(place.paths())
	ok(t, endpoint.Prepare(paths))
	lock := must(endpoint.Acquire(paths))
	defer lock.Close()
	ln := must(endpoint.Listen(paths, lock))
	defer ln.Close()
	go func() {
		for range 2 {
			if nc, err := ln.Accept(); err == nil {
				reject(nc, &endpoint.PeerError{Own: true, Message: "confined", Remedy: "do something"})
			}
		}
	}()
	nc := must(endpoint.Dial(t.Context(), paths))
	defer nc.Close()
	in := bufio.NewReader(nc)
	must(in.Peek(1)) // it has been refused
	if _, refused, err := exchangeHello(nc, in, []byte("{}\n")); refused == nil || refused.Code != int(codePeerRefused) {
		t.Errorf("refused before the hello: %v, %v", refused, err)
	}

	input, client := pipe(t)
	answers, output := pipe(t)
	second(io.WriteString(client, initialize+"\n"))
	var refused *RemoteError
	if err := Connect(t.Context(), BridgeOptions{Place: place, Stdin: input, Stdout: output, Stderr: io.Discard}); !errors.As(err, &refused) {
		t.Errorf("the bridge ends with %v", err)
	}
	answers.SetReadDeadline(time.Now().Add(bound))
	line, err := bufio.NewReader(answers).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if got := refusalIn(t, parse(t, line), `"init"`); got.Code != "peer_refused" || got.message != "interlock cannot serve this client: confined; do something" {
		t.Errorf("%+v", got)
	}
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	ok(t, err)
	t.Cleanup(func() {
		r.Close()
		w.Close()
	})
	return r, w
}
