package proc

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// tree is a server of four processes: a leader, its child, and a daemonised grandchild with a child. The pids of all but the leader
// are said, in any order. They read nothing and heed no SIGTERM.
const tree = `trap '' TERM HUP
(setsid sh -c 'trap "" TERM; echo $$; sleep 1000 & echo $!; wait' &)
sleep 1000 & echo $!
wait`

const treeSize = 4

// runRole is the main function of the processes that the tests need beside themselves. It returns their exit status.
func runRole(role string, args []string) int {
	run := map[string]func([]string) error{"daemon": daemonRole, "hostile": hostileRole, "init": initRole}[role]
	if run == nil {
		return 2
	}
	if err := run(args); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// daemonRole is a daemon with the marker args[0] and args[1] trees. It says the pid of its helper and those of the trees, in each
// the leader first, and stays.
func daemonRole(args []string) error {
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	h, err := StartHelper(context.Background(), HelperOptions{Marker: args[0]})
	if err != nil {
		return err
	}
	fmt.Println(h.PID())
	for range n {
		c, err := Start(context.Background(), h, sh(tree), io.Discard)
		if err != nil {
			return err
		}
		c.Process().Release() // which shields it from nothing when the daemon ends
		fmt.Println(c.PID())
		out := bufio.NewReader(c.Stdout())
		for range treeSize - 1 {
			pid, err := out.ReadString('\n')
			if err != nil {
				return err
			}
			fmt.Print(pid)
		}
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// hostileRole becomes a daemon that was started with signals blocked and ignored, and with a descriptor that it knows nothing of. Its helper spawns one process with the marker
// args[0], whose pid it says.
func hostileRole(args []string) error {
	runtime.LockOSThread()
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGTSTP, syscall.SIGUSR1, syscall.SIGPIPE, syscall.SIGCHLD)
	var all unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^all.Val[i]
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, nil); err != nil {
		return err
	}
	if len(args) == 1 { // a new image, to which all of this is handed down
		if _, err := unix.Dup(1); err != nil { // not closed on exec
			return err
		}
		return syscall.Exec("/proc/self/exe", append(os.Args, "again"), os.Environ())
	}
	h, err := StartHelper(context.Background(), HelperOptions{Marker: args[0]})
	if err != nil {
		return err
	}
	c, err := Start(context.Background(), h, sh("echo ready; read x; exec sleep 1000"), io.Discard)
	if err != nil {
		return err
	}
	if _, err := io.ReadFull(c.Stdout(), make([]byte, len("ready\n"))); err != nil {
		return err
	}
	fmt.Println(c.PID())
	_, err = io.Copy(io.Discard, os.Stdin)
	return errors.Join(err, h.Close(context.Background()))
}

// initRole is a daemon that is pid 1 of a pid namespace. It fails if a zombie stays, or a process after the helper's end.
func initRole(args []string) error {
	if os.Getpid() != 1 {
		return fmt.Errorf("this is process %d, not 1", os.Getpid())
	}
	h, err := StartHelper(context.Background(), HelperOptions{Marker: args[0]})
	if err != nil {
		return err
	}
	for range 20 {
		c, err := Start(context.Background(), h, sh("i=0; while [ $i -lt 20 ]; do (true &); i=$((i+1)); done; (setsid sleep 1000 &); exit 3"), io.Discard)
		if err != nil {
			return err
		}
		<-c.Done()
		if status := c.Process().Status(); status.ExitStatus() != 3 {
			return fmt.Errorf("status %#x, want exit status 3", status)
		}
	}
	deadline := time.Now().Add(testBound)
	for {
		z := zombies()
		if len(z) == 0 {
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("zombies stay: %v", z)
		}
		_, _ = unix.Poll(nil, 5)
	}
	if err := h.Close(context.Background()); err != nil {
		return err
	}
	if left := pids(); len(left) != 1 {
		return fmt.Errorf("processes left after Close: %v", left)
	}
	fmt.Println("clean")
	return nil
}

// zombies lists the zombies that we can see, but those of a program that is about to be reaped by its own parent.
func zombies() []string {
	var z []string
	for _, pid := range pids() {
		if s, err := readStat(pid); err == nil && s.state == 'Z' {
			z = append(z, strings.Join([]string{strconv.Itoa(pid), s.comm, strconv.Itoa(s.ppid)}, " "))
		}
	}
	return z
}
