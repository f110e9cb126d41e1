package endpoint

import (
	"errors"
	"net"

	"golang.org/x/sys/unix"
)

var errPeerEnded = errors.New("the process ended")

func credentials(conn *net.UnixConn) (Peer, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return Peer{}, err
	}
	var peer Peer
	var askErr error
	err = raw.Control(func(fd uintptr) {
		cred, err := unix.GetsockoptXucred(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
		if err != nil {
			askErr = err
			return
		}
		pid, err := unix.GetsockoptInt(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERPID)
		peer, askErr = Peer{UID: cred.Uid, PID: int32(pid)}, err
	})
	return peer, errors.Join(err, askErr)
}

// Darwin has neither seccomp, no_new_privs nor mount namespaces, so every
// process is as unconfined as the daemon.

func ownConfinement() (confinement, error) { return confinement{}, nil }

func peerConfinement(*net.UnixConn, int32) (confinement, error) { return confinement{}, nil }
