package proc

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// pidfdGroup is PIDFD_SIGNAL_PROCESS_GROUP of pidfd_send_signal(2), from Linux 6.9 on.
const pidfdGroup = 1 << 2

// helperProcess is a child of the helper.
type helperProcess struct {
	link     *link
	id       uint64
	pid      int
	pidfd    *os.File // nil on a kernel without, or when there was no room for it; of a released group, closed by the collector
	released atomic.Bool
	done     chan struct{} // closed by end
	ending   sync.Once
	status   syscall.WaitStatus // set before done is closed
}

func (p *helperProcess) PID() int                   { return p.pid }
func (p *helperProcess) Done() <-chan struct{}      { return p.done }
func (p *helperProcess) Status() syscall.WaitStatus { return p.status }
func (p *helperProcess) Kill() error                { return p.Signal(syscall.SIGKILL) }

// Signal uses the pidfd, which works whatever the helper does, and asks the helper on a kernel that signals no groups by pidfd.
func (p *helperProcess) Signal(sig syscall.Signal) error {
	err := p.signalByPidfd(sig)
	if err != unix.EINVAL && err != errNoPidfd {
		return err
	}
	select {
	case <-p.done:
		return os.ErrProcessDone
	default:
		p.link.send(message{kind: kindSignal, body: encoder(nil).uint64(p.id).uint32(uint32(sig))})
		return nil
	}
}

var errNoPidfd = errors.New("no pidfd")

func (p *helperProcess) signalByPidfd(sig syscall.Signal) error {
	if p.pidfd == nil {
		return errNoPidfd
	}
	err := withFDs([]*os.File{p.pidfd}, func(fds []int) error {
		return unix.PidfdSendSignal(fds[0], sig, nil, pidfdGroup)
	})
	if err == unix.ESRCH || errors.Is(err, os.ErrClosed) {
		return os.ErrProcessDone
	}
	return err
}

func (p *helperProcess) Release() {
	p.released.Store(true)
	p.link.send(message{kind: kindRelease, body: encoder(nil).uint64(p.id)})
}

// end records the end of the leader. The pidfd of a released group stays, to signal what is left of the group.
func (p *helperProcess) end(status syscall.WaitStatus) {
	p.ending.Do(func() {
		p.status = status
		if p.pidfd != nil && !p.released.Load() {
			_ = p.pidfd.Close()
		}
		close(p.done)
	})
}

// awaitEnd waits until the leader has ended, with nobody to say so but its pidfd, or until the deadline.
func (p *helperProcess) awaitEnd(deadline time.Time) {
	if p.pidfd == nil {
		return
	}
	// A failure leaves nothing to wait for.
	_ = withFDs([]*os.File{p.pidfd}, func(fds []int) error {
		pollEnds([]int{fds[0]}, deadline)
		return nil
	})
}

// pollEnds waits until all the processes of pidfds have ended, or until the deadline.
func pollEnds(pidfds []int, deadline time.Time) {
	for _, fd := range pidfds {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		for {
			n, err := unix.Poll(p, max(0, int(time.Until(deadline).Milliseconds())))
			if n > 0 || err != unix.EINTR {
				break
			}
		}
	}
}
