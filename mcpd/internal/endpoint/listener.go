package endpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// A Listener is the listening socket of the daemon.
type Listener struct {
	net   *net.UnixListener
	paths Paths
	lock  *Lock
	dir   int   // descriptor of paths.Dir, which keeps its inode number from being reused
	home  inode // of paths.Dir
	at    inode // of the socket's file; not reused while the socket is bound
	owned bool  // we bound the socket, and so unlink it

	closing sync.Once
	closed  chan struct{} // closed by Close
	stalls  atomic.Uint64
}

// Listen binds the socket and listens on it. The caller holds the lock l of
// the same paths, until after the listener is closed. A stale socket of ours
// is removed; anything else at the path is an [UnsafeError] and left alone.
func Listen(p Paths, l *Lock) (*Listener, error) {
	if l == nil || l.path != p.Lock {
		return nil, fmt.Errorf("listening on %q: its lock %q is not held", p.Socket, p.Lock)
	}
	if err := removeStale(p.Socket); err != nil {
		return nil, err
	}
	unixListener, err := listenPrivate(p.Socket)
	if err != nil {
		return nil, fmt.Errorf("listening on %q: %w", p.Socket, err)
	}
	unixListener.SetUnlinkOnClose(false) // Close looks first whose file it is
	listener, err := newListener(unixListener, p, l)
	if err != nil {
		unixListener.Close()
		return nil, err
	}
	listener.owned = true
	return listener, nil
}

// removeStale makes room for the socket. Only the holder of the lock may call
// it: for everyone else a socket that does not answer may be a busy daemon's.
func removeStale(path string) error {
	var st unix.Stat_t
	err := unix.Lstat(path, &st)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("examining %q: %w", path, err)
	case st.Mode&unix.S_IFMT != unix.S_IFSOCK:
		return &UnsafeError{Code: CodeOccupied, Path: path, Detail: "is not a socket", Remedy: "move it away"}
	case int(st.Uid) != os.Geteuid():
		return &UnsafeError{
			Code: CodeOccupied, Path: path,
			Detail: fmt.Sprintf("is a socket of uid %d, not ours", st.Uid), Remedy: "choose another directory with --dir",
		}
	}
	if err := unix.Unlink(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the stale socket %q: %w", path, err)
	}
	return nil
}

// newListener records what the listener must keep finding at its paths.
func newListener(l *net.UnixListener, p Paths, lock *Lock) (*Listener, error) {
	var st unix.Stat_t
	if err := unix.Lstat(p.Socket, &st); err != nil {
		return nil, fmt.Errorf("examining the socket %q: %w", p.Socket, err)
	}
	if mode := st.Mode & 0o777; mode != 0o600 {
		return nil, &UnsafeError{
			Code: CodeOccupied, Path: p.Socket,
			Detail: fmt.Sprintf("has mode %04o where 0600 is needed", mode),
			Remedy: "run with umask 077; in a socket unit say SocketMode=0600",
		}
	}
	dir, err := unix.Open(p.Dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening the directory %q: %w", p.Dir, err)
	}
	home, err := inodeOf(dir)
	if err != nil {
		unix.Close(dir)
		return nil, fmt.Errorf("examining the directory %q: %w", p.Dir, err)
	}
	return &Listener{
		net: l, paths: p, lock: lock, dir: dir, home: home,
		at:     inode{uint64(st.Dev), st.Ino},
		closed: make(chan struct{}),
	}, nil
}

// Inode is the device and inode number of the socket's file, by which a
// client can tell whether a status file speaks of this socket.
func (l *Listener) Inode() (device, number uint64) { return l.at.device, l.at.number }

// Bounds of the pause after a failed accept.
const (
	minAcceptPause = 5 * time.Millisecond
	maxAcceptPause = time.Second
)

// Accept waits for the next connection. While the system is out of
// descriptors or memory it waits between its tries, longer each time: trying
// at once would fail as often as the processor can, and take from the daemon
// what it needs to recover. After Close it returns [net.ErrClosed].
func (l *Listener) Accept() (*net.UnixConn, error) {
	pause := minAcceptPause
	for {
		conn, err := l.net.AcceptUnix()
		if err == nil {
			return conn, nil
		}
		if !isTemporary(err) {
			return nil, fmt.Errorf("accepting on %q: %w", l.paths.Socket, err)
		}
		l.stalls.Add(1)
		select {
		case <-time.After(pause):
			pause = min(2*pause, maxAcceptPause)
		case <-l.closed:
			return nil, fmt.Errorf("accepting on %q: %w", l.paths.Socket, net.ErrClosed)
		}
	}
}

// Stalls is how often Accept failed and paused since the listener was made.
func (l *Listener) Stalls() uint64 { return l.stalls.Load() }

func isTemporary(err error) bool {
	for _, temporary := range []error{
		unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.ENOBUFS,
		unix.ECONNABORTED, unix.EPROTO, unix.EINTR, unix.EAGAIN,
	} {
		if errors.Is(err, temporary) {
			return true
		}
	}
	return false
}

// Close ends the listener and every Accept. It unlinks the socket's file if we
// made it and the path still leads to it. It looks before it closes: once
// closed, our inode number may be another socket's.
func (l *Listener) Close() error {
	err := fmt.Errorf("closing the listener on %q: %w", l.paths.Socket, net.ErrClosed)
	l.closing.Do(func() {
		close(l.closed)
		var unlinkErr error
		if at, statErr := inodeAt(l.paths.Socket); l.owned && statErr == nil && at == l.at {
			unlinkErr = unix.Unlink(l.paths.Socket)
		}
		err = errors.Join(unlinkErr, l.net.Close(), unix.Close(l.dir))
	})
	return err
}

// ErrLost is what an error of [Listener.Check] is when the endpoint is
// certainly no longer ours. The error itself is a [*LostError].
var ErrLost = errors.New("the endpoint was lost")

// A LostError names the path that no longer leads to what we own.
type LostError struct {
	Path string
	Err  error // ENOENT or ENOTDIR; nil if something else lies there
}

func (e *LostError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("%v: %q: %v", ErrLost, e.Path, e.Err)
	}
	return fmt.Sprintf("%v: %q was replaced", ErrLost, e.Path)
}

// Is makes errors.Is(err, ErrLost) hold.
func (e *LostError) Is(target error) bool { return target == ErrLost }

// Unwrap returns the system's error, if there was one.
func (e *LostError) Unwrap() error { return e.Err }

// Check looks whether directory, lock and socket at their paths are still the
// ones that this daemon owns. Nil says so; an error that is ErrLost says that
// they are not; any other error, such as one for want of descriptors, says
// nothing about them. It is made to be called every second.
func (l *Listener) Check() error {
	for _, own := range []struct {
		path string
		at   inode
	}{
		{l.paths.Dir, l.home},
		{l.paths.Lock, l.lock.at},
		{l.paths.Socket, l.at},
	} {
		switch now, err := inodeAt(own.path); {
		case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
			return &LostError{own.path, err}
		case err != nil:
			return fmt.Errorf("examining %q: %w", own.path, err)
		case now != own.at:
			return &LostError{own.path, nil}
		}
	}
	return nil
}
