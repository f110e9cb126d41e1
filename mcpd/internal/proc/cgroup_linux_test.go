package proc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestCgroup(t *testing.T) {
	t.Parallel()
	dir := newCgroup(t)
	h := startHelper(t, HelperOptions{Cgroup: dir})
	c := start(t, h, sh(tree))
	all := pidsOfTree(t, c)
	members, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range all {
		if !slices.Contains(strings.Fields(string(members)), strconv.Itoa(pid)) {
			t.Errorf("process %d is not in the control group", pid)
		}
	}
	if slices.Contains(strings.Fields(string(members)), strconv.Itoa(h.PID())) {
		t.Error("the helper would end itself with the control group")
	}
	if err := killCgroup(dir); err != nil {
		t.Fatal(err)
	}
	awaitGone(t, all...)
	awaitDone(t, c.Done())
}

func TestCgroupThatIsNone(t *testing.T) {
	t.Parallel()
	_, err := StartHelper(t.Context(), HelperOptions{Marker: newMarker(t), Cgroup: t.TempDir()})
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// TestMakeCgroup makes a group below our own only where that was given to us.
func TestMakeCgroup(t *testing.T) {
	t.Parallel()
	parent := newCgroup(t)
	mount, own := filepath.Dir(parent), []byte("4:memory:/elsewhere\n0::/"+filepath.Base(parent)+"\n")
	want := func(dir string, own []byte) {
		t.Helper()
		got, err := makeCgroup(mount, own, "servers")
		if err != nil || got != dir {
			t.Errorf("made %q (%v), want %q", got, err, dir)
		}
	}
	want("", own)
	if err := unix.Setxattr(parent, "user.delegate", []byte("1"), 0); err != nil {
		t.Skipf("control groups take no attributes here: %v", err)
	}
	want("", []byte("4:memory:/"+filepath.Base(parent)+"\n"))
	want("", []byte("0::/../"+filepath.Base(parent)+"\n"))
	want(filepath.Join(parent, "servers"), own)
	h := startHelper(t, HelperOptions{Cgroup: filepath.Join(parent, "servers")})
	c := start(t, h, sh("cat"))
	members, err := os.ReadFile(filepath.Join(parent, "servers", "cgroup.procs"))
	if err != nil || !slices.Contains(strings.Fields(string(members)), strconv.Itoa(c.PID())) {
		t.Errorf("in the group are %q (%v), want %d", members, err, c.PID())
	}
	if err := h.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(parent, "servers")); err != nil {
		t.Errorf("the group is in use when the helper has been closed: %v", err)
	}
}

func newCgroup(t *testing.T) string {
	mount := t.TempDir()
	if err := unix.Mount("none", mount, "cgroup2", 0, ""); err != nil {
		t.Skipf("no version 2 control groups may be mounted here: %v", err)
	}
	dir := filepath.Join(mount, fmt.Sprintf("interlock-test-%d-%s", os.Getpid(), t.Name()))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(errors.Join(err, unix.Unmount(mount, 0)))
	}
	t.Cleanup(func() {
		eventually(t, "the control group is empty", func() bool { return os.Remove(dir) == nil })
		if err := unix.Unmount(mount, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}
