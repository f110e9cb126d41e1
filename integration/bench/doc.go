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
// Each client has one call under way at a time, of a tool that gives back its
// text. For every set-up, number of clients and size it prints the median over
// the rounds of calls a second, p50 and p99, and the processor time that the
// processes in between used for a call, then the ratios of socket to relay and
// of connect to bridge, and the memory of each process in between.
//
//	go run ./integration/bench [flags]
//
// The tool says of itself that it only reads; with -recorded it says nothing, so
// that interlock records every call. Processor time and memory come from /proc.
package main
