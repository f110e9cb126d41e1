package logfile

import (
	"testing/synctest"
	"time"
)

// pass lets that much of a bubble's time go by and everything due happen.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
