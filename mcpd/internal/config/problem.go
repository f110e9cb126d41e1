package config

import (
	"fmt"
	"strings"
)

// Code names a kind of mistake. Codes are stable: scripts and the findings of
// status and doctor use them.
type Code string

// The codes of problems with a configuration.
const (
	CodeMissing        Code = "config_missing"       // the file named by --config does not exist
	CodeUnreadable     Code = "config_unreadable"    // the file cannot be read
	CodeWritable       Code = "config_writable"      // other users can write the file
	CodeSyntax         Code = "config_syntax"        // not JSON with comments
	CodeType           Code = "config_type"          // a value of the wrong type or outside its choices
	CodeRange          Code = "config_range"         // a number, time or size outside its bounds
	CodeDuplicate      Code = "config_duplicate"     // a member given twice
	CodeUnknownField   Code = "config_unknown_field" // a member nobody is known to use
	CodeFieldIgnored   Code = "config_field_ignored" // a member of another client that would have had an effect there
	CodeWrongKey       Code = "config_wrong_key"     // servers under another member than mcpServers
	CodeNoServers      Code = "config_no_servers"    // a file that names no server
	CodeUnknownServer  Code = "config_unknown_server"
	CodeHTTP           Code = "http_unsupported"
	CodeCommandMissing Code = "command_missing"
	CodeCommandHasArgs Code = "command_has_args"
	CodeCommandAndURL  Code = "command_and_url"
	CodeNested         Code = "nested_interlock"
	CodeNameInvalid    Code = "name_invalid"
	CodeNameReserved   Code = "name_reserved"
	CodeVariable       Code = "variable_unset"       // found when a process is about to start
	CodeExpansion      Code = "variable_unsupported" // an expansion that only an editor can make
)

// Codes lists every code of a [Problem].
func Codes() []Code {
	return []Code{
		CodeMissing, CodeUnreadable, CodeWritable, CodeSyntax, CodeType, CodeRange, CodeDuplicate,
		CodeUnknownField, CodeFieldIgnored, CodeWrongKey, CodeNoServers, CodeUnknownServer,
		CodeHTTP, CodeCommandMissing, CodeCommandHasArgs, CodeCommandAndURL, CodeNested,
		CodeNameInvalid, CodeNameReserved, CodeVariable, CodeExpansion,
	}
}

// Problem is one mistake in a configuration. It quotes no secret: see the
// package documentation.
type Problem struct {
	Code Code
	// File is the path of the configuration file.
	File string
	// Line and Col, counted from 1, say where; Col counts characters. Both are
	// 0 when the problem is with the file as a whole.
	Line, Col int
	// Server names the entry concerned, empty for a problem outside entries.
	Server string
	// Note is true when the problem changes nothing: no server is out of
	// service and no setting fell back to its default because of it.
	Note bool
	// Message says what is wrong; Remedy says what to do about it.
	Message, Remedy string

	cause error
}

// Unwrap returns the error beneath, nil where there is none.
func (p *Problem) Unwrap() error { return p.cause }

// Error returns the place, the server, the mistake and its remedy on one line.
func (p *Problem) Error() string {
	var b strings.Builder
	b.WriteString(p.Place())
	if p.Server != "" {
		fmt.Fprintf(&b, ": server %q", p.Server)
	}
	b.WriteString(": " + p.Message)
	if p.Remedy != "" {
		b.WriteString("; " + p.Remedy)
	}
	return b.String()
}

// Place returns file:line:col, or the file alone where there is no line.
func (p *Problem) Place() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Col)
}
