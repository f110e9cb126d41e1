// Package session holds what one client's MCP session is: who owns it, which
// of its calls are in flight, whose turn it is, and which questions of its
// servers the client still has to answer. It is state and order only: it opens
// no descriptor, reads no frame and knows no server.
//
// # Calls
//
// A call is registered with [Session.Begin] before anything else happens to it,
// so that a cancellation can never miss it. It then passes these states, each
// transition under the session's mutex:
//
//	begun ──► aside ──► waiting ──► running ──► settled
//	   └────────┴──────────┴───────────┴──► cancelled (the client's id is free again at once)
//
// Aside stands a call that waits for something else than permits: for a lease, or to
// become known as one that needs none. Most go past both kinds of waiting.
//
// A cancelled call that was running keeps its permits until it settles: the
// server may still be at work on it.
//
// # Turns
//
// A call runs only with a permit of its session and one of the whole registry,
// taken in that order. A call for which both are free, and before which nobody
// of its session waits, is forwarded on the goroutine that submits it. All
// others stand in their session's line. One goroutine a session, alive only
// while somebody stands in the line, waits for permits on behalf of the first
// in it. A session so has at most one waiter at the registry's semaphore, which
// is first-in-first-out: the sessions take turns, however many calls each has.
// Calls leave in the order in which they were submitted. A call has one deadline for
// all of its waiting.
//
// # Ids
//
// JSON-RPC ids are opaque. The caller gives each call a key under which two
// spellings of one id are equal, and 1, "1" and 9007199254740993 are three.
package session
