package proc

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// stat holds what we read of /proc/PID/stat.
type stat struct {
	comm  string
	state byte
	ppid  int
	start uint64 // in clock ticks since boot; with the pid it names a process
}

func readStat(pid int) (stat, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, err
	}
	// The name is in parentheses and may hold any byte, parentheses and spaces too.
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 0 || end < open {
		return stat{}, fmt.Errorf("/proc/%d/stat has no process name", pid)
	}
	fields := strings.Fields(string(b[end+1:])) // from the third field, the state, on
	if len(fields) < 20 {
		return stat{}, fmt.Errorf("/proc/%d/stat has %d fields too few", pid, 20-len(fields))
	}
	s := stat{comm: string(b[open+1 : end]), state: fields[0][0]}
	if s.ppid, err = strconv.Atoi(fields[1]); err != nil {
		return stat{}, fmt.Errorf("reading /proc/%d/stat: %w", pid, err)
	}
	if s.start, err = strconv.ParseUint(fields[19], 10, 64); err != nil {
		return stat{}, fmt.Errorf("reading /proc/%d/stat: %w", pid, err)
	}
	return s, nil
}

// pids returns the numbers of all processes, none where /proc is missing.
func pids() []int {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil
	}
	var all []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			all = append(all, pid)
		}
	}
	return all
}

// childrenOf returns the children of this process, whose pid is given, ended ones too. Children that were forked by its main thread,
// and those that were adopted, are listed under that thread; a kernel without these lists is asked for every process's parent.
func childrenOf(pid int) []int {
	list, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return childrenByParent(pid)
	}
	var children []int
	for _, f := range strings.Fields(string(list)) {
		if child, err := strconv.Atoi(f); err == nil {
			children = append(children, child)
		}
	}
	return children
}

func childrenByParent(pid int) []int {
	var children []int
	for _, child := range pids() {
		if s, err := readStat(child); err == nil && s.ppid == pid {
			children = append(children, child)
		}
	}
	return children
}
