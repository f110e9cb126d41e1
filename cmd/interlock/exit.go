package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"interlock/mcpd"
	"interlock/status"
)

// exitCode is what the process ends with. docs/cli.md has the same table.
type exitCode int

const (
	exitOK          exitCode = 0
	exitFailure     exitCode = 1   // anything without a code of its own
	exitUsage       exitCode = 2   // the command line is wrong
	exitNotRunning  exitCode = 3   // there is no daemon
	exitNotVerified exitCode = 4   // a process was not signalled: it is not certainly the daemon
	exitRefused     exitCode = 5   // the daemon refused, and says why
	exitDaemonEnded exitCode = 6   // the daemon ended a session
	exitPending     exitCode = 7   // the ids to acknowledge are not exactly the pending ones
	exitUnhealthy   exitCode = 8   // doctor found a failure
	exitInterrupted exitCode = 130 // by a signal; what runs until one comes (connect, daemon serve, -f, --watch) ends with 0
)

// usageError is a mistake in the command line.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// verdict is an exit code whose reason has been printed as the answer.
type verdict exitCode

func (v verdict) Error() string { return fmt.Sprintf("exit code %d", int(v)) }

// codeOf is the table from errors to exit codes.
func codeOf(err error) exitCode {
	var said verdict
	var usage *usageError
	var set *mcpd.SetError
	var remote *mcpd.RemoteError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &said):
		return exitCode(said)
	case errors.As(err, &usage):
		return exitUsage
	case errors.Is(err, mcpd.ErrNotRunning):
		return exitNotRunning
	case errors.Is(err, mcpd.ErrNotVerified):
		return exitNotVerified
	case errors.Is(err, mcpd.ErrDaemonEnded):
		return exitDaemonEnded
	case errors.As(err, &set):
		return exitPending
	case errors.As(err, &remote):
		return exitRefused
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	default:
		return exitFailure
	}
}

// report says what went wrong and returns the exit code.
func report(w io.Writer, err error) int {
	var said verdict
	if err != nil && !errors.As(err, &said) {
		fmt.Fprintf(w, "interlock: %s\n", status.EscapeText(err.Error()))
	}
	return int(codeOf(err))
}
