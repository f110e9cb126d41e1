package endpoint

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// errPeerEnded is that the process behind the credentials does not run any
// more, so that its number may be another's.
var errPeerEnded = errors.New("the process ended")

func credentials(conn *net.UnixConn) (Peer, error) {
	var cred *unix.Ucred
	err := withDescriptor(conn, func(fd int) (err error) {
		cred, err = unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
		return err
	})
	if err != nil {
		return Peer{}, err
	}
	return Peer{UID: cred.Uid, PID: cred.Pid}, nil
}

func withDescriptor(conn *net.UnixConn, do func(fd int) error) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var doErr error
	if err := raw.Control(func(fd uintptr) { doErr = do(int(fd)) }); err != nil {
		return err
	}
	return doErr
}

// peerConfinement reads /proc/PID. The pidfd tells afterwards that the process
// was alive all the time, and so that no other had its number.
func peerConfinement(conn *net.UnixConn, pid int32) (confinement, error) {
	pidfd, err := peerPidfd(conn, pid)
	if err != nil {
		return confinement{}, err
	}
	defer unix.Close(pidfd)
	found, readErr := confinementOf(strconv.Itoa(int(pid)))
	if ended, err := hasEnded(pidfd); err != nil {
		return confinement{}, err
	} else if ended {
		return confinement{}, errPeerEnded
	}
	return found, readErr
}

// peerPidfd pins the process that connected. Kernels before 6.5 cannot name
// it but by its number, which then is another's only if it ended already.
func peerPidfd(conn *net.UnixConn, pid int32) (int, error) {
	pidfd := -1
	err := withDescriptor(conn, func(fd int) (err error) {
		pidfd, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
		return err
	})
	if errors.Is(err, unix.ENOPROTOOPT) {
		pidfd, err = unix.PidfdOpen(int(pid), 0)
	}
	switch {
	case err == nil:
		return pidfd, nil
	case errors.Is(err, unix.ESRCH), errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENODATA):
		return -1, errPeerEnded
	}
	return -1, fmt.Errorf("pinning the peer: %w", err)
}

// hasEnded reports whether the process of a pidfd ended; a zombie has.
func hasEnded(pidfd int) (bool, error) {
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, 0)
		if err == unix.EINTR {
			continue
		}
		return n > 0, err
	}
}

func ownConfinement() (confinement, error) { return confinementOf("self") }

// confinementOf reads what the process with that name in /proc is under. The
// namespaces are left empty if they cannot be read: that takes more rights.
func confinementOf(process string) (confinement, error) {
	// The lines wanted come late, behind the groups, which may be many.
	status, err := os.ReadFile("/proc/" + process + "/status")
	if err != nil {
		return confinement{}, err
	}
	mount, _ := os.Readlink("/proc/" + process + "/ns/mnt")
	pids, _ := os.Readlink("/proc/" + process + "/ns/pid")
	return confinement{
		pids:       pids,
		seccomp:    isSet(status, "\nSeccomp:\t"),
		noNewPrivs: isSet(status, "\nNoNewPrivs:\t"),
		mount:      mount,
	}, nil
}

// isSet reports whether the value behind key is other than 0. A kernel that
// does not know a confinement has no line for it.
func isSet(status []byte, key string) bool {
	_, rest, found := bytes.Cut(status, []byte(key))
	return found && len(rest) > 0 && rest[0] != '0'
}
