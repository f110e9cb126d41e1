package doctor

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"
)

// client is an MCP client behind a bridge.
type client struct {
	t      *testing.T
	in     io.WriteCloser
	out    *bufio.Reader
	cmd    *exec.Cmd
	errors bytes.Buffer // to be read after leave
}

// connect opens a session with the server. The extra variables stand in the
// client's environment.
func (w *ward) connect(server string, extra ...string) *client {
	w.t.Helper()
	c := &client{t: w.t, cmd: w.command("exec interlock connect " + server)}
	c.cmd.Env = append(c.cmd.Env, extra...)
	c.cmd.Stderr = &c.errors
	var err error
	c.in, err = c.cmd.StdinPipe()
	w.must(err)
	out, err := c.cmd.StdoutPipe()
	w.must(err)
	c.out = bufio.NewReader(out)
	w.must(c.cmd.Start())
	c.send(`{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"tester","version":"1"}}}`)
	c.answer("init")
	c.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return c
}

func (c *client) send(format string, args ...any) {
	c.t.Helper()
	if _, err := fmt.Fprintf(c.in, format+"\n", args...); err != nil {
		c.t.Fatal(err)
	}
}

// answer returns the answer to the request with the id, whole.
func (c *client) answer(id string) string {
	c.t.Helper()
	for {
		line, err := c.out.ReadString('\n')
		if err != nil {
			c.t.Fatalf("waiting for the answer to %s: %v", id, err)
		}
		var m struct{ ID any }
		if json.Unmarshal([]byte(line), &m) == nil && m.ID == id {
			return line
		}
	}
}

// call calls a tool and returns the answer.
func (c *client) call(id, tool, arguments string) string {
	c.t.Helper()
	c.send(`{"jsonrpc":"2.0","id":%q,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, id, tool, arguments)
	return c.answer(id)
}

// leave ends the session and returns what the bridge said.
func (c *client) leave() string {
	c.in.Close()
	io.Copy(io.Discard, c.out)
	c.cmd.Wait() // a daemon that was killed has ended it with an error
	return strings.TrimSpace(c.errors.String())
}
