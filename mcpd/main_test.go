package mcpd

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"interlock/mcpd/internal/config"
	"interlock/mcpd/internal/endpoint"
	"interlock/mcpd/internal/life"
	"interlock/mcpd/internal/proc"
	"interlock/recovery"
	"interlock/status"
)

func TestMain(m *testing.M) {
	if IsHelper(os.Args) {
		os.Exit(HelperMain())
	}
	goleak.VerifyTestMain(m)
}

// bound is how long anything that should be at once may take on a loaded machine.
const bound = 20 * time.Second

// oneServer is a configuration with one server. Of its tools peek only reads,
// and write changes something; of others nothing is known.
const oneServer = `{"mcpServers": {"fake": {"command": "/bin/true", "tools": {
	"peek": {"class": "read"}, "write": {"class": "mutate"}}}}}`

// rigOptions are what a test wants to be otherwise than usual.
type rigOptions struct {
	config    string                 // oneServer if empty
	limits    func(*config.Limits)   // changes those of the configuration
	spawner   proc.Spawner           // the fake one if nil
	serverLog func(string) io.Writer // nil: into rig.serverLog
	log       zapcore.Core           // nil: into rig.log
}

// rig is a daemon in this process, with servers that the test plays.
type rig struct {
	t       testing.TB
	d       *Daemon
	paths   endpoint.Paths
	config  string // path of the file
	servers *fakeSpawner
	log     *buffer // the daemon's
	server  *buffer // the servers'

	reload chan os.Signal
	hurry  chan struct{}
	stop   context.CancelFunc
	done   chan struct{} // closed when Run has returned
}

// startRig starts a daemon, which ends with the test.
func startRig(t testing.TB, o rigOptions) *rig {
	t.Helper()
	dir, err := os.MkdirTemp("", "il")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	r := &rig{
		t: t, config: filepath.Join(dir, "config.json"), servers: newFakeSpawner(t),
		log: new(buffer), server: new(buffer),
		reload: make(chan os.Signal), hurry: make(chan struct{}), done: make(chan struct{}),
	}
	if o.config == "" {
		o.config = oneServer
	}
	r.configure(o.config)
	cfg := must(config.Load(r.config, true))
	cfg.Limits.DrainTimeout = bound
	if o.limits != nil {
		o.limits(&cfg.Limits)
	}
	r.paths = must(endpoint.Locate(os.Getenv, endpoint.Options{Dir: filepath.Join(dir, "d")}))
	ok(t, endpoint.Prepare(r.paths))
	lock := must(endpoint.Acquire(r.paths))
	ln := must(endpoint.Listen(r.paths, lock))
	journal, _, err := recovery.Open(recovery.Options{Dir: r.paths.Dir})
	ok(t, err)
	writer := status.NewWriter(r.paths.Status, time.Millisecond)
	options := Options{
		Paths: r.paths, Config: cfg, Identity: must(life.Self("test")), Spawner: o.spawner,
		Log: zap.New(o.log), Status: writer, Journal: journal, ServerLog: o.serverLog,
		Command: "interlock --dir " + r.paths.Dir,
	}
	if o.spawner == nil {
		options.Spawner = r.servers
	}
	if o.log == nil {
		encoder := zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig())
		options.Log = zap.New(zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(r.log)), zap.InfoLevel))
	}
	if o.serverLog == nil {
		options.ServerLog = func(string) io.Writer { return r.server }
	}
	r.d = must(New(options))
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	go func() {
		defer close(r.done)
		if err := r.d.supervised(ctx, ln, ServeOptions{Hurry: r.hurry, Reload: r.reload}); err != nil {
			t.Errorf("the daemon ended: %v", err)
		}
		ok(t, writer.Close(true))
		ok(t, journal.Close())
		ok(t, lock.Close())
	}()
	t.Cleanup(func() {
		cancel()
		r.awaitEnd()
	})
	return r
}

func (r *rig) configure(text string) { ok(r.t, os.WriteFile(r.config, []byte(text), 0o600)) }

func (r *rig) awaitEnd() {
	r.t.Helper()
	select {
	case <-r.done:
	case <-time.After(bound):
		stacks := make([]byte, 1<<20)
		r.t.Fatalf("the daemon does not end\n%s", stacks[:runtime.Stack(stacks, true)])
	}
}

