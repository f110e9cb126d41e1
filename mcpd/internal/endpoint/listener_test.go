package endpoint

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestListenNeedsTheLock(t *testing.T) {
	p, other := place(t), place(t)
	if _, err := Listen(p, nil); err == nil {
		t.Error("it listens without a lock")
	}
	if _, err := Listen(p, acquire(t, other)); err == nil {
		t.Error("it listens under the lock of another directory")
	}
	if _, err := os.Lstat(p.Socket); !os.IsNotExist(err) {
		t.Errorf("a socket was made: %v", err)
	}
}

func TestListenReplacesStale(t *testing.T) {
	p := place(t)
	lock := acquire(t, p)
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: p.Socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false) // as the end of a process does
	stale.Close()
	if _, err := Dial(t.Context(), p); !errors.Is(err, ErrAbsent) {
		t.Fatalf("dialling a stale socket gave %v", err)
	}
	listener, err := Listen(p, lock)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := Dial(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(p.Socket); !os.IsNotExist(err) {
		t.Errorf("the socket is left behind: %v", err)
	}
	if err := listener.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("closing again gave %v", err)
	}
}

// Whoever else may look into the directory never gets a connection, whatever
// the umask.
func TestSocketIsBornPrivate(t *testing.T) {
	dir, binary := publicDir(t)
	socket := filepath.Join(dir, "interlock.sock")
	p := Paths{Dir: dir, Socket: socket, Lock: filepath.Join(dir, "daemon.lock")}
	lock := acquire(t, p)
	for _, umask := range []int{0, 0o002, 0o022, 0o077} {
		t.Run(fmt.Sprintf("umask %03o", umask), func(t *testing.T) {
			defer syscall.Umask(syscall.Umask(umask))
			storm := start(t, "storm", []string{socket}, asNobody, at(binary))
			storm.line(t)
			for range 300 {
				listener, err := Listen(p, lock)
				if err != nil {
					t.Fatal(err)
				}
				if mode := modeOf(socket); mode != os.ModeSocket|0o600 {
					t.Fatalf("the socket has mode %v", mode)
				}
				if err := listener.Close(); err != nil {
					t.Fatal(err)
				}
			}
			storm.stdin.Close()
			if got := storm.line(t); got != "0" {
				t.Errorf("another user connected %s times", got)
			}
		})
	}
}

// An umask that takes our own access away is reported, not served.
func TestUmaskTooStrict(t *testing.T) {
	p := place(t)
	lock := acquire(t, p)
	defer syscall.Umask(syscall.Umask(0o277))
	_, err := Listen(p, lock)
	wantCode(t, err, CodeOccupied)
}

func TestCloseSparesAnothersSocket(t *testing.T) {
	p := place(t)
	ours := listen(t, p)
	for range 20 { // file systems like to give an inode number again at once
		if err := os.Remove(p.Socket); err != nil {
			t.Fatal(err)
		}
		theirs, err := net.Listen("unix", p.Socket)
		if err != nil {
			t.Fatal(err)
		}
		theirs.(*net.UnixListener).SetUnlinkOnClose(false)
		defer theirs.Close()
		if err := ours.Check(); !errors.Is(err, ErrLost) {
			t.Fatalf("Check gave %v", err)
		}
	}
	if err := ours.Close(); err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("unix", p.Socket)
	if err != nil {
		t.Fatalf("the other socket is gone: %v", err)
	}
	conn.Close()
}

