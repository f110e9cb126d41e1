package mcpd

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"
)

const (
	// demoCounter is the file that all clients of the demo count in.
	demoCounter = "counter.txt"
	// demoCounts is how often each adds one.
	demoCounts = 20
)

// takeTurns has all clients count in one file, first as agents do that know nothing
// of each other, then under leases.
func (d *demo) takeTurns(ctx context.Context) error {
	total := demoCounts * len(d.clients)
	d.say("\nAll at once, each adds 1 to the number in %s, %d times: read the file, write it.\n", demoCounter, demoCounts)
	n, err := d.count(ctx, false)
	if err != nil {
		return err
	}
	d.say("The number is %d, and should be %d: %d of their writes are lost.\n", n, total, total-n)
	d.say("\nThe same, each time under a lease: interlock__lease_acquire file:%s, read, write, interlock__lease_release.\n", demoCounter)
	if n, err = d.count(ctx, true); err != nil {
		return err
	}
	return d.claim(n == total, n, "the number is %d: nothing is lost", total)
}

// count has all clients count from 0 and returns what the file says in the end.
func (d *demo) count(ctx context.Context, leased bool) (int, error) {
	file := filepath.Join(d.work, demoCounter)
	if err := os.WriteFile(file, []byte("0"), 0o600); err != nil {
		return 0, err
	}
	group, _ := errgroup.WithContext(ctx)
	for _, c := range d.clients {
		group.Go(func() error { return c.countUp(leased) })
	}
	if err := group.Wait(); err != nil {
		return 0, err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// countUp adds 1 to the number in the file, again and again.
func (c *demoClient) countUp(leased bool) error {
	for range demoCounts {
		var handle string
		if leased {
			answer, err := c.ask(demoCall{Name: ownPrefix + "lease_acquire", Arguments: demoLease{Resource: "file:" + demoCounter, WaitMs: demoLimit.Milliseconds()}})
			if err != nil {
				return err
			}
			var lease leaseData
			if err := json.Unmarshal([]byte(answer), &lease); err != nil {
				return fmt.Errorf("%s: reading a lease: %w", c.name, err)
			}
			handle = string(lease.Handle)
		}
		text, err := c.ask(demoCall{Name: "read_file", Arguments: demoArguments{Path: demoCounter}})
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("%s: reading the number: %w", c.name, err)
		}
		next := strconv.Itoa(n + 1)
		if _, err := c.ask(demoCall{Name: "write_file", Arguments: demoArguments{Path: demoCounter, Content: &next}}); err != nil {
			return err
		}
		if leased {
			if _, err := c.ask(demoCall{Name: ownPrefix + "lease_release", Arguments: demoLease{Handle: handle}}); err != nil {
				return err
			}
		}
	}
	return nil
}

// demoLease are the arguments of the lease tools.
type demoLease struct {
	Resource string `json:"resource,omitempty"`
	WaitMs   int64  `json:"waitMs,omitempty"`
	Handle   string `json:"handle,omitempty"`
}

// ask is call for what must not be refused.
func (c *demoClient) ask(call demoCall) (string, error) {
	answer, err := c.call(call)
	if err == nil && answer.refused {
		err = fmt.Errorf("%s: %s was refused: %s", c.name, call.Name, answer.text)
	}
	return answer.text, err
}
