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
	"syscall"
)

// peer is what this program is as a child of itself.
func peer(kind string, args []string) error {
	switch kind {
	case "server":
		return serve(os.Stdin, os.Stdout, len(args) > 0)
	case "echo":
		return listen(args[0], func(conn *net.UnixConn) error {
			_, err := io.Copy(plainWriter{conn}, plainReader{conn})
			return err
		})
	case "relay", "plain-relay":
		return listen(args[0], func(conn *net.UnixConn) error { return relay(conn, args[1:], kind == "relay") })
	case "bridge":
		return bridge(args[0])
	}
	return fmt.Errorf("unknown peer %q", kind)
}

// plainReader and plainWriter hide what would let the kernel copy for us, which
// nobody who looks at the bytes could do.
type plainReader struct{ io.Reader }
type plainWriter struct{ io.Writer }

// listen handles each connection in a goroutine until the process is ended.
func listen(path string, handle func(*net.UnixConn) error) error {
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		return err
	}
	for {
		conn, err := listener.AcceptUnix()
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			if err := handle(conn); err != nil && !errors.Is(err, net.ErrClosed) {
				fmt.Fprintln(os.Stderr, "bench: peer:", err)
			}
		}()
	}
}

// relay copies between a connection and a child of its own, and no more. Apart is
// whether the child gets a session of its own.
func relay(conn *net.UnixConn, command []string, apart bool) error {
	child := exec.Command(command[0], command[1:]...)
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: apart}
	stdin, err := child.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := child.StdoutPipe()
	if err != nil {
		return err
	}
	if err := child.Start(); err != nil {
		return err
	}
	up := make(chan error, 1)
	go func() {
		_, err := io.Copy(plainWriter{stdin}, plainReader{conn})
		stdin.Close()
		up <- err
	}()
	_, err = io.Copy(plainWriter{conn}, plainReader{stdout})
	conn.CloseRead()
	return errors.Join(err, <-up, child.Wait())
}

// bridge copies between standard input and output and a socket.
func bridge(path string) error {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path})
	if err != nil {
		return err
	}
	up := make(chan error, 1)
	go func() {
		_, err := io.Copy(plainWriter{conn}, plainReader{os.Stdin})
		conn.CloseWrite()
		up <- err
	}()
	_, err = io.Copy(plainWriter{os.Stdout}, plainReader{conn})
	return errors.Join(err, <-up)
}

// serve is a server that costs as little as one can: it looks only for the id,
// the method and the text of its one tool's argument.
func serve(in io.Reader, out io.Writer, silent bool) error {
	hints := `,"annotations":{"readOnlyHint":true}`
	if silent {
		hints = ""
	}
	lines := bufio.NewReaderSize(in, 1<<20)
	for {
		line, err := lines.ReadSlice('\n')
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		id := between(line, `"id":`, ",}")
		if id == nil {
			continue
		}
		answer := append([]byte(`{"jsonrpc":"2.0","id":`), id...)
		switch method := between(line, `"method":"`, `"`); string(method) {
		case "tools/call":
			answer = append(answer, `,"result":{"content":[{"type":"text","text":"`...)
			answer = append(answer, between(line, `"s":"`, `"`)...)
			answer = append(answer, `"}]}}`...)
		case "initialize":
			answer = append(answer, `,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"bench","version":"1"}}}`...)
		case "tools/list":
			answer = append(answer, `,"result":{"tools":[{"name":"echo","inputSchema":{"type":"object"}`+hints+`}]}}`...)
		case "ping":
			answer = append(answer, `,"result":{}}`...)
		default:
			answer = append(answer, `,"error":{"code":-32601,"message":"Method not found"}}`...)
		}
		if _, err := out.Write(append(answer, '\n')); err != nil {
			return err
		}
	}
}

// between is what stands after one text up to any of some characters.
func between(line []byte, after, until string) []byte {
	at := bytes.Index(line, []byte(after))
	if at < 0 {
		return nil
	}
	rest := line[at+len(after):]
	if end := bytes.IndexAny(rest, until); end >= 0 {
		return rest[:end]
	}
	return nil
}
