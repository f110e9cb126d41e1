package endpoint

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// activatedRole is a daemon that may have been passed sockets. It prints what
// it makes of them, and greets one peer at a socket that it took over.
func activatedRole(args ...string) error {
	p, err := Locate(noEnv, Options{Dir: args[0]})
	if err != nil {
		return err
	}
	lock, err := Acquire(p)
	if err != nil {
		return err
	}
	listener, ok, err := Activated(p, lock)
	refused, _ := errors.AsType[*UnsafeError](err)
	switch {
	case refused != nil:
		fmt.Println(refused.Code)
		return nil
	case err != nil:
		return err
	case !ok:
		fmt.Println("none")
		return nil
	}
	fmt.Println("taken", os.Getenv("LISTEN_FDS"), listener.Check())
	conn, err := listener.Accept()
	if err != nil {
		return err
	}
	fmt.Fprintf(conn, "pid %d", os.Getpid())
	conn.Close()
	return listener.Close()
}

// passing starts the daemon as a service manager does: sockets from descriptor
// 3 on, and variables that name the process which is to take them.
func passing(files []*os.File, script string) func(*exec.Cmd) {
	return func(cmd *exec.Cmd) {
		cmd.ExtraFiles = files
		cmd.Args = append([]string{"sh", "-c", script + ` exec "$0" "$@"`, cmd.Path}, cmd.Args[1:]...)
		cmd.Path = "/bin/sh"
	}
}

type filer interface{ File() (*os.File, error) }

func fileOf(t *testing.T, socket filer) *os.File {
	t.Helper()
	f, err := socket.File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func bind(t *testing.T, path string) *net.UnixListener {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	t.Cleanup(func() { l.Close() })
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return l
}

func TestActivated(t *testing.T) {
	tcp, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	const (
		one       = `export LISTEN_FDS=1 LISTEN_PID=$$;`
		two       = `export LISTEN_FDS=2 LISTEN_PID=$$ LISTEN_FDNAMES=a:b;`
		foreign   = `export LISTEN_FDS=1 LISTEN_PID=1;`
		nonsense  = `export LISTEN_FDS=x LISTEN_PID=$$;`
		taken     = "taken  <nil>"
		unfitting = CodeActivation
	)
	for _, test := range []struct {
		name   string
		script string
		files  func(t *testing.T, p Paths) []*os.File
		want   string
	}{
		{"the socket", one, func(t *testing.T, p Paths) []*os.File { return []*os.File{fileOf(t, bind(t, p.Socket))} }, taken},
		{"the socket beside another", two, func(t *testing.T, p Paths) []*os.File {
			return []*os.File{fileOf(t, tcp), fileOf(t, bind(t, p.Socket))}
		}, taken},
		{"the socket by another name", one, func(t *testing.T, p Paths) []*os.File {
			return []*os.File{fileOf(t, bind(t, p.Dir+"/./interlock.sock"))}
		}, taken},
		{"for another process", foreign, func(t *testing.T, p Paths) []*os.File { return []*os.File{fileOf(t, bind(t, p.Socket))} }, "none"},
		{"no number", nonsense, func(t *testing.T, p Paths) []*os.File { return []*os.File{fileOf(t, bind(t, p.Socket))} }, "none"},
		{"nothing", "", func(*testing.T, Paths) []*os.File { return nil }, "none"},
		{"another path", one, func(t *testing.T, p Paths) []*os.File {
			bind(t, p.Socket)
			return []*os.File{fileOf(t, bind(t, filepath.Join(p.Dir, "other.sock")))}
		}, unfitting},
		{"TCP", one, func(t *testing.T, _ Paths) []*os.File { return []*os.File{fileOf(t, tcp)} }, unfitting},
		{"datagrams", one, func(t *testing.T, p Paths) []*os.File {
			conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: p.Socket, Net: "unixgram"})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close() })
			return []*os.File{fileOf(t, conn)}
		}, unfitting},
		{"a connection", one, func(t *testing.T, p Paths) []*os.File {
			l := bind(t, p.Socket)
			client, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: p.Socket, Net: "unix"})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { client.Close() })
			conn, err := l.AcceptUnix()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close() })
			return []*os.File{fileOf(t, conn)}
		}, unfitting},
		{"a pipe", one, func(t *testing.T, _ Paths) []*os.File {
			reader, writer, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { reader.Close(); writer.Close() })
			return []*os.File{reader}
		}, unfitting},
		{"open to others", one, func(t *testing.T, p Paths) []*os.File {
			l := bind(t, p.Socket)
			if err := os.Chmod(p.Socket, 0o666); err != nil {
				t.Fatal(err)
			}
			return []*os.File{fileOf(t, l)}
		}, CodeOccupied},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := place(t)
			r := start(t, "activated", []string{p.Dir}, passing(test.files(t, p), test.script))
			if got := r.line(t); got != test.want {
				t.Fatalf("the daemon says %q, want %q", got, test.want)
			}
			if test.want != taken {
				r.rest(t)
				return
			}
			conn, err := Dial(t.Context(), p)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			server, err := credentials(conn)
			if err != nil || server.PID != int32(r.cmd.Process.Pid) {
				t.Errorf("the kernel names %+v as the server, %v", server, err)
			}
			if got := string(readAll(t, conn)); got != fmt.Sprintf("pid %d", r.cmd.Process.Pid) {
				t.Errorf("the daemon greets with %q", got)
			}
			r.rest(t)
			if _, err := os.Lstat(p.Socket); err != nil {
				t.Errorf("the service manager's socket was unlinked: %v", err)
			}
		})
	}
}
