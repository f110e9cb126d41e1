package endpoint

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

// roleVariable makes the test binary play another process than the test, with
// its arguments.
const roleVariable = "ENDPOINT_TEST_ROLE"

func TestMain(m *testing.M) {
	role, found := roles()[os.Getenv(roleVariable)]
	if !found {
		goleak.VerifyTestMain(m)
		return
	}
	if err := role(os.Args[1:]...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func roles() map[string]func(args ...string) error {
	roles := map[string]func(args ...string) error{
		"client":    clientRole,
		"leave":     leaveRole,
		"storm":     stormRole,
		"impostor":  impostorRole,
		"acquire":   acquireRole,
		"starved":   starvedRole,
		"activated": activatedRole,
	}
	maps.Copy(roles, linuxRoles())
	return roles
}

// clientRole connects and prints all that it is sent.
func clientRole(args ...string) error {
	conn, err := net.Dial("unix", args[0])
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = io.Copy(os.Stdout, conn)
	return err
}

// leaveRole connects and ends.
func leaveRole(args ...string) error {
	_, err := net.Dial("unix", args[0])
	return err
}

// stormRole connects as often as it can until its stdin ends, and prints how
// often it succeeded.
func stormRole(args ...string) error {
	ended := make(chan struct{})
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); close(ended) }()
	fmt.Println("ready")
	connected := 0
	for {
		select {
		case <-ended:
			fmt.Println(connected)
			return nil
		default:
		}
		if conn, err := net.Dial("unix", args[0]); err == nil {
			connected++
			conn.Close()
		}
	}
}

// impostorRole serves one connection at a socket that everybody may use, and
// prints all that it is sent.
func impostorRole(args ...string) error {
	listener, err := net.Listen("unix", args[0])
	if err != nil {
		return err
	}
	if err := os.Chmod(args[0], 0o666); err != nil {
		return err
	}
	fmt.Println("ready")
	conn, err := listener.Accept()
	if err != nil {
		return err
	}
	_, err = io.Copy(os.Stdout, conn)
	if errors.Is(err, syscall.ECONNRESET) {
		return nil
	}
	return err
}

// A role is a running process of this binary.
type role struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
}

const nobody = 65534

func asNobody(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
}

// start runs a role. The changes are made to the command before; a process of
// another user needs the binary in a place that it can reach.
func start(t testing.TB, name string, args []string, changes ...func(*exec.Cmd)) *role {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), roleVariable+"="+name, "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	for _, change := range changes {
		change(cmd)
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return &role{cmd, stdin, bufio.NewReader(stdout)}
}

func (r *role) line(t testing.TB) string {
	t.Helper()
	line, err := r.stdout.ReadString('\n')
	if err != nil {
		t.Fatalf("reading from the process: %v", err)
	}
	return strings.TrimSuffix(line, "\n")
}

// rest is all that it prints until its end.
func (r *role) rest(t testing.TB) string {
	t.Helper()
	out, err := io.ReadAll(r.stdout)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Wait(); err != nil {
		t.Errorf("the process failed: %v", err)
	}
	return string(out)
}

// publicDir is a directory that everybody can enter, with this binary in it.
func publicDir(t *testing.T) (dir, binary string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("playing another user needs root")
	}
	dir, err := os.MkdirTemp("", "interlock")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	binary = filepath.Join(dir, "test")
	content, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(binary, content, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir, binary
}

func at(binary string) func(*exec.Cmd) { return func(cmd *exec.Cmd) { cmd.Path = binary } }

// shortDir is a directory like t.TempDir whose name leaves room for a socket.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "il")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func noEnv(string) string { return "" }

// place is a prepared endpoint.
func place(t testing.TB) Paths {
	t.Helper()
	p, err := Locate(noEnv, Options{Dir: filepath.Join(shortDir(t), "d")})
	if err != nil {
		t.Fatal(err)
	}
	if err := Prepare(p); err != nil {
		t.Fatal(err)
	}
	return p
}

func acquire(t testing.TB, p Paths) *Lock {
	t.Helper()
	l, err := Acquire(p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// listen is a daemon's listener, closed with the test.
func listen(t testing.TB, p Paths) *Listener {
	t.Helper()
	listener, err := Listen(p, acquire(t, p))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return listener
}

// wantCode fails unless err is an UnsafeError or PeerError with the code.
func wantCode(t testing.TB, err error, code string) {
	t.Helper()
	got := "none"
	if unsafe, ok := errors.AsType[*UnsafeError](err); ok {
		got = unsafe.Code
	} else if peer, ok := errors.AsType[*PeerError](err); ok {
		got = peer.Code
	}
	if got != code {
		t.Errorf("got %v (code %s), want code %s", err, got, code)
	}
}

func readAll(t testing.TB, r io.Reader) []byte {
	t.Helper()
	content, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return content
}
