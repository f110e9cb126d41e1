package mcpd

import "sync/atomic"

// counters count events of one daemon's life.
type counters struct {
	accepted        atomic.Uint64 // connections
	refusedPeers    atomic.Uint64 // connections closed for who opened them
	refusedSessions atomic.Uint64 // clients told that they get no session
	refusedBusy     atomic.Uint64 // requests told that a limit is reached
	refusedLeases   atomic.Uint64 // calls told that they cannot have their leases
	calls           atomic.Uint64 // requests taken from clients
	parseErrors     atomic.Uint64 // lines, of clients or servers, that were no message
	strayFrames     atomic.Uint64 // messages that answer or name nothing in flight
	droppedFrames   atomic.Uint64 // messages too large or too slow
	spawned         atomic.Uint64 // processes started
	exited          atomic.Uint64 // processes that ended by themselves
	panics          atomic.Uint64 // faults caught
}
