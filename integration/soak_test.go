//go:build linux

package integration

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

var soakFlag = flag.Duration("soak", 0, "how long the soak `lasts` (default 10s; 20m with INTERLOCK_FULL=1)")

// vitals are what a daemon holds.
type vitals struct {
	files, threads, processes int
	resident                  int64 // bytes
}

// TestSoak has clients connect, call and leave in every way, and servers crash
// and be killed, all the time. In the end the daemon holds what it held after its
// first clients: descriptors, threads, processes and memory.
//
//	go test ./integration -run TestSoak -v -timeout 1h -soak 20m
func TestSoak(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a while")
	}
	lasts := *soakFlag
	if lasts == 0 {
		lasts = time.Duration(repeats(10, 20*60)) * time.Second
	}
	t.Parallel()
	r := newRig(t)
	r.servers["fake"] = r.fake()
	r.start()
	const workers = 4
	var done [5]atomic.Int64
	work := func(until time.Time) {
		var running sync.WaitGroup
		for range workers {
			running.Go(func() {
				for i := 0; i == 0 || time.Now().Before(until); i++ {
					what := rand.IntN(len(done))
					if err := r.soak(what); err != nil {
						t.Errorf("session of kind %d: %v", what, err)
						return
					}
					done[what].Add(1)
				}
			})
		}
		running.Wait()
		r.deserted()
	}
	work(time.Now().Add(lasts / 5))
	base := r.vitals()
	work(time.Now().Add(lasts))
	var last vitals
	err := within(patience, func() error {
		last = r.vitals()
		if last.files > base.files || last.processes > base.processes || last.threads > base.threads+4 {
			return fmt.Errorf("it holds more")
		}
		return nil
	})
	t.Logf("sessions: %d left, %d vanished, %d with a crash, %d with a killed server, %d through a bridge",
		done[0].Load(), done[1].Load(), done[2].Load(), done[3].Load(), done[4].Load())
	t.Logf("at first %+v, at last %+v", base, last)
	// The race detector's own memory grows for long.
	if allowed := base.resident + base.resident/10 + 8<<20; err == nil && !raceEnabled && last.resident > allowed {
		err = fmt.Errorf("it has grown")
	}
	if err != nil {
		t.Errorf("%v: at first %+v, at last %+v", err, base, last)
	}
}

// soak is one session of a kind.
func (r *rig) soak(kind int) error {
	if kind == 4 {
		return r.soakBridge()
	}
	c, err := dialRaw(r.socketPath())
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.greet("fake"); err != nil {
		return err
	}
	for range rand.IntN(10) {
		if _, err := c.ask("tools/call", map[string]any{"name": "echo", "arguments": map[string]any{"n": 1}}); err != nil {
			return err
		}
	}
	switch kind {
	case 1: // under a call
		fmt.Fprintln(c, `{"jsonrpc":"2.0","id":"v","method":"tools/call","params":{"name":"hold","arguments":{"key":"v"}}}`)
		return nil
	case 2:
		_, err = c.ask("tools/call", map[string]any{"name": "crash", "arguments": map[string]any{"kind": "exit"}})
	case 3:
		var m *message
		if m, err = c.ask("tools/call", map[string]any{"name": "env", "arguments": map[string]any{}}); err == nil {
			syscall.Kill(environmentOf(r.t, m).PID, syscall.SIGKILL)
		}
	default:
		return nil
	}
	if err != nil {
		return err
	}
	// The next finds the server dying, or another.
	for range 2 {
		if _, err = c.ask("tools/call", map[string]any{"name": "echo", "arguments": map[string]any{}}); err == nil {
			return nil
		}
	}
	return err
}

func (r *rig) soakBridge() error {
	cmd := r.command("connect", "fake")
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	fmt.Fprintf(in, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":%s}`+"\n", initializeParams)
	in.Close()
	return cmd.Wait()
}
