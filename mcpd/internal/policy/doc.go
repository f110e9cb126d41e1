// Package policy says what holds for a server and its tools, and why: what the
// configuration says, else what the catalogue of well-known servers says, else the
// default. It also finds out which resources a call is about.
//
// The catalogue is embedded in the program. An entry is found by the package,
// program or image that a configured command starts; each names the source of what
// it says.
package policy
