package builtin

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"runtime/debug"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

// Server is one of the daemon's own MCP servers, shared by all sessions and safe for concurrent use.
type Server struct {
	mcp     *server.MCPServer
	tools   []mcp.Tool
	onPanic func(string)
	// files says where the file tools may write. Nil for a server whose tools need no directory.
	files *writePolicy
}

// newServer makes a server with a fixed set of tools. The tool capability is declared at construction, because mcp-go reads capabilities without a lock afterwards; arguments
// are checked against the tools' schemas, exactly as spelled, before a handler sees them.
func newServer(name, version string, onPanic func(string), tools ...server.ServerTool) *Server {
	s := server.NewMCPServer(name, version, server.WithToolCapabilities(false), server.WithInputSchemaValidation())
	s.AddTools(tools...)
	if onPanic == nil {
		onPanic = func(string) {}
	}
	all := make([]mcp.Tool, len(tools))
	for i, t := range tools {
		all[i] = t.Tool
	}
	return &Server{mcp: s, tools: all, onPanic: onPanic}
}

// ListTools returns the descriptions of the tools that keep says yes to, as MCP's
// tools/list has them, with prefix before each name.
func (s *Server) ListTools(prefix string, keep func(name string) bool) ([]json.RawMessage, error) {
	var list []json.RawMessage
	for _, t := range s.tools {
		if !keep(t.Name) {
			continue
		}
		t.Name = prefix + t.Name
		b, err := json.Marshal(t)
		if err != nil {
			return nil, fmt.Errorf("describing tool %q: %w", t.Name, err)
		}
		list = append(list, b)
	}
	return list, nil
}

// Open starts a session. The id must be unique among the open sessions of this server. The directory is where the file tools work; without one, or with one that cannot be
// opened, the session opens all the same and each file tool answers with the reason. What the file tools create gets the permission bits that umask, the client's, leaves. Whole
// JSON-RPC frames without a newline go to notify, one at a time, from a goroutine that [Session.Close] waits for; notify must not call Close. The caller closes the session.
func (s *Server) Open(id, dir string, umask fs.FileMode, notify func(frame []byte)) (*Session, error) {
	p := &peer{id: id, notes: make(chan mcp.JSONRPCNotification, notesBuffered)}
	if err := s.mcp.RegisterSession(context.Background(), p); err != nil {
		return nil, fmt.Errorf("opening session %q: %w", id, err)
	}
	if s.files != nil {
		p.dir = openWorkdir(dir, umask, s.files)
	}
	return newSession(s, p, notify), nil
}

// answer lets mcp-go serve one frame. A panic of a tool ends here: the client learns that it happened, the panic's text goes to the daemon only.
func (s *Server) answer(ctx context.Context, p *peer, id json.RawMessage, frame []byte) (answer []byte) {
	defer func() {
		if r := recover(); r != nil {
			s.onPanic(fmt.Sprintf("%v\n%s", r, debug.Stack()))
			answer = errorFrame(id, mcp.INTERNAL_ERROR, "internal error in the daemon; its log says more")
		}
	}()
	message := s.mcp.HandleMessage(s.mcp.WithContext(ctx, p), frame)
	if message == nil {
		return nil
	}
	answer, err := json.Marshal(message)
	if err != nil {
		return errorFrame(id, mcp.INTERNAL_ERROR, "the answer cannot be written as JSON")
	}
	return answer
}

// errorFrame is the JSON-RPC error for the request with that id, and nil for a notification, which has none.
func errorFrame(id json.RawMessage, code int, message string) []byte {
	if id == nil {
		return nil
	}
	frame, _ := json.Marshal(mcp.JSONRPCError{ // cannot fail: the id was parsed as JSON, the rest is text
		JSONRPC: mcp.JSONRPC_VERSION,
		ID:      mcp.NewRequestId(id),
		Error:   mcp.NewJSONRPCErrorDetails(code, message, nil),
	})
	return frame
}

// tool describes one tool. All of the daemon's own tools are closed-world, and say every hint out loud, since the defaults of the protocol are the opposite.
func tool(name, title, description, schema string, hints mcp.ToolAnnotation, handler server.ToolHandlerFunc) server.ServerTool {
	t := mcp.NewToolWithRawSchema(name, description, json.RawMessage(schema))
	t.Title = title
	hints.OpenWorldHint = mcp.ToBoolPtr(false)
	t.Annotations = hints
	return server.ServerTool{Tool: t, Handler: handler}
}

// reads are the hints of a tool that changes nothing.
func reads() mcp.ToolAnnotation {
	return mcp.ToolAnnotation{
		ReadOnlyHint:    mcp.ToBoolPtr(true),
		DestructiveHint: mcp.ToBoolPtr(false),
		IdempotentHint:  mcp.ToBoolPtr(true),
	}
}

// replaces are the hints of a tool that may lose what was there before and, called twice with the same arguments, leaves what it left the first time.
func replaces() mcp.ToolAnnotation {
	return mcp.ToolAnnotation{
		ReadOnlyHint:    mcp.ToBoolPtr(false),
		DestructiveHint: mcp.ToBoolPtr(true),
		IdempotentHint:  mcp.ToBoolPtr(true),
	}
}
