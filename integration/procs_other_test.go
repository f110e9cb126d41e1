//go:build !linux

package integration

import (
	"fmt"
	"os"
	"os/exec"
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

// processesOf are the living processes that carry dir in their arguments or,
// where ps shows it, their environment.
func processesOf(dir string) (list []process) {
	out, err := exec.Command("ps", "-axwwE", "-o", "pid=,stat=,command=").Output()
	if err != nil {
		panic(err) // no ps, no answer
	}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) < 3 || strings.HasPrefix(fields[1], "Z") || !strings.Contains(line, dir) {
			continue
		}
		if pid, err := strconv.Atoi(fields[0]); err == nil && pid != os.Getpid() {
			list = append(list, process{pid, strings.Join(fields[2:], " ")})
		}
	}
	return list
}

// openFiles is how many descriptors a process has.
func openFiles(t testing.TB, pid int) int {
	t.Helper()
	out, err := exec.Command("lsof", "-p", strconv.Itoa(pid), "-F", "f").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(out), "\nf")
}

// residentPeak is the resident size that a process has now, in bytes: other
// systems than Linux do not tell its peak.
func residentPeak(t testing.TB, pid int) int64 {
	t.Helper()
	out, err := exec.Command("ps", "-o", "rss=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		t.Fatal(err)
	}
	kib, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}
