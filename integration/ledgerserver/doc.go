// Ledgerserver is a stdio MCP server that loses work if two of its processes are at
// it at the same time, as servers do that keep their state in a file: it reads, thinks
// and writes. With -log it appends "PID begin TOOL PATH" and "PID end TOOL PATH" to a
// file around each call that changes something, each in one write, so that the order
// of lines is the order of what happened.
//
// The tools, whose argument path names a file:
//
//	add      read the number in the file, wait {"ms": N}, write it back plus one
//	peek     read the number
//	begin    open a transaction on the file; an error while another process has one open
//	put      add one under an open transaction, or alone if there is none
//	commit   end the transaction
//	hang     answer nothing, ever
//	late     answer when cancelled
//	ask      ask the client something (elicitation), and answer when it does
package main
