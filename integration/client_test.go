package integration

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// client is a bare MCP client: it writes lines and collects lines, and knows
// nothing more of the protocol than what an envelope is.
type client struct {
	t   testing.TB
	in  io.WriteCloser // *os.File or *net.UnixConn, closed by closeInput
	cmd *exec.Cmd      // nil over the socket
	out io.Closer      // what the messages are read from
	err bytes.Buffer   // standard error of cmd; for reading after exited

	exited chan struct{} // closed when cmd has ended; never over the socket

	mu       sync.Mutex // guards what follows
	changed  *sync.Cond
	received []*message
	eof      bool
}

// message is a line that came from the server.
type message struct {
	raw    string
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code    int             `json:"code"`
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data"`
	} `json:"error"`

	taken bool // by a test that waited for it; guarded by the client's mu
}

// hello is what a client of the socket says of itself.
type hello struct {
	Protocol int      `json:"protocol"`
	Servers  []string `json:"servers,omitempty"`
	CWD      string   `json:"cwd,omitempty"`
	Env      []string `json:"env,omitempty"` // NAME=VALUE
	Project  string   `json:"project,omitempty"`
}

// open connects a client to the server of that name, and closes it at the end
// of the test. The extra variables stand in the client's environment.
func (r *rig) open(w way, name string, extra ...string) *client {
	r.t.Helper()
	switch w {
	case direct:
		s := r.servers[name]
		cmd := exec.Command(s.Command, s.Args...)
		cmd.Env = r.environ(extra...)
		for k, v := range s.Env {
			cmd.Env = append(cmd.Env, k+"="+v)
		}
		cmd.Dir = r.dir
		return r.run(cmd)
	case bridge:
		r.start()
		cmd := r.command("connect", name)
		cmd.Env = append(cmd.Env, extra...)
		return r.run(cmd)
	case socket:
		c := r.dial()
		c.hello(hello{Protocol: 1, Servers: []string{name}, CWD: r.dir, Env: r.environ(extra...)})
		return c
	}
	r.t.Fatalf("unknown way %q", w)
	return nil
}

// run starts a command as a client does, with its standard input and output
// as the connection.
func (r *rig) run(cmd *exec.Cmd) *client {
	r.t.Helper()
	// Pipes of our own, because they take deadlines.
	stdin, in, err := os.Pipe()
	if err != nil {
		r.t.Fatal(err)
	}
	out, stdout, err := os.Pipe()
	if err != nil {
		r.t.Fatal(err)
	}
	c := newClient(r.t, in, out)
	c.cmd = cmd
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, &c.err
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	stdin.Close()
	stdout.Close()
	go func() {
		defer close(c.exited)
		cmd.Wait()
	}()
	go c.read(out)
	r.t.Cleanup(c.close)
	return c
}

// dial connects to the daemon's socket and says nothing.
func (r *rig) dial() *client {
	r.t.Helper()
	r.start()
	conn, err := net.Dial("unix", r.socketPath())
	if err != nil {
		r.t.Fatal(err)
	}
	c := newClient(r.t, conn, conn)
	go c.read(conn)
	r.t.Cleanup(c.close)
	return c
}

func newClient(t testing.TB, in io.WriteCloser, out io.Closer) *client {
	c := &client{t: t, in: in, out: out, exited: make(chan struct{})}
	c.changed = sync.NewCond(&c.mu)
	return c
}

