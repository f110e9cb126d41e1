package endpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"interlock/mcpd/internal/endpoint/private"
)

// ErrRunning is what an error of [Acquire] is when another process holds the
// lock. The error itself is a [*RunningError].
var ErrRunning = errors.New("a daemon is running in this directory")

// Holder says who took the lock. It is for messages only, and may be out of
// date or empty: only the lock decides.
type Holder struct {
	PID  int    `json:"pid"`
	Host string `json:"host"`
	// Instance marks the processes of the daemon; see [Lock.Mark].
	Instance string `json:"instance,omitempty"`
}

// A RunningError says who seems to hold the lock.
type RunningError struct{ Holder Holder }

func (e *RunningError) Error() string {
	switch host, _ := os.Hostname(); {
	case e.Holder.PID == 0:
		return ErrRunning.Error()
	case e.Holder.Host != host:
		return fmt.Sprintf("%v (pid %d on host %q: the directory is shared with another host or container; give each a directory of its own)",
			ErrRunning, e.Holder.PID, e.Holder.Host)
	default:
		return fmt.Sprintf("%v (pid %d)", ErrRunning, e.Holder.PID)
	}
}

// Is makes errors.Is(err, ErrRunning) hold.
func (e *RunningError) Is(target error) bool { return target == ErrRunning }

// A Lock makes its process the daemon of the directory, until Close or the end
// of the process. It keeps a bare descriptor and not an *os.File, which the
// garbage collector would close, and the lock with it, once nobody refers to
// it. The descriptor is closed on exec: a child that kept it would hold the
// lock beyond the daemon's death.
type Lock struct {
	fd       int
	path     string
	at       inode
	instance string // as the file has it
}

// Acquire takes the lock without waiting for another daemon; an error is
// ErrRunning while one holds it. The file is made if need be, and never
// removed: whoever locked it after its removal would be a second owner.
func Acquire(p Paths) (*Lock, error) {
	// The lock may be denied for a moment by Held in another process, and the
	// file may be replaced between open and flock. Both pass at once; the
	// bound only keeps a broken file system from holding us for ever.
	for deadline := time.Now().Add(2 * time.Second); ; {
		l, err := tryAcquire(p.Lock)
		if !errors.Is(err, errTryAgain) {
			return l, err
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("locking %q: the file keeps changing under us", p.Lock)
		}
		time.Sleep(time.Millisecond + rand.N(4*time.Millisecond))
	}
}

var errTryAgain = errors.New("try again")

func tryAcquire(path string) (*Lock, error) {
	f, err := private.Open(path, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, fmt.Errorf("taking the lock: %w", err)
	}
	defer f.Close()
	if err := flock(f, unix.LOCK_EX); errors.Is(err, unix.EWOULDBLOCK) {
		return nil, denied(f)
	} else if err != nil {
		return nil, fmt.Errorf("locking %q: %w", path, err)
	}
	locked, err := inodeOf(int(f.Fd()))
	if err != nil {
		return nil, fmt.Errorf("examining the lock %q: %w", path, err)
	}
	if now, err := inodeAt(path); err != nil || now != locked {
		return nil, errTryAgain // removed or replaced before we had it; closing f gives it up
	}
	// The duplicate shares the lock, which ends with the last of the two.
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("keeping the lock %q: %w", path, err)
	}
	l := &Lock{fd: fd, path: path, at: locked, instance: readHolder(f).Instance}
	l.Mark(l.instance)
	return l, nil
}

// Instance is what the lock was last marked with: by this process or, until that
// marks it, by a daemon that ended without taking its mark away.
func (l *Lock) Instance() string { return l.instance }

// Mark notes in the lock's file the instance whose processes are to be ended if
// this one ends without doing so; none if it is empty. A full disk costs only the
// note. It is not safe for concurrent use.
func (l *Lock) Mark(instance string) {
	l.instance = instance
	host, _ := os.Hostname()
	line, err := json.Marshal(Holder{PID: os.Getpid(), Host: host, Instance: instance})
	if err != nil || unix.Ftruncate(l.fd, 0) != nil {
		return
	}
	_, _ = unix.Pwrite(l.fd, append(line, '\n'), 0)
}

// denied tells a daemon, which holds the lock exclusively, from callers of
// Held, who share it for an instant.
func denied(f *os.File) error {
	if err := flock(f, unix.LOCK_SH); err == nil {
		return errTryAgain
	}
	return &RunningError{readHolder(f)}
}

// Close gives the lock up. It is for a daemon that ends in order, after its
// listener was closed; the end of the process does the same.
func (l *Lock) Close() error {
	if err := unix.Close(l.fd); err != nil {
		return fmt.Errorf("closing the lock %q: %w", l.path, err)
	}
	return nil
}

// Held reports whether some process holds the lock, that is, whether there is
// a daemon. The answer may be out of date when it arrives. Asking does not
// disturb a daemon that starts at the same moment: it tries again. A missing
// lock file means no.
func Held(p Paths) (bool, error) {
	f, err := private.Open(p.Lock, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("probing the lock: %w", err)
	}
	defer f.Close()
	switch err := flock(f, unix.LOCK_SH); {
	case err == nil:
		return false, nil
	case errors.Is(err, unix.EWOULDBLOCK):
		return true, nil
	default:
		return false, fmt.Errorf("probing the lock %q: %w", p.Lock, err)
	}
}

func flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB); err != unix.EINTR {
			return err
		}
	}
}

// readHolder returns the zero Holder for whatever it cannot read.
func readHolder(f *os.File) Holder {
	var h Holder
	dec := json.NewDecoder(io.LimitReader(io.NewSectionReader(f, 0, 4096), 4096))
	if err := dec.Decode(&h); err != nil || h.PID < 0 || strings.ContainsFunc(h.Host, isControl) {
		return Holder{}
	}
	return h
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }
