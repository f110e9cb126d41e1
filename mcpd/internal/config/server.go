package config

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tailscale/hujson"
)

// maxNameBytes bounds the name of a server.
const maxNameBytes = 128

// ourFields are the members that interlock itself understands in an entry.
func ourFields() []string {
	return []string{
		"command", "args", "env", "cwd", "builtin", "url", "type", "disabled", "enabled", "scope", "instances", "state",
		"mutations", "annotations", "guard", "tools", "maxRequests", "leaseHold", "passEnv", "passEpoch",
	}
}

// entry is a server while its members are read.
type entry struct {
	Server
	kind     string       // the member type, in lower case
	kindAt   hujson.Value // and its place
	urlAt    hujson.Value
	disabled bool // by the member disabled or enabled
}

// readServer reads the entry called by key.
func (d *decoder) readServer(key, v hujson.Value) Server {
	e := entry{Server: Server{
		Name: d.server,
		Line: d.doc.position(key.StartOffset).line,
		file: d.doc.file,
		at:   make(map[string]position),
	}}
	d.checkName(key)
	if isNull(v) {
		d.fail(v, CodeType, "the entry is null", `write {"command": …}, or delete the entry`)
	}
	for m := range d.members(v, "the entry") {
		d.readMember(&e, m)
	}
	e.Disabled = e.disabled
	if e.Disabled { // what is not to run cannot be out of service
		d.problems = slices.DeleteFunc(d.problems, func(p Problem) bool { return !p.Note })
		return e.Server
	}
	if d.failed() == nil {
		d.checkKind(key, &e)
	}
	e.Problem = d.failed()
	return e.Server
}

// checkName refuses a name that could not be shown or used as a key.
func (d *decoder) checkName(key hujson.Value) {
	switch name := d.server; {
	case strings.TrimSpace(name) == "":
		d.fail(key, CodeNameInvalid, "the name is empty", "give the server a name")
	case len(name) > maxNameBytes:
		d.server = clip(name)
		d.fail(key, CodeNameInvalid, fmt.Sprintf("the name has %d bytes, and %d are allowed", len(name), maxNameBytes), "shorten it")
	case hasControl(name):
		d.fail(key, CodeNameInvalid, "the name has a control character in it", "delete it")
	}
}

// readMember reads one member of an entry.
func (d *decoder) readMember(e *entry, m member) {
	v := m.value
	switch m.name {
	case "command":
		d.readCommand(e, v)
	case "args":
		e.Args = list(d, v, "args", func(v hujson.Value, what string) string {
			return d.expandable(e, what, v, d.scalar(v, what))
		})
	case "env":
		d.readEnv(e, v)
	case "cwd":
		e.Dir = d.expandable(e, "cwd", v, d.text(v, "cwd"))
	case "builtin":
		e.Builtin = choice(d, v, "builtin", BuiltinLocal, BuiltinInterlock)
	case "url", "serverUrl", "httpUrl", "baseUrl":
		if url := strings.TrimSpace(d.text(v, m.name)); url != "" {
			e.URL, e.urlAt = url, v
		}
	case "type", "transportType":
		e.kind, e.kindAt = strings.ToLower(d.text(v, m.name)), v
	case "disabled":
		e.disabled = e.disabled || d.flag(v, "disabled")
	case "enabled":
		e.disabled = e.disabled || !isNull(v) && !d.flag(v, "enabled")
	default:
		if !d.readPolicy(&e.Server, m) {
			d.readForeign(m)
		}
	}
}

