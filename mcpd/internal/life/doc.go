// Package life starts and stops the daemon's process, and names it so that
// nobody else's process is ever taken for it.
//
// # Identity
//
// A pid is a number that the system gives to one process after the other, to
// threads too, and that means something else in every pid namespace and after
// every boot. [Identity] holds what makes it a name. [Pin] holds on to a process
// by a descriptor (pidfd_open(2)) and only then verifies that it is the one
// meant; from there on no signal can reach another.
//
// # Start
//
// [StartDetached] starts the daemon in a session of its own, with no parent that
// anybody would end it with: the process it starts runs the same program once
// more and ends ([Detach]). The daemon says over an inherited pipe that it is
// ready, or in its own words why not. The pipe carries one JSON object and a
// newline: {"pid": N} or {"pid": N, "error": "text"}.
//
// # Stop
//
// [Stop] asks, then sends SIGTERM, then SIGKILL, each with a bound and only to
// the process verified. The stop marker, the file daemon.stopped in the
// daemon's directory, says that a user ended the daemon, and so that it has not
// crashed. Whoever starts it again takes the marker away.
package life
