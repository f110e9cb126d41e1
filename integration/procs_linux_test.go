package integration

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// process is one of a rig's.
type process struct {
	pid     int
	command string
}

func (p process) String() string { return fmt.Sprintf("%d (%s)", p.pid, p.command) }

// processesOf are the living processes that carry dir in their arguments or
// their environment, this one left out.
func processesOf(dir string) (list []process) {
	entries, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		panic(err) // only a bad pattern fails
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(filepath.Base(entry))
		if err != nil || pid == os.Getpid() {
			continue
		}
		arguments, _ := os.ReadFile(entry + "/cmdline") // gone, or another user's: not ours
		environment, _ := os.ReadFile(entry + "/environ")
		if bytes.Contains(arguments, []byte(dir)) || bytes.Contains(environment, []byte(dir)) {
			list = append(list, process{pid, strings.TrimSpace(string(bytes.ReplaceAll(arguments, []byte{0}, []byte{' '})))})
		}
	}
	return list
}

// openFiles is how many descriptors a process has.
func openFiles(t testing.TB, pid int) int {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// residentPeak is the largest resident size a process has had, in bytes.
func residentPeak(t testing.TB, pid int) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if kib, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(kib), " kB"), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n << 10
		}
	}
	t.Fatalf("process %d tells no resident size", pid)
	return 0
}
