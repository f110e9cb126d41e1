package private

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// ambiguous reports whether uid is the kernel's overflow uid in a user
// namespace that leaves some uids unmapped. Such a uid names no one: every
// user outside the namespace is shown as it, see user_namespaces(7).
func ambiguous(uid uint32) (bool, error) {
	overflow, err := overflowUID()
	if err != nil {
		return false, err
	}
	if uid != overflow {
		return false, nil
	}
	content, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return false, fmt.Errorf("reading the uid map: %w", err)
	}
	return !mapsAll(string(content)), nil
}

func overflowUID() (uint32, error) {
	content, err := os.ReadFile("/proc/sys/kernel/overflowuid")
	if os.IsNotExist(err) || os.IsPermission(err) {
		return 65534, nil // the kernel's default, where /proc is hidden
	}
	if err != nil {
		return 0, fmt.Errorf("reading the overflow uid: %w", err)
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(content)), 10, 32)
	if err != nil {
		return 0, fmt.Errorf("reading the overflow uid: %w", err)
	}
	return uint32(n), nil
}

// mapsAll reports whether the extents of a uid_map cover every valid uid,
// which are all 32-bit numbers but the last.
func mapsAll(uidMap string) bool {
	var mapped uint64
	for line := range strings.Lines(uidMap) {
		fields := strings.Fields(line) // inside, outside, length; extents never overlap
		if len(fields) != 3 {
			continue
		}
		length, err := strconv.ParseUint(fields[2], 10, 64)
		if err != nil {
			return false
		}
		mapped += length
	}
	return mapped >= 1<<32-1
}
