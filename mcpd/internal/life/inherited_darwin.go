package life

import "golang.org/x/sys/unix"

// closeInheritedOnExec makes sure that the daemon gets no descriptor but those
// it is given: one of an MCP host's pipes, kept open by a daemon, would keep the
// host waiting for its end. Darwin has no call for a range.
func closeInheritedOnExec() error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	for fd := uint64(reportDescriptor); fd < min(limit.Cur, 1<<16); fd++ {
		unix.CloseOnExec(int(fd)) // of one that is not open nothing comes
	}
	return nil
}
