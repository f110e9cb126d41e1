package proc

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// The test binary is also the spawn helper, and whatever process a test needs beside itself.
func TestMain(m *testing.M) {
	if IsHelper(os.Args) {
		os.Exit(HelperMain())
	}
	if len(os.Args) > 2 && os.Args[1] == "role" {
		os.Exit(runRole(os.Args[2], os.Args[3:]))
	}
	goleak.VerifyTestMain(m)
}

// testBound is how long anything that should be at once may take on a loaded machine.
const testBound = 20 * time.Second

// sh is a server made of a shell script. It leads its group as a server does.
func sh(script string) Spec {
	return Spec{Name: "test", Path: "/bin/sh", Args: []string{"sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: "/"}
}

// newMarker returns a marker of this test alone, and ends what still carries it when the test is over.
func newMarker(t testing.TB) string {
	marker := fmt.Sprintf("test-%d-%d", os.Getpid(), time.Now().UnixNano())
	t.Cleanup(func() { cleanUp(t, marker) })
	return marker
}

func start(t testing.TB, sp Spawner, s Spec) *Child {
	t.Helper()
	c, err := Start(t.Context(), sp, s, discard{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(context.Background(), Graces{}); err != nil {
			t.Error(err)
		}
		c.Stdout().Close()
	})
	return c
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// lines reads the lines of a server's stdout.
type lines struct {
	t testing.TB
	r *bufio.Reader
}

func linesOf(t testing.TB, f *os.File) *lines {
	if err := f.SetReadDeadline(time.Now().Add(testBound)); err != nil {
		t.Fatal(err)
	}
	return &lines{t: t, r: bufio.NewReader(f)}
}

func (l *lines) next() string {
	l.t.Helper()
	s, err := l.r.ReadString('\n')
	if err != nil {
		l.t.Fatalf("reading a line of the server: %v (got %q)", err, s)
	}
	return strings.TrimSuffix(s, "\n")
}

func (l *lines) pid() int {
	l.t.Helper()
	s := l.next()
	pid, err := strconv.Atoi(s)
	if err != nil {
		l.t.Fatalf("the server was to say a pid and said %q", s)
	}
	return pid
}

func awaitDone(t testing.TB, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(testBound):
		t.Fatal("not done in time")
	}
}

// eventually polls until ok, for things that give no event.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(testBound)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
		// poll(2) on nothing: the wait between two looks.
		_, _ = unix.Poll(nil, 5)
	}
}

// gone says whether the process has ended; a zombie has.
func gone(pid int) bool { return syscall.Kill(pid, 0) == syscall.ESRCH || isDead(pid) }

func awaitGone(t testing.TB, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		eventually(t, fmt.Sprintf("process %d has ended", pid), func() bool { return gone(pid) })
	}
}
