// Fakeserver is a stdio MCP server that misbehaves on request. The tests run
// it directly and behind interlock, and compare.
//
// Its flags say how it behaves as a process: what it prints before its first
// message, how it meets server/discover, ping, an early request or the end of
// its input. Its tools say how it behaves in a call: the name of the tool is
// the behaviour, the arguments are its measure. See [behaviours] for all of
// them.
//
// With -log it appends a line to a file for whatever happens to it, each
// beginning with its process id: "start", "in" and the line received,
// "cancel" and the key of the call that was meant, "eof".
package main
