package mcpd

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"interlock/mcpd/internal/config"
)

// cpuTime is what this process has used of the processors.
func cpuTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestServerDoesNotRead keeps a session answering whose server reads nothing,
// with bounded memory, and lets both its client and the daemon leave.
func TestServerDoesNotRead(t *testing.T) {
	r := startRig(t, rigOptions{limits: func(l *config.Limits) { l.Frame, l.ClientCalls = 64<<10, 4 }})
	other := r.dial()
	otherServer := other.shakeHands()
	r.servers.behave(manner{deaf: true})
	c := r.dial()
	c.call("1", "peek")
	s := r.servers.take()
	r.awaitRunning(s)
	pad := strings.Repeat("x", 60<<10)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 400 { // 24 MB, of which not a third is kept
		c.send(`{"jsonrpc":"2.0","method":"notifications/x","params":"%s"}`, pad)
	}
	eventually(t, "what is too much is dropped", func() bool { return r.d.counters.droppedFrames.Load() > 200 })
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 3*inputBound {
		t.Errorf("the heap has grown by %d bytes", grown)
	}
	// A call that finds no room is told so; one that has room is cancelled.
	c.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"write","arguments":"%s"}}`, strings.Repeat("x", 63<<10))
	if got := c.refusal("2"); got.Code != "busy" || got.Outcome != "not_sent" || !strings.Contains(got.message, "does not read") {
		t.Errorf("%+v", got)
	}
	c.send(`{"jsonrpc":"2.0","id":3,"method":"ping","params":"%s"}`, strings.Repeat("x", 63<<10))
	if got := c.refusal("3"); got.Code != "busy" {
		t.Errorf("%+v", got)
	}
	c.cancel("1")
	c.call("4", "peek")
	c.cancel("4")
	other.sync(otherServer)
	if p := r.d.journal.Pending(); len(p) != 0 {
		t.Errorf("pending %+v", p)
	}
	c.close()
	eventually(t, "the session is over", func() bool { return len(r.d.sessions.All()) == 1 })
}

// TestClientDoesNotRead holds its server back, and then closes a client that
// reads nothing; other clients notice nothing of it.
func TestClientDoesNotRead(t *testing.T) {
	t.Parallel()
	r := startRig(t, rigOptions{})
	other := r.dial()
	otherServer := other.shakeHands()
	gate := make(chan struct{})
	c := r.dialGated(gate)
	c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	s := r.servers.take()
	s.takes("tools/list")
	line := fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/x","params":"%s"}`, strings.Repeat("x", 60<<10)) + "\n"
	written := 0
	for { // until nobody takes it
		s.stdio[1].SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
		n, err := s.stdio[1].WriteString(line)
		written += n
		if err != nil {
			break
		}
	}
	if written > outputBound+4<<20 {
		t.Errorf("%d bytes were taken for a client that reads nothing", written)
	}
	other.sync(otherServer)
	s.awaitDone() // its client was closed
	other.sync(otherServer)
	eventually(t, "the session is over", func() bool { return len(r.d.sessions.All()) == 1 })
}

// TestClientReadsSlowly has all that a server says arrive, in order, though it is
// more than waits at any time.
func TestClientReadsSlowly(t *testing.T) {
	t.Parallel()
	r := startRig(t, rigOptions{})
	gate := make(chan struct{})
	c := r.dialGated(gate)
	c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	s := r.servers.take()
	list := s.takes("tools/list")
	const n = 300
	go func() {
		defer close(gate)
		for i := range n {
			if i == n/2 {
				// By now the client's queue is full: what else is sent must not end it.
				for id := range 100 {
					c.send(`{"jsonrpc":"2.0","id":"x%d","method":"interlock/none"}`, id)
				}
				return
			}
			s.say(`{"jsonrpc":"2.0","method":"notifications/x","params":[%d,"%s"]}`, i, strings.Repeat("x", 40<<10))
		}
	}()
	own := 0
	for i := 0; i < n/2; {
		m := c.recv()
		if m.Method == "" {
			own++
			continue
		}
		if !strings.HasPrefix(string(m.Params), fmt.Sprintf("[%d,", i)) {
			t.Fatalf("notification %d is %.80s", i, m.raw)
		}
		i++
	}
	s.answer(list, "{}")
	for ; own < 100; own++ {
		if m := c.recv(); m.Error == nil {
			own--
		}
	}
}

// TestLargeAnswerWaits has an answer larger than the queue's bound wait without
// using the processor for it.
func TestLargeAnswerWaits(t *testing.T) {
	r := startRig(t, rigOptions{})
	gate := make(chan struct{})
	c := r.dialGated(gate)
	c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	s := r.servers.take()
	list := s.takes("tools/list")
	big := strings.Repeat("x", 9<<20)
	s.say(`{"jsonrpc":"2.0","method":"notifications/x","params":"%s"}`, big)
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		s.answer(list, `"`+big+`"`)
	}()
	stacks := make([]byte, 1<<20)
	eventually(t, "the answer waits behind it", func() bool {
		return strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "(*instance).answer")
	})
	used := cpuTime()
	<-time.After(500 * time.Millisecond)
	if used = cpuTime() - used; used > 250*time.Millisecond {
		t.Errorf("waiting for the client took %v of a processor", used)
	}
	close(gate)
	if m := c.recv(); m.Method != "notifications/x" {
		t.Errorf("got %.80s", m.raw)
	}
	if m := c.recv(); string(m.ID) != "1" {
		t.Errorf("got %.80s", m.raw)
	}
	<-sent
}
