package proc

import "errors"

// ErrHelperLost is the reason why a process ended, or could not be started, together with the spawn helper.
var ErrHelperLost = errors.New("the spawn helper ended")
