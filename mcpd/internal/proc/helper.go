package proc

import (
	"errors"

	"go.uber.org/zap"
)

// helperArg is the argument that makes the binary a spawn helper.
const helperArg = "__spawn-helper"

var (
	// ErrHelperLost is why a process ended, or may have run for a moment only, together with its spawn helper.
	ErrHelperLost = errors.New("the spawn helper ended")
	// ErrHelperClosed is the Err of the *SpawnError after Helper.Close.
	ErrHelperClosed = errors.New("the spawn helper is shut down")
)

// HelperOptions configure StartHelper.
type HelperOptions struct {
	// Marker is the instance marker of the helper and of every process that it starts. It must not be empty, and must be unlike
	// that of any other daemon.
	Marker string
	// Cgroup is the directory of a version 2 control group that is ours alone. Processes are started in it, and it is killed as a
	// whole when they are all to end. Empty means none.
	Cgroup string
	// Log receives the loss and the restart of the helper; nil means no log.
	Log *zap.Logger
	// OnLost is called, if not nil, when a helper was lost, after all its processes have been ended and their Done closed, and
	// before the next helper starts. No lock is held.
	OnLost func(error)
}

// IsHelper says whether argv is that of a spawn helper. Such a process must do nothing but call HelperMain and exit with its result.
func IsHelper(argv []string) bool { return len(argv) == 2 && argv[1] == helperArg }
