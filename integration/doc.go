// Package integration tests interlock as its users meet it: the real binary,
// real MCP servers and clients, and a server that misbehaves on request.
//
// Its central test is a comparison. Whatever a client sees when it runs a
// server itself, it must see through interlock too, by the bridge and by the
// socket: the same bytes, but for the ids that are each session's own. What
// interlock adds (isolation, refusals, restarts, limits) is tested beside it.
//
// # Running
//
// The servers and the TypeScript client come from npm and need Node 20; they
// are installed with
//
//	npm ci --prefix integration/npm
//
// and the tests fail, naming that command, when they are missing. Then
//
//	go test ./integration
//
// builds the binary, with the race detector if the tests have it, and the
// programs below this directory. Flags after -args:
//
//	-ways direct,bridge,socket   the ways from a client to a server that are tested; with
//	                             direct alone the tests test themselves, without interlock
//	-calls 10000                 how many calls the isolation load makes
//	-interlock PATH              the binary to test, instead of one built from this module
//	-long                        the long forms: a line of 1 GiB instead of 100 MiB
//	-soak 20m                    how long the soak lasts
//
// With INTERLOCK_FULL=1 in the environment tests that repeat something do so as often
// as it takes to be sure, rather than to notice: hundreds of kills for tens.
//
//	INTERLOCK_FULL=1 go test -timeout 30m -run 'Killed|SentTwice|Recorded|Leaves|Deadline|Cancel|Torn' ./integration
//	INTERLOCK_FULL=1 go test -timeout 2h -run 'TestLife|TestSoak' ./integration
//	INTERLOCK_FULL=1 go test -timeout 1h -run 'Lease|LostUpdates|Transactions|Greedy|Stopped|KnownServers' ./integration
//
// The benchmark is a program, integration/bench. What recording adds to a call is
// measured here, since it needs the oracle, and so is what a lease adds to that:
//
//	go test -run '^$' -bench 'RecordedCall|LeasedCall' -benchtime 20000x ./integration
//
// # The record
//
// The tests of recovery_*_test.go kill, fill, damage and cut off, and then compare what
// the daemon has on record with what an independent server remembers:
// integration/oracleserver, whose reader of the journal shares no code with its writer.
//
// # Leases
//
// The tests of lease*_test.go have several clients at one file by way of
// integration/ledgerserver, a server that loses work when two of its processes are
// at it, and keeps a log by which that is seen. integration/mirror answers with what
// it has understood of a call, in Go and in JavaScript.
//
// # What every test leaves
//
// Every test has a directory of its own, which all processes that come from it
// carry in their arguments or environment. When it ends, no such process may be
// left, and the daemon, while it ran, may have kept no descriptors of closed
// sessions.
package integration
