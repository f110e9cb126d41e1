package mcpd

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"interlock/mcpd/internal/endpoint"
	"interlock/mcpd/internal/life"
	"interlock/mcpd/internal/proc"
)

// TestStopMarksTheDead keeps bridges from starting a daemon again that has
// crashed before it was to be stopped.
func TestStopMarksTheDead(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "d")
	if err := Stop(t.Context(), Place{Dir: dir}, StopOptions{}); !errors.Is(err, ErrNotRunning) {
		t.Errorf("without a directory: %v", err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("a stop has made the directory")
	}
	ok(t, endpoint.Prepare(must(endpoint.Locate(os.Getenv, endpoint.Options{Dir: dir}))))
	if err := Stop(t.Context(), Place{Dir: dir}, StopOptions{}); !errors.Is(err, ErrNotRunning) {
		t.Errorf("without a daemon: %v", err)
	}
	if _, marked, err := life.StopMarked(dir); !marked {
		t.Errorf("no stop marker is set: %v", err)
	}
}

// TestAccountFor names what a daemon has left behind, and ends it with force.
func TestAccountFor(t *testing.T) {
	t.Parallel()
	marker := "left-" + strconv.Itoa(os.Getpid()) + "-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	if err := accountFor(t.Context(), marker, false); err != nil {
		t.Errorf("nothing is left: %v", err)
	}
	left := exec.Command("sleep", "3600")
	left.Env = []string{proc.MarkerEnv + "=" + marker}
	ok(t, left.Start())
	defer time.AfterFunc(bound, func() { left.Process.Kill() }).Stop() // so that a failure is told
	var named *LeftError
	soon, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := accountFor(soon, marker, false); !errors.As(err, &named) || !slices.Equal(named.PIDs, []int{left.Process.Pid}) {
		t.Errorf("pid %d is left: %v", left.Process.Pid, err)
	}
	if err := accountFor(t.Context(), marker, true); err != nil {
		t.Errorf("with force: %v", err)
	}
	began := time.Now()
	if err := left.Wait(); err == nil || time.Since(began) > bound/2 {
		t.Errorf("it has ended by itself, or not: %v", err)
	}
}
