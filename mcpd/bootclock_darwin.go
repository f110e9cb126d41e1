package mcpd

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootClock reads the time since some moment, the time that the machine was asleep
// included (CLOCK_MONOTONIC of macOS, clock_gettime(3)).
func bootClock() time.Duration { return readClock(unix.CLOCK_MONOTONIC) }
