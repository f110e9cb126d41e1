package life

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

func linuxRoles() map[string]func() int {
	return map[string]func() int{"reuse": reuseRole, "foreign": foreignRole}
}

// kill(2) takes a thread's id for a process, and so did programs that asked it
// whether a daemon lives.
func TestPinRefusesThread(t *testing.T) {
	c := startChild(t, "victim")
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", c.id.PID))
	if err != nil {
		t.Fatal(err)
	}
	threads := 0
	for _, task := range tasks {
		id := c.id
		if id.PID, err = strconv.Atoi(task.Name()); err != nil {
			t.Fatal(err)
		}
		if id.PID == c.id.PID {
			continue
		}
		threads++
		if id.StartTicks, err = startTicks(filepath.Join("/proc", task.Name(), "stat")); err != nil {
			t.Fatal(err)
		}
		if _, err := Pin(id); !errors.Is(err, ErrNotSame) {
			t.Errorf("pinning thread %d gave %v", id.PID, err)
		}
	}
	if threads == 0 {
		t.Fatal("the child has no second thread")
	}
	if got := c.signals(); got != "" {
		t.Errorf("the threads' process received %q", got)
	}
}

func TestPinTakesZombieForEnded(t *testing.T) {
	c := startChild(t, "victim")
	p, err := Pin(c.id)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	_ = c.cmd.Process.Kill()
	if err := p.Ended(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", c.id.PID)); err != nil {
		t.Fatalf("the child is no zombie: %v", err)
	}
	if _, err := Pin(c.id); !errors.Is(err, ErrGone) {
		t.Errorf("pinning a zombie gave %v", err)
	}
	if err := Stop(t.Context(), StopPlan{Identity: c.id}); err != nil {
		t.Errorf("stopping a zombie gave %v", err)
	}
}

// TestPidReuse has the kernel give a daemon's pid to an innocent process.
func TestPidReuse(t *testing.T) {
	inNamespace(t, "reuse", "unshare", "--pid", "--fork", "--mount-proc")
}

// TestForeignProc runs where /proc shows the processes of another pid
// namespace, in which the same numbers are other processes.
func TestForeignProc(t *testing.T) {
	inNamespace(t, "foreign", "unshare", "--pid", "--fork")
}

func inNamespace(t *testing.T, role string, command ...string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a pid namespace needs root")
	}
	if out, err := exec.Command(command[0], append(command[1:], "true")...).CombinedOutput(); err != nil {
		t.Skipf("no pid namespace can be made here: %v: %s", err, out)
	}
	cmd := exec.Command(command[0], append(command[1:], os.Args[0])...)
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func reuseRole() int {
	if err := reusePid(); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

func reusePid() error {
	old, err := launchChild("victim")
	if err != nil {
		return err
	}
	old.signals()
	_ = old.cmd.Wait()
	stranger, err := launchAs(old.id.PID)
	if err != nil {
		return err
	}
	defer func() { _ = stranger.cmd.Process.Kill(); _ = stranger.cmd.Wait() }()
	if _, err := Pin(old.id); !errors.Is(err, ErrNotSame) {
		return fmt.Errorf("pinning a reused pid gave %v", err)
	}
	if err := Stop(context.Background(), StopPlan{Identity: old.id}); !errors.Is(err, ErrNotVerified) {
		return fmt.Errorf("stopping a reused pid gave %v", err)
	}
	if got := stranger.signals(); got != "" {
		return fmt.Errorf("the stranger received %q", got)
	}
	return nil
}

// launchAs starts a victim with that pid. The runtime's own threads take
// numbers as well, so it may need several tries.
func launchAs(pid int) (*child, error) {
	for range 50 {
		if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(strconv.Itoa(pid-1)), 0); err != nil {
			return nil, err
		}
		c, err := launchChild("victim")
		if err != nil {
			return nil, err
		}
		if c.id.PID == pid {
			return c, nil
		}
		c.signals()
		_ = c.cmd.Wait()
	}
	return nil, fmt.Errorf("pid %d was not given again", pid)
}

func foreignRole() int {
	id, err := Self("test")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	// Of the process that has our number in the other namespace.
	if id.StartTicks, err = startTicks(fmt.Sprintf("/proc/%d/stat", id.PID)); err != nil {
		fmt.Println(err)
		return 1
	}
	if _, err := Pin(id); errors.Is(err, ErrNotSame) {
		return 0
	}
	fmt.Printf("pinning %+v gave %v\n", id, err)
	return 1
}
