package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of processor time in /proc, fixed by the kernel's interface.
const tick = time.Second / 100

// cpuTime is the processor time that processes have used so far, their
// children's not counted (proc_pid_stat(5)).
func cpuTime(pids []int) (sum time.Duration, err error) {
	for _, pid := range pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return 0, err
		}
		_, rest, _ := strings.Cut(string(stat), ") ") // past the name, which may have spaces
		fields := strings.Fields(rest)
		for _, field := range fields[11:13] { // utime, stime
			n, err := strconv.Atoi(field)
			if err != nil {
				return 0, err
			}
			sum += time.Duration(n) * tick
		}
	}
	return sum, nil
}

// proportional is the proportional set size of a process, in KiB.
func proportional(pid int) (int, error) {
	rollup, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(rollup)) {
		if kib, ok := strings.CutPrefix(line, "Pss:"); ok {
			return strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(kib), " kB"))
		}
	}
	return 0, fmt.Errorf("process %d tells no proportional set size", pid)
}

// onlyChild is the one child that a process has.
func onlyChild(pid int) (int, error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		return 0, err
	}
	var children []string
	for _, thread := range threads {
		list, err := os.ReadFile(thread)
		if err != nil {
			return 0, err
		}
		children = append(children, strings.Fields(string(list))...)
	}
	if len(children) != 1 {
		return 0, fmt.Errorf("process %d has the children %v, not one", pid, children)
	}
	return strconv.Atoi(children[0])
}
