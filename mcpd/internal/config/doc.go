// Package config reads the configuration file: which MCP servers the daemon
// hosts, how each may be shared and leased, and the limits it works within.
//
// The file is JSON with comments and trailing commas. Its mcpServers member is
// the one that other MCP clients use, so that an entry can be copied from them
// as it is; interlock adds optional members beside command, args, env and cwd.
//
// # Mistakes
//
// A mistake never costs more than it must. One in a server's entry takes that
// server out of service; one in a setting leaves that setting at its default;
// only a file that cannot be read as JSON serves nothing at all. Each mistake
// is a [Problem] with file, line, column, what is wrong and how to mend it.
//
// Problems are shown in status, doctor and logs, and a configuration holds
// secrets. A Problem therefore names members, variables and servers, and never
// quotes a command, an argument, an environment value or a URL.
//
// # Expansion
//
// ${VAR} and ${VAR:-default} in command, args, env values and cwd are replaced
// when a process starts, from the environment that [Server.Expand] is given,
// since one file serves sessions with different environments. ${env:VAR} means
// the same. $${VAR} stands for the text ${VAR}. Anything else with a dollar
// sign is left alone.
package config