// startCall has a rig of one server, a client that is shaken hands with, and
// the server.
func startSession(t testing.TB, o rigOptions) (*rig, *client, *fakeServer) {
	t.Helper()
	r := startRig(t, o)
	c := r.dial()
	return r, c, c.shakeHands()
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func ok(t testing.TB, err error) {
	if err != nil {
		t.Helper()
		t.Error(err)
	}
}

// buffer is a writer whose content can be read at any time.
type buffer struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// awaitLost waits until the daemon knows that the server has ended.
func (r *rig) awaitLost(s *fakeServer) {
	r.t.Helper()
	eventually(r.t, "the daemon has noticed that the server has ended", func() bool {
		return !slices.ContainsFunc(r.d.Snapshot().Upstreams, func(u status.Upstream) bool { return u.PID == s.pid })
	})
}

// eventually looks until it is so, for things that give no event.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	end := time.After(bound)
	for !is() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("not in time: %s", what)
		}
	}
}

// message is a frame as it came, and what is in it.
type message struct {
	raw                   string
	ID                    json.RawMessage `json:"id"`
	Method                string          `json:"method"`
	Params, Result, Error json.RawMessage
}

func parse(t testing.TB, line string) message {
	t.Helper()
	m := message{raw: line}
	if err := json.Unmarshal([]byte(line), &m); err != nil {
		t.Fatalf("%v in %.200q", err, line)
	}
	return m
}

// lines are what comes out of one end of a connection or pipe.
type lines struct {
	t     testing.TB
	whose string
	ch    chan string   // closed at the end of the stream
	gate  chan struct{} // nothing is read until it is closed
	quit  chan struct{} // ends the reader
	ended chan struct{} // closed when the reader has ended
}

func newLines(t testing.TB, whose string, gate chan struct{}) *lines {
	return &lines{t: t, whose: whose, ch: make(chan string, 4096), gate: gate, quit: make(chan struct{}), ended: make(chan struct{})}
}

// read begins to read from r, to its end.
func (l *lines) read(r io.Reader, atEnd func()) {
	go func() {
		defer close(l.ended)
		defer atEnd()
		defer close(l.ch)
		select {
		case <-l.gate:
		case <-l.quit:
			return
		}
		in := bufio.NewReaderSize(r, 64<<10)
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			select {
			case l.ch <- strings.TrimSuffix(line, "\n"):
			case <-l.quit:
				return
			}
		}
	}()
}

// next returns the next line; ok is false at the end of the stream.
func (l *lines) next() (line string, ok bool) {
	l.t.Helper()
	select {
	case line, ok = <-l.ch:
		return line, ok
	case <-time.After(bound):
		l.t.Fatalf("%s gets nothing", l.whose)
		return "", false
	}
}

func (l *lines) recv() message {
	l.t.Helper()
	line, ok := l.next()
	if !ok {
		l.t.Fatalf("%s: the stream has ended", l.whose)
	}
	return parse(l.t, line)
}

// want takes the next line, which must be exactly this one.
func (l *lines) want(line string) {
	l.t.Helper()
	if got, _ := l.next(); got != line {
		l.t.Fatalf("%s got\n%.400s\nand not\n%.400s", l.whose, got, line)
	}
}

// wantEnd has the stream end without a further line.
func (l *lines) wantEnd() {
	l.t.Helper()
	if line, ok := l.next(); ok {
		l.t.Fatalf("%s got %.400s and not the end", l.whose, line)
	}
}

// client is the other end of a connection to the daemon.
type client struct {
	*lines
	r  *rig
	nc *net.UnixConn
}

// dial connects a client that reads whatever comes.
func (r *rig) dial() *client {
	gate := make(chan struct{})
	close(gate)
	return r.dialGated(gate)
}

// dialGated connects a client that reads nothing before gate is closed.
func (r *rig) dialGated(gate chan struct{}) *client {
	r.t.Helper()
	nc := must(net.DialUnix("unix", nil, &net.UnixAddr{Name: r.paths.Socket, Net: "unix"}))
	c := &client{r: r, nc: nc, lines: newLines(r.t, "the client", gate)}
	c.read(nc, func() {})
	r.t.Cleanup(c.close)
	return c
}

