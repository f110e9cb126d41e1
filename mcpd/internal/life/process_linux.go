package life

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A Process is one running process, pinned: whatever becomes of its pid, no
// call here reaches another one. It is safe for concurrent use.
type Process struct {
	id   Identity
	file *os.File // the pidfd, in the runtime's poller

	waiting sync.Mutex // guards the read deadline of file, which is how a wait ends early
}

// Pin takes hold of the process that id names and then verifies that it is the
// one. The error is ErrGone if that process has ended, ErrNotSame if the pid
// is another's, and something else if this cannot be found out; nobody may be
// signalled then. The caller closes the Process.
func Pin(id Identity) (*Process, error) {
	if err := checkWorld(id); err != nil {
		return nil, err
	}
	pidfd, err := unix.PidfdOpen(id.PID, unix.PIDFD_NONBLOCK)
	switch {
	case errors.Is(err, unix.ESRCH):
		return nil, gone(id)
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EINVAL):
		return nil, notSame(id, "it is a thread")
	case err != nil:
		return nil, fmt.Errorf("pinning pid %d: %w", id.PID, err)
	}
	p := &Process{id: id, file: os.NewFile(uintptr(pidfd), "pidfd")}
	if err := p.verify(pidfd); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// verify compares what /proc shows with the identity. The process is pinned,
// so if it still runs afterwards, all that was read was about it.
func (p *Process) verify(pidfd int) error {
	mismatch := p.compare(pidfd)
	if ended, err := isReadable(pidfd); err != nil {
		return fmt.Errorf("polling pid %d: %w", p.id.PID, err)
	} else if ended {
		return gone(p.id)
	}
	return mismatch
}

func (p *Process) compare(pidfd int) error {
	// /proc may have been mounted for another pid namespace than ours.
	shown, err := procField(fmt.Sprintf("/proc/self/fdinfo/%d", pidfd), "Pid:")
	if err != nil {
		return fmt.Errorf("reading about pid %d: %w", p.id.PID, err)
	}
	if shown != strconv.Itoa(p.id.PID) {
		return notSame(p.id, "/proc shows the processes of another pid namespace")
	}
	dir := fmt.Sprintf("/proc/%d/", p.id.PID)
	start, err := startTicks(dir + "stat")
	if err != nil {
		return fmt.Errorf("reading about pid %d: %w", p.id.PID, err)
	}
	if start != p.id.StartTicks {
		return notSame(p.id, "it started at another time than the one recorded")
	}
	tgid, err := procField(dir+"status", "Tgid:")
	if err != nil {
		return fmt.Errorf("reading about pid %d: %w", p.id.PID, err)
	}
	if tgid != strconv.Itoa(p.id.PID) {
		return notSame(p.id, "it is a thread of pid %s", tgid)
	}
	uids, err := procField(dir+"status", "Uid:")
	if err != nil {
		return fmt.Errorf("reading about pid %d: %w", p.id.PID, err)
	}
	if effective := strings.Fields(uids); len(effective) < 2 || effective[1] != strconv.FormatUint(uint64(p.id.UID), 10) {
		return notSame(p.id, "it runs as another user")
	}
	return nil
}

// Signal sends a signal to the process, or is ErrGone.
func (p *Process) Signal(sig unix.Signal) error {
	var sendErr error
	err := p.control(func(fd int) { sendErr = unix.PidfdSendSignal(fd, sig, nil, 0) })
	if err = errors.Join(err, sendErr); errors.Is(err, unix.ESRCH) {
		return gone(p.id)
	} else if err != nil {
		return fmt.Errorf("sending %s to pid %d: %w", unix.SignalName(sig), p.id.PID, err)
	}
	return nil
}

func (p *Process) control(do func(fd int)) error {
	raw, err := p.file.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Control(func(fd uintptr) { do(int(fd)) })
}

// Ended waits until the process has ended, reaped or not, and returns nil then,
// or the error of ctx. Of a process that has ended it says so whatever ctx is.
func (p *Process) Ended(ctx context.Context) error {
	p.waiting.Lock()
	defer p.waiting.Unlock()
	var ended bool
	var pollErr error
	if err := p.control(func(fd int) { ended, pollErr = isReadable(fd) }); err != nil || pollErr != nil {
		return fmt.Errorf("waiting for pid %d: %w", p.id.PID, errors.Join(err, pollErr))
	}
	if ended {
		return nil
	}
	return p.await(ctx)
}

// await needs waiting held: of two waits one would end with the other's context.
func (p *Process) await(ctx context.Context) error {
	raw, err := p.file.SyscallConn()
	if err != nil {
		return fmt.Errorf("waiting for pid %d: %w", p.id.PID, err)
	}
	if err := p.file.SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("waiting for pid %d: %w", p.id.PID, err)
	}
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(interrupted)
		_ = p.file.SetReadDeadline(time.Unix(1, 0))
	})
	var pollErr error
	err = raw.Read(func(fd uintptr) bool {
		ended, err := isReadable(int(fd))
		pollErr = err
		return ended || err != nil
	})
	if !stop() {
		<-interrupted // it must not shorten the next wait
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("waiting for pid %d: %w", p.id.PID, context.Cause(ctx))
	case errors.Join(err, pollErr) != nil:
		return fmt.Errorf("waiting for pid %d: %w", p.id.PID, errors.Join(err, pollErr))
	}
	return nil
}

// Close lets the process go.
func (p *Process) Close() error { return p.file.Close() }

// isReadable reports whether the process of a pidfd has ended.
func isReadable(pidfd int) (bool, error) {
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, 0)
		if err == unix.EINTR {
			continue
		}
		return n > 0, err
	}
}

func bootID() (string, error) {
	content, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("reading the boot id: %w", err)
	}
	return strings.TrimSpace(string(content)), nil
}

func pidNamespace() (uint64, error) {
	link, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return 0, fmt.Errorf("reading the pid namespace: %w", err)
	}
	number, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimPrefix(link, "pid:["), "]"), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("reading the pid namespace from %q: %w", link, err)
	}
	return number, nil
}

func ownStart() (uint64, error) { return startTicks("/proc/self/stat") }

// startTicks is field 22 of a stat file, see proc_pid_stat(5). The second
// field, the name, may hold spaces and parentheses.
func startTicks(path string) (uint64, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	stat := string(content)
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	const index = 22 - 3 // the first field behind the name is number 3
	if len(fields) <= index {
		return 0, fmt.Errorf("reading %s: it has no start time", path)
	}
	return strconv.ParseUint(fields[index], 10, 64)
}

// procField returns what stands behind key in a file of lines "Key:\tvalue".
func procField(path, key string) (string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(content)) {
		if value, found := strings.CutPrefix(line, key); found {
			return strings.TrimSpace(value), nil
		}
	}
	return "", fmt.Errorf("reading %s: it has no line %q", path, key)
}
