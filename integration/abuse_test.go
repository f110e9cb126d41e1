package integration

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// quick is how soon a bystander is answered, whatever others do. The tests of
// this file run one after the other, so that nobody else is to blame.
func quick() time.Duration {
	if raceEnabled {
		return 6 * time.Second
	}
	return 2 * time.Second
}

// bystander makes calls until done is closed, and fails the test when an answer
// takes longer than quick. It gives the slowest.
func bystander(t *testing.T, c *client, done <-chan struct{}) (slowest time.Duration) {
	for n := 0; ; n++ {
		select {
		case <-done:
			return slowest
		default:
		}
		began := time.Now()
		if err := c.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"echo","arguments":{}}}`+"\n", n)); err != nil {
			t.Error(err)
			return slowest
		}
		if _, err := c.next(patience, isAnswer(fmt.Sprint(n))); err != nil {
			t.Errorf("the bystander's call %d: %v", n, err)
			return slowest
		}
		slowest = max(slowest, time.Since(began))
		if slowest > quick() {
			t.Errorf("the bystander waited %v for an answer", slowest)
			return slowest
		}
	}
}

// beside runs abuse while a bystander of the same server works, and checks what
// memory the daemon came to need. Sessions of both kinds go on after it.
func beside(t *testing.T, w way, most int64, abuse func(*rig, *client)) {
	r := newRig(t)
	r.servers["fake"] = r.fake()
	d := r.start()
	done, ended := make(chan struct{}), make(chan time.Duration)
	c := r.open(w, "fake").ready()
	go func() { ended <- bystander(t, c, done) }()
	abuse(r, c)
	close(done)
	slowest := <-ended
	c.nothingMore()
	peak := residentPeak(t, d.pid())
	t.Logf("slowest answer to the bystander %v, daemon at most %d MiB", slowest.Round(time.Millisecond), peak>>20)
	if raceEnabled {
		most *= 8 // the detector's shadow
	}
	if peak > most {
		t.Errorf("the daemon needed %d MiB, more than %d", peak>>20, most>>20)
	}
}

// TestNeverReads has a client ask for much and read nothing. A bridge in between
// would only add buffers of its own.
func TestNeverReads(t *testing.T) {
	if testing.Short() {
		t.Skip("takes memory")
	}
	eachWay(t, func(t *testing.T, w way) {
		beside(t, w, 100<<20, func(r *rig, _ *client) {
			conn := r.raw()
			defer conn.Close()
			text := greeting("fake", r)
			for i := range 60 {
				text += fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"big","arguments":{"bytes":4000000}}}`+"\n", i)
			}
			conn.SetWriteDeadline(time.Now().Add(patience))
			if _, err := io.WriteString(conn, text); err != nil {
				t.Fatal(err)
			}
			r.logged(16, "in", `"big"`) // as many as one client may have at once
			// The answers begin to come, and nobody takes the rest while others work.
			conn.SetReadDeadline(time.Now().Add(patience))
			if _, err := io.CopyN(io.Discard, conn, 64<<10); err != nil {
				t.Fatal(err)
			}
			other := r.open(w, "fake").ready()
			for range 100 {
				other.settle()
			}
		})
	}, socket)
}

// TestHugeLine sends one line of more than any frame may have: it is refused
// under its id, wherever in it that stands, and the session lives.
func TestHugeLine(t *testing.T) {
	size := 100 << 20
	switch {
	case *longFlag:
		size = 1 << 30
	case raceEnabled:
		size = 66 << 20 // just over the limit: the detector is slow
	}
	head, last := `{"jsonrpc":"2.0","method":"tools/call",`, `"params":{"name":"echo","arguments":{"s":"`
	for place, line := range map[string][2]string{
		"id first": {`{"jsonrpc":"2.0","id":"huge","method":"tools/call",` + last, `"}}}`}, "id last": {head + last, `"}},"id":"huge"}`},
	} {
		t.Run(place, func(t *testing.T) {
			eachRelay(t, func(t *testing.T, w way) {
				beside(t, w, 250<<20, func(r *rig, _ *client) {
					c := r.open(w, "fake").ready()
					if err := c.write(line[0]); err != nil {
						t.Fatal(err)
					}
					chunk := strings.Repeat("x", 1<<20)
					for range size >> 20 {
						if err := c.write(chunk); err != nil {
							t.Fatal(err)
						}
					}
					if err := c.write(line[1] + "\n"); err != nil {
						t.Fatal(err)
					}
					if m := c.answer(`"huge"`); m.Error == nil && !strings.Contains(m.raw, `"isError":true`) {
						t.Errorf("%.300s", m.raw)
					}
					c.nothingMore()
				})
			})
		})
	}
}

