package integration

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"time"
)

// raw is a connection to the socket that fails with errors, not the test, so
// that many can be used at once and any of them may be refused.
type raw struct {
	*net.UnixConn
	lines *bufio.Reader
	last  int
}

// initializeParams are those of a client that can do nothing special.
var initializeParams = json.RawMessage(`{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}`)

func dialRaw(socket string) (*raw, error) {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return nil, err
	}
	return &raw{UnixConn: conn.(*net.UnixConn), lines: bufio.NewReader(conn)}, nil
}

// ask sends a request and gives its answer; what comes before that is dropped.
func (c *raw) ask(method string, params any) (*message, error) {
	c.last++
	request, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": c.last, "method": method, "params": params})
	if err != nil {
		return nil, err
	}
	c.SetDeadline(time.Now().Add(patience))
	if _, err := c.Write(append(request, '\n')); err != nil {
		return nil, fmt.Errorf("asking for %s: %w", method, err)
	}
	for {
		line, err := c.lines.ReadBytes('\n')
		if err != nil {
			return nil, fmt.Errorf("awaiting the answer to %s: %w", method, err)
		}
		m := &message{raw: string(line)}
		if err := json.Unmarshal(line, m); err != nil {
			return nil, err
		}
		if m.Method != "" || string(m.ID) != fmt.Sprint(c.last) {
			continue
		}
		if m.Error != nil {
			return m, fmt.Errorf("%s: %s", method, m.Error.Message)
		}
		return m, nil
	}
}

// greet makes the connection a session with the server of that name, and does
// the handshake.
func (c *raw) greet(name string) error {
	if _, err := c.ask("interlock/hello", hello{Protocol: 1, Servers: []string{name}}); err != nil {
		return err
	}
	_, err := c.ask("initialize", initializeParams)
	return err
}
