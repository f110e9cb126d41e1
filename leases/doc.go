// Package leases holds who may change what: exclusive, time-bounded claims of
// owners on resources, each with a fencing number. It is state and order only: it
// reads no file, knows no session and no server, and its clock is handed in.
//
// # Resources
//
// A [Resource] is a name. Two resources conflict if they are equal, or if both are
// paths and one is a tree that holds the other: file:/a/b conflicts with tree:/a.
//
// # Life of a lease
//
//	                ┌─────────── a call enters ───────────┐
//	                ▼                                     │
//	granted ──► in use ──── its last call leaves ──────► idle ──► ended
//	   │           │                                      ▲  hold or TTL is over,
//	   └───────────┼──── acquired by hand ────────────────┘  released, owner gone
//	               └──── broken by hand ──► ended
//
// A lease is taken for a call ([Table.Enter]) or by hand ([Table.Acquire]). One in
// use never runs out: whoever asked for exclusive use of a resource has it until
// the call that relies on it has settled. Release, the end of the owner's session
// and the time to live therefore end a lease at once while it is idle, and when
// its last call leaves while it is not. Only [Table.Break] is faster.
//
// A lease that was taken for a call outlives it by the hold that the call asked
// for, so that work of several calls is done in one hand; each further call of the
// owner renews it. While somebody waits for it, it never lasts longer than
// Options.HoldMax in all.
//
// # Order
//
// Whoever cannot have all resources at once waits, and holds none of them
// meanwhile. Nobody overtakes an earlier waiter whose resources conflict with his,
// so the order is first come, first served, nobody starves, and waiters cannot
// lock each other. Only leases that are kept by hand while their owner waits for
// another can: whose wait would close such a circle is refused at once, be it that
// he begins to wait or that his turn has come closer ([HeldError.Deadlock]). One
// thing goes before the waiters: a call under a lease which its owner holds by
// hand, or still holds after an earlier call.
//
// An owner never excludes itself: calls of one owner run side by side, as they
// would without leases.
//
// # Epochs
//
// Every lease gets an epoch that is larger than all before it, those of earlier
// tables included as long as [Options] says so. Of two conflicting leases the later
// one has the larger epoch: whoever has seen it can refuse the other.
//
// # Time
//
// Deadlines are readings of a clock that counts suspend and ignores steps of the
// wall clock. Timers only wake the table; whatever it does, it first looks at the
// clock. Wall time is for display.
package leases
