package endpoint

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"interlock/mcpd/internal/endpoint/private"
)

func linuxRoles() map[string]func(args ...string) error {
	return map[string]func(args ...string) error{
		"confined": confinedRole,
		"check":    checkRole,
		"prepare":  prepareRole,
	}
}

// limitDescriptors has the process start with little room.
func limitDescriptors(cmd *exec.Cmd) {
	cmd.Args = append([]string{"prlimit", "--nofile=48:48", cmd.Path}, cmd.Args[1:]...)
	cmd.Path = mustLook("prlimit")
}

func mustLook(name string) string {
	path, err := exec.LookPath(name)
	if err != nil {
		panic(err)
	}
	return path
}

// confinedRole is a client that gives up rights first.
func confinedRole(args ...string) error {
	switch args[1] {
	case "no_new_privs":
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return err
		}
	case "seccomp":
		if err := allowEverything(); err != nil {
			return err
		}
	}
	return clientRole(args[0])
}

// allowEverything puts all threads under a filter that filters nothing.
func allowEverything() error {
	filter := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return errno
	}
	return nil
}

// checkRole is a daemon that prints what it makes of one peer.
func checkRole(args ...string) error {
	p, err := Locate(noEnv, Options{Dir: args[0]})
	if err != nil {
		return err
	}
	if err := Prepare(p); err != nil {
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
	defer listener.Close()
	check, err := NewPeerCheck(Policy{})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	conn, err := listener.Accept()
	if err != nil {
		return err
	}
	_, _, err = check.Check(conn)
	refused, _ := errors.AsType[*PeerError](err)
	if refused == nil {
		fmt.Println("accepted", err)
	} else {
		fmt.Println(refused.Code, refused.Own)
	}
	return nil
}

// prepareRole prints with which code Prepare and NewPeerCheck refuse.
func prepareRole(args ...string) error {
	p, err := Locate(noEnv, Options{Dir: args[0]})
	if err != nil {
		return err
	}
	_, checkErr := NewPeerCheck(Policy{})
	for _, err := range []error{Prepare(p), checkErr} {
		refused, _ := errors.AsType[*UnsafeError](err)
		if refused == nil {
			return fmt.Errorf("not refused: %w", err)
		}
		fmt.Println(refused.Code)
	}
	return nil
}

// peerOf starts a role that connects and checks it.
func peerOf(t *testing.T, listener *Listener, policy Policy, name string, args []string, changes ...func(*exec.Cmd)) (*role, *net.UnixConn, []Note, error) {
	t.Helper()
	check, err := NewPeerCheck(policy)
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, name, append([]string{listener.paths.Socket}, args...), changes...)
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	peer, notes, err := check.Check(conn)
	if err == nil && (peer.PID != int32(r.cmd.Process.Pid) || peer.UID != uint32(os.Geteuid())) {
		t.Errorf("the peer is %+v, the process %d", peer, r.cmd.Process.Pid)
	}
	return r, conn, notes, err
}

func TestCheckPeer(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("confining a process without no_new_privs needs root")
	}
	listener := listen(t, place(t))
	under := func(command ...string) func(*exec.Cmd) {
		return func(cmd *exec.Cmd) {
			cmd.Args = append(append(command, cmd.Path), cmd.Args[1:]...)
			cmd.Path = mustLook(command[0])
		}
	}
	for _, test := range []struct {
		name    string
		policy  Policy
		confine string
		change  func(*exec.Cmd)
		code    string // of the refusal
		note    string
	}{
		{"like us", Policy{}, "", nil, "", ""},
		{"no_new_privs", Policy{}, "no_new_privs", nil, CodePeerSandboxed, ""},
		{"seccomp", Policy{}, "seccomp", nil, CodePeerSandboxed, ""},
		{"no_new_privs, allowed", Policy{AllowSandboxed: true}, "no_new_privs", nil, "", ""},
		{"seccomp, allowed", Policy{AllowSandboxed: true}, "seccomp", nil, "", ""},
		{"mount namespace", Policy{}, "", under("unshare", "--mount"), "", CodePeerMount},
		{"pid namespace below", Policy{}, "", under("unshare", "--pid", "--fork"), CodePeerNamespace, ""},
		{"mount namespace and seccomp", Policy{}, "seccomp", under("unshare", "--mount"), CodePeerSandboxed, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			var changes []func(*exec.Cmd)
			if test.change != nil {
				changes = append(changes, test.change)
			}
			r, conn, notes, err := peerOf(t, listener, test.policy, "confined", []string{test.confine}, changes...)
			if test.code == "" && err != nil {
				t.Errorf("refused: %v", err)
			} else if test.code != "" {
				wantCode(t, err, test.code)
				if refused, _ := errors.AsType[*PeerError](err); refused != nil && (!refused.Own || refused.Remedy == "") {
					t.Errorf("our own user is not told what to do: %+v", refused)
				}
			}
			if test.note == "" && len(notes) > 0 || test.note != "" && (len(notes) != 1 || notes[0].Code != test.note) {
				t.Errorf("notes %+v, want %q", notes, test.note)
			}
			conn.Close()
			r.rest(t)
		})
	}
}

