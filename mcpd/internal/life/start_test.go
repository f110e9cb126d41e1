package life

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// circumstances are what a daemon finds itself in.
type circumstances struct {
	Parent, Session, Group int
	Umask                  int
	Dir                    string
	Stdin                  string
	Args                   []string
	Open                   []string // the pipes among its descriptors beyond stderr
	Variable               string
	Identity               introduced
}

// daemonRole writes its circumstances to the FIFO that its argument names, says
// that it is ready, and serves until it is ended.
func daemonRole() int {
	notifier, err := Ready(os.Getenv)
	if err != nil {
		return exitCode(err, 1)
	}
	fmt.Println("a word on stdout")
	if err := tell(os.Args[1]); err != nil {
		notifier.Fail("", err)
		return 1
	}
	notifier.OK()
	notifier.OK() // only the first call counts
	time.Sleep(time.Minute)
	return 1
}

// hangingDaemon is never ready.
func hangingDaemon() int {
	if _, err := Ready(os.Getenv); err != nil {
		return exitCode(err, 1)
	}
	if err := tell(os.Args[1]); err != nil {
		return 1
	}
	time.Sleep(time.Minute)
	return 1
}

func tell(path string) error {
	id, err := Self("test")
	if err != nil {
		return err
	}
	found := circumstances{
		Parent: os.Getppid(), Umask: syscall.Umask(0o077), Args: os.Args,
		Variable: os.Getenv(startVariable), Identity: introduced{id.PID, id},
		Open: openPipes(),
	}
	found.Session, _ = unix.Getsid(0)
	found.Group, _ = unix.Getpgid(0)
	found.Dir, _ = os.Getwd()
	found.Stdin, _ = os.Readlink("/proc/self/fd/0")
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return json.NewEncoder(f).Encode(found)
}

func openPipes() []string {
	var open []string
	for fd := 3; fd < 64; fd++ {
		target, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
		if err == nil && strings.HasPrefix(target, "pipe:") {
			open = append(open, target)
		}
	}
	return open
}

// told is where a daemon tells its circumstances.
type told struct {
	path string
	fifo *os.File
}

func newTold(t *testing.T) told {
	t.Helper()
	path := filepath.Join(t.TempDir(), "told")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	fifo, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { fifo.Close() })
	return told{path, fifo}
}

// read returns what a daemon told, and a hold on it. The daemon ends with the
// test.
func (f told) read(t *testing.T) (circumstances, *Process) {
	t.Helper()
	if err := f.fifo.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	var found circumstances
	if err := json.NewDecoder(f.fifo).Decode(&found); err != nil {
		t.Fatal(err)
	}
	id := found.Identity.Identity
	id.PID = found.Identity.PID
	process, err := Pin(id)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = process.Signal(unix.SIGKILL)
		if err := process.Ended(context.Background()); err != nil {
			t.Error(err)
		}
		process.Close()
	})
	return found, process
}

func failingDaemon() int {
	notifier, err := Ready(os.Getenv)
	if err != nil {
		return exitCode(err, 1)
	}
	notifier.Fail("running", errors.New("no luck: "+strings.Repeat("\x01", maxReport)))
	return 1
}

