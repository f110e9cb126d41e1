//go:build failpoint

package recovery_test

import (
	"errors"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"interlock/recovery"
)

// TestFailpoint kills a daemon at each failpoint, its successor at the same one, and
// checks the third start. The points within one operation are covered, for every
// occurrence, by TestKillAtEveryPoint.
func TestFailpoint(t *testing.T) {
	var points []string
	for _, op := range []string{
		"write daemon.journal.next", "sync daemon.journal.next", "rename daemon.journal", "write daemon.journal",
		"write daemon.recovery.json.tmp", "sync daemon.recovery.json.tmp", "rename daemon.recovery.json",
		"remove daemon.recovery.json", "syncdir DIR",
	} {
		points = append(points, "before "+op+"#1", "after "+op+"#1", "before "+op+"#2", "after "+op+"#2")
	}
	for _, point := range points {
		t.Run(point, func(t *testing.T) {
			dir := t.TempDir()
			must, mustNot := map[string]bool{}, map[string]bool{}
			point := strings.Replace(point, "DIR", dir[strings.LastIndex(dir, "/")+1:], 1)
			killed := 0
			for range 2 {
				out, err := child(t, dir, "scenario", "INTERLOCK_FAILPOINT="+point).Output()
				switch {
				case killedBy(err, syscall.SIGKILL):
					killed++
				case err != nil:
					t.Fatal(err)
				}
				for line := range strings.Lines(string(out)) {
					words := strings.Fields(line)
					for _, id := range words[1:] {
						switch words[0] {
						case "B":
							must[id] = true
						case "X":
							delete(must, id)
						case "A":
							mustNot[id] = true
						}
					}
				}
			}
			if killed == 0 {
				t.Error("the failpoint was never reached")
			}
			j, report := open(t, recovery.Options{Dir: dir, SegmentSize: 1, BootID: "one"})
			for _, p := range report.Problems {
				if p.Blocks {
					t.Errorf("%s: %s", p.Code, p.Detail)
				}
			}
			for _, r := range j.Pending() {
				if mustNot[r.RequestID] {
					t.Errorf("run %s was acknowledged", r.RequestID)
				}
				delete(must, r.RequestID)
			}
			if len(must) > 0 {
				t.Errorf("lost %v", must)
			}
		})
	}
}

// killedBy says that a command ended by a signal.
func killedBy(err error, signal syscall.Signal) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == signal
}
