package life

import (
	"errors"
	"fmt"
)

var (
	// ErrGone is what an error is when the process has ended. A zombie has.
	ErrGone = errors.New("the process has ended")

	// ErrNotSame is what an error is when the pid belongs to something else:
	// another process, a thread, or a process that cannot be told from one.
	ErrNotSame = errors.New("the pid belongs to another process")
)

func notSame(id Identity, format string, args ...any) error {
	return fmt.Errorf("pid %d: %w: %s", id.PID, ErrNotSame, fmt.Sprintf(format, args...))
}

func gone(id Identity) error { return fmt.Errorf("pid %d: %w", id.PID, ErrGone) }

// checkWorld makes sure that the pid of id means anything here, before it is
// looked up: every boot gives the numbers anew, and so does every namespace.
func checkWorld(id Identity) error {
	if id.PID <= 0 {
		return notSame(id, "no valid pid was recorded")
	}
	boot, err := bootID()
	if err != nil {
		return err
	}
	if id.BootID != boot {
		return notSame(id, "it was recorded under another boot, or on another host")
	}
	namespace, err := pidNamespace()
	if err != nil {
		return err
	}
	if id.PIDNamespace != namespace {
		return notSame(id, "it was recorded in another pid namespace, for example in a container")
	}
	return nil
}
