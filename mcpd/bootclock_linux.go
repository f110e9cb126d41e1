package mcpd

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootClock reads the time since the machine was started, the time that it was
// suspended included (CLOCK_BOOTTIME, clock_gettime(2)).
func bootClock() time.Duration { return readClock(unix.CLOCK_BOOTTIME) }
