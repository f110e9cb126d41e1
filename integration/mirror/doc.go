// Mirror is a stdio MCP server that answers each tool call with what it has
// understood of it, as JSON: the tool's name and the argument path. It reads as
// programs in Go do, with encoding/json into structs; mirror.mjs does the same in
// JavaScript. The two differ in what they make of odd spellings.
package main