func TestCheck(t *testing.T) {
	replace := func(path string) error {
		if err := os.Remove(path); err != nil {
			return err
		}
		return os.WriteFile(path, nil, 0o600)
	}
	for _, test := range []struct {
		name string
		harm func(p Paths) error
		lost func(p Paths) string // empty: it is still ours
	}{
		{"nothing", func(Paths) error { return nil }, nil},
		{"mode of the socket", func(p Paths) error { return os.Chmod(p.Socket, 0o666) }, nil},
		{"new file beside", func(p Paths) error { return os.WriteFile(p.Status, nil, 0o600) }, nil},
		{"socket removed", func(p Paths) error { return os.Remove(p.Socket) }, func(p Paths) string { return p.Socket }},
		{"socket replaced", func(p Paths) error { return replace(p.Socket) }, func(p Paths) string { return p.Socket }},
		{"lock removed", func(p Paths) error { return os.Remove(p.Lock) }, func(p Paths) string { return p.Lock }},
		{"lock replaced", func(p Paths) error { return replace(p.Lock) }, func(p Paths) string { return p.Lock }},
		{"directory removed", func(p Paths) error { return os.RemoveAll(p.Dir) }, func(p Paths) string { return p.Dir }},
		{"directory moved", func(p Paths) error { return os.Rename(p.Dir, p.Dir+"2") }, func(p Paths) string { return p.Dir }},
		{"directory replaced", func(p Paths) error {
			if err := os.RemoveAll(p.Dir); err != nil {
				return err
			}
			return Prepare(p)
		}, func(p Paths) string { return p.Dir }},
		{"directory is a file", func(p Paths) error {
			if err := os.RemoveAll(p.Dir); err != nil {
				return err
			}
			return os.WriteFile(p.Dir, nil, 0o600)
		}, func(p Paths) string { return p.Dir }},
		{"parent is a file", func(p Paths) error {
			if err := os.RemoveAll(filepath.Dir(p.Dir)); err != nil {
				return err
			}
			return os.WriteFile(filepath.Dir(p.Dir), nil, 0o600)
		}, func(p Paths) string { return p.Dir }},
		{"link to where it was moved", func(p Paths) error {
			if err := os.Rename(p.Dir, p.Dir+"2"); err != nil {
				return err
			}
			return os.Symlink(p.Dir+"2", p.Dir)
		}, func(p Paths) string { return p.Dir }},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := place(t)
			listener := listen(t, p)
			if err := test.harm(p); err != nil {
				t.Fatal(err)
			}
			err := listener.Check()
			if test.lost == nil {
				if err != nil {
					t.Errorf("Check gave %v", err)
				}
				return
			}
			lost, ok := errors.AsType[*LostError](err)
			if !ok || !errors.Is(err, ErrLost) || lost.Path != test.lost(p) {
				t.Errorf("Check gave %v, want the loss of %s", err, test.lost(p))
			}
		})
	}
}

// An error that says nothing about the files is no loss.
func TestCheckTransient(t *testing.T) {
	p := place(t)
	listener := listen(t, p)
	listener.paths.Lock = string(make([]byte, 5000)) // EINVAL, or ENAMETOOLONG
	if err := listener.Check(); err == nil || errors.Is(err, ErrLost) {
		t.Errorf("Check gave %v", err)
	}
}

func TestAcceptEndsWithClose(t *testing.T) {
	listener := listen(t, place(t))
	ended := make(chan error, 1)
	go func() {
		_, err := listener.Accept()
		ended <- err
	}()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept gave %v", err)
	}
}

// starvedStalls is how often the starved daemon's Accept fails before it gets
// its descriptors back.
const starvedStalls = 6

// starvedRole is a daemon out of descriptors: it prints how many milliseconds
// its failures took, then gets the descriptors back, prints that it accepts, and
// at the end that Close ended a pause.
func starvedRole(args ...string) error {
	p, err := Locate(noEnv, Options{Dir: args[0]})
	if err != nil {
		return err
	}
	lock, err := Acquire(p)
	if err != nil {
		return err
	}
	listener, err := Listen(p, lock)
	if err != nil {
		return err
	}
	conn, err := Dial(bg, p)
	if err != nil {
		return err
	}
	defer conn.Close()
	release := starve()
	accepted := make(chan error, 1)
	go func() {
		_, err := listener.Accept()
		accepted <- err
	}()
	began := time.Now()
	for listener.Stalls() < starvedStalls {
		time.Sleep(time.Millisecond)
	}
	fmt.Println(time.Since(began).Milliseconds())
	release()
	if err := <-accepted; err != nil {
		return err
	}
	fmt.Println("accepted")

	another, err := Dial(bg, p)
	if err != nil {
		return err
	}
	defer another.Close()
	starve()
	before := listener.Stalls()
	go func() {
		_, err := listener.Accept()
		accepted <- err
	}()
	for listener.Stalls() == before {
		time.Sleep(time.Millisecond)
	}
	if err := listener.Close(); err != nil {
		return err
	}
	if err := <-accepted; !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("after Close: %w", err)
	}
	fmt.Println("closed")
	return nil
}

// starve takes all descriptors until the function that it returns is called.
func starve() func() {
	var taken []int
	for {
		fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return func() {
				for _, fd := range taken {
					unix.Close(fd)
				}
			}
		}
		taken = append(taken, fd)
	}
}

func TestAcceptBacksOff(t *testing.T) {
	p := place(t)
	r := start(t, "starved", []string{p.Dir}, limitDescriptors)
	took, err := strconv.Atoi(r.line(t))
	if err != nil {
		t.Fatal(err)
	}
	// The pauses are 155 ms in all; the clock may have started within the first.
	if took < 100 {
		t.Errorf("%d failing accepts within %d ms", starvedStalls, took)
	}
	for _, want := range []string{"accepted", "closed"} {
		if got := r.line(t); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
	r.rest(t)
}
