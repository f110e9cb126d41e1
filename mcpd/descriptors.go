package mcpd

import (
	"fmt"

	"golang.org/x/sys/unix"

	"interlock/mcpd/internal/config"
)

const (
	// ownDescriptors are those that the daemon keeps for itself: its files, its
	// logs, its helper, the pipes of servers that are starting, and whoever asks
	// for its status or to stop it.
	ownDescriptors = 48
	// sessionDescriptors are those of a session: its connection, the pipes of its
	// server, and the hold on the server's process.
	sessionDescriptors = 5
)

// openFiles is how many descriptors this process may have.
func openFiles() (uint64, error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("asking how many files may be open: %w", err)
	}
	return limit.Cur, nil
}

// fitDescriptors lowers the limits to what so many descriptors allow. A daemon
// that ran out of them could not even be stopped: a client too many must be told
// so, and not be left unaccepted.
func fitDescriptors(l config.Limits, files uint64) config.Limits {
	if files > 1<<20 {
		return l
	}
	n := int(files)
	l.PendingConnections = max(1, min(l.PendingConnections, n/8))
	l.Sessions = max(1, min(l.Sessions, (n-ownDescriptors-l.PendingConnections)/sessionDescriptors))
	return l
}