// TestHugeAnswer has a server answer with more than any frame may have: the
// call fails under its id, and server and session live.
func TestHugeAnswer(t *testing.T) {
	eachRelay(t, func(t *testing.T, w way) {
		beside(t, w, 400<<20, func(r *rig, _ *client) {
			c := r.open(w, "fake").ready()
			c.sendCall("1", "hold", `{"key":"k"}`)
			if why := refusal(t, c.call(`"huge"`, "big", `{"bytes":70000000}`)); why == "" {
				t.Error("no reason")
			}
			c.call("2", "release", `{"key":"k"}`)
			if got := textOf(t, c.answer("1")); got != "held k" {
				t.Error(got)
			}
			c.nothingMore()
		})
	})
}

// TestLargeAnswers has a server answer with what is large and allowed.
func TestLargeAnswers(t *testing.T) {
	eachRelay(t, func(t *testing.T, w way) {
		beside(t, w, 400<<20, func(r *rig, _ *client) {
			c := r.open(w, "fake").ready()
			sizes := []int{12_000_000, 30_000_000}
			if raceEnabled {
				sizes = sizes[:1] // the detector is slow
			}
			for id, bytes := range sizes {
				m := c.call(fmt.Sprint(id), "big", fmt.Sprintf(`{"bytes":%d}`, bytes))
				if got := strings.Count(m.raw, "x"); got < bytes {
					t.Errorf("%d bytes came of %d", got, bytes)
				}
			}
		})
	})
}

// TestHalfReadFrames has 300 connections send half of a large frame and then
// nothing, some before they are sessions, some after: more than a gigabyte that
// nobody will ever finish. There is room left for one who behaves, and the daemon
// needs no more than its budget and what is beside it.
func TestHalfReadFrames(t *testing.T) {
	if testing.Short() {
		t.Skip("takes memory")
	}
	eachWay(t, func(t *testing.T, w way) {
		beside(t, w, 450<<20, func(r *rig, _ *client) {
			half := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"s":"` + strings.Repeat("x", 4<<20)
			var all sync.WaitGroup
			for i := range 300 {
				conn := r.raw()
				defer conn.Close()
				all.Go(func() {
					conn.SetWriteDeadline(time.Now().Add(3 * time.Second))
					if i%2 == 1 {
						fmt.Fprintf(conn, `{"jsonrpc":"2.0","id":"hello","method":"interlock/hello","params":{"protocol":1,"servers":["fake"]}}`+"\n")
					}
					io.WriteString(conn, half) // may be refused, held back or cut off; that is the daemon's choice
				})
			}
			all.Wait()
			r.open(w, "fake").ready().settle()
		})
	}, socket)
}

// raw is a connection to the daemon that nobody reads from.
func (r *rig) raw() net.Conn {
	r.t.Helper()
	conn, err := net.Dial("unix", r.socketPath())
	if err != nil {
		r.t.Fatal(err)
	}
	return conn
}

// greeting is hello and handshake in one piece.
func greeting(name string, r *rig) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":"hello","method":"interlock/hello","params":{"protocol":1,"servers":[%q],"env":["PATH=/usr/bin:/bin","INTEGRATION_DIR=%s"]}}
{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
`, name, r.dir)
}
