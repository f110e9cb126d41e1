//go:build !linux

package main

import (
	"errors"
	"time"
)

// cpuTime tells nothing where there is no /proc.
func cpuTime([]int) (time.Duration, error) { return 0, nil }

// proportional is not known where there is no /proc.
func proportional(int) (int, error) {
	return 0, errors.New("memory is measured on Linux only")
}

// onlyChild is not looked for where there is no /proc.
func onlyChild(int) (int, error) { return 0, errors.New("memory is measured on Linux only") }
