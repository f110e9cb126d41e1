package recovery_test

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"interlock/recovery"
)

// childDir names the directory in which a copy of the test binary plays the daemon;
// childRole says what it does there.
const (
	childDir  = "RECOVERY_TEST_DIR"
	childRole = "RECOVERY_TEST_ROLE"
)

// childMain plays the daemon if this process was started to.
func childMain() bool {
	dir := os.Getenv(childDir)
	if dir == "" {
		return false
	}
	o := recovery.Options{Dir: dir, SegmentSize: 1, BootID: "one"}
	role := runWorkers
	if os.Getenv(childRole) == "scenario" {
		role = runScenario
	}
	if err := role(o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return true
}

// runWorkers begins and ends runs in 16 goroutines until it is killed. What it
// writes to its output, each line with one write, is what servers and clients would
// have seen: B, the call was sent; X, it is answered; E, its end is on record.
func runWorkers(o recovery.Options) error {
	j, _, err := recovery.Open(o)
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	failed := make(chan error, 16)
	for range 16 {
		wg.Go(func() {
			for n := 0; ; n++ {
				r, err := j.Begin(intent(n))
				if err != nil {
					failed <- err
					return
				}
				fmt.Println("B", r.ID())
				fmt.Println("X", r.ID())
				if err := r.End(recovery.OutcomeOK, ""); err != nil {
					failed <- err
					return
				}
				fmt.Println("E", r.ID())
			}
		})
	}
	wg.Wait()
	return <-failed
}

// child is a started copy of the test binary.
func child(t *testing.T, dir, role string, env ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childDir+"="+dir, childRole+"="+role)
	cmd.Env = append(cmd.Env, env...)
	cmd.Stderr = os.Stderr
	return cmd
}

// TestSIGKILL kills the daemon 20 times under 16 workers and compares what is pending
// with what its servers saw.
func TestSIGKILL(t *testing.T) {
	dir := t.TempDir()
	rng := rand.New(rand.NewSource(1))
	sent, answered, ended := map[string]bool{}, map[string]bool{}, map[string]bool{}
	const kills = 20
	for kill := range kills {
		cmd := child(t, dir, "workers")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		after := 1 + rng.Intn(1500)
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			if n == after {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
			what, id, ok := strings.Cut(lines.Text(), " ")
			switch {
			case !ok:
			case what == "B" && sent[id]:
				t.Fatalf("kill %d: id %s was given out twice", kill, id)
			case what == "B":
				sent[id] = true
			case what == "X":
				answered[id] = true
			case what == "E":
				ended[id] = true
			}
		}
		var exit *exec.ExitError
		if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != -1 {
			t.Fatalf("kill %d: the daemon ended by itself: %v", kill, err)
		}
	}
	j, report := open(t, recovery.Options{Dir: dir, SegmentSize: 1, BootID: "one"})
	if len(report.Problems) > 0 {
		t.Errorf("problems: %+v", report.Problems)
	}
	pending := map[string]bool{}
	unseen := 0
	for _, r := range j.Pending() {
		if pending[r.RequestID] {
			t.Errorf("run %s is pending twice", r.RequestID)
		}
		pending[r.RequestID] = true
		if ended[r.RequestID] {
			t.Errorf("run %s had ended", r.RequestID)
		}
		if !sent[r.RequestID] {
			unseen++
		}
	}
	lost := 0
	for id := range sent {
		if !answered[id] && !pending[id] {
			lost++
		}
	}
	t.Logf("%d runs, %d pending, %d lost", len(sent), len(pending), lost)
	if lost > 0 {
		t.Errorf("lost %d", lost)
	}
	if unseen > 16*kills {
		t.Errorf("%d pending runs were never begun", unseen)
	}
}

// runScenario runs the scenario of the crash tests once, from whatever is there, and
// writes what was promised.
func runScenario(o recovery.Options) error {
	j, _, err := recovery.Open(o)
	if err != nil {
		return err
	}
	say := func(what string, list ...string) { fmt.Println(what, strings.Join(list, " ")) }
	for n := range 40 {
		in := intent(n)
		in.Tool = strings.Repeat("long", 1000)
		r, err := j.Begin(in)
		if err != nil {
			return err
		}
		say("B", r.ID())
		switch n % 3 {
		case 0:
			say("X", r.ID())
			err = r.End(recovery.OutcomeOK, "")
		case 1:
			err = r.End(recovery.OutcomeUnknown, "")
		}
		if err != nil {
			return err
		}
		if n == 20 || n == 39 {
			state := j.State()
			for _, run := range state.Recovery.Runs {
				say("X", run.RequestID)
			}
			ack, err := j.Acknowledge(recovery.Selection{Digest: state.Set})
			if err != nil {
				return err
			}
			say("A", ack.ReconciledRequestIDs...)
		}
	}
	return j.Close()
}
