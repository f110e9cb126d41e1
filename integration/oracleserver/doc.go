// Oracleserver is a stdio MCP server that remembers what it was asked to do: the
// tests compare its memory with what interlock has recorded.
//
// With -log it appends a line "PID TOOL ID" to a file for each call before it does
// anything else with it. The write is one append without fsync: it survives the end
// of any process. With -journal it looks, at the receipt of each call, for the call's
// begin record there and appends "PID unrecorded ID" if there is none; the client
// must use the same id for the request as in its arguments.
//
// The tools differ in what their annotations say: write, read, plain (nothing),
// destroy, contradict (read-only and destructive), twice (a key given twice), shifty
// (read-only until the tool shift has been called). The arguments say what becomes of
// the call: {"id": ID, "mode": MODE, "ms": N}. Modes:
//
//	         answer after N milliseconds, or by default a random time up to -delay
//	hang     answer nothing; end when cancelled
//	late     answer as soon as it is cancelled
//	die      kill the process, as the kernel does when memory is short
//	error    answer with a JSON-RPC error
//	fail     answer with a result that is an error
package main
