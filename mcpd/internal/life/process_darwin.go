package life

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// A Process is one running process. Darwin cannot pin one: each call verifies
// again, by start time and user, that the pid is still its own, and then acts.
// Between the two the pid could in theory be given to another process of the
// same user. It is safe for concurrent use.
type Process struct{ id Identity }

// Pin verifies that the process that id names still runs. The error is ErrGone
// if it has ended and ErrNotSame if the pid is another's.
func Pin(id Identity) (*Process, error) {
	if err := checkWorld(id); err != nil {
		return nil, err
	}
	p := &Process{id: id}
	if err := p.verify(); err != nil {
		return nil, err
	}
	return p, nil
}

// zombie is SZOMB of sys/proc.h.
const zombie = 5

func (p *Process) verify() error {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", p.id.PID)
	switch {
	case errors.Is(err, unix.EIO), errors.Is(err, unix.ESRCH): // an empty answer
		return gone(p.id)
	case err != nil:
		return fmt.Errorf("reading about pid %d: %w", p.id.PID, err)
	case microseconds(info.Proc.P_starttime) != p.id.StartTicks:
		return notSame(p.id, "it started at another time than the one recorded")
	case info.Eproc.Ucred.Uid != p.id.UID:
		return notSame(p.id, "it runs as another user")
	case info.Proc.P_stat == zombie:
		return gone(p.id)
	}
	return nil
}

// Signal sends a signal to the process, or is ErrGone.
func (p *Process) Signal(sig unix.Signal) error {
	if err := p.verify(); err != nil {
		return err
	}
	if err := unix.Kill(p.id.PID, sig); errors.Is(err, unix.ESRCH) {
		return gone(p.id)
	} else if err != nil {
		return fmt.Errorf("sending %s to pid %d: %w", unix.SignalName(sig), p.id.PID, err)
	}
	return nil
}

// waitInterval is how often Ended looks.
const waitInterval = 20 * time.Millisecond

// Ended waits until the process has ended, reaped or not, and returns nil then,
// or the error of ctx. Of a process that has ended it says so whatever ctx is.
func (p *Process) Ended(ctx context.Context) error {
	tick := time.NewTicker(waitInterval)
	defer tick.Stop()
	for {
		switch err := p.verify(); {
		case errors.Is(err, ErrGone), errors.Is(err, ErrNotSame):
			return nil
		case err != nil:
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("waiting for pid %d: %w", p.id.PID, context.Cause(ctx))
		}
	}
}

// Close lets the process go.
func (p *Process) Close() error { return nil }

func bootID() (string, error) {
	id, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return "", fmt.Errorf("reading the boot id: %w", err)
	}
	return id, nil
}

func pidNamespace() (uint64, error) { return 0, nil }

func ownStart() (uint64, error) {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", unix.Getpid())
	if err != nil {
		return 0, err
	}
	return microseconds(info.Proc.P_starttime), nil
}

func microseconds(t unix.Timeval) uint64 { return uint64(t.Sec)*1_000_000 + uint64(t.Usec) }
