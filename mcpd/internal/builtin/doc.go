// Package builtin holds the MCP servers that the daemon answers itself: local, the file tools, and interlock, the daemon's own tools.
//
// A [Server] is shared by all sessions. Each session gets a [Session], to which one JSON-RPC frame at a time is handed and which returns the answer, in either protocol era
// (the initialize handshake, and the stateless one of 2026-07-28). No session sees another's notifications, cancellations or directory. This is the only package that imports
// mcp-go, and only its transport-free entry: frames that pass through the daemon to other servers never come here.
//
// Request ids must be integers that the caller mints. mcp-go reads ids as float64 and cancels by their printed form, so a client's own id must not reach it: the caller keeps
// it and puts it back into the answer. A panic in a tool becomes a JSON-RPC internal error for that one request.
//
// # The file tools
//
// They work in the directory that the session was opened with, held open as an [os.Root]: a path cannot leave it by "..", by an absolute name or by a symbolic link, whatever
// other processes change meanwhile. If the directory is moved the session stays with it, and every answer says so.
//
//   - Only regular files are read and written, so no call waits for a fifo or disturbs a device.
//   - Links are followed on the way to a file and, for reading, at its end, but only while they stay inside the directory;
//     a link with an absolute target counts as leading out.
//   - A write makes a new file and renames it over the name, so readers see the old content or the new and nothing is ever written through a link. A target that is a symbolic
//     link, has several hard links or is read-only is refused, because the rename would quietly break the link or evade the mode. Permission bits are kept. A crash in
//     the middle leaves at most a file named .interlock-*.tmp.
//   - Nothing is written when the directory is the user's home or contains it, unless [LocalOptions] allows it.
//   - Text is UTF-8; anything else is refused with its type and size. One call moves at most 8 MiB.
//
// Two sessions that write the same file do not corrupt it, but the last one wins; to take turns is the business of leases.
package builtin
