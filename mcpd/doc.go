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
//  4. It takes its permits, or stands in its session's line for them.
//  5. Its id and progress token are replaced with a small integer of the
//     process's own, everything else stays as it came, byte for byte, and it is
//     written to the server.
//  6. The server's answer is found by that integer, gets the client's id back,
//     and is written to the client; the permits are free again.
//
// Steps 1 to 5 run on the connection's reader and step 6 on the reader of the
// server's standard output; no other goroutine touches a call that need not wait.
//
// # Goroutines
//
//	accept             one a daemon, ends with its listener
//	connection         one a connection: reads frames, then takes the session down
//	line               one a session while calls of it wait for permits
//	instance           one a running server: starts it, reads its output, ends it
//	queue writer       one a connection or server while output waits for a slow reader
//
// Daemon.Run returns when all of them have ended.
//
// # Locks
//
// upstream.mu → instance.mu; the session's mutex and those of the queues are
// leaves. None is held over I/O, a wait or a callback.
package mcpd
