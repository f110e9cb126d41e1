package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Command is what to start for a server, with every expansion made.
type Command struct {
	// Program is the program as configured: a path, or a name to look up.
	Program string
	Args    []string
	// Env are the variables of the entry, to be set over those inherited.
	Env map[string]string
	// Dir is the working directory of the entry, empty if it names none.
	Dir string
}

// Expand returns the server's command with the values that lookup has for its
// variables. A variable that is not set and has no default is an error, a
// *Problem of [CodeVariable] that names all such variables and the place of
// the first. As in Claude Code, a default stands for a variable that is not
// set, not for one that is empty.
func (s Server) Expand(lookup func(name string) (string, bool)) (Command, error) {
	e := expander{server: s, lookup: lookup}
	cmd := Command{Program: e.expand("command", s.Command), Dir: e.expand("cwd", s.Dir)}
	for i, arg := range s.Args {
		cmd.Args = append(cmd.Args, e.expand(fmt.Sprintf("args[%d]", i), arg))
	}
	if s.Env != nil {
		cmd.Env = make(map[string]string, len(s.Env))
	}
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		cmd.Env[name] = e.expand("env."+name, s.Env[name])
	}
	if len(e.unset) > 0 {
		return Command{}, e.problem()
	}
	return cmd, nil
}

// expander makes the expansions of one server and collects what is missing.
type expander struct {
	server Server
	lookup func(string) (string, bool)
	unset  []string // variables, in the order met
	place  position // of the first of them
}

// expand replaces the variables in the text of a field.
func (e *expander) expand(field, text string) string {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, "${")
		if !found {
			out.WriteString(text)
			return out.String()
		}
		if literal, ok := strings.CutSuffix(before, "$"); ok {
			out.WriteString(literal + "${")
			text = rest
			continue
		}
		out.WriteString(before)
		inner, after, closed := strings.Cut(rest, "}")
		name, def, hasDefault := strings.Cut(strings.TrimPrefix(inner, "env:"), ":-")
		if !closed || !isVariable(name) {
			out.WriteString("${")
			text = rest
			continue
		}
		out.WriteString(e.value(field, name, def, hasDefault))
		text = after
	}
}

// value returns the value of a variable, its default, or notes it as unset.
func (e *expander) value(field, name, def string, hasDefault bool) string {
	if value, ok := e.lookup(name); ok {
		return value
	}
	if !hasDefault && !slices.Contains(e.unset, name) {
		if len(e.unset) == 0 {
			e.place = e.server.at[field]
		}
		e.unset = append(e.unset, name)
	}
	return def
}

// problem names the variables that are not set.
func (e *expander) problem() *Problem {
	p := &Problem{
		Code: CodeVariable, File: e.server.file, Line: e.place.line, Col: e.place.col, Server: e.server.Name,
		Message: "the environment of the session does not set " + strings.Join(e.unset, ", "),
		Remedy:  fmt.Sprintf("set it where the client is started, or write a default: ${%s:-…}", e.unset[0]),
	}
	if p.Line == 0 {
		p.Line, p.Col = e.server.Line, 1
	}
	if instead, ok := editorVariable(e.unset[0]); ok {
		p.Remedy = fmt.Sprintf("%s is a variable of an editor: write %s instead", e.unset[0], instead)
	}
	return p
}

// editorVariable returns what stands for a variable that only editors set.
func editorVariable(name string) (instead string, ok bool) {
	switch name {
	case "workspaceFolder", "workspaceRoot":
		return "${CLAUDE_PROJECT_DIR:-.}", true
	case "userHome":
		return "${HOME}", true
	case "workspaceFolderBasename":
		return "the name of the directory", true
	case "pathSeparator":
		return "/", true
	}
	return "", false
}

// isVariable reports whether name can be that of an environment variable: a
// letter or underscore, then letters, digits and underscores.
func isVariable(name string) bool {
	for i, c := range []byte(name) {
		letter := c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}
