package builtin

import (
	"context"
	"encoding/json"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

// Leases is what the lease tools need from the daemon. An error may be a [Refusal].
type Leases interface {
	// LeaseAcquire gets leases on all of the resources or none, and waits for them at most as long as asked.
	LeaseAcquire(ctx context.Context, who Caller, a Acquisition) (json.RawMessage, error)
	// LeaseRenew starts the time to live of a lease anew. A ttl of 0 is the default.
	LeaseRenew(ctx context.Context, who Caller, handle string, ttl time.Duration) (json.RawMessage, error)
	// LeaseRelease gives a lease back.
	LeaseRelease(ctx context.Context, who Caller, handle string) (json.RawMessage, error)
	// LeaseList is who has what, and who waits for it.
	LeaseList(ctx context.Context, who Caller) (json.RawMessage, error)
}

// Caller is who calls a tool.
type Caller struct {
	Session string // the id given to [Server.Open]
	// Actor is _meta "interlock/actor" of the call as JSON, nil if there is none.
	Actor json.RawMessage
}

// Acquisition is what lease_acquire is asked for.
type Acquisition struct {
	Resources []string
	// One is true if the resource was named by itself, not as a list.
	One  bool
	TTL  time.Duration // 0 is the default
	Wait time.Duration
}

// leaseTools are the tools of leases. Their hints say that they change nothing of the user's: a model that asks before it changes something need not ask before it takes a lease.
func leaseTools(d Leases) []server.ServerTool {
	return []server.ServerTool{
		tool("lease_acquire", "Acquire leases",
			"Gives you exclusive use of one or more resources for a while, so that no other agent changes them meanwhile: "+
				"for work of several steps. All or none are given. Other agents' calls that change them wait, yours go on. "+
				"A lease ends by itself after ttlMs without a call of yours under it; renew it with lease_renew, and give it back with lease_release as soon as you are done.",
			acquireArguments, harmless(), leaseAcquire(d)),
		tool("lease_renew", "Renew a lease", "Starts the time to live of a lease of yours anew.", renewArguments, harmless(), leaseRenew(d)),
		tool("lease_release", "Release a lease", "Gives a lease of yours back, so that others can go on.", releaseArguments, harmless(), leaseRelease(d)),
		tool("lease_list", "List leases", "Shows who has which lease, who waits for it, and how long.", noArguments, reads(), leaseList(d)),
	}
}

// harmless are the hints of a tool that changes something of the daemon's own only.
func harmless() mcp.ToolAnnotation {
	hints := replaces()
	hints.DestructiveHint, hints.IdempotentHint = mcp.ToBoolPtr(false), mcp.ToBoolPtr(false)
	return hints
}

// The bounds of times are not said in the schemas, but checked by package leases, whose errors a model understands.
const (
	acquireArguments = `{
		"type": "object",
		"properties": {
			"resource": {"type": "string", "minLength": 1, "maxLength": 4096, "description": "What to have for yourself: file:PATH, tree:DIRECTORY (with all below it), server:NAME (a server's shared state), or any name that agents agree on, such as release-notes. Relative paths start from your working directory."},
			"resources": {"type": "array", "minItems": 1, "maxItems": 64, "items": {"type": "string", "minLength": 1, "maxLength": 4096}, "description": "Several resources at once, instead of resource."},
			"ttlMs": {"type": "integer", "description": "How long the lease lasts without a call under it, in milliseconds, from 100 to 900000. Default 30000."},
			"waitMs": {"type": "integer", "description": "How long to wait in line if somebody else has it, in milliseconds; at most the daemon's own limit. Default 0: not at all."}
		},
		"additionalProperties": false
	}`

	renewArguments = `{
		"type": "object",
		"properties": {
			"handle": {"type": "string", "minLength": 1, "maxLength": 128, "description": "The handle that lease_acquire gave."},
			"ttlMs": {"type": "integer", "description": "How long the lease lasts from now on without a call under it, in milliseconds, from 100 to 900000. Default 30000."}
		},
		"required": ["handle"],
		"additionalProperties": false
	}`

	releaseArguments = `{
		"type": "object",
		"properties": {
			"handle": {"type": "string", "minLength": 1, "maxLength": 128, "description": "The handle that lease_acquire gave."}
		},
		"required": ["handle"],
		"additionalProperties": false
	}`
)

// leaseArguments are those of all lease tools.
type leaseArguments struct {
	Resource  string   `json:"resource"`
	Resources []string `json:"resources"`
	TTLMs     int64    `json:"ttlMs"`
	WaitMs    int64    `json:"waitMs"`
	Handle    string   `json:"handle"`
}

func (a *leaseArguments) ttl() time.Duration { return milliseconds(a.TTLMs) }

// milliseconds is a time that came as a number, which may be any.
func milliseconds(n int64) time.Duration {
	const most = int64(1000 * time.Hour / time.Millisecond)
	return time.Duration(min(max(n, -most), most)) * time.Millisecond
}

// leaseTool wraps what one of the tools does.
func leaseTool(run func(ctx context.Context, who Caller, args leaseArguments) (json.RawMessage, error)) server.ToolHandlerFunc {
	return func(ctx context.Context, request mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		var args leaseArguments
		if err := request.BindArguments(&args); err != nil {
			return mcp.NewToolResultError(err.Error()), nil
		}
		who := Caller{Session: server.ClientSessionFromContext(ctx).SessionID()}
		if request.Params.Meta != nil {
			if actor, ok := request.Params.Meta.AdditionalFields["interlock/actor"]; ok {
				b, err := json.Marshal(actor)
				if err != nil {
					return mcp.NewToolResultError(err.Error()), nil
				}
				who.Actor = b
			}
		}
		return document(run(ctx, who, args)), nil
	}
}

func leaseAcquire(d Leases) server.ToolHandlerFunc {
	return leaseTool(func(ctx context.Context, who Caller, args leaseArguments) (json.RawMessage, error) {
		a := Acquisition{Resources: args.Resources, TTL: args.ttl(), Wait: milliseconds(args.WaitMs)}
		if args.Resource != "" {
			a.Resources, a.One = append(a.Resources, args.Resource), len(args.Resources) == 0
		}
		return d.LeaseAcquire(ctx, who, a)
	})
}

func leaseRenew(d Leases) server.ToolHandlerFunc {
	return leaseTool(func(ctx context.Context, who Caller, args leaseArguments) (json.RawMessage, error) {
		return d.LeaseRenew(ctx, who, args.Handle, args.ttl())
	})
}

func leaseRelease(d Leases) server.ToolHandlerFunc {
	return leaseTool(func(ctx context.Context, who Caller, args leaseArguments) (json.RawMessage, error) {
		return d.LeaseRelease(ctx, who, args.Handle)
	})
}

func leaseList(d Leases) server.ToolHandlerFunc {
	return leaseTool(func(ctx context.Context, who Caller, _ leaseArguments) (json.RawMessage, error) {
		return d.LeaseList(ctx, who)
	})
}
