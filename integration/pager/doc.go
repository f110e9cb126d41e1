// Pager is a stdio MCP server on the official Go SDK whose lists come in short
// pages. It speaks every protocol revision that the SDK does, with the
// handshake and without.
package main