func spec(t *testing.T, role string, args ...string) StartSpec {
	t.Helper()
	program, err := filepath.Abs(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	return StartSpec{
		Argv: append([]string{program}, args...),
		Env:  append(os.Environ(), roleVariable+"="+role, startVariable+"=nonsense", prompt),
		Log:  filepath.Join(t.TempDir(), "daemon.log"),
	}
}

func TestStartDetached(t *testing.T) {
	// What an MCP host left open in us must not stay open in the daemon.
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	leaked, err := unix.Dup(int(writer.Fd())) // without close-on-exec
	writer.Close()
	if err != nil {
		t.Fatal(err)
	}
	told := newTold(t)
	spec := spec(t, "daemon", told.path, "two words")
	pid, err := StartDetached(t.Context(), spec)
	unix.Close(leaked)
	if err != nil {
		t.Fatal(err)
	}
	found, _ := told.read(t)
	if pid != found.Identity.PID {
		t.Errorf("pid %d was returned, the daemon is %d", pid, found.Identity.PID)
	}
	if found.Parent == os.Getpid() {
		t.Error("the daemon is our child")
	}
	if found.Session != pid || found.Group != pid {
		t.Errorf("session %d and group %d of daemon %d are not its own", found.Session, found.Group, pid)
	}
	if found.Umask != 0o077 || found.Dir != "/" || found.Stdin != os.DevNull {
		t.Errorf("umask %03o, directory %q, stdin %q", found.Umask, found.Dir, found.Stdin)
	}
	if len(found.Args) != 3 || found.Args[2] != "two words" {
		t.Errorf("its arguments are %q", found.Args)
	}
	if len(found.Open) != 1 || found.Open[0] == pipeName(t, reader) {
		t.Errorf("it has pipes beside that of its report: %q, ours is %s", found.Open, pipeName(t, reader))
	}
	if found.Variable != "" {
		t.Errorf("%s=%s is left in its environment", startVariable, found.Variable)
	}
	if log, _ := os.ReadFile(spec.Log); string(log) != "a word on stdout\n" {
		t.Errorf("its log is %q", log)
	}
	if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); err != syscall.ECHILD {
		t.Errorf("a child of ours is left: %d, %v", pid, err)
	}
}

func pipeName(t *testing.T, f *os.File) string {
	t.Helper()
	name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	return name
}

func TestStartDetachedFails(t *testing.T) {
	start := func(spec StartSpec) *StartError {
		t.Helper()
		pid, err := StartDetached(t.Context(), spec)
		failure, ok := errors.AsType[*StartError](err)
		if !ok || pid != 0 {
			t.Fatalf("got pid %d and %v, want a StartError", pid, err)
		}
		return failure
	}
	t.Run("in its own words", func(t *testing.T) {
		failure := start(spec(t, "fails"))
		if failure.Code != "running" || !strings.HasPrefix(failure.Message, "no luck: \x01\x01") {
			t.Errorf("code %q, message %.40q", failure.Code, failure.Message)
		}
	})
	t.Run("without a word", func(t *testing.T) {
		spec := spec(t, "mute")
		if failure := start(spec); !strings.Contains(failure.Error(), spec.Log) || !strings.Contains(failure.Message, "without a word") {
			t.Errorf("the error does not name the log: %v", failure)
		}
	})
	t.Run("no program", func(t *testing.T) {
		spec := spec(t, "daemon")
		spec.Argv[0] = "/nowhere/interlock"
		if failure := start(spec); !errors.Is(failure, os.ErrNotExist) || !strings.Contains(failure.Error(), "/nowhere/interlock") {
			t.Error(failure)
		}
	})
	t.Run("not in time", func(t *testing.T) {
		told := newTold(t)
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		spec := spec(t, "hangs", told.path)
		go func() {
			_, err := StartDetached(ctx, spec)
			failed <- err
		}()
		told.read(t)
		cancel()
		if err := <-failed; !isStartError(err) || !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	t.Run("log unusable", func(t *testing.T) {
		spec := spec(t, "mute")
		victim := filepath.Join(t.TempDir(), "victim")
		if err := os.WriteFile(victim, []byte("precious"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(victim, spec.Log); err != nil {
			t.Fatal(err)
		}
		start(spec)
		if content, _ := os.ReadFile(victim); string(content) != "precious" {
			t.Errorf("the log was written through a link: %q", content)
		}
	})
}

func isStartError(err error) bool {
	_, ok := errors.AsType[*StartError](err)
	return ok
}

// A variable that strays into the environment of a daemon in the foreground
// does not make it close or write to a descriptor that is not the pipe.
func TestReadyWithoutPipe(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"=mute", startVariable+"="+stageServe)
	err := cmd.Run()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || exit.ExitCode() != 3 {
		t.Errorf("Ready accepted what is no pipe: %v", err)
	}
}
