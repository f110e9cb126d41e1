// Bench measures what interlock costs a call, beside the least that anything in
// its place could cost. One run interleaves all set-ups, round by round, so that
// what else the machine does falls on all of them alike:
//
//	echo    a client at a Unix socket whose other end sends its lines back
//	direct  a client that runs the server itself: what interlock replaces
//	relay   a client at a Unix socket, from which a bare relay copies bytes to a server of the client's own
//	bridge  the same through a process that copies between its stdio and that socket
//	socket  a client at interlock's socket
//	connect a client through `interlock connect`
//
// The relay and its servers run in sessions of their own (setsid(2)), as interlock's
// daemon and servers do. Under Linux's autogroup scheduling (sched(7)) a session is
// a scheduling group of its own, and what one costs must fall on both sides of a
// ratio; with -plain the relay and its servers stay in the session of the benchmark,
// which is cheaper where that scheduling is on. A client's direct servers are in the
// client's session, as always.
//
// Each client has one call under way at a time, of a tool that gives back its
// text. For every set-up, number of clients and size it prints the median over
// the rounds of calls a second, p50 and p99, and the processor time that the
// processes in between used for a call, then the ratios of socket to relay and
// of connect to bridge. Last comes the memory of each process in between, when
// nobody has called for as long as -settle says: the daemon gives memory back after
// a while without calls.
//
//	go run ./integration/bench [flags]
//
// The tool says of itself that it only reads; with -recorded it says nothing, so
// that interlock records every call. Processor time and memory come from /proc.
package main
