package proc

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// awaitZombie blocks until the child pid has ended and leaves it unreaped. It asks kqueue, because waitid on macOS returns for
// stopped processes too.
func awaitZombie(pid int) error {
	kq, err := unix.Kqueue()
	if err != nil {
		return fmt.Errorf("watching process %d: %w", pid, err)
	}
	defer unix.Close(kq)
	change := unix.Kevent_t{Ident: uint64(pid), Filter: unix.EVFILT_PROC, Flags: unix.EV_ADD | unix.EV_ONESHOT, Fflags: unix.NOTE_EXIT}
	events := make([]unix.Kevent_t, 1)
	for {
		n, err := unix.Kevent(kq, []unix.Kevent_t{change}, events, nil)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return fmt.Errorf("watching process %d: %w", pid, err)
		case n > 0 && events[0].Flags&unix.EV_ERROR != 0 && events[0].Data != int64(unix.ESRCH):
			return fmt.Errorf("watching process %d: %w", pid, syscall.Errno(events[0].Data))
		case n > 0:
			return nil // ESRCH too: it had ended before we asked, and only we can reap it
		}
	}
}
