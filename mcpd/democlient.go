package mcpd

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"time"
)

// demoClient is an MCP client of the demo: a bridge, spoken to as any client
// speaks to its server. It gives every request the id 1.
type demoClient struct {
	name string
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	// complaints is the bridge's standard error, to be read once it has ended.
	complaints bytes.Buffer
}

// startDemoClient starts the bridge of a client. The bridge is killed when ctx
// ends; the caller ends it by leave or kill.
func startDemoClient(ctx context.Context, name, program, dir string, env []string) (*demoClient, error) {
	c := &demoClient{name: name, cmd: exec.CommandContext(ctx, program, "connect", "--with-leases", "local")}
	c.cmd.Dir, c.cmd.Env = dir, env
	c.cmd.Stderr = &c.complaints
	c.cmd.WaitDelay = time.Second // for whoever else may hold its standard error
	in, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("connecting %s: %w", name, err)
	}
	c.in, c.out = in, bufio.NewReader(out)
	return c, nil
}

func (c *demoClient) pid() int { return c.cmd.Process.Pid }

// file is the file that the client works on.
func (c *demoClient) file() string { return c.name + ".txt" }

// demoCall is a call of a tool of the built-in server.
type demoCall struct {
	Name      string `json:"name"`
	Arguments any    `json:"arguments"`
}

type demoArguments struct {
	Path    string  `json:"path"`
	Content *string `json:"content,omitempty"`
}

func (c demoCall) String() string {
	file, ok := c.Arguments.(demoArguments)
	if !ok {
		return c.Name
	}
	text := c.Name + " " + file.Path
	if file.Content != nil {
		text += fmt.Sprintf(" %q", *file.Content)
	}
	return text
}

// write is the call that writes the client's file.
func (c *demoClient) write(content string) demoCall {
	return demoCall{Name: "write_file", Arguments: demoArguments{Path: c.file(), Content: &content}}
}

// demoAnswer is what a tool has answered.
type demoAnswer struct {
	text    string
	refused bool
}

func (a demoAnswer) String() string {
	if a.refused {
		return "error: " + a.text
	}
	return a.text
}

// initialize shakes hands.
func (c *demoClient) initialize() error {
	err := c.sendFrame(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"` + c.name + `","version":"1.0"}}}`)
	if err != nil {
		return err
	}
	if err := c.receiveResult(nil); err != nil {
		return err
	}
	return c.sendFrame(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

func (c *demoClient) sendFrame(frame string) error {
	if _, err := io.WriteString(c.in, frame+"\n"); err != nil {
		return fmt.Errorf("%s: sending: %w", c.name, err)
	}
	return nil
}

// send sends the call and does not wait for the answer.
func (c *demoClient) send(call demoCall) error {
	params, err := json.Marshal(call)
	if err != nil {
		return err
	}
	return c.sendFrame(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + string(params) + `}`)
}

// receiveResult reads the next frame, which must be an answer to the request 1,
// and decodes its result.
func (c *demoClient) receiveResult(result any) error {
	line, err := c.out.ReadBytes('\n')
	if err != nil {
		c.kill() // its output has ended: it must have, too
		return fmt.Errorf("%s: awaiting an answer: %w: %s", c.name, err, bytes.TrimSpace(c.complaints.Bytes()))
	}
	if err := decodeAnswer(line, "1", result); err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	return nil
}

// receive reads the answer to a call.
func (c *demoClient) receive() (demoAnswer, error) {
	var result struct {
		Content []struct{ Text string }
		IsError bool
	}
	if err := c.receiveResult(&result); err != nil {
		return demoAnswer{}, err
	}
	answer := demoAnswer{refused: result.IsError}
	for _, part := range result.Content {
		answer.text += part.Text
	}
	return answer, nil
}

func (c *demoClient) call(call demoCall) (demoAnswer, error) {
	if err := c.send(call); err != nil {
		return demoAnswer{}, err
	}
	return c.receive()
}

// writeAndRead writes the client's file and reads it back, again and again.
func (c *demoClient) writeAndRead() error {
	for round := range demoRounds {
		content := fmt.Sprintf("%s, round %d", c.name, round)
		if _, err := c.call(c.write(content)); err != nil {
			return err
		}
		answer, err := c.call(demoCall{Name: "read_file", Arguments: demoArguments{Path: c.file()}})
		if err != nil {
			return err
		}
		if answer.text != content || answer.refused {
			return fmt.Errorf("%s wrote %q and read %q", c.name, content, answer)
		}
	}
	return nil
}

// leave ends the client's input and waits for the end of the bridge. It returns
// what the client had not read yet.
func (c *demoClient) leave() (rest []byte, err error) {
	c.in.Close()
	rest, err = io.ReadAll(c.out)
	return bytes.TrimSpace(rest), errors.Join(err, c.cmd.Wait())
}

// kill ends the bridge, if it has not ended.
func (c *demoClient) kill() {
	c.in.Close()
	c.cmd.Process.Kill()
	c.cmd.Wait()
}
