package endpoint

import (
	"net"

	"golang.org/x/sys/unix"
)

// maxSocketPath is the room in sockaddr_un, less the terminating NUL; unix(4).
const maxSocketPath = 103

// listenPrivate binds and listens under a umask, because Darwin ignores the
// mode of an unbound socket. The umask is the process's: nothing else may make
// files meanwhile, so the daemon listens before it starts other work. The
// directory, which nobody else can enter, covers what remains.
func listenPrivate(path string) (*net.UnixListener, error) {
	defer unix.Umask(unix.Umask(0o177))
	return net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
}
