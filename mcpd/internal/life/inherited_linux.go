package life

import "golang.org/x/sys/unix"

// closeInheritedOnExec makes sure that the daemon gets no descriptor but those
// it is given: one of an MCP host's pipes, kept open by a daemon, would keep the
// host waiting for its end.
func closeInheritedOnExec() error {
	return unix.CloseRange(reportDescriptor, 1<<32-1, unix.CLOSE_RANGE_CLOEXEC)
}
