package proc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	markedGrace = 300 * time.Millisecond // from SIGTERM to SIGKILL
	markedBound = 5 * time.Second        // for all of it
)

// FindMarked lists the processes of this user, other than the caller, whose instance marker is the given one or begins with it, by
// rising pid. Processes whose environment the kernel hides from us are not seen.
func FindMarked(prefix string) ([]Marked, error) {
	all := pids()
	if len(all) == 0 {
		return nil, errors.New("looking for processes by their instance marker: /proc shows no processes")
	}
	var found []Marked
	for _, pid := range all {
		if pid == os.Getpid() {
			continue
		}
		marker := markerOf(pid)
		if marker == "" || !strings.HasPrefix(marker, prefix) {
			continue
		}
		if s, err := readStat(pid); err == nil {
			found = append(found, Marked{
				PID: pid, StartTicks: s.start, Marker: marker, Comm: s.comm,
				Parent: s.ppid, Helper: IsHelper(argvOf(pid)),
			})
		}
	}
	slices.SortFunc(found, func(a, b Marked) int { return a.PID - b.PID })
	return found, nil
}

// EndMarked ends every process of this user that carries exactly the given marker, but the caller and those that keep, which may be
// nil, says to spare: by SIGTERM, and 300 ms later by SIGKILL. It looks again until there are none, at most for five seconds, and
// returns the pids of those that it signalled. A process is signalled only through a pidfd that was opened before its marker was read.
func EndMarked(ctx context.Context, marker string, keep func(pid int) bool) ([]int, error) {
	if marker == "" {
		return nil, errors.New("ending processes by their instance marker: the marker is empty")
	}
	begun := time.Now()
	var ended []int
	for {
		targets, err := openMarked(marker, keep)
		if err != nil || len(targets) == 0 {
			return ended, err
		}
		if err := ctx.Err(); err != nil || time.Since(begun) > markedBound {
			closeTargets(targets)
			return ended, errors.Join(fmt.Errorf("%d processes with instance marker %q are still there", len(targets), marker), err)
		}
		sig, until := syscall.SIGTERM, begun.Add(markedGrace)
		if time.Since(begun) >= markedGrace {
			sig, until = syscall.SIGKILL, time.Now().Add(markedGrace)
		}
		var fds []int
		for _, t := range targets {
			fds = append(fds, t.pidfd)
			known := slices.Contains(ended, t.pid)
			if known && sig == syscall.SIGTERM {
				continue // has had its SIGTERM
			}
			// One that ended meanwhile is not there when we look again; one that we may not signal is, and is reported.
			if unix.PidfdSendSignal(t.pidfd, sig, nil, 0) == nil && !known {
				ended = append(ended, t.pid)
			}
		}
		pollEnds(fds, until)
		closeTargets(targets)
	}
}

// target is a process with a pidfd that was opened before its marker was read, so that both belong to the same process or the
// pidfd's is dead.
type target struct{ pid, pidfd int }

func closeTargets(targets []target) {
	for _, t := range targets {
		_ = unix.Close(t.pidfd)
	}
}

func openMarked(marker string, keep func(pid int) bool) ([]target, error) {
	found, err := FindMarked(marker)
	if err != nil {
		return nil, err
	}
	var targets []target
	for _, m := range found {
		if m.Marker != marker || keep != nil && keep(m.PID) {
			continue
		}
		pidfd, err := unix.PidfdOpen(m.PID, 0)
		switch {
		case err == unix.ESRCH || err == unix.ENOENT || err == unix.EINVAL:
			continue // ended meanwhile
		case err != nil:
			closeTargets(targets)
			return nil, fmt.Errorf("opening process %d: %w", m.PID, err)
		case markerOf(m.PID) != marker:
			_ = unix.Close(pidfd)
			continue
		}
		targets = append(targets, target{pid: m.PID, pidfd: pidfd})
	}
	return targets, nil
}

// markerOf returns the marker in the environment that a process of this user was started with, or "".
func markerOf(pid int) string {
	dir := fmt.Sprintf("/proc/%d", pid)
	var st unix.Stat_t
	if unix.Stat(dir, &st) != nil || int(st.Uid) != os.Geteuid() {
		return ""
	}
	env, err := os.ReadFile(dir + "/environ")
	if err != nil {
		return ""
	}
	for kv := range bytes.SplitSeq(env, []byte{0}) {
		if marker, ok := bytes.CutPrefix(kv, []byte(MarkerEnv+"=")); ok {
			return string(marker)
		}
	}
	return ""
}

// argvOf returns the command line of a process, nil if it cannot be read.
func argvOf(pid int) []string {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
}

// Stopped reports whether a signal such as SIGSTOP holds the process.
func Stopped(pid int) bool {
	s, err := readStat(pid)
	return err == nil && (s.state == 'T' || s.state == 't')
}

// Zombies returns the children of a process that have ended and were not reaped.
func Zombies(parent int) []int {
	var found []int
	for _, pid := range pids() {
		if s, err := readStat(pid); err == nil && s.ppid == parent && s.state == 'Z' {
			found = append(found, pid)
		}
	}
	return found
}
