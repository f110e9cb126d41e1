package endpoint

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/coreos/go-systemd/v22/activation"
	"golang.org/x/sys/unix"
)

// Activated takes over the listening socket that a service manager passed by
// the LISTEN_FDS protocol of sd_listen_fds(3); ok is false if it passed none
// to this process. The socket must be a listening Unix stream socket at
// p.Socket, else the error is an [UnsafeError]. Descriptors of other sockets
// are closed. The socket's file is the service manager's and never unlinked.
// The variables are removed from the environment.
func Activated(p Paths, l *Lock) (_ *Listener, ok bool, err error) {
	if l == nil || l.path != p.Lock {
		return nil, false, fmt.Errorf("taking over %q: its lock %q is not held", p.Socket, p.Lock)
	}
	files := activation.Files(true)
	if len(files) == 0 {
		return nil, false, nil
	}
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	var faults []string
	for _, f := range files {
		if fault := unsuitable(int(f.Fd()), p.Socket); fault != "" {
			faults = append(faults, fmt.Sprintf("%s %s", f.Name(), fault))
			continue
		}
		listener, err := adopt(f, p, l)
		return listener, err == nil, err
	}
	return nil, false, &UnsafeError{
		Code: CodeActivation, Path: p.Socket,
		Detail: "is not among the sockets that the service manager passed: " + strings.Join(faults, "; "),
		Remedy: "let ListenStream= of the socket unit and the daemon's --socket name the same path",
	}
}

// unsuitable says why the descriptor is not the daemon's socket at path.
func unsuitable(fd int, path string) string {
	address, err := unix.Getsockname(fd)
	if err != nil {
		return "is not a socket"
	}
	bound, isUnix := address.(*unix.SockaddrUnix)
	if !isUnix {
		return "is not a Unix socket"
	}
	if kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE); err != nil || kind != unix.SOCK_STREAM {
		return "is not a stream socket (ListenStream=)"
	}
	if listens, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err != nil || listens == 0 {
		return "does not listen (Accept=no is needed)"
	}
	// One path may be written in several ways; the file it leads to decides.
	theirs, err := inodeAt(bound.Name)
	ours, ourErr := inodeAt(path)
	if err != nil || ourErr != nil || theirs != ours {
		return fmt.Sprintf("is bound to %q", bound.Name)
	}
	return ""
}

func adopt(f *os.File, p Paths, l *Lock) (*Listener, error) {
	// The kernel tells a client the credentials of the process that called
	// listen last; until now that is the service manager.
	if err := unix.Listen(int(f.Fd()), unix.SOMAXCONN); err != nil {
		return nil, fmt.Errorf("listening on the socket passed for %q: %w", p.Socket, err)
	}
	generic, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("taking over the socket passed for %q: %w", p.Socket, err)
	}
	unixListener, isUnix := generic.(*net.UnixListener)
	if !isUnix {
		return nil, errors.Join(fmt.Errorf("taking over the socket passed for %q: it is a %T", p.Socket, generic), generic.Close())
	}
	unixListener.SetUnlinkOnClose(false)
	listener, err := newListener(unixListener, p, l)
	if err != nil {
		unixListener.Close()
		return nil, err
	}
	return listener, nil
}
