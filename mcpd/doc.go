// Package mcpd is the daemon: one process per user and directory that many MCP
// clients share over one Unix socket.
//
// # Life of a call
//
// A connection's peer is checked before a byte is read. Its first frame opens a
// session: an interlock/hello names the server, or configuration does. From then
// on the connection's reader goroutine takes frame after frame:
//
//  1. The frame is scanned, strictly and once. What is not a message is answered
//     with an error; the session lives.
//  2. Cancellations, pings and answers to questions of the server go straight on.
//  3. A request is registered in the session, so that a cancellation can never
//     miss it.
//  4. A tool call has its class found: from the configuration, the catalogue, else
//     from the server's list of tools, for which a call that is not on it yet waits.
//  5. If it changes something it gets leases on that. One that has to wait for them
//     steps aside; others go past it.
//  6. It takes its permits, or stands in its session's line for them.
//  7. If it may change something, its begin record is written before it is sent.
//  8. Its id and progress token are replaced with a small integer of the
//     process's own, everything else stays as it came, byte for byte, and it is
//     written to the server.
//  9. The server's answer is found by that integer, the call's end is recorded,
//     and the answer gets the client's id back and is written to the client; leases
//     and permits are free again.
//
// A call that need not wait, neither for leases or permits nor for the disk, passes
// steps 1 to 8 on the connection's reader and step 9 on the reader of the server's
// standard output. One that waits goes on from there on a goroutine of its own, on
// that of its session's line, or on the one that brings the list of tools.
//
// # Goroutines
//
//	accept             one a daemon, ends with its listener
//	watch              one a daemon: looks whether its files are still its own
//	service manager    three a daemon: watchdog, reload, the note that it ends
//	connection         one a connection: reads frames, then takes the session down
//	half close         one a connection whose input has ended and is still answered
//	line               one a session while calls of it wait
//	waiter             one a call while it waits for leases
//	instance           one a running server: starts it, reads its output, ends it
//	queue writer       one a connection or server while output waits for a slow reader
//	drain              one a connection while the daemon ends
//
// Daemon.Run returns when all of them have ended, but for those of the service
// manager, which Serve waits for.
//
// # Locks
//
// upstream.mu → instance.mu → turn.mu → the table's of leases; classes.mu → the
// session's; and Daemon.mu → the status writer's. The session's mutex, the table's
// and those of the queues are leaves. None is held over I/O that may block,
// a wait or a callback.
package mcpd
