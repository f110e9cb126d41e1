package mcpd

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// descriptors returns how many descriptors a process has open and how many it may.
func descriptors(pid int) (used, limit uint64, ok bool) {
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return 0, 0, false
	}
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pid))
	if err != nil {
		return 0, 0, false
	}
	for line := range strings.Lines(string(limits)) {
		rest, found := strings.CutPrefix(line, "Max open files")
		if fields := strings.Fields(rest); found && len(fields) > 0 {
			limit, err = strconv.ParseUint(fields[0], 10, 64)
			return uint64(len(open)), limit, err == nil
		}
	}
	return 0, 0, false
}

// isRemote reports whether a file system is on another machine; statfs(2) has
// the numbers.
func isRemote(st *unix.Statfs_t) bool {
	switch uint32(st.Type) {
	case unix.NFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.AFS_SUPER_MAGIC, unix.CEPH_SUPER_MAGIC:
		return true
	}
	return false
}
