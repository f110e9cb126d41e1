package proc

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// MakeCgroup makes a control group for HelperOptions.Cgroup, with a name that must be unlike any other's, below this process's own. The
// caller removes the directory when the helper has been closed. It is empty where our own group is not ours to divide: only one that
// systemd has marked as such (Delegate=yes) is.
func MakeCgroup(name string) (dir string, err error) {
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", fmt.Errorf("finding our own control group: %w", err)
	}
	return makeCgroup("/sys/fs/cgroup", own, name)
}

// makeCgroup is MakeCgroup for the hierarchy at mount and the content of /proc/self/cgroup.
func makeCgroup(mount string, own []byte, name string) (string, error) {
	for line := range bytes.Lines(own) {
		group, found := bytes.CutPrefix(bytes.TrimSuffix(line, []byte("\n")), []byte("0::"))
		if !found {
			continue // of a version 1 hierarchy
		}
		if path.Clean(string(group)) != string(group) {
			return "", nil // outside of what this process sees: cgroup_namespaces(7)
		}
		parent := filepath.Join(mount, string(group))
		var mark [2]byte
		if n, err := unix.Getxattr(parent, "user.delegate", mark[:]); err != nil || string(mark[:n]) != "1" {
			return "", nil
		}
		// Whoever starts a process in another group needs this one of the group above them both: cgroups(7).
		if unix.Access(filepath.Join(parent, "cgroup.procs"), unix.W_OK) != nil {
			return "", nil
		}
		dir := filepath.Join(parent, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			return "", fmt.Errorf("making a control group for the servers: %w", err)
		}
		if unix.Access(filepath.Join(dir, "cgroup.kill"), unix.W_OK) != nil { // before Linux 5.14
			return "", os.Remove(dir)
		}
		return dir, nil
	}
	return "", nil
}
