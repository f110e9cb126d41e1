package integration

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestLifeClients has clients end as real ones do. Nothing of their sessions is
// left, the daemon that one of their bridges started lives on, and other clients
// notice nothing. Full: 20 of each.
func TestLifeClients(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, c *client){
		"it is killed": func(t *testing.T, c *client) {
			// Both ends of the bridge's pipes go with the process that had them.
			c.in.Close()
			c.out.Close()
		},
		"it closes the input only": func(t *testing.T, c *client) {
			c.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"sleep","arguments":{"ms":300}}}`)
			c.closeInput()
			if m := c.answer("2"); m.Result == nil {
				t.Errorf("the call before the end of the input got %s", m.raw)
			}
		},
		"it interrupts the group": func(t *testing.T, c *client) { syscall.Kill(-c.cmd.Process.Pid, syscall.SIGINT) },
		"it terminates the group": func(t *testing.T, c *client) { syscall.Kill(-c.cmd.Process.Pid, syscall.SIGTERM) },
		"it kills the group":      func(t *testing.T, c *client) { syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL) },
		"its terminal hangs up":   func(t *testing.T, c *client) { syscall.Kill(-c.cmd.Process.Pid, syscall.SIGHUP) },
	} {
		t.Run(name, func(t *testing.T) {
			r := life(t)
			r.servers["tree"] = r.tree()
			config := r.config()
			for range repeats(1, 20) {
				cmd := r.command("connect", "tree", "--config", config)
				cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
				c := r.run(cmd).ready() // and its bridge starts the daemon, in the first round
				c.sendCall("1", "hold", `{"key":"k"}`)
				r.logged(1, "hold", "k")
				all := r.trees(1)
				before, err := r.snapshot()
				if err != nil {
					t.Fatal(err)
				}
				end(t, c)
				if name == "it closes the input only" {
					c.out.Close() // a call that is never answered would be awaited
				}
				c.exitCode()
				r.deserted()
				after, err := r.snapshot()
				if err != nil || after.Identity != before.Identity {
					t.Errorf("the daemon was %d and is %d: %v", before.PID, after.PID, err)
				}
				// What a server puts into a session of its own lives until the
				// daemon ends; all else is gone with the server.
				held := pin(t, inGroupOf(all))
				if left := held.left(endedSoon); len(left) > 0 {
					t.Errorf("of the server there are %v", left)
				}
				held.release()
				r.stop()
			}
		})
	}
}

// inGroupOf are those of a tree that are in the group of its wrapper.
func inGroupOf(tree []process) (list []process) {
	var group string
	for _, p := range tree {
		if strings.HasPrefix(p.command, "sh -c") && strings.Contains(p.command, "fakeserver") {
			group = fmt.Sprint(p.pid)
		}
	}
	for _, p := range tree {
		if fields := statFields(fmt.Sprint("/proc/", p.pid)); len(fields) > 2 && fields[2] == group {
			list = append(list, p)
		}
	}
	return list
}

// TestLifeStoppedClient stops a client's bridge for a while, under answers that
// it does not read: others are served meanwhile, and when it goes on, so does its
// session. Full: for 60 s.
func TestLifeStoppedClient(t *testing.T) {
	r := life(t)
	r.servers["fake"] = r.fake()
	stopped, other := r.open(bridge, "fake").ready(), r.open(bridge, "fake").ready()
	if err := syscall.Kill(stopped.cmd.Process.Pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		stopped.sendCall(fmt.Sprint(i+1), "big", `{"bytes":65536}`)
	}
	var took []time.Duration
	for end := time.Now().Add(time.Duration(repeats(4, 60)) * time.Second); time.Now().Before(end); {
		began := time.Now()
		other.settle()
		took = append(took, time.Since(began))
	}
	figures(t, "calls beside a stopped client", took)
	if err := syscall.Kill(stopped.cmd.Process.Pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		if m := stopped.answer(fmt.Sprint(i + 1)); m.Result == nil {
			t.Errorf("a call of before got %s", m.raw)
		}
	}
	stopped.settle()
}

// TestLifeServerStopped stops a server and closes its client: the server is ended
// though it cannot heed anything but SIGKILL.
func TestLifeServerStopped(t *testing.T) {
	r := life(t)
	r.servers["fake"] = r.fake()
	c := r.open(bridge, "fake").ready()
	all := pin(t, r.population(1))
	if err := unix.Kill(all.list[0].pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	c.closeInput()
	c.exitCode()
	if left := all.left(patience); len(left) > 0 {
		t.Errorf("there is still %v", left)
	}
	r.deserted()
}
