// Package wire is the byte level of the daemon: it finds message boundaries in
// a stream, finds out what a message says without decoding it, edits it in
// place of re-encoding it, and writes it without ever blocking the writer.
//
// # Frames
//
// A frame is one JSON-RPC message on one line, as MCP's stdio transport has it
// (newline-delimited, UTF-8). [Reader] cuts a stream into frames, tolerates a
// byte order mark at the start, CRLF and blank lines, holds no memory while
// the stream is idle, and stays in step after a line that it has to discard.
// Memory beyond 64 KiB a frame is charged to an [Account] of a [Budget].
//
// # Envelopes
//
// [Scan] validates a whole frame against RFC 8259 and RFC 3629 in one pass
// that allocates nothing, and records where the members are that the daemon
// routes by. It refuses every spelling of those members that two parsers could
// read differently: duplicates, other letter case, escapes in keys. What
// passes therefore means the same to the daemon and to the other side.
// Everything else in a frame is opaque and is forwarded as the bytes it was.
//
// # Splicing
//
// A frame on its way through changes in a few places only: ids, tokens, a
// name, members of the daemon's own. [Splice] replaces those ranges and copies
// the rest.
//
// # Queues
//
// [Queue] is the outbound side of a stream. Send hands a frame to the kernel
// on the caller's goroutine where the kernel takes it, and queues the rest, up
// to a bound. Frames never interleave, and the queue can tell for each frame
// whether its first byte may have left the process.
package wire
