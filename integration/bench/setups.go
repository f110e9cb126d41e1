package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// setup is one way from a client to a server, with its clients connected.
type setup struct {
	name    string
	path    string // of the socket, where the clients dial one
	clients []*client
	middle  []int // processes between client and server
	hop     int   // the one of them that a client has to itself, or 0
	started []*exec.Cmd
}

// close ends what the set-up started, the clients first.
func (s *setup) close() {
	for _, c := range s.clients {
		c.close()
	}
	for _, cmd := range slices.Backward(s.started) {
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
	}
}

// start starts a process, apart in a session of its own.
func (s *setup) start(apart bool, name string, args ...string) (*exec.Cmd, error) {
	cmd := exec.Command(name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: apart}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s.started = append(s.started, cmd)
	return cmd, nil
}

// client is one connection in use by one goroutine.
type client struct {
	in    io.WriteCloser
	lines *bufio.Reader
	cmd   *exec.Cmd // nil over a socket
	next  int64
}

func (c *client) close() {
	c.in.Close()
	if c.cmd != nil {
		c.cmd.Wait()
	}
}

func dial(path string) (*client, error) {
	conn, err := net.Dial("unix", path)
	if err != nil {
		return nil, err
	}
	return &client{in: conn, lines: bufio.NewReaderSize(conn, 1<<20)}, nil
}

func command(name string, args ...string) (*client, error) {
	cmd := exec.Command(name, args...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &client{in: in, lines: bufio.NewReaderSize(out, 1<<20), cmd: cmd}, nil
}

// request sends a request and reads up to its answer.
func (c *client) request(line []byte, id int64) error {
	if _, err := c.in.Write(line); err != nil {
		return err
	}
	want := append(strconv.AppendInt([]byte(`"id":`), id, 10), ',')
	for {
		answer, err := c.lines.ReadSlice('\n')
		if err != nil {
			return err
		}
		if !bytes.Contains(answer[:min(len(answer), 64)], want) {
			continue // a notification
		}
		if bytes.Contains(answer[:min(len(answer), 128)], []byte(`"error"`)) || bytes.Contains(answer, []byte(`"isError":true`)) {
			return fmt.Errorf("refused: %.200s", answer)
		}
		return nil
	}
}

// call makes one call with a text of that many bytes.
func (c *client) call(size int) error {
	c.next++
	line := strconv.AppendInt([]byte(`{"jsonrpc":"2.0","id":`), c.next, 10)
	line = append(line, `,"method":"tools/call","params":{"name":"echo","arguments":{"s":"`...)
	line = append(line, bytes.Repeat([]byte("x"), size)...)
	return c.request(append(line, "\"}}}\n"...), c.next)
}

// greet does the handshake, with a first line before it if there is one.
func (c *client) greet(hello string) error {
	lines := []string{`{"jsonrpc":"2.0","id":%d,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}` + "\n"}
	if hello != "" {
		lines = []string{hello, lines[0]}
	}
	for _, line := range lines {
		c.next++
		if err := c.request(fmt.Appendf(nil, line, c.next), c.next); err != nil {
			return err
		}
	}
	_, err := io.WriteString(c.in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n")
	return err
}

const hello = `{"jsonrpc":"2.0","id":%d,"method":"interlock/hello","params":{"protocol":1,"servers":["bench"]}}` + "\n"

// setUp starts everything and connects as many clients as any turn needs. The
// set-ups that it got as far as are given with the error.
func setUp(o options, dir string) (setups []*setup, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	server := []string{self, "peer", "server"}
	if o.recorded {
		server = append(server, "silent")
	}
	relayKind := "relay"
	if o.plain {
		relayKind = "plain-relay"
	}
	home, config := filepath.Join(dir, "d"), filepath.Join(dir, "config.json")
	if err := os.WriteFile(config, configuration(server), 0o600); err != nil {
		return nil, err
	}
	paths := map[string]string{"echo": filepath.Join(dir, "echo"), "relay": filepath.Join(dir, "relay"), "interlock": filepath.Join(home, "interlock.sock")}
	daemons := map[string]int{}
	daemon := func(name string, apart bool, args ...string) error {
		s := &setup{name: name}
		setups = append(setups, s)
		cmd, err := s.start(apart, args[0], args[1:]...)
		if err == nil {
			daemons[name] = cmd.Process.Pid
			err = ready(paths[name])
		}
		return err
	}
	connect := func(s *setup, middle int, own bool, greeting string, open func() (*client, error)) error {
		name := s.name
		setups = append(setups, s)
		if middle != 0 {
			s.middle = append(s.middle, middle)
		}
		for range slices.Max(o.clients) {
			c, err := open()
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			s.clients = append(s.clients, c)
			if own {
				s.hop = c.cmd.Process.Pid
				s.middle = append(s.middle, s.hop)
			}
			if name == "echo" {
				continue
			}
			if err := c.greet(greeting); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		return nil
	}
	for _, step := range []func() error{
		func() error { return daemon("echo", true, self, "peer", "echo", paths["echo"]) },
		func() error {
			return daemon("relay", !o.plain, append([]string{self, "peer", relayKind, paths["relay"]}, server...)...)
		},
		func() error {
			return daemon("interlock", true, o.binary, "daemon", "serve", "--dir", home, "--config", config)
		},
		func() error {
			return connect(&setup{name: "echo"}, daemons["echo"], false, "", func() (*client, error) { return dial(paths["echo"]) })
		},
		func() error {
			return connect(&setup{name: "direct"}, 0, false, "", func() (*client, error) { return command(server[0], server[1:]...) })
		},
		func() error {
			return connect(&setup{name: "relay"}, daemons["relay"], false, "", func() (*client, error) { return dial(paths["relay"]) })
		},
		func() error {
			return connect(&setup{name: "bridge"}, daemons["relay"], true, "", func() (*client, error) { return command(self, "peer", "bridge", paths["relay"]) })
		},
		func() error {
			return connect(&setup{name: "socket", path: paths["interlock"]}, daemons["interlock"], false, hello, func() (*client, error) { return dial(paths["interlock"]) })
		},
		func() error {
			return connect(&setup{name: "connect"}, daemons["interlock"], true, "", func() (*client, error) {
				return command(o.binary, "connect", "bench", "--dir", home)
			})
		},
	} {
		if err := step(); err != nil {
			return setups, err
		}
	}
	return setups, nil
}

func configuration(server []string) []byte {
	args := ""
	for i, a := range server[1:] {
		if i > 0 {
			args += ","
		}
		args += strconv.Quote(a)
	}
	return fmt.Appendf(nil, `{"mcpServers":{"bench":{"command":%q,"args":[%s]}}}`, server[0], args)
}

// ready waits until somebody listens at a socket.
func ready(path string) error {
	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := net.Dial("unix", path)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-tick.C:
		case <-deadline:
			return errors.Join(errors.New("nobody listens"), err)
		}
	}
}
