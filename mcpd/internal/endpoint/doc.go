// Package endpoint is the place where a daemon and its clients meet: one
// private directory, one lock, one Unix socket, and the check of who is on the
// other side.
//
// # Guarantees
//
//   - One daemon. The lock on daemon.lock, held for the daemon's life, is the
//     only truth about who is the daemon; a connect that fails proves nothing.
//     The lock file is never removed.
//   - Only our own. The directory is ours alone (mode 0700), the socket is born
//     with mode 0600, and a stale socket is removed only by the holder of the
//     lock. What is not a socket of ours is refused and left alone. At exit the
//     socket is unlinked only while the path still leads to our own inode.
//   - Same user only. Both sides ask the kernel who the other is before a byte
//     is read or sent. What cannot be read is refused, never assumed.
//
// # Files
//
// The directory is $INTERLOCK_DIR, else interlock in $XDG_STATE_HOME, else
// ~/.local/state/interlock: it must outlive a logout, which the runtime
// directory does not. [Paths] lists what lies in it.
package endpoint
