// Command interlock lets many MCP clients share one daemon, and through it
// their MCP servers.
//
// It turns its arguments into one call and one exit code; what the calls do is
// in package mcpd. Standard output carries what was asked for (for connect:
// protocol frames only), standard error everything else.
package main
