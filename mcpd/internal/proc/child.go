package proc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// drainBound limits how long a pipe that somebody outside the group still holds open is awaited after the leader's end.
	drainBound = 200 * time.Millisecond
	// unreadBound limits how long output that nobody reads is kept for a reader.
	unreadBound = 10 * time.Second
	// killBound limits how long the end of a group is awaited after SIGKILL; only a process that hangs in the kernel needs longer.
	killBound = 5 * time.Second
)

// Graces are the waits of the shutdown ladder.
type Graces struct {
	Stdin time.Duration // from the closing of stdin to SIGTERM
	Term  time.Duration // from SIGTERM to SIGKILL
}

// DefaultGraces returns two seconds for each step, as MCP's reference clients have it.
func DefaultGraces() Graces { return Graces{Stdin: 2 * time.Second, Term: 2 * time.Second} }

// ExitError says how a server ended. Its Unwrap gives ErrHelperLost where the helper's death was the reason.
type ExitError struct {
	Name   string // of the server
	Status syscall.WaitStatus
	Stderr string // the last lines, at most 4 KiB, as the server wrote them: not yet safe for a terminal
}

// Error gives the status and the last lines of stderr.
func (e *ExitError) Error() string {
	msg := fmt.Sprintf("server %q %s", e.Name, e.how())
	if e.Stderr != "" {
		msg += "; its last lines on stderr:\n" + e.Stderr
	}
	return msg
}

func (e *ExitError) how() string {
	switch {
	case e.Status == StatusLost:
		return "was ended because " + ErrHelperLost.Error()
	case e.Status.Signaled():
		return fmt.Sprintf("was ended by signal %d (%v)", int(e.Status.Signal()), e.Status.Signal())
	}
	return fmt.Sprintf("ended with exit status %d", e.Status.ExitStatus())
}

// Unwrap returns ErrHelperLost or nil.
func (e *ExitError) Unwrap() error {
	if e.Status == StatusLost {
		return ErrHelperLost
	}
	return nil
}

// Child is a running stdio server: its process and our ends of its pipes.
type Child struct {
	name   string
	proc   Process
	stdin  *os.File
	stdout *os.File
	stderr *drain
	done   chan struct{} // closed by supervise
	err    *ExitError    // set before done is closed
}

// Start runs s by sp with three new pipes and drains its stderr into the given writer, which is used by one goroutine at a time and
// may be slow or fail. ctx bounds the start only. The errors are those of Spawner.Spawn, and of making the pipes.
func Start(ctx context.Context, sp Spawner, s Spec, stderr io.Writer) (*Child, error) {
	var p pipes
	defer p.closeTheirs()
	if err := p.open(); err != nil {
		p.closeOurs()
		return nil, s.failed(fmt.Errorf("making its pipes: %w", err))
	}
	proc, err := sp.Spawn(ctx, s, p.theirs)
	if err != nil {
		p.closeOurs()
		return nil, err
	}
	c := &Child{
		name: s.Name, proc: proc, stdin: p.ours[0], stdout: p.ours[1],
		stderr: newDrain(), done: make(chan struct{}),
	}
	go c.supervise(p.ours[2], stderr)
	return c, nil
}

// Stdin is our end of the server's stdin, non-blocking and in the poller, so it takes deadlines. It is closed by Stop, and by Child
// when the server has ended.
func (c *Child) Stdin() *os.File { return c.stdin }

// Stdout is our end of the server's stdout, non-blocking and in the poller. The caller reads it to its end and closes it. When
// something outside the server's group still holds the pipe after the server's end, reads fail with os.ErrDeadlineExceeded
// instead of io.EOF, but not before all that was written has been read (or lain unread for ten seconds).
func (c *Child) Stdout() *os.File { return c.stdout }

// PID is the server's process id.
func (c *Child) PID() int { return c.proc.PID() }

// Process is the server itself, for whoever signals or releases it. What a released group writes to stderr after its leader's end
// has nobody to read it.
func (c *Child) Process() Process { return c.proc }

// Done is closed when the process has ended, its group too, and its stderr has been drained, at most 200 ms later.
func (c *Child) Done() <-chan struct{} { return c.done }

// Err returns an *ExitError once Done is closed, whatever the exit status, and nil before.
func (c *Child) Err() error {
	select {
	case <-c.done:
		return c.err
	default:
		return nil
	}
}

