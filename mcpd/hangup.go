package mcpd

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// hungUp reports whether the peer has closed both directions of the connection,
// which the end of its input alone does not tell.
func hungUp(nc *net.UnixConn) bool {
	raw, err := nc.SyscallConn()
	if err != nil {
		return true
	}
	gone := true
	if raw.Control(func(fd uintptr) { gone = pollHangup(fd) }) != nil {
		return true
	}
	return gone
}

// awaitHangup returns when the peer has closed both directions, the connection
// is closed on our side, or the deadline has passed. The input has ended before.
func awaitHangup(nc *net.UnixConn, deadline time.Time) {
	raw, err := nc.SyscallConn()
	if err != nil {
		return
	}
	nc.SetReadDeadline(deadline)
	// The poller wakes the reader at every change, of which the hang-up is one.
	raw.Read(pollHangup)
}

func pollHangup(fd uintptr) bool {
	fds := []unix.PollFd{{Fd: int32(fd)}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0 && fds[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0
}
