package endpoint

import (
	"errors"
	"fmt"
	"net"
	"os"

	"interlock/mcpd/internal/endpoint/private"
)

// A Peer is the process that opened a connection, as the kernel recorded it at
// that moment. The connection may since have been handed to another process.
type Peer struct {
	UID uint32
	PID int32 // 0 if the process is in another pid namespace
}

// Codes of a [PeerError].
const (
	CodePeerUnknown   = "peer_unknown"   // the kernel does not say who it is
	CodePeerForeign   = "peer_foreign"   // another user
	CodePeerUnmapped  = "peer_unmapped"  // a uid that stands for strangers too
	CodePeerNamespace = "peer_namespace" // another pid namespace
	CodePeerSandboxed = "peer_sandboxed" // confined, where the daemon is not
	CodePeerEnded     = "peer_ended"     // the process that connected is gone
)

// A PeerError says why a peer is refused.
type PeerError struct {
	Code    string // one of the CodePeer constants
	UID     uint32
	PID     int32
	Own     bool   // certainly our own user, who may be told why; a stranger is told nothing
	Message string // what is wrong, in one line
	Remedy  string // what our own user can do about it; may be empty
}

func (e *PeerError) Error() string {
	if e.Remedy == "" {
		return e.Message
	}
	return e.Message + "; " + e.Remedy
}

// Codes of a [Note].
const (
	CodePeerMount  = "peer_mount_namespace" // the peer sees other files at the same paths
	CodePeerHidden = "peer_unreadable"      // /proc does not show whether the peer is confined
)

// A Note is something about an accepted peer that diagnostics should report.
type Note struct {
	Code   string // CodePeerMount or CodePeerHidden
	Detail string
}

// Policy is what the user allows beyond the default.
type Policy struct {
	// AllowSandboxed accepts peers under a seccomp filter or no_new_privs
	// though the daemon, and so every server it starts for them, is under none.
	AllowSandboxed bool
}

// A PeerCheck decides which peers the daemon serves. It is safe for concurrent
// use.
type PeerCheck struct {
	policy Policy
	euid   uint32
	self   confinement
}

// NewPeerCheck looks at this process, with which every peer is compared. It
// fails where our own uid cannot be told from strangers'.
func NewPeerCheck(policy Policy) (*PeerCheck, error) {
	if err := private.CheckUser(); err != nil {
		return nil, err
	}
	self, err := ownConfinement()
	if err != nil {
		return nil, fmt.Errorf("examining this process: %w", err)
	}
	return &PeerCheck{policy: policy, euid: uint32(os.Geteuid()), self: self}, nil
}

// Check decides about the peer of a connection from which nothing was read
// yet. It refuses with a [*PeerError]: another user, a peer that the kernel
// does not name, a peer of another pid namespace, and a peer that is confined
// where the daemon is not, which could otherwise have the daemon do what it
// may not. Another mount namespace is noted, and so is a peer whose
// confinement cannot be read.
//
// A filter that a peer set up for only some of its threads does not show.
func (c *PeerCheck) Check(conn *net.UnixConn) (Peer, []Note, error) {
	peer, err := credentials(conn)
	if err != nil {
		return Peer{}, nil, &PeerError{Code: CodePeerUnknown, Message: "the kernel does not say who the peer is: " + err.Error()}
	}
	refuse := func(code string, own bool, message, remedy string) (Peer, []Note, error) {
		return peer, nil, &PeerError{code, peer.UID, peer.PID, own, message, remedy}
	}
	if peer.UID != c.euid {
		return refuse(CodePeerForeign, false,
			fmt.Sprintf("the peer runs as uid %d (pid %d), the daemon as uid %d", peer.UID, peer.PID, c.euid), "")
	}
	if peer.PID <= 0 {
		// Where pids are hidden, the uid may be one that merely looks like ours.
		return refuse(CodePeerNamespace, true,
			"the peer runs in another pid namespace, for example in another container",
			"run a daemon of its own there, in a directory that is not shared")
	}
	theirs, err := peerConfinement(conn, peer.PID)
	switch {
	case errors.Is(err, errPeerEnded):
		return refuse(CodePeerEnded, true,
			fmt.Sprintf("the process that connected (pid %d) is gone, so it cannot be examined", peer.PID),
			"connect from the process that uses the connection")
	case err != nil:
		return peer, []Note{{CodePeerHidden, fmt.Sprintf("pid %d: %v", peer.PID, err)}}, nil
	}
	if theirs.pids != "" && c.self.pids != "" && theirs.pids != c.self.pids {
		return refuse(CodePeerNamespace, true,
			fmt.Sprintf("the peer (pid %d) runs in a pid namespace of its own, for example in a container", peer.PID),
			"run a daemon of its own there, in a directory that is not shared")
	}
	if what := theirs.beyond(c.self); what != "" && !c.policy.AllowSandboxed {
		return refuse(CodePeerSandboxed, true,
			fmt.Sprintf("the peer (pid %d) runs %s and the daemon does not: through the daemon it could do what its sandbox forbids", peer.PID, what),
			`to allow it, set "peers": {"sandboxed": "allow"} in the configuration`)
	}
	return peer, theirs.notes(c.self, peer.PID), nil
}

// confinement is what a process is under, as far as it can be read.
type confinement struct {
	seccomp    bool
	noNewPrivs bool
	mount      string // the mount namespace; empty if it cannot be read
	pids       string // the pid namespace; empty if it cannot be read
}

// beyond names what c is under and daemon is not.
func (c confinement) beyond(daemon confinement) string {
	switch {
	case c.seccomp && !daemon.seccomp:
		return "under a seccomp filter"
	case c.noNewPrivs && !daemon.noNewPrivs:
		return "with no_new_privs"
	}
	return ""
}

func (c confinement) notes(daemon confinement, pid int32) []Note {
	switch {
	case daemon.mount == c.mount:
		return nil
	case c.mount == "" || daemon.mount == "":
		return []Note{{CodePeerHidden, fmt.Sprintf("pid %d: its mount namespace cannot be read", pid)}}
	}
	return []Note{{CodePeerMount, fmt.Sprintf("pid %d sees other files at the same paths than the daemon", pid)}}
}
