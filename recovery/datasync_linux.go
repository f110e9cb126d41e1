package recovery

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// datasync is fdatasync: the segment keeps its size, so its metadata can wait.
func datasync(f *os.File) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var serr error
	err = conn.Control(func(fd uintptr) {
		for {
			if serr = unix.Fdatasync(int(fd)); serr != unix.EINTR {
				return
			}
		}
	})
	if err == nil && serr != nil {
		err = fmt.Errorf("syncing %q: %w", f.Name(), serr)
	}
	return err
}
