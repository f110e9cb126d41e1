package endpoint

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"interlock/mcpd/internal/endpoint/private"
)

var (
	// ErrAbsent is what an error of [Dial] is when nothing answers at the
	// socket's path. A daemon may still be starting or ending: [Held] knows.
	ErrAbsent = errors.New("no daemon answers")

	// ErrBusy is what an error of [Dial] is when a daemon is there but took no
	// further connection until the context ended.
	ErrBusy = errors.New("the daemon is there but accepts no connection")
)

// Bounds of the pause between two tries at a daemon whose backlog is full.
const (
	minDialPause = 5 * time.Millisecond
	maxDialPause = 250 * time.Millisecond
)

// Dial connects to the daemon and makes sure that it runs as our own user
// before anything is sent; a [*PeerError] says that it does not. While the
// daemon's backlog is full it tries again until ctx ends. The directory is not
// verified: [Verify] does that.
func Dial(ctx context.Context, p Paths) (*net.UnixConn, error) {
	// Where our own uid stands for strangers too, the daemon's says nothing.
	if err := private.CheckUser(); err != nil {
		return nil, fmt.Errorf("connecting to %q: %w", p.Socket, err)
	}
	conn, err := dialPatiently(ctx, p.Socket)
	if err != nil {
		return nil, fmt.Errorf("connecting to %q: %w", p.Socket, err)
	}
	if err := checkServer(conn); err != nil {
		conn.Close()
		return nil, fmt.Errorf("connecting to %q: %w", p.Socket, err)
	}
	return conn, nil
}

func dialPatiently(ctx context.Context, path string) (*net.UnixConn, error) {
	var dialer net.Dialer
	for pause := minDialPause; ; pause = min(2*pause, maxDialPause) {
		conn, err := dialer.DialContext(ctx, "unix", path)
		switch {
		case err == nil:
			return conn.(*net.UnixConn), nil
		case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ECONNREFUSED):
			return nil, fmt.Errorf("%w: %w", ErrAbsent, bareErrno(err))
		case !errors.Is(err, unix.EAGAIN):
			return nil, bareErrno(err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", ErrBusy, ctx.Err())
		}
	}
}

// bareErrno drops the addresses that package net adds and that the caller's
// wrapping names once.
func bareErrno(err error) error {
	if errno, ok := errors.AsType[unix.Errno](err); ok {
		return errno
	}
	return err
}

// checkServer holds the process that listens to our own uid. The pid is no
// matter: a daemon in another pid namespace shows none, and refuses us itself.
func checkServer(conn *net.UnixConn) error {
	peer, err := credentials(conn)
	if err != nil {
		return &PeerError{Code: CodePeerUnknown, Message: "the kernel does not say who the daemon is: " + err.Error()}
	}
	if euid := uint32(os.Geteuid()); peer.UID != euid {
		return &PeerError{
			Code: CodePeerForeign, UID: peer.UID, PID: peer.PID,
			Message: fmt.Sprintf("the socket is served by uid %d (pid %d), not by uid %d; nothing was sent", peer.UID, peer.PID, euid),
			Remedy:  "choose another directory with --dir",
		}
	}
	return nil
}
