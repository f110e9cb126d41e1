package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// ledger is a server that loses work if two of its processes are at one file.
func (r *rig) ledger() server {
	rule := toolRule{Class: "mutate", Resource: "file:{path}"}
	s := server{Command: programs.ledger, Args: []string{"-log", r.ledgerLog()}, Tools: map[string]toolRule{"peek": {Class: "read"}}}
	for _, tool := range []string{"add", "begin", "put", "commit", "hang", "late", "ask"} {
		s.Tools[tool] = rule
	}
	return s
}

func (r *rig) ledgerLog() string { return filepath.Join(r.dir, "ledger.log") }

// file is a file that ledgers work on, and arguments that name it.
func (r *rig) file(name string) string { return filepath.Join(r.dir, name) }

func (r *rig) read(name string) string {
	r.t.Helper()
	content, err := os.ReadFile(r.file(name))
	if err != nil {
		r.t.Fatal(err)
	}
	return string(content)
}

func (r *rig) on(name string, ms int) string {
	b, err := json.Marshal(map[string]any{"path": r.file(name), "ms": ms})
	if err != nil {
		r.t.Fatal(err)
	}
	return string(b)
}

// count is the number in a ledger's file.
func (r *rig) count(name string) int {
	r.t.Helper()
	n, err := strconv.Atoi(r.read(name))
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}

// entry is a line of the ledgers' log.
type entry struct {
	pid, what, tool, path string
}

func (r *rig) entries() (list []entry) {
	r.t.Helper()
	text, err := os.ReadFile(r.ledgerLog())
	if err != nil && !os.IsNotExist(err) {
		r.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) != 4 {
			r.t.Fatalf("line %q in the ledgers' log", line)
		}
		list = append(list, entry{f[0], f[1], f[2], filepath.Base(f[3])})
	}
	return list
}

// overlaps counts how often a process began to change a file while another was at
// it. One that never ends what it has begun has been killed, and is not at it.
func (r *rig) overlaps() (n int) {
	type at struct{ pid, path string }
	list := r.entries()
	begun := make(map[at]int) // calls of one process run side by side
	last := make(map[at]int)  // the last end of each
	for i, e := range list {
		if e.what == "end" {
			last[at{e.pid, e.path}] = i
		}
	}
	for i, e := range list {
		who := at{e.pid, e.path}
		if e.what == "end" {
			begun[who]--
			continue
		}
		for other, running := range begun {
			if other.path == e.path && other.pid != e.pid && running > 0 && last[other] > i {
				n++
			}
		}
		begun[who]++
	}
	return n
}

// outcome is what a call has come to, for goroutines that must not end the test.
type outcome struct {
	text    string
	refused *ownError // by interlock
	failed  bool      // by the server
}

// try calls a tool and waits for the answer.
func (c *client) try(id, tool, arguments string) (o outcome, err error) {
	err = c.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q,"arguments":%s}}`+"\n", id, tool, arguments))
	if err != nil {
		return o, err
	}
	m, err := c.next(patience, isAnswer(id))
	if err != nil {
		return o, err
	}
	var result struct {
		IsError bool
		Content []struct{ Text string }
		Meta    struct {
			Error *ownError `json:"interlock/error"`
		} `json:"_meta"`
	}
	if err := json.Unmarshal(m.Result, &result); err != nil || len(result.Content) == 0 {
		return o, fmt.Errorf("not the answer of a tool: %s", m.raw)
	}
	return outcome{result.Content[0].Text, result.Meta.Error, result.IsError}, nil
}

// openWith opens a session over the bridge with the tools of leases.
func (r *rig) openWith(name string) *client {
	r.t.Helper()
	r.start()
	return r.run(r.command("connect", "--with-leases", name)).ready()
}

// leased is what the lease tools answer.
type leased struct {
	OwnerID  string `json:"ownerId"`
	Resource string `json:"resource"`
	Epoch    uint64 `json:"epoch"`
	Handle   string `json:"handle"`
}

// acquire gets a lease by hand.
func (c *client) acquire(id, resource string, more string) leased {
	c.t.Helper()
	o, err := c.try(id, "interlock__lease_acquire", fmt.Sprintf(`{"resource":%q%s}`, resource, more))
	if err != nil || o.failed {
		c.t.Fatalf("acquiring %s: %+v, %v", resource, o, err)
	}
	var l leased
	if err := json.Unmarshal([]byte(o.text), &l); err != nil {
		c.t.Fatal(err)
	}
	return l
}

// leaseState is what `daemon leases --json` says.
type leaseState struct {
	Leases []struct {
		Resource string `json:"resource"`
		OwnerID  string `json:"ownerId"`
		Epoch    uint64 `json:"epoch"`
		InFlight int    `json:"inFlight"`
		ByHand   bool   `json:"byHand"`
	} `json:"leases"`
	Waiting []struct {
		OwnerID   string                             `json:"ownerId"`
		BlockedBy struct{ OwnerID, Resource string } `json:"blockedBy"`
	} `json:"waiting"`
}

func (r *rig) leaseState() leaseState {
	r.t.Helper()
	return decoded[leaseState](r, "daemon", "leases", "--json")
}

// awaitWaiting waits until so many wait for leases.
func (r *rig) awaitWaiting(n int) {
	r.t.Helper()
	eventually(r.t, fmt.Sprint(n, " wait for leases"), func() error {
		if got := len(r.leaseState().Waiting); got != n {
			return fmt.Errorf("%d do", got)
		}
		return nil
	})
}

// awaitBegun waits until ledgers have begun a tool so many times.
func (r *rig) awaitBegun(tool string, n int) {
	r.t.Helper()
	eventually(r.t, fmt.Sprintf("%d of %s have begun", n, tool), func() error {
		got := 0
		for _, e := range r.entries() {
			if e.what == "begin" && e.tool == tool {
				got++
			}
		}
		if got < n {
			return fmt.Errorf("%d have", got)
		}
		return nil
	})
}

// awaitPendingRuns waits until so many runs are pending, and gives them.
func (r *rig) awaitPendingRuns(n int) (runs []pendingRun) {
	r.t.Helper()
	eventually(r.t, fmt.Sprint(n, " runs are pending"), func() error {
		if runs = r.pending(); len(runs) != n {
			return fmt.Errorf("%d are", len(runs))
		}
		return nil
	})
	return runs
}

// cancel gives up the request with the raw id.
func (c *client) cancel(id string) {
	c.t.Helper()
	c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`, id)
}

// needNone fails the test for each of the counts that is not 0.
func needNone(t testing.TB, counts map[string]int) {
	t.Helper()
	for what, n := range counts {
		if n != 0 {
			t.Errorf("%s: %d", what, n)
		}
	}
}
