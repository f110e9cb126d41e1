package life

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestSelf(t *testing.T) {
	one, err := Self("v1")
	if err != nil {
		t.Fatal(err)
	}
	two, err := Self("v1")
	if err != nil {
		t.Fatal(err)
	}
	if len(one.Instance) != 32 || one.Instance == two.Instance {
		t.Errorf("instances %q and %q are not 128 random bits each", one.Instance, two.Instance)
	}
	one.Instance, two.Instance = "i", "i"
	if one != two {
		t.Errorf("one process has two identities: %+v and %+v", one, two)
	}
	raw, err := json.Marshal(one)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"startTicks", "bootId", "pidNamespace", "instance", "uid", "build", "socketDevice", "socketInode"} {
		if _, found := fields[name]; !found {
			t.Errorf("the identity in JSON has no %s: %s", name, raw)
		}
		delete(fields, name)
	}
	if len(fields) > 0 {
		t.Errorf("the identity in JSON has more than documented: %s", raw)
	}
}

func TestPinFindsTheProcess(t *testing.T) {
	c := startChild(t, "victim")
	p, err := Pin(c.id)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.Signal(unix.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	if line, err := c.stdout.ReadString('\n'); err != nil || line != "user defined signal 1\n" {
		t.Fatalf("the process received %q, %v", line, err)
	}
}

// A process that is not the one recorded is never signalled, whatever made the
// record wrong.
func TestPinRefusesAnother(t *testing.T) {
	c := startChild(t, "victim")
	for _, test := range []struct {
		name   string
		change func(*Identity)
	}{
		{"another start time", func(id *Identity) { id.StartTicks-- }},
		{"another boot", func(id *Identity) { id.BootID = "0b7ce1f2" }},
		{"another pid namespace", func(id *Identity) { id.PIDNamespace++ }},
		{"another user", func(id *Identity) { id.UID++ }},
		{"no pid", func(id *Identity) { id.PID = 0 }},
		{"a process group", func(id *Identity) { id.PID = -id.PID }},
		{"pid 1", func(id *Identity) { id.PID = 1 }},
		{"nothing recorded", func(id *Identity) { *id = Identity{PID: id.PID} }},
	} {
		t.Run(test.name, func(t *testing.T) {
			id := c.id
			test.change(&id)
			if p, err := Pin(id); !errors.Is(err, ErrNotSame) {
				t.Errorf("Pin gave %v, %v; want ErrNotSame", p, err)
			}
			if err := Stop(t.Context(), StopPlan{Identity: id}); !errors.Is(err, ErrNotVerified) {
				t.Errorf("Stop gave %v, want ErrNotVerified", err)
			}
		})
	}
	if got := c.signals(); got != "" {
		t.Errorf("the innocent process received %q", got)
	}
}

func TestEnded(t *testing.T) {
	c := startChild(t, "victim")
	p, err := Pin(c.id)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()

	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := p.Ended(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("waiting for a running process gave %v", err)
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Ended(done); !errors.Is(err, context.Canceled) {
		t.Fatalf("a finished context gave %v", err)
	}

	var waits sync.WaitGroup
	for range 4 {
		waits.Go(func() {
			if err := p.Ended(t.Context()); err != nil {
				t.Errorf("waiting gave %v", err)
			}
		})
	}
	if err := p.Signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	waits.Wait()
	if err := p.Ended(done); err != nil {
		t.Errorf("a zombie has not ended: %v", err)
	}
	_ = c.cmd.Wait()
	if err := p.Signal(syscall.SIGTERM); !errors.Is(err, ErrGone) {
		t.Errorf("signalling a reaped process gave %v", err)
	}
	if _, err := Pin(c.id); !errors.Is(err, ErrGone) {
		t.Errorf("pinning a reaped process gave %v", err)
	}
}
