package endpoint

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// acquireRole waits for its stdin to end, tries, says how it went, and holds
// the lock until it is killed.
func acquireRole(args ...string) error {
	p, err := Locate(noEnv, Options{Dir: args[0]})
	if err != nil {
		return err
	}
	buf := make([]byte, 1)
	_, _ = os.Stdin.Read(buf)
	_, err = Acquire(p)
	switch {
	case err == nil:
		fmt.Println("won")
		select {}
	case errors.Is(err, ErrRunning):
		fmt.Println("lost")
		return nil
	}
	return err
}

// Of daemons that start at the same moment exactly one gets the lock, even
// while others ask who holds it.
func TestAcquireOnce(t *testing.T) {
	for range 10 {
		p := place(t)
		var won atomic.Int32
		var all sync.WaitGroup
		gate := make(chan struct{})
		for range 32 {
			all.Go(func() {
				<-gate
				lock, err := Acquire(p)
				switch {
				case err == nil:
					won.Add(1)
					t.Cleanup(func() { lock.Close() })
				case !errors.Is(err, ErrRunning):
					t.Error(err)
				}
			})
		}
		for range 8 {
			all.Go(func() {
				<-gate
				for range 50 {
					if _, err := Held(p); err != nil {
						t.Error(err)
					}
				}
			})
		}
		close(gate)
		all.Wait()
		if won.Load() != 1 {
			t.Fatalf("%d daemons hold the lock", won.Load())
		}
		if held, err := Held(p); err != nil || !held {
			t.Errorf("Held gave %v, %v", held, err)
		}
	}
}

func TestAcquireOnceAcrossProcesses(t *testing.T) {
	p := place(t)
	var all []*role
	for range 8 {
		all = append(all, start(t, "acquire", []string{p.Dir}))
	}
	for _, r := range all {
		r.stdin.Close()
	}
	var winner *role
	for _, r := range all {
		if r.line(t) == "won" {
			if winner != nil {
				t.Fatal("two processes hold the lock")
			}
			winner = r
		}
	}
	if winner == nil {
		t.Fatal("no process got the lock")
	}
	_, err := Acquire(p)
	running, ok := errors.AsType[*RunningError](err)
	if !ok || running.Holder.PID != winner.cmd.Process.Pid {
		t.Errorf("the error names not pid %d: %v", winner.cmd.Process.Pid, err)
	}
	_ = winner.cmd.Process.Kill()
	_ = winner.cmd.Wait()
	acquire(t, p) // the end of the process is the end of its lock
}

// The lock outlives every garbage collection, and no child takes it over.
func TestLockIsTheProcessesOwn(t *testing.T) {
	p := place(t)
	lock, err := Acquire(p)
	if err != nil {
		t.Fatal(err)
	}
	fd := lock.fd
	lock = nil
	for range 3 {
		runtime.GC()
	}
	if held, err := Held(p); err != nil || !held {
		t.Fatalf("after a garbage collection Held gave %v, %v", held, err)
	}
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = child.Process.Kill(); _ = child.Wait() }()
	if err := (&Lock{fd: fd}).Close(); err != nil {
		t.Fatal(err)
	}
	if held, err := Held(p); err != nil || held {
		t.Errorf("a child keeps the lock: %v, %v", held, err)
	}
}

func TestHeldMakesNothing(t *testing.T) {
	p := place(t)
	if held, err := Held(p); err != nil || held {
		t.Errorf("Held gave %v, %v", held, err)
	}
	if _, err := os.Lstat(p.Lock); !os.IsNotExist(err) {
		t.Errorf("the lock file was made: %v", err)
	}
}

// While only callers of Held share the lock a daemon waits for them.
func TestAcquireWaitsForProbes(t *testing.T) {
	p := place(t)
	acquire(t, p).Close()
	probe, err := os.Open(p.Lock)
	if err != nil {
		t.Fatal(err)
	}
	defer probe.Close()
	if err := unix.Flock(int(probe.Fd()), unix.LOCK_SH); err != nil {
		t.Fatal(err)
	}
	if _, err := tryAcquire(p.Lock); !errors.Is(err, errTryAgain) {
		t.Fatalf("beside a probe: %v", err)
	}
	got := make(chan error, 1)
	go func() {
		lock, err := Acquire(p)
		if err == nil {
			err = lock.Close()
		}
		got <- err
	}()
	if err := unix.Flock(int(probe.Fd()), unix.LOCK_UN); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Errorf("after the probe: %v", err)
	}
}

// What the lock file says is only quoted if it is harmless.
func TestHolderIsUntrusted(t *testing.T) {
	for content, want := range map[string]string{
		`{"pid":7,"host":"elsewhere"}`:  `pid 7 on host "elsewhere"`,
		`{"pid":7,"host":"a\u001b[2J"}`: ErrRunning.Error(),
		`{"pid":-7,"host":"elsewhere"}`: ErrRunning.Error(),
		``:                              ErrRunning.Error(),
		`{"pid":7,"host":`:              ErrRunning.Error(),
		"\x00\x01 garbage":              ErrRunning.Error(),
	} {
		p := place(t)
		acquire(t, p)
		if err := os.WriteFile(p.Lock, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Acquire(p)
		if !errors.Is(err, ErrRunning) || !strings.Contains(err.Error(), want) || strings.ContainsRune(err.Error(), '\x1b') {
			t.Errorf("%q gave %v", content, err)
		}
	}
}

// The mark of a daemon that ended without taking it away is there for the next
// one, and outlives one that only had the lock for a moment.
func TestMark(t *testing.T) {
	p := place(t)
	for _, step := range []struct{ found, mark string }{{"", "first"}, {"first", "first"}, {"first", "second"}, {"second", ""}, {"", ""}} {
		lock, err := Acquire(p)
		if err != nil {
			t.Fatal(err)
		}
		if lock.Instance() != step.found {
			t.Errorf("found the mark %q, want %q", lock.Instance(), step.found)
		}
		if step.mark != step.found {
			lock.Mark(step.mark)
		}
		_, err = Acquire(p)
		var running *RunningError
		if !errors.As(err, &running) || running.Holder.PID != os.Getpid() || running.Holder.Instance != step.mark {
			t.Errorf("%v: %+v", err, running)
		}
		if err := lock.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