// read collects lines until the other side closes. It is the only reader.
func (c *client) read(from io.Reader) {
	lines := bufio.NewReaderSize(from, 64<<10)
	for {
		line, err := lines.ReadBytes('\n')
		c.mu.Lock()
		if len(line) > 0 {
			m := &message{raw: string(line)}
			json.Unmarshal(line, m) // a line that is no message has no method and no id
			c.received = append(c.received, m)
		}
		c.eof = err != nil
		c.changed.Broadcast()
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// hello names the session's servers and swallows the answer.
func (c *client) hello(h hello) {
	c.t.Helper()
	params, err := json.Marshal(h)
	if err != nil {
		c.t.Fatal(err)
	}
	c.send(`{"jsonrpc":"2.0","id":"hello","method":"interlock/hello","params":%s}`, params)
	m := c.answer(`"hello"`)
	if m.Error != nil {
		c.t.Fatalf("hello: %s", m.raw)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.received = slices.DeleteFunc(c.received, func(other *message) bool { return other == m })
}

// initialize does the handshake and gives the answer.
func (c *client) initialize(version, capabilities string) *message {
	c.t.Helper()
	c.send(`{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":%q,"capabilities":%s,"clientInfo":{"name":"bare","version":"1"}}}`, version, capabilities)
	m := c.answer(`"init"`)
	if m.Result == nil {
		c.t.Fatalf("initialize: %s\n%s", m.raw, c.stderr())
	}
	c.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return m
}

// ready does the handshake of a client that can do nothing special.
func (c *client) ready() *client {
	c.t.Helper()
	c.initialize("2025-06-18", "{}")
	return c
}

// send writes one line.
func (c *client) send(format string, args ...any) {
	c.t.Helper()
	if err := c.write(fmt.Sprintf(format, args...) + "\n"); err != nil {
		c.t.Fatalf("sending: %v", err)
	}
}

// write writes text as it is.
func (c *client) write(text string) error {
	c.in.(interface{ SetWriteDeadline(time.Time) error }).SetWriteDeadline(time.Now().Add(patience))
	_, err := io.WriteString(c.in, text)
	return err
}

// sendCall sends a tools/call with the arguments as they are.
func (c *client) sendCall(id, tool, arguments string) {
	c.t.Helper()
	c.send(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, id, tool, arguments)
}

// call calls a tool and waits for the answer.
func (c *client) call(id, tool, arguments string) *message {
	c.t.Helper()
	c.sendCall(id, tool, arguments)
	return c.answer(id)
}

var errEnded = errors.New("the server's side closed")

// next takes the first message that is wanted and not yet taken, waiting for
// it until the deadline or the end.
func (c *client) next(limit time.Duration, wanted func(*message) bool) (*message, error) {
	deadline := time.Now().Add(limit)
	wake := time.AfterFunc(limit, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.changed.Broadcast()
	})
	defer wake.Stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		for _, m := range c.received {
			if !m.taken && wanted(m) {
				m.taken = true
				return m, nil
			}
		}
		if c.eof {
			return nil, errEnded
		}
		if !time.Now().Before(deadline) {
			return nil, os.ErrDeadlineExceeded
		}
		c.changed.Wait()
	}
}

// take is next for a test that cannot go on without the message.
func (c *client) take(what string, wanted func(*message) bool) *message {
	c.t.Helper()
	m, err := c.next(patience, wanted)
	if err != nil {
		c.t.Fatalf("no %s: %v\nnot taken: %s\n%s", what, err, c.leftover(), c.stderr())
	}
	return m
}

// isAnswer wants the answer to the request of that id, given as in JSON.
func isAnswer(id string) func(*message) bool {
	return func(m *message) bool { return m.Method == "" && string(m.ID) == id }
}

// isMethod wants a request or notification of the server's.
func isMethod(method string) func(*message) bool {
	return func(m *message) bool { return m.Method == method }
}

// isError wants an error without the id of a request.
func isError(code int) func(*message) bool {
	return func(m *message) bool { return m.Error != nil && m.Error.Code == code && string(m.ID) == "null" }
}

func (c *client) answer(id string) *message {
	c.t.Helper()
	return c.take("answer to "+id, isAnswer(id))
}

// settle makes sure that everything that the server sent before now has come,
// and that the session lives: the server's answers keep their order.
func (c *client) settle() {
	c.t.Helper()
	m := c.call(`"settle"`, "echo", "{}")
	if m.Result == nil {
		c.t.Fatalf("the session does not live: %s", m.raw)
	}
}

// nothingMore settles and fails the test if anything came that no test took.
func (c *client) nothingMore() {
	c.t.Helper()
	c.settle()
	if left := c.leftover(); left != "" {
		c.t.Errorf("more came than should: %s", left)
	}
}

// leftover is what came and was not taken, shortened.
func (c *client) leftover() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var b strings.Builder
	for _, m := range c.received {
		if !m.taken {
			fmt.Fprintf(&b, "\n\t%.300s", strings.TrimSpace(m.raw))
		}
	}
	return b.String()
}

// transcript is everything that came, in order.
func (c *client) transcript() (lines []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.received {
		lines = append(lines, m.raw)
	}
	return lines
}

// closeInput ends what the client has to say; answers still come.
func (c *client) closeInput() {
	if conn, ok := c.in.(*net.UnixConn); ok {
		conn.CloseWrite()
		return
	}
	c.in.Close()
}

// ended waits until the other side has closed.
func (c *client) ended() {
	c.t.Helper()
	if m, err := c.next(patience, func(*message) bool { return false }); err != errEnded {
		c.t.Fatalf("the other side did not close: %v %v", m, err)
	}
}

// exitCode waits for the end of the command.
func (c *client) exitCode() int {
	c.t.Helper()
	select {
	case <-c.exited:
		return c.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		c.t.Fatalf("%s did not end", filepath.Base(c.cmd.Path))
		return -1
	}
}

// stderr is what the command said, if it has ended.
func (c *client) stderr() string {
	select {
	case <-c.exited:
		return tail(c.err.String())
	default:
		return ""
	}
}

// close ends the connection as a client does that has had enough: it closes
// the input and, should that not do, kills.
func (c *client) close() {
	c.in.Close()
	if c.cmd == nil {
		return
	}
	select {
	case <-c.exited:
	case <-time.After(patience):
		c.t.Errorf("%s did not end with its input", filepath.Base(c.cmd.Path))
		c.cmd.Process.Kill()
		<-c.exited
	}
	c.out.Close()
}

// vanish ends the connection without a word, as a client that is killed.
func (c *client) vanish() {
	if c.cmd == nil {
		c.in.Close()
		return
	}
	c.cmd.Process.Kill()
	<-c.exited
}

// textOf is the text of a tool's answer.
func textOf(t testing.TB, m *message) string {
	t.Helper()
	var result struct {
		Content []struct{ Text string }
	}
	if m.Error != nil || json.Unmarshal(m.Result, &result) != nil || len(result.Content) == 0 {
		t.Fatalf("not the answer of a tool: %s", m.raw)
	}
	return result.Content[0].Text
}