// Stderr returns the server's last lines on stderr, at most 4 KiB, and how many bytes of stderr were dropped because the writer did
// not take them.
func (c *Child) Stderr() (last string, dropped int64) {
	return c.stderr.tail.last(), c.stderr.lostBytes()
}

// Stop ends the server as MCP's stdio transport prescribes: it closes stdin, and after each grace goes on to SIGTERM and SIGKILL for
// the whole group. It returns when Done is closed. When ctx ends, the remaining graces are skipped. The error says that the server
// outlived SIGKILL by five seconds. Stop may be called by several goroutines and again.
func (c *Child) Stop(ctx context.Context, g Graces) error {
	_ = c.stdin.Close() // closed already is as good
	if c.ended(ctx, g.Stdin) {
		return nil
	}
	_ = c.proc.Signal(syscall.SIGTERM) // what could not be told to end is killed below
	if c.ended(ctx, g.Term) {
		return nil
	}
	killErr := c.proc.Kill()
	if c.ended(context.WithoutCancel(ctx), killBound) {
		return nil
	}
	return errors.Join(fmt.Errorf("stopping server %q: process %d has not ended %v after SIGKILL", c.name, c.PID(), killBound), killErr)
}

// ended waits for Done, at most for d or until ctx ends, and says whether it is closed.
func (c *Child) ended(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-c.done:
		return true
	default:
	}
	select {
	case <-c.done:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// supervise runs for the life of the process, owns its stderr pipe, and closes done.
func (c *Child) supervise(pipe *os.File, w io.Writer) {
	written := make(chan struct{})
	read := make(chan struct{})
	go func() { defer close(read); c.stderr.read(pipe) }()
	// A writer that hangs keeps this goroutine, and nothing else.
	go func() { defer close(written); c.stderr.write(w) }()

	<-c.proc.Done()
	_ = c.stdin.Close()
	end := time.Now()
	_ = pipe.SetReadDeadline(end.Add(drainBound))
	<-read
	_ = pipe.Close()
	timer := time.NewTimer(time.Until(end.Add(drainBound)))
	defer timer.Stop()
	select {
	case <-written:
	case <-timer.C:
	}
	c.err = &ExitError{Name: c.name, Status: c.proc.Status(), Stderr: c.stderr.tail.last()}
	close(c.done)
	c.endStdout(end)
}

// endStdout makes sure that a reader of stdout comes to an end, though somebody else may hold the pipe open, without taking from it
// anything that is still to be read.
func (c *Child) endStdout(since time.Time) {
	tick := time.NewTicker(drainBound / 10)
	defer tick.Stop()
	for {
		unread, hungUp, err := poll(c.stdout)
		switch age := time.Since(since); {
		case err != nil, hungUp && !unread:
			return
		case !unread && age >= drainBound, age >= unreadBound:
			_ = c.stdout.SetReadDeadline(since)
			return
		}
		<-tick.C
	}
}

// poll says whether the pipe holds bytes and whether all its writers are gone. It fails once f is closed.
func poll(f *os.File) (unread, hungUp bool, err error) {
	err = withFDs([]*os.File{f}, func(fds []int) error {
		p := []unix.PollFd{{Fd: int32(fds[0]), Events: unix.POLLIN}}
		if _, err := unix.Poll(p, 0); err != nil && err != unix.EINTR {
			return err
		}
		unread, hungUp = p[0].Revents&unix.POLLIN != 0, p[0].Revents&unix.POLLHUP != 0
		return nil
	})
	return unread, hungUp, err
}

// pipes are the three pipes of a child. Our ends are non-blocking; theirs block, as programs expect of their standard streams.
type pipes struct{ ours, theirs [3]*os.File }

func (p *pipes) open() error {
	for i := range 3 {
		r, w, err := os.Pipe()
		if err != nil {
			return err
		}
		if i == 0 {
			p.theirs[i], p.ours[i] = r, w
		} else {
			p.ours[i], p.theirs[i] = r, w
		}
		// The mode belongs to this end of the pipe alone.
		if err := withFDs(p.theirs[i:i+1], func(fds []int) error { return unix.SetNonblock(fds[0], false) }); err != nil {
			return err
		}
	}
	return nil
}

func (p *pipes) closeOurs()   { closeAll(p.ours[:]) }
func (p *pipes) closeTheirs() { closeAll(p.theirs[:]) }

func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close() // a pipe has nothing to flush
		}
	}
}
