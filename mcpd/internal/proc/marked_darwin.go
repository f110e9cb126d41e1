package proc

import (
	"context"
	"errors"
)

// FindMarked returns errors.ErrUnsupported: macOS shows the environment of processes to nobody who could rely on it.
func FindMarked(string) ([]Marked, error) { return nil, errors.ErrUnsupported }

// EndMarked returns errors.ErrUnsupported, as FindMarked does.
func EndMarked(context.Context, string, func(pid int) bool) ([]int, error) {
	return nil, errors.ErrUnsupported
}

// Stopped returns false: nothing shows it cheaply here.
func Stopped(int) bool { return false }

// Zombies returns none, as FindMarked does.
func Zombies(int) []int { return nil }
