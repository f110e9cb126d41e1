// Package logfile writes and reads the daemon's logs.
//
// A log is a file that only its user can read, bounded by rotation: when a
// write would take it beyond its limit it is renamed to PATH.1, PATH.1 to
// PATH.2 and so on, and the oldest is removed. Writing to a log never stops
// or fails the work that is logged: what cannot be written is dropped and
// counted.
//
// The daemon's own log is JSON, one object a line ([NewLogger]). A server's log
// is its standard error, line by line behind the time ([LineWriter]), with a
// bound on the length of a line and on bytes per second. Contents are untrusted:
// whoever shows them on a terminal escapes them first.
package logfile
