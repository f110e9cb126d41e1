// Package proc starts the daemon's servers and makes sure that they end.
//
// A Spawner starts one process as the leader of its own session with exactly three descriptors, and a Process is that leader and
// its process group. Child adds the pipes, the draining of stderr and the shutdown ladder that MCP asks of a stdio client.
//
// There are two spawners. Direct forks in the calling process; it serves tests and systems without the second. Helper (Linux) asks
// a small process of its own, started from the same binary image, to be the parent of every server, because only a process that
// outlives the daemon can end its servers after a SIGKILL, and because parent-death signals in a Go program fire falsely unless
// every fork comes from one thread that never ends.
//
// Guarantees:
//
//   - A process is signalled only while its number cannot belong to another: its leader has not been reaped, or a pidfd names it.
//   - When a leader ends, the rest of its group is sent SIGKILL before the leader is reaped, unless the group was released.
//   - When the daemon ends, however it ends, Helper ends every group and every descendant, released or not, daemonised or not.
//   - When the helper ends, its direct children get SIGKILL from the kernel, and the daemon ends their groups by pidfd and whatever
//     else carries its marker.
//   - When both are killed at once, the direct children end at once and EndMarked, called by the next daemon, ends the rest.
//   - Whatever a server writes to stderr, and however slow its log is, the server is never blocked by it.
//
// # Instance marker
//
// Every process started with a marker carries INTERLOCK_INSTANCE=<marker> in its environment, and so do its descendants, unless
// they clear it. FindMarked and EndMarked read it from /proc. A process that must survive its starter (a daemon started from
// inside a server, say) has to be started without the variable.
//
// # Helper protocol
//
// Messages pass over a stream socket pair. Each begins with the length of its fields (uint32), its kind (one byte) and the number of
// descriptors that travel with its first byte (one byte); then come the fields. Integers are big-endian, a string is a uint32 length
// and its bytes, a list a uint32 count and its strings. The daemon
// begins with hello, which carries the version of the protocol, and the helper answers with its own.
//
//	daemon to helper   hello      version uint32, cgroup string
//	                   spawn      id uint64, path, dir string, argv, env list; with stdin, stdout and stderr
//	                   signal     id uint64, signal uint32
//	                   release    id uint64
//	                   shutdown
//	helper to daemon   hello      version uint32
//	                   spawned    id uint64, pid uint32; with a pidfd where the kernel has one
//	                   failed     id uint64, errno uint32
//	                   exited     id uint64, wait status uint32
//
// Bytes of MCP frames never pass it.
package proc