// readPolicy reads the members that say how the server is shared and leased.
func (d *decoder) readPolicy(s *Server, m member) bool {
	v := m.value
	switch m.name {
	case "scope":
		s.Scope = choice(d, v, m.name, ScopeSession, ScopeProject, ScopeUser)
	case "instances":
		s.Instances = choice(d, v, m.name, InstancesOne, InstancesMany)
	case "state":
		s.State = choice(d, v, m.name, StateShared, StatePrivate)
	case "mutations":
		s.Mutations = choice(d, v, m.name, MutationsAuto, MutationsExplicit, MutationsOff)
	case "annotations":
		s.Annotations = choice(d, v, m.name, AnnotationsTrust, AnnotationsIgnore)
	case "guard":
		s.Guard = choice(d, v, m.name, GuardOff, GuardWarn, GuardRefuse)
	case "tools":
		s.Tools = d.readTools(v)
	case "maxRequests":
		if n, ok := d.count(v, m.name); ok {
			if s.MaxRequests = &n; n < 0 {
				d.fail(v, CodeRange, "maxRequests is negative", "write how many calls may run at once, or 0 for no bound")
			}
		}
	case "leaseHold":
		s.LeaseHold = d.readHold(v, m.name)
	case "passEnv":
		s.PassEnv = list(d, v, m.name, func(v hujson.Value, what string) string {
			name := d.text(v, what)
			if !isVariable(name) {
				d.fail(v, CodeType, what+" is not the name of a variable", "write a name such as GITHUB_TOKEN, without $ and value")
			}
			return name
		})
	case "passEpoch":
		s.PassEpoch = d.flag(v, m.name)
	default:
		return false
	}
	return true
}

// readHold reads how long a lease outlives a call.
func (d *decoder) readHold(v hujson.Value, what string) *time.Duration {
	t, ok := d.duration(v, what)
	if !ok {
		return nil
	}
	if t < 0 || t > MaxLeaseTTL {
		d.fail(v, CodeRange, what+" must be from 0s to "+MaxLeaseTTL.String(), "shorten it")
	}
	return &t
}

// readForeign deals with members that mean something to other clients.
func (d *decoder) readForeign(m member) {
	switch m.name {
	case "alwaysAllow", "autoApprove", "timeout", "headers", "headersHelper", "alwaysLoad", "oauth", "auth",
		"authProviderType", "trust", "description", "title", "icon", "metadata", "remoteConfigured", "watchPaths",
		"transport", "source", "settings", "dev", "gallery", "version", "isActive", "initTimeout", "startup_timeout_sec",
		"connectionTimeout", "requestTimeoutMs", "bearerTokenEnv", "lifecycle", "note", "comment", "name", "id", "tags":
		return
	case "envFile":
		d.note(m.key, CodeFieldIgnored, "envFile is not read", "put the variables into env, or name them in passEnv")
	case "disabledTools", "includeTools", "excludeTools":
		d.note(m.key, CodeFieldIgnored, m.name+" has no effect here: all tools of the server are offered", "choose the tools in the client")
	case "sandbox", "sandboxEnabled":
		d.note(m.key, CodeFieldIgnored, m.name+" has no effect here: the server runs unconfined", `start it through a sandboxing program in "command"`)
	default:
		if strings.HasPrefix(m.name, "_") || strings.HasPrefix(m.name, "/") || strings.HasPrefix(m.name, "$") || strings.HasPrefix(m.name, "#") {
			return // how people write comments into JSON
		}
		d.unknown(m, "the entry", ourFields())
	}
}

// readCommand reads the program to start.
func (d *decoder) readCommand(e *entry, v hujson.Value) {
	if _, isList := v.Value.(*hujson.Array); isList {
		d.fail(v, CodeType, "command is a list", `put the program into "command", and the rest into "args"`)
		return
	}
	command := d.text(v, "command")
	if trimmed := strings.TrimSpace(command); trimmed != command {
		d.note(v, CodeType, "command begins or ends with white space, which is dropped", "delete it")
		command = trimmed
	}
	e.Command = d.expandable(e, "command", v, command)
}

// readEnv reads the environment of a server.
func (d *decoder) readEnv(e *entry, v hujson.Value) {
	for m := range d.members(v, "env") {
		what := "env." + clip(m.name)
		if m.name == "" || strings.ContainsAny(m.name, "=\x00") {
			d.fail(m.key, CodeType, "env has a name that no variable can have", "a name is not empty and has no = in it")
			continue
		}
		if e.Env == nil {
			e.Env = make(map[string]string)
		}
		e.Env[m.name] = d.expandable(e, "env."+m.name, m.value, d.scalar(m.value, what))
	}
}

