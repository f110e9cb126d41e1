package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// Helper exists on Linux only; see StartHelper.
type Helper struct{}

// StartHelper returns an error that is errors.ErrUnsupported: macOS has no subreaper. Use Direct.
func StartHelper(context.Context, HelperOptions) (*Helper, error) {
	return nil, fmt.Errorf("starting the spawn helper: %w", errors.ErrUnsupported)
}

// Spawn implements Spawner and always fails.
func (*Helper) Spawn(_ context.Context, s Spec, _ [3]*os.File) (Process, error) {
	return nil, s.failed(errors.ErrUnsupported)
}

// Close does nothing.
func (*Helper) Close(context.Context) error { return nil }

// HelperMain says that there is no spawn helper here, and returns 2.
func HelperMain() int {
	fmt.Fprintln(os.Stderr, "interlock: there is no spawn helper on this system")
	return 2
}

// MakeCgroup returns "": this system has no control groups.
func MakeCgroup(string) (dir string, err error) { return "", nil }
