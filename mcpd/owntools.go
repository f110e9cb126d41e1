package mcpd

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"

	"interlock/mcpd/internal/config"
	"interlock/mcpd/internal/wire"
)

// ownPrefix is before the names of the daemon's own tools in a session that is
// another server.
const ownPrefix = "interlock__"

// ownServer is the entry of the daemon's own tools.
func ownServer() config.Server {
	return config.Server{Name: config.BuiltinInterlock, Builtin: config.BuiltinInterlock}
}

// isLeaseTool says which of the daemon's own tools stand beside a server's.
func isLeaseTool(name string) bool { return strings.HasPrefix(name, "lease_") }

// addOwnTools puts the tools of leases into what a server answers to a client that
// has asked for them: at the end of its list, and into its capabilities if it has no
// tools.
func (x *exchange) addOwnTools(edits []wire.Edit, b []byte, env *wire.Envelope) []wire.Edit {
	switch x.kind {
	case kindToolList:
		return x.addToList(edits, b, env)
	case kindInitialize, kindDiscover:
		if env.Kind == wire.Result {
			return declareTools(edits, b, env.Result)
		}
	}
	return edits
}

// addToList adds the tools to the last page of a list. A server that has no tools
// answers with an error, in whose place the tools are all there are.
func (x *exchange) addToList(edits []wire.Edit, b []byte, env *wire.Envelope) []wire.Edit {
	tools := x.conn.d.leaseTools
	if env.Kind == wire.Error {
		if !x.first || !isMethodNotFound(env.Error.Of(b)) {
			return edits
		}
		result := `"result":{"tools":[` + string(tools) + `]}`
		return append(edits, wire.Edit{Span: memberSpan(b, env.Error, "error"), With: []byte(result)})
	}
	list, err := wire.Member(env.Result.Of(b), "tools")
	raw := list.Of(env.Result.Of(b))
	if err != nil || env.NextCursor.Present() && string(env.NextCursor.Of(b)) != "null" || len(raw) == 0 || raw[0] != '[' {
		return edits
	}
	end := env.Result.Start + list.End - 1
	with := tools
	if len(bytes.TrimSpace(raw[1:len(raw)-1])) > 0 {
		with = append([]byte(","), tools...)
	}
	return append(edits, wire.Edit{Span: wire.Span{Start: end, End: end}, With: with})
}

// memberSpan widens the place of a value to its whole member, name included.
func memberSpan(b []byte, value wire.Span, name string) wire.Span {
	start := bytes.LastIndex(b[:value.Start], []byte(`"`+name+`"`))
	return wire.Span{Start: start, End: value.End}
}

func isMethodNotFound(raw []byte) bool {
	var e struct{ Code int }
	return json.Unmarshal(raw, &e) == nil && e.Code == rpcMethodNotFound
}

// declareTools declares that there are tools.
func declareTools(edits []wire.Edit, b []byte, result wire.Span) []wire.Edit {
	span, err := wire.Member(result.Of(b), "capabilities")
	raw := span.Of(result.Of(b))
	if err != nil || len(raw) == 0 || raw[0] != '{' {
		return edits
	}
	if tools, err := wire.Member(raw, "tools"); err != nil || tools.Present() {
		return edits
	}
	with := `"tools":{}`
	if len(bytes.TrimSpace(raw[1:len(raw)-1])) > 0 {
		with += ","
	}
	at := result.Start + span.Start + 1
	return append(edits, wire.Edit{Span: wire.Span{Start: at, End: at}, With: []byte(with)})
}

// warnStale tells a client that its call went over somebody else's newer change, in
// a text of its own at the end of the result: it is for the model, which reads
// nothing else. It is only done where the configuration asks for it.
func (x *exchange) warnStale(edits []wire.Edit, b []byte, env *wire.Envelope) []wire.Edit {
	if env.Kind != wire.Result {
		return edits
	}
	content, err := wire.Member(env.Result.Of(b), "content")
	raw := content.Of(env.Result.Of(b))
	if err != nil || len(raw) == 0 || raw[0] != '[' {
		return edits
	}
	note := append([]byte(`{"type":"text","text":`), quote("Warning: "+changedSince(*x.turn.stale, time.Now())+". Check that nothing of it is lost.")...)
	note = append(note, '}')
	if len(bytes.TrimSpace(raw[1:len(raw)-1])) > 0 {
		note = append([]byte(","), note...)
	}
	end := env.Result.Start + content.End - 1
	return append(edits, wire.Edit{Span: wire.Span{Start: end, End: end}, With: note})
}