// readTools reads the rules for single tools. A slip in one would leave calls
// unleased without a word, so here every unknown member is a mistake.
func (d *decoder) readTools(v hujson.Value) map[string]Tool {
	tools := make(map[string]Tool)
	for m := range d.members(v, "tools") {
		what := fmt.Sprintf("tools[%q]", clip(m.name))
		var tool Tool
		for field := range d.members(m.value, what) {
			switch field.name {
			case "class":
				tool.Class = choice(d, field.value, what+".class", ClassRead, ClassMutate, ClassUnknown)
			case "resource", "resources":
				tool.Resources = append(tool.Resources, d.readResources(field.value, what+"."+field.name)...)
			case "leaseHold":
				tool.LeaseHold = d.readHold(field.value, what+".leaseHold")
			default:
				d.fail(field.key, CodeType, fmt.Sprintf("%s has no member %q", what, clip(field.name)), `use "class", "resource" and "leaseHold"`)
			}
		}
		tools[m.name] = tool
	}
	return tools
}

// readResources reads one template, or a list of them.
func (d *decoder) readResources(v hujson.Value, what string) []Template {
	each := func(v hujson.Value, what string) Template {
		template, err := ParseTemplate(d.text(v, what))
		if err != nil {
			d.fail(v, CodeType, fmt.Sprintf("%s is not a resource: %v", what, err), `write a template such as "file:{path}"`)
		}
		return template
	}
	if _, isList := v.Value.(*hujson.Array); isList {
		return list(d, v, what, each)
	}
	return []Template{each(v, what)}
}

// expandable remembers where text with expansions stands, and refuses those
// that ask an editor.
func (d *decoder) expandable(e *entry, what string, v hujson.Value, text string) string {
	if strings.Contains(text, "${") {
		e.at[what] = d.doc.position(v.StartOffset)
	}
	for _, prefix := range []string{"${input:", "${command:", "${config:"} {
		if strings.Contains(text, prefix) {
			d.fail(v, CodeExpansion, what+" uses "+prefix+"…}, which only an editor can fill in", "put the value into an environment variable, and write ${NAME}")
		}
	}
	return text
}

// checkKind decides whether the entry is a built-in, a stdio or an HTTP
// server, and refuses one that is none or two.
func (d *decoder) checkKind(key hujson.Value, e *entry) {
	remote := e.kind != "" && e.kind != "stdio"
	reserved := e.Name == BuiltinLocal || e.Name == BuiltinInterlock
	switch {
	case reserved && e.Builtin != e.Name:
		d.fail(key, CodeNameReserved, "the name belongs to a built-in server", fmt.Sprintf(`rename the entry, or write {"builtin": %q} to get the built-in one`, e.Name))
	case e.Builtin != "":
		if e.Command != "" || e.URL != "" {
			d.fail(key, CodeCommandAndURL, "the entry has builtin beside command or url", "keep one of them")
		}
	case e.Command != "" && e.URL != "" && e.kind == "":
		d.fail(e.urlAt, CodeCommandAndURL, "the entry has both command and url", "keep one of them, or say which counts with \"type\"")
	case e.URL != "" && (remote || e.Command == ""):
		d.fail(e.urlAt, CodeHTTP, "the server is reached by URL, and only servers that are started by a command can be hosted", "start it through a program that turns stdio into HTTP, such as mcp-remote")
	case e.Command == "":
		d.fail(key, CodeCommandMissing, "the entry has no command", `add "command", the program to start`)
	default:
		if remote {
			d.note(e.kindAt, CodeType, "the type says that there is a URL, but there is a command, which is used", `delete "type"`)
		}
		e.URL = ""
		d.checkCommand(key, &e.Server)
	}
}

// checkCommand refuses a whole command line as the program, and a server that
// is interlock itself.
func (d *decoder) checkCommand(key hujson.Value, s *Server) {
	if first, _, spaced := strings.Cut(s.Command, " "); spaced && len(s.Args) == 0 && !strings.ContainsAny(first, `$\`) && !isFile(s.Command) {
		d.fail(key, CodeCommandHasArgs, "command holds a program and its arguments", `put the program alone into "command", and each argument by itself into "args": ["…", "…"]`)
		return
	}
	name := strings.TrimSuffix(filepath.Base(s.Command), ".exe")
	if name == "interlock" && slices.Contains(s.Args, "connect") {
		d.fail(key, CodeNested, "the entry starts interlock connect, which would come back to this daemon", "give the command of the server itself")
	}
}

// isFile reports whether path, as it stands, is a file that exists.
func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.IsDir()
}
