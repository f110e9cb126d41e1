package endpoint

import (
	"context"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxSocketPath is the room in sockaddr_un, less the terminating NUL; unix(7).
const maxSocketPath = 107

// listenPrivate binds and listens. The mode that the socket's descriptor has
// before bind is the mode its file is born with, so no one can connect in
// between, whatever the umask, which is the process's and not ours to change.
func listenPrivate(path string) (*net.UnixListener, error) {
	config := net.ListenConfig{
		Control: func(_, _ string, raw syscall.RawConn) error {
			var chmodErr error
			if err := raw.Control(func(fd uintptr) { chmodErr = unix.Fchmod(int(fd), 0o600) }); err != nil {
				return err
			}
			return chmodErr
		},
	}
	l, err := config.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, err
	}
	return l.(*net.UnixListener), nil
}
