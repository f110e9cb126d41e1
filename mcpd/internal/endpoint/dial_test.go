package endpoint

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var bg = context.Background()

func TestDialAbsent(t *testing.T) {
	for name, plant := range map[string]func(p Paths) error{
		"no file":        func(Paths) error { return nil },
		"no directory":   func(p Paths) error { return os.RemoveAll(p.Dir) },
		"a regular file": func(p Paths) error { return os.WriteFile(p.Socket, nil, 0o600) },
		"a directory":    func(p Paths) error { return os.Mkdir(p.Socket, 0o700) },
		"dangling link":  func(p Paths) error { return os.Symlink("/nowhere", p.Socket) },
	} {
		t.Run(name, func(t *testing.T) {
			p := place(t)
			if err := plant(p); err != nil {
				t.Fatal(err)
			}
			if _, err := Dial(t.Context(), p); !errors.Is(err, ErrAbsent) || !strings.Contains(err.Error(), p.Socket) {
				t.Errorf("Dial gave %v", err)
			}
		})
	}
}

// A daemon whose backlog is full is alive: Dial waits for its turn.
func TestDialBusy(t *testing.T) {
	p := place(t)
	listener := listen(t, p)
	raw, err := listener.net.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) { err = unix.Listen(int(fd), 0) }); err != nil {
		t.Fatal(err)
	}
	first, err := Dial(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()

	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := Dial(short, p); !errors.Is(err, ErrBusy) || errors.Is(err, ErrAbsent) || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Dial gave %v", err)
	}
	type result struct {
		conn *net.UnixConn
		err  error
	}
	got := make(chan result, 1)
	go func() {
		conn, err := Dial(t.Context(), p)
		got <- result{conn, err}
	}()
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if second := <-got; second.err != nil {
		t.Error(second.err)
	} else {
		second.conn.Close()
	}
}

// The server's user is checked before anything is sent, even where somebody
// opened the directory and another user took the place.
func TestDialImpostor(t *testing.T) {
	dir, binary := publicDir(t)
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	p := Paths{Dir: dir, Socket: filepath.Join(dir, "interlock.sock")}
	impostor := start(t, "impostor", []string{p.Socket}, asNobody, at(binary))
	impostor.line(t)
	_, err := Dial(t.Context(), p)
	wantCode(t, err, CodePeerForeign)
	if got := impostor.rest(t); got != "" {
		t.Errorf("the impostor was told %q", got)
	}
}