func TestCheckPeerEnded(t *testing.T) {
	listener := listen(t, place(t))
	check, err := NewPeerCheck(Policy{})
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, "leave", []string{listener.paths.Socket})
	r.rest(t)
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _, err = check.Check(conn)
	wantCode(t, err, CodePeerEnded)
}

// Another user who found a way in, because somebody opened directory and socket,
// is told apart before a byte is read, and told nothing.
func TestCheckPeerForeign(t *testing.T) {
	dir, binary := publicDir(t)
	p := Paths{Dir: dir, Socket: filepath.Join(dir, "interlock.sock"), Lock: filepath.Join(dir, "daemon.lock")}
	listener := listen(t, p)
	if err := os.Chmod(p.Socket, 0o666); err != nil {
		t.Fatal(err)
	}
	r, conn, _, err := peerOf(t, listener, Policy{AllowSandboxed: true}, "client", nil, asNobody, at(binary))
	wantCode(t, err, CodePeerForeign)
	refused, _ := errors.AsType[*PeerError](err)
	if refused == nil || refused.Own || refused.UID != nobody || refused.PID != int32(r.cmd.Process.Pid) {
		t.Errorf("refused is %+v", refused)
	}
	conn.Close()
	if got := r.rest(t); got != "" {
		t.Errorf("the stranger was told %q", got)
	}
}

func unshare(t *testing.T, flags ...string) func(*exec.Cmd) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("namespaces need root")
	}
	if out, err := exec.Command("unshare", append(flags, "true")...).CombinedOutput(); err != nil {
		t.Skipf("this namespace cannot be made here: %v: %s", err, out)
	}
	return func(cmd *exec.Cmd) {
		cmd.Args = append(append([]string{"unshare"}, flags...), append([]string{cmd.Path}, cmd.Args[1:]...)...)
		cmd.Path = mustLook("unshare")
	}
}

// mapping runs a process in a user namespace in which one outside uid has an
// inside one, and nobody else has any.
func mapping(inside, outside int) func(*exec.Cmd) {
	return func(cmd *exec.Cmd) {
		one := []syscall.SysProcIDMap{{ContainerID: inside, HostID: outside, Size: 1}}
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags: syscall.CLONE_NEWUSER, UidMappings: one, GidMappings: one,
			Credential: &syscall.Credential{Uid: uint32(inside), Gid: uint32(inside)},
		}
	}
}

// A uid that stands for everybody outside the user namespace is nobody's own:
// unmapped, or mapped to the very number that the kernel shows for strangers.
func TestAmbiguousUserIsRefused(t *testing.T) {
	dir, binary := publicDir(t)
	for name, inside := range map[string]func(*exec.Cmd){
		"unmapped": unshare(t, "--user"),
		"nobody":   mapping(nobody, 1000),
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, "prepare", []string{filepath.Join(dir, "d")}, at(binary), inside)
			if got := r.rest(t); got != private.CodeIdentity+"\n"+private.CodeIdentity+"\n" {
				t.Errorf("refused with %q", got)
			}
		})
	}
}

// A daemon inside a namespace refuses peers outside of it.
func TestPeerOutsideIsRefused(t *testing.T) {
	base, binary := publicDir(t)
	for _, test := range []struct {
		name   string
		inside func(*exec.Cmd)
		want   string
	}{
		{"pid namespace", unshare(t, "--pid", "--fork", "--mount-proc"), CodePeerNamespace + " true"},
		{"user namespace", mapping(0, 1000), CodePeerForeign + " false"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := filepath.Join(base, test.name)
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if test.name == "user namespace" {
				if err := os.Chown(dir, 1000, 1000); err != nil {
					t.Fatal(err)
				}
			}
			r := start(t, "check", []string{filepath.Join(dir, "d")}, at(binary), test.inside)
			r.line(t)
			conn, err := net.Dial("unix", filepath.Join(dir, "d", "interlock.sock"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if got := r.line(t); got != test.want {
				t.Errorf("the daemon says %q, want %q", got, test.want)
			}
			r.rest(t)
		})
	}
}

func BenchmarkCheckPeer(b *testing.B) {
	p := place(b)
	listener := listen(b, p)
	conn, err := Dial(b.Context(), p)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	peer, err := listener.Accept()
	if err != nil {
		b.Fatal(err)
	}
	defer peer.Close()
	check, err := NewPeerCheck(Policy{})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, _, err := check.Check(peer); err != nil {
			b.Fatal(err)
		}
	}
}
