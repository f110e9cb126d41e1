package builtin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

// Daemon is what the tools of interlock need from the daemon. Session is the id given to [Server.Open]; an implementation shows and acknowledges only what that session may see.
// Results are JSON objects. An error is shown to the model as one sentence.
type Daemon interface {
	// Status is the daemon's current status document.
	Status(ctx context.Context) (json.RawMessage, error)
	// RecoveryList is the calls whose outcome is unknown and not yet acknowledged.
	RecoveryList(ctx context.Context, session string) (json.RawMessage, error)
	// RecoveryAck acknowledges exactly the pending calls with these ids.
	RecoveryAck(ctx context.Context, session string, ids []string) (json.RawMessage, error)
	Leases
}

// InterlockOptions are the settings of [NewInterlock].
type InterlockOptions struct {
	// Version is told to clients as the server's version.
	Version string
	// OnPanic, if set, is given the text and stack of a panic in a tool. It may be called concurrently.
	OnPanic func(string)
}

// NewInterlock returns the server of the daemon's own tools, named interlock: daemon_status, recovery_list, recovery_ack and those of [Leases].
func NewInterlock(d Daemon, o InterlockOptions) (*Server, error) {
	if d == nil {
		return nil, errors.New("making the interlock server: no daemon given")
	}
	return newServer("interlock", o.Version, o.OnPanic, append(leaseTools(d),
		tool("daemon_status", "Daemon status",
			"Shows the interlock daemon's status: its sessions, servers, leases and limits.",
			noArguments, reads(), daemonStatus(d)),
		tool("recovery_list", "Calls with unknown outcome",
			"Lists the calls of this session's servers that were cut off, so that nobody knows whether they took effect. Check what each one did before acknowledging it.",
			noArguments, reads(), recoveryList(d)),
		tool("recovery_ack", "Acknowledge calls with unknown outcome",
			"Acknowledges calls with unknown outcome after their effects were checked. The ids must be exactly those that recovery_list shows.",
			recoveryAckArguments, replaces(), recoveryAck(d)),
	)...), nil
}

const (
	noArguments = `{"type":"object","properties":{},"additionalProperties":false}`

	recoveryAckArguments = `{
		"type": "object",
		"properties": {
			"ids": {
				"type": "array",
				"items": {"type": "string", "minLength": 1, "maxLength": 128},
				"description": "The requestId of every pending call, as recovery_list shows them."
			}
		},
		"required": ["ids"],
		"additionalProperties": false
	}`
)

func daemonStatus(d Daemon) server.ToolHandlerFunc {
	return func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return document(d.Status(ctx)), nil
	}
}

func recoveryList(d Daemon) server.ToolHandlerFunc {
	return func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return document(d.RecoveryList(ctx, server.ClientSessionFromContext(ctx).SessionID())), nil
	}
}

func recoveryAck(d Daemon) server.ToolHandlerFunc {
	return func(ctx context.Context, request mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		var args struct {
			IDs []string `json:"ids"`
		}
		if err := request.BindArguments(&args); err != nil {
			return mcp.NewToolResultError(err.Error()), nil
		}
		return document(d.RecoveryAck(ctx, server.ClientSessionFromContext(ctx).SessionID(), args.IDs)), nil
	}
}

// Refusal is an error with something in it that a program can act on.
type Refusal interface {
	error
	// Data is a JSON object, for _meta "interlock/error" of the result.
	Data() json.RawMessage
}

// document is a tool result that carries a JSON object, as text for clients that know nothing else and as structured content.
func document(doc json.RawMessage, err error) *mcp.CallToolResult {
	if err != nil {
		result := mcp.NewToolResultError(err.Error())
		var refusal Refusal
		if errors.As(err, &refusal) {
			result.Meta = &mcp.Meta{AdditionalFields: map[string]any{"interlock/error": refusal.Data()}}
		}
		return result
	}
	result := mcp.NewToolResultText(string(doc))
	if bytes.HasPrefix(bytes.TrimSpace(doc), []byte("{")) {
		result.RawStructuredContent = doc
	}
	return result
}
