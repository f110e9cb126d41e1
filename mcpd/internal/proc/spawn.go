package proc

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// MarkerEnv is the environment variable that carries the instance marker.
const MarkerEnv = "INTERLOCK_INSTANCE"

// StatusLost is the Status of a process whose end nobody saw because the spawn helper ended first. The process itself was killed.
// It equals the wait status of a continued process, which is never asked for.
const StatusLost syscall.WaitStatus = 0xffff

// Spec says what to run.
type Spec struct {
	Name string   // of the server, for messages
	Path string   // the binary, as Resolve found it
	Args []string // argv, argv[0] included
	Env  []string // the whole environment; MarkerEnv is replaced by the spawner's own
	Dir  string   // the working directory; empty means the spawner's
	// Umask is the file mode creation mask; nil means the spawner's, which in a daemon is stricter than its servers expect. Only
	// the spawn helper can set it: elsewhere other threads create files at the same time.
	Umask *uint32
}

// Spawner starts processes.
type Spawner interface {
	// Spawn starts s with stdio as its descriptors 0, 1 and 2 and no others. The caller keeps, and closes, its copies of stdio.
	// A *SpawnError proves that nothing ran; after any other error the process may have run for a moment and is being killed.
	// The process does not depend on ctx once Spawn has returned.
	Spawn(ctx context.Context, s Spec, stdio [3]*os.File) (Process, error)
}

// Process is a leader, running in a session of its own, and its process group.
type Process interface {
	// PID is the leader's.
	PID() int
	// Done is closed when the leader has been reaped and its group ended, or when both were killed after the loss of the helper.
	Done() <-chan struct{}
	// Status is the leader's wait status, or StatusLost; valid once Done is closed.
	Status() syscall.WaitStatus
	// Signal sends sig to the whole group. After the group's end it returns os.ErrProcessDone.
	Signal(sig syscall.Signal) error
	// Kill is Signal(SIGKILL).
	Kill() error
	// Release lets the group outlive its leader for as long as the daemon lives. It has no effect once the leader has ended.
	Release()
}

// SpawnError reports a process that could not be started. Nothing of it ran.
type SpawnError struct {
	Name string // of the server
	Path string // the binary
	Hint string // what the system's own words do not tell; may be empty
	Err  error  // usually a syscall.Errno
}

// Error names the server and the binary, says what was wrong, and where that is known, what to mend.
func (e *SpawnError) Error() string {
	msg := fmt.Sprintf("starting server %q: running %q: %v", e.Name, e.Path, e.Err)
	if e.Hint != "" {
		msg += " (" + e.Hint + ")"
	}
	return msg
}

// Unwrap returns Err.
func (e *SpawnError) Unwrap() error { return e.Err }

func (s Spec) failed(err error) *SpawnError {
	return &SpawnError{Name: s.Name, Path: s.Path, Hint: s.hint(err), Err: err}
}

// hint finds out what err is about: exec fails with the same few numbers for the binary, its interpreter and the directory.
func (s Spec) hint(err error) string {
	if _, ok := err.(syscall.Errno); !ok {
		return ""
	}
	if s.Dir != "" {
		if fi, err := os.Stat(s.Dir); err != nil {
			return fmt.Sprintf("its working directory: %v", err)
		} else if !fi.IsDir() {
			return fmt.Sprintf("its working directory %q is not a directory", s.Dir)
		}
	}
	switch err {
	case syscall.ENOENT:
		if _, err := os.Stat(s.Path); err == nil {
			return "the file is there, but the interpreter or loader that it names is not"
		}
	case syscall.ENOEXEC:
		return "a script needs a first line such as #!/bin/sh; a binary must be built for this machine"
	case syscall.E2BIG:
		return "its arguments and environment are too long together"
	}
	return ""
}

// withMarker returns env with exactly the given marker, or none when it is empty.
func withMarker(env []string, marker string) []string {
	env = slices.DeleteFunc(slices.Clone(env), func(kv string) bool { return strings.HasPrefix(kv, MarkerEnv+"=") })
	if marker != "" {
		env = append(env, MarkerEnv+"="+marker)
	}
	return env
}

// keepInherited makes sure that no descriptor which this process inherited from its own starter, a terminal's or an editor's, goes on
// to its children. Those that Go opens never do.
func keepInherited() error {
	fds, err := os.ReadDir("/dev/fd")
	if err != nil {
		return fmt.Errorf("looking for inherited descriptors: %w", err)
	}
	for _, entry := range fds {
		if fd, err := strconv.Atoi(entry.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
	return nil
}

// withFDs calls f with the descriptors of files, which stay open and keep their blocking mode for the length of the call. It fails
// with os.ErrClosed if one is closed already.
func withFDs(files []*os.File, f func(fds []int) error) error {
	fds := make([]int, 0, len(files))
	var next func() error
	next = func() error {
		if len(fds) == len(files) {
			return f(fds)
		}
		rc, err := files[len(fds)].SyscallConn()
		if err != nil {
			return err
		}
		var inner error
		if err := rc.Control(func(fd uintptr) {
			fds = append(fds, int(fd))
			inner = next()
		}); err != nil {
			return os.ErrClosed // the only reason, for which the poller has an error that matches nothing public
		}
		return inner
	}
	return next()
}