// hello connects a client that says hello, and returns the answer.
func (r *rig) hello(params string) (*client, message) {
	r.t.Helper()
	c := r.dial()
	c.send(`{"jsonrpc":"2.0","id":0,"method":"interlock/hello","params":%s}`, params)
	return c, c.recv()
}

func (c *client) send(format string, args ...any) {
	c.t.Helper()
	c.write(fmt.Sprintf(format, args...) + "\n")
}

func (c *client) write(text string) {
	c.t.Helper()
	c.nc.SetWriteDeadline(time.Now().Add(bound))
	if _, err := io.WriteString(c.nc, text); err != nil {
		c.t.Fatalf("writing to the daemon: %v", err)
	}
}

func (c *client) close() {
	select {
	case <-c.quit:
	default:
		close(c.quit)
	}
	c.nc.Close()
	<-c.ended
}

// halfClose ends the client's input and nothing else.
func (c *client) halfClose() { ok(c.t, c.nc.CloseWrite()) }

// call sends a call of the tool under the raw id.
func (c *client) call(id, tool string) {
	c.t.Helper()
	c.send(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q}}`, id, tool)
}

func (c *client) cancel(id string) {
	c.t.Helper()
	c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s,"reason":"enough"}}`, id)
}

const (
	initialize  = `{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"editor","version":"1.2"}}}`
	initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	handshake   = `{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true},"logging":{}},"serverInfo":{"name":"fake","version":"1"}}`
)

// shakeHands starts the server of the client's session and returns it.
func (c *client) shakeHands() *fakeServer {
	c.t.Helper()
	c.send("%s", initialize)
	s := c.r.servers.take()
	s.takeHandshake()
	if got := c.recv(); string(got.ID) != `"init"` || string(got.Result) != handshake {
		c.t.Fatalf("answer to initialize: %s", got.raw)
	}
	c.send("%s", initialized)
	if got := s.recv(); got.Method != "notifications/initialized" {
		c.t.Fatalf("the server got %s", got.raw)
	}
	return s
}

// sync has everything that was sent to the daemon before arrive: a ping makes
// the way to the server and back.
func (c *client) sync(s *fakeServer) {
	c.t.Helper()
	c.send(`{"jsonrpc":"2.0","id":"sync","method":"ping"}`)
	ping := s.recv()
	if ping.Method != "ping" {
		c.t.Fatalf("the server got %s and not the ping", ping.raw)
	}
	s.answer(ping, "{}")
	c.want(`{"jsonrpc":"2.0","id":"sync","result":{}}`)
}

// refused is what a refusal says.
type refused struct {
	refusalData
	number  int // of a JSON-RPC error
	message string
	isTool  bool
}

// refusal takes the refusal of the request with the raw id.
func (c *client) refusal(id string) refused {
	c.t.Helper()
	return refusalIn(c.t, c.recv(), id)
}

func refusalIn(t testing.TB, m message, id string) refused {
	t.Helper()
	if string(m.ID) != id {
		t.Fatalf("the answer is to %s and not %s: %s", m.ID, id, m.raw)
	}
	var e struct {
		Code    int
		Message string
		Data    refusalData
	}
	var result struct {
		Content []struct{ Text string }
		IsError bool `json:"isError"`
		Meta    struct {
			Error refusalData `json:"interlock/error"`
		} `json:"_meta"`
	}
	switch {
	case m.Error != nil:
		ok(t, json.Unmarshal(m.Error, &e))
		return refused{refusalData: e.Data, number: e.Code, message: e.Message}
	case m.Result != nil && json.Unmarshal(m.Result, &result) == nil && result.IsError:
		return refused{refusalData: result.Meta.Error, message: result.Content[0].Text, isTool: true}
	}
	t.Fatalf("no refusal: %s", m.raw)
	return refused{}
}

// errorIn takes a JSON-RPC error with this code and this text in it.
func (c *client) wantError(id string, code int, text string) {
	c.t.Helper()
	m := c.recv()
	if string(m.ID) != id {
		c.t.Fatalf("the answer is to %s and not %s: %s", m.ID, id, m.raw)
	}
	var e struct {
		Code    int
		Message string
	}
	if json.Unmarshal(m.Error, &e) != nil || e.Code != code || !strings.Contains(e.Message, text) {
		c.t.Fatalf("got %s and not error %d with %q", m.raw, code, text)
	}
}
