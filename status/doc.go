// Package status is what a daemon says about itself: a versioned snapshot, the
// findings that go with it, and the text and JSON in which both are shown.
//
// # The status file
//
// A [Writer] keeps daemon.json beside the socket. The file is replaced whole,
// by rename, so that a reader sees one snapshot or another and never a mix; it
// has mode 0600 and at most [MaxBytes]. It is absent after a clean stop, and
// left behind, naming a process that is gone, after a crash. It is a hint: what
// the daemon answers over its socket is the truth.
//
// [Read] ignores members that it does not know and refuses another major
// version, so that a program can read the file of an older or a newer daemon.
// The schemas in docs/schema describe the same JSON.
//
// # Secrets
//
// A snapshot has no place for command lines, environment, URLs or arguments of
// calls. Text that came from clients and servers is clipped when a snapshot is
// encoded, and escaped when it is shown: see [EscapeLine] and [EscapeText].
//
// # Dependencies
//
// The package imports no other package of the module and nothing that opens a
// connection, so that anything may use it to read a status.
package status
