package integration

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
)

// TestIsolationLoad has many clients of one entry, every one with id 1 and
// progress token 1 for every call. Each call carries what only its caller knows;
// that, and nothing of another's, comes back, as answer and as progress.
func TestIsolationLoad(t *testing.T) {
	for _, test := range []struct {
		way     way
		clients int
	}{{socket, 64}, {bridge, 16}} {
		eachWay(t, func(t *testing.T, w way) { isolationLoad(t, w, test.clients, *callsFlag/test.clients/2) }, test.way)
	}
}

func isolationLoad(t *testing.T, w way, clients, calls int) {
	r := newRig(t)
	r.servers["fake"] = server{Command: programs.fakeserver}
	d := r.start()
	r.open(w, "fake").ready().settle() // it stays, with what the daemon keeps for all sessions
	before := openFiles(t, d.pid())
	var open []*client
	for range clients {
		open = append(open, r.open(w, "fake").ready())
	}
	var all sync.WaitGroup
	for i, c := range open {
		all.Go(func() {
			for n := range calls {
				if err := ownCall(c, fmt.Sprintf("client %d call %d", i, n)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	for _, c := range open {
		if left := c.leftover(); left != "" {
			t.Errorf("more came: %s", left)
		}
		c.close()
	}
	eventually(t, "the daemon has closed what the sessions had", func() error {
		if now := openFiles(t, d.pid()); now > before {
			return fmt.Errorf("%d descriptors, %d before", now, before)
		}
		return nil
	})
}

// ownCall makes one call that reports its progress twice.
func ownCall(c *client, secret string) error {
	line := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"progress","arguments":{"n":2,"text":%q},"_meta":{"progressToken":1}}}`+"\n", secret)
	if err := c.write(line); err != nil {
		return err
	}
	for range 2 {
		m, err := c.next(patience, isMethod("notifications/progress"))
		if err != nil {
			return fmt.Errorf("%s: no progress: %w", secret, err)
		}
		if !strings.Contains(m.raw, `"progressToken":1,`) || !strings.Contains(m.raw, secret) {
			return fmt.Errorf("%s: %s", secret, m.raw)
		}
	}
	m, err := c.next(patience, isAnswer("1"))
	if err != nil {
		return fmt.Errorf("%s: no answer: %w", secret, err)
	}
	var result struct{ Content []struct{ Text string } }
	if err := json.Unmarshal(m.Result, &result); err != nil || len(result.Content) != 1 || result.Content[0].Text != secret {
		return fmt.Errorf("%s: %s", secret, m.raw)
	}
	return nil
}

// TestWholeLines has several clients send large lines at once, and read large
// answers: none is mixed into another.
func TestWholeLines(t *testing.T) {
	t.Parallel()
	eachRelay(t, func(t *testing.T, w way) {
		r := newRig(t)
		r.servers["fake"] = r.fake()
		var all sync.WaitGroup
		for i := range 4 {
			c := r.open(w, "fake").ready()
			all.Go(func() {
				for n := range 8 {
					text := strings.Repeat(fmt.Sprintf("%d%d", i, n), 100_000)
					if err := c.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"echo","arguments":{"s":%q}}}`+"\n", n, text)); err != nil {
						t.Error(err)
						return
					}
				}
				for n := range 8 {
					m, err := c.next(patience, isAnswer(fmt.Sprint(n)))
					if err != nil || !strings.Contains(m.raw, strings.Repeat(fmt.Sprintf("%d%d", i, n), 100_000)) {
						t.Errorf("client %d, call %d: %v", i, n, err)
					}
				}
			})
		}
		all.Wait()
	})
}

// TestBusy has one client ask for more than it may have at once: what is over
// the limit is refused at once with when to come again, the rest is answered,
// and another client feels nothing.
func TestBusy(t *testing.T) {
	t.Parallel()
	eachRelay(t, func(t *testing.T, w way) {
		const running, waiting = 16, 64
		r := newRig(t)
		r.servers["fake"] = r.fake()
		greedy, other := r.open(w, "fake").ready(), r.open(w, "fake").ready()
		for i := range running + waiting {
			greedy.sendCall(fmt.Sprint(i), "hold", fmt.Sprintf(`{"key":"k%d"}`, i))
		}
		r.logged(running, "hold", "k")
		m := greedy.call(`"over"`, "echo", `{}`)
		if why := refusal(t, m); !strings.Contains(why, "busy") || !strings.Contains(m.raw, "retryAfterMs") {
			t.Errorf("over the limit: %s", m.raw)
		}
		other.settle()
		greedy.send(`{"jsonrpc":"2.0","id":"ping","method":"ping"}`)
		greedy.answer(`"ping"`)
		if n := len(r.events("hold")); n != running {
			t.Errorf("%d calls run at once", n)
		}
		for i := range running + waiting { // cancelled in their order, each makes room for the next
			greedy.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, i)
		}
		greedy.nothingMore()
	})
}
