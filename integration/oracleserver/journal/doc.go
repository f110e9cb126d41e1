// Package journal reads a daemon's journal, daemon.journal, by its description
// alone: the documentation of package recovery. It shares no code with what writes
// it, so that the tests notice when the two differ.
//
// It reads intact frames from the start of the segment to the first place that is
// none, and judges nothing.
package journal
