//go:build failpoint

package recovery

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// passed counts how often the chosen failpoint was reached in this process.
var passed atomic.Int64

// fp kills the process if INTERLOCK_FAILPOINT names this point, as "OP FILE" or
// "OP FILE#N" for the N-th time it is reached. A rename goes by the
// name that the file gets, anything else by the one that it was opened with.
func fp(op, name string) {
	point, nth, counted := strings.Cut(os.Getenv("INTERLOCK_FAILPOINT"), "#")
	if point == "" || point != op+" "+filepath.Base(name) {
		return
	}
	if counted {
		if n, err := strconv.ParseInt(nth, 10, 64); err != nil || passed.Add(1) != n {
			return
		}
	}
	// A process can always kill itself; nothing after this runs.
	_ = unix.Kill(os.Getpid(), unix.SIGKILL)
	select {}
}
