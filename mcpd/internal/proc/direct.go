package proc

import (
	"context"
	"os"
	"sync"
	"syscall"
)

// Direct is the Spawner that forks in this process. What it starts outlives this process if that is killed.
type Direct struct {
	Marker string // the instance marker of every process; none if empty
}

// Spawn implements Spawner. Every error is a *SpawnError.
func (d Direct) Spawn(ctx context.Context, s Spec, stdio [3]*os.File) (Process, error) {
	if err := ctx.Err(); err != nil {
		return nil, s.failed(err)
	}
	if err := keepInherited(); err != nil {
		return nil, s.failed(err)
	}
	p := &directProcess{done: make(chan struct{})}
	err := withFDs(stdio[:], func(fds []int) (err error) {
		p.pid, err = syscall.ForkExec(s.Path, s.Args, &syscall.ProcAttr{
			Dir:   s.Dir,
			Env:   withMarker(s.Env, d.Marker),
			Files: []uintptr{uintptr(fds[0]), uintptr(fds[1]), uintptr(fds[2])},
			Sys:   &syscall.SysProcAttr{Setsid: true},
		})
		return err
	})
	if err != nil {
		return nil, s.failed(err)
	}
	go p.wait()
	return p, nil
}

// directProcess is a child of this process. Its goroutine, wait, ends with the leader.
type directProcess struct {
	pid    int
	done   chan struct{}      // closed by wait
	status syscall.WaitStatus // set before done is closed

	mu       sync.Mutex // guards what follows; the leader is reaped under it, so that a holder can rely on the number
	reaped   bool
	released bool
}

func (p *directProcess) PID() int                   { return p.pid }
func (p *directProcess) Done() <-chan struct{}      { return p.done }
func (p *directProcess) Status() syscall.WaitStatus { return p.status }
func (p *directProcess) Kill() error                { return p.Signal(syscall.SIGKILL) }

func (p *directProcess) Signal(sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return os.ErrProcessDone
	}
	return signalGroup(p.pid, sig)
}

func (p *directProcess) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.released = true
}

func (p *directProcess) wait() {
	defer close(p.done)
	if awaitZombie(p.pid) != nil {
		// Somebody else reaped it, so the number is no longer ours to signal.
		p.mu.Lock()
		defer p.mu.Unlock()
		p.reaped, p.status = true, StatusLost
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.released {
		_ = signalGroup(p.pid, syscall.SIGKILL) // nobody left in it is the usual case
	}
	p.status = reap(p.pid)
	p.reaped = true
}

// signalGroup signals the group of the leader pid, which must be pinned: not yet reaped, and its parent us.
func signalGroup(pid int, sig syscall.Signal) error {
	err := syscall.Kill(-pid, sig)
	if err == syscall.ESRCH {
		return os.ErrProcessDone
	}
	return err
}

// reap collects the zombie pid, a child of ours.
func reap(pid int) syscall.WaitStatus {
	var status syscall.WaitStatus
	for {
		switch _, err := syscall.Wait4(pid, &status, 0, nil); err {
		case nil:
			return status
		case syscall.EINTR:
		default:
			return StatusLost
		}
	}
}
