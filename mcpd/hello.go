package mcpd

import (
	"encoding/json"
	"fmt"
)

// ProtocolVersion is the version of what bridge and daemon say to each other.
const ProtocolVersion = 1

// Methods of the daemon's own. All but hello belong to control connections:
// those whose first frame is one of them, and which carry no session.
const (
	methodHello    = "interlock/hello"
	methodStatus   = "interlock/status"
	methodStop     = "interlock/stop"
	methodRecovery = "interlock/recovery"
	methodAck      = "interlock/recovery.ack"
	methodRepair   = "interlock/recovery.repair"
	methodHistory  = "interlock/history"
	methodLeases   = "interlock/leases"
	methodBreak    = "interlock/leases.break"
	methodExplain  = "interlock/leases.explain"
)

// Hello is what a bridge says of its client before the client's first frame.
// Fields that a daemon does not know are ignored, and so are a daemon's by a
// bridge.
type Hello struct {
	Protocol int    `json:"protocol"`
	Build    string `json:"build,omitempty"`
	// Servers names the server that the session is. More than one, or none
	// where several are configured, is refused with the list of names.
	Servers []string `json:"servers,omitempty"`
	Project string   `json:"project,omitempty"` // root of the client's project
	CWD     string   `json:"cwd,omitempty"`     // working directory of the client
	// Env is the client's environment, KEY=VALUE; servers of scope session run in it.
	Env []string `json:"env,omitempty"`
	// Umask is the client's file mode creation mask; servers of scope session
	// create files with it. Nil is 022.
	Umask *uint32 `json:"umask,omitempty"`
	Depth int     `json:"depth,omitempty"` // how many bridges deep the client runs
	// Leases asks for the tools of leases beside the server's own.
	Leases bool `json:"leases,omitempty"`
	// Config is the configuration file that the bridge was told to use, if any.
	Config string `json:"config,omitempty"`
}

// Welcome is the daemon's answer to Hello.
type Welcome struct {
	Protocol int    `json:"protocol"`
	Build    string `json:"build"`
	Instance string `json:"instance"` // names this life of the daemon
	PID      int    `json:"pid"`
	Session  string `json:"session"`
	Owner    string `json:"owner"`
	Pending  int    `json:"pending,omitempty"` // interrupted runs nobody has acknowledged
}

// maxDepth bounds how deep bridges may nest: a server that starts a client that
// starts a server.
const maxDepth = 8

// parseHello reads hello's params.
func (d *Daemon) parseHello(params []byte) (Hello, error) {
	var h Hello
	if err := json.Unmarshal(params, &h); err != nil {
		return h, fmt.Errorf("reading hello: %w", err)
	}
	if h.Protocol != ProtocolVersion {
		return h, refuse(codeVersion, "this bridge speaks interlock protocol %d and the running daemon (%s) speaks %d. Restart it with: %s daemon restart", h.Protocol, Version(), ProtocolVersion, d.options.Command)
	}
	if h.Depth > maxDepth {
		return h, refuse(codeNoServer, "interlock connects to itself %d levels deep; a server in the configuration starts a client of interlock again", h.Depth)
	}
	return h, nil
}
