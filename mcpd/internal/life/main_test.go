package life

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// roleVariable makes the test binary play another process than the test.
const roleVariable = "LIFE_TEST_ROLE"

// prompt lets a child built with the race detector end without the second that
// it otherwise waits for late reports.
const prompt = "GORACE=atexit_sleep_ms=0"

func TestMain(m *testing.M) {
	role, found := roles()[os.Getenv(roleVariable)]
	if found {
		os.Exit(role())
	}
	goleak.VerifyTestMain(m)
}

func roles() map[string]func() int {
	roles := map[string]func() int{
		"victim": victim,
		"deaf":   deaf,
		"daemon": daemonRole,
		"fails":  failingDaemon,
		"mute":   func() int { _, err := Ready(os.Getenv); return exitCode(err, 3) },
		"hangs":  hangingDaemon,
	}
	maps.Copy(roles, linuxRoles())
	return roles
}

func exitCode(err error, otherwise int) int {
	if errors.Is(err, ErrDetached) {
		return 0
	}
	return otherwise
}

// introduced is what a child says about itself on its first line.
type introduced struct {
	PID      int
	Identity Identity
}

func introduce() {
	id, err := Self("test")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_ = json.NewEncoder(os.Stdout).Encode(introduced{id.PID, id})
}

// victim reports every signal that can be caught, and ends with its stdin or,
// as programs do, on SIGTERM.
func victim() int {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals)
	introduce()
	ended := make(chan struct{})
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); close(ended) }()
	for {
		select {
		case s := <-signals:
			if s == syscall.SIGURG { // the Go runtime's own
				continue
			}
			fmt.Println(s)
			if s == syscall.SIGTERM {
				return 0
			}
		case <-ended:
			return 0
		}
	}
}

// deaf ends for nothing but SIGKILL.
func deaf() int {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT)
	introduce()
	time.Sleep(time.Hour)
	return 0
}

// A child is this binary in a role that introduces itself.
type child struct {
	cmd    *exec.Cmd
	id     Identity
	stdin  io.Closer
	stdout *bufio.Reader
}

func startChild(t testing.TB, role string) *child {
	t.Helper()
	c, err := launchChild(role)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.cmd.Process.Kill(); _ = c.cmd.Wait() })
	return c
}

func launchChild(role string) (*child, error) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"="+role, prompt)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &child{cmd: cmd, stdin: stdin, stdout: bufio.NewReader(stdout)}
	line, err := c.stdout.ReadBytes('\n')
	if err != nil {
		return nil, fmt.Errorf("reading the child's introduction: %w", err)
	}
	var said introduced
	if err := json.Unmarshal(line, &said); err != nil {
		return nil, err
	}
	c.id = said.Identity
	c.id.PID = said.PID
	return c, nil
}

// signals ends a victim by its stdin and returns what it received before.
func (c *child) signals() string {
	_ = c.stdin.Close()
	said, _ := io.ReadAll(c.stdout)
	return string(said)
}
