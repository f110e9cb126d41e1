package status

import (
	"encoding/json"
	"slices"
	"time"
)

// ProtocolVersion is the major version of [Snapshot] and of the answers that
// carry one. It changes only when a field is removed or means something else.
const ProtocolVersion = 1

// Transport is the value of [Snapshot.Transport] in this version.
const Transport = "unix-mcp-isolated-sessions"

// State is the state of a daemon.
type State string

// The states of a daemon. A daemon never says of itself that it has stopped: a
// reader does, of a status file whose process is gone.
const (
	StateStarting State = "starting"
	StateRunning  State = "running"
	StateDraining State = "draining"
	StateStopped  State = "stopped"
)

// Snapshot is the status of a daemon at one moment. Lists may be cut short to
// keep the snapshot small; the totals beside them count everything.
type Snapshot struct {
	// ProtocolVersion is [ProtocolVersion] in what this package writes.
	ProtocolVersion int   `json:"protocolVersion"`
	State           State `json:"state"`
	PID             int   `json:"pid"`
	// Socket, StatusPath, LogPath and RecoveryPath are absolute.
	Socket       string `json:"socket"`
	StatusPath   string `json:"statusPath"`
	LogPath      string `json:"logPath"`
	RecoveryPath string `json:"recoveryPath"`
	// ConfigPath is the configuration file, empty if there is no place for one.
	// ConfigModifiedAt is when it was written last before the daemon read it,
	// zero if it was not there.
	ConfigPath       string    `json:"configPath,omitempty"`
	ConfigModifiedAt time.Time `json:"configModifiedAt,omitzero"`
	// Servers are the names of the servers in service, running or not.
	Servers   []string  `json:"servers,omitempty"`
	StartedAt time.Time `json:"startedAt"`
	// Transport is [Transport].
	Transport string `json:"transport"`
	// ClientSessions is how many sessions are open, listed or not.
	ClientSessions int `json:"clientSessions"`
	// MutationLeaseOwner is the owner of the oldest live lease, empty if there
	// is none.
	MutationLeaseOwner string `json:"mutationLeaseOwner,omitempty"`
	// ActiveRuns are recorded calls in flight, the oldest first.
	ActiveRuns      []Run      `json:"activeRuns"`
	ActiveRunsTotal int        `json:"activeRunsTotal"`
	Identity        Identity   `json:"identity"`
	Sessions        []Session  `json:"sessions"`
	Upstreams       []Upstream `json:"upstreams"`
	UpstreamsTotal  int        `json:"upstreamsTotal"`
	Leases          []Lease    `json:"leases"`
	LeasesTotal     int        `json:"leasesTotal"`
	// LeaseWaits are who waits for leases, the longest first.
	LeaseWaits      []LeaseWait `json:"leaseWaits"`
	LeaseWaitsTotal int         `json:"leaseWaitsTotal"`
	Limits          Limits      `json:"limits"`
	Counters        Counters    `json:"counters"`
	Findings        []Finding   `json:"findings"`
	FindingsTotal   int         `json:"findingsTotal"`
}

// Run is a recorded call in flight.
type Run struct {
	// RequestID is the run's id, unique for ever.
	RequestID string    `json:"requestId"`
	OwnerID   string    `json:"ownerId"`
	StartedAt time.Time `json:"startedAt"`
}

// Identity tells a daemon from every other process there has been or will be,
// its pid notwithstanding.
type Identity struct {
	// StartTicks is the start time of the process in clock ticks since boot.
	StartTicks uint64 `json:"startTicks"`
	BootID     string `json:"bootId"`
	// PIDNamespace is the inode of the pid namespace, 0 where there is none.
	PIDNamespace uint64 `json:"pidNamespace"`
	// Instance is random, made anew by each daemon.
	Instance string `json:"instance"`
	UID      int    `json:"uid"`
	Build    string `json:"build"`
	// SocketDevice and SocketInode identify the socket file.
	SocketDevice uint64 `json:"socketDevice"`
	SocketInode  uint64 `json:"socketInode"`
}

// Session is an open session.
type Session struct {
	ID     string `json:"id"`
	Owner  string `json:"owner"`
	Client Client `json:"client"`
	// PID is of the process at the other end of the socket.
	PID int `json:"pid"`
	// Server is the server that the session is, empty for an aggregate.
	Server string `json:"server,omitempty"`
	State  string `json:"state"`
	// Era is the protocol revision in use, empty before it is known.
	Era       string    `json:"era,omitempty"`
	StartedAt time.Time `json:"startedAt"`
	// InFlight and Waiting count the session's calls.
	InFlight int `json:"inFlight"`
	Waiting  int `json:"waiting"`
	// Project is the project root, empty if the session has none.
	Project string `json:"project,omitempty"`
}

// Client is what a client calls itself.
type Client struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// Upstream is a process of a hosted server, or a server out of service.
type Upstream struct {
	// Name is the server's name in the configuration.
	Name  string `json:"name"`
	Scope string `json:"scope"`
	State string `json:"state"`
	// PID and StartedAt are zero while no process runs.
	PID       int       `json:"pid,omitempty"`
	StartedAt time.Time `json:"startedAt,omitzero"`
	// Restarts counts starts after the first.
	Restarts int `json:"restarts"`
	// Sessions counts those that use the process, InFlight their calls on it.
	Sessions int `json:"sessions"`
	InFlight int `json:"inFlight"`
	// Findings are the codes of the snapshot's findings about this server.
	Findings []Code `json:"findings,omitempty"`
}

// Lease is a live lease. Its handle is never in a snapshot.
type Lease struct {
	Resource string `json:"resource"`
	// Owner and Session are those of the holder.
	Owner   string `json:"ownerId"`
	Session string `json:"sessionId"`
	// Client is what the holder's client calls itself.
	Client     string    `json:"client,omitempty"`
	Epoch      uint64    `json:"epoch"`
	AcquiredAt time.Time `json:"acquiredAt"`
	ExpiresAt  time.Time `json:"expiresAt"`
	// InFlight counts calls under the lease, Waiting those next in line for it.
	InFlight int `json:"inFlight"`
	Waiting  int `json:"waiting"`
	// ByHand is true for a lease that its owner acquired, false for one that was
	// taken for a call. Ending is true for one that was released under a call.
	ByHand bool `json:"byHand"`
	Ending bool `json:"ending,omitempty"`
}

// LeaseWait is who waits for leases.
type LeaseWait struct {
	Owner     string    `json:"ownerId"`
	Session   string    `json:"sessionId"`
	Client    string    `json:"client,omitempty"`
	Resources []string  `json:"resources"`
	Since     time.Time `json:"since"`
	// BlockedBy has the lease that is waited for or, if InLine, only an earlier
	// place in the line for one.
	BlockedBy LeaseBlocker `json:"blockedBy"`
}

// LeaseBlocker is what somebody waits for.
type LeaseBlocker struct {
	Resource string `json:"resource"`
	Owner    string `json:"ownerId"`
	Client   string `json:"client,omitempty"`
	InLine   bool   `json:"inLine,omitempty"`
}

// Limits are the limits that the daemon runs with. A limit of 0 is none.
type Limits struct {
	Sessions           int   `json:"sessions"`
	PendingConnections int   `json:"pendingConnections"`
	ClientCalls        int   `json:"clientCalls"`
	ClientWaiting      int   `json:"clientWaiting"`
	Calls              int   `json:"calls"`
	WaitLimitMs        int64 `json:"waitLimitMs"`
	CallTimeoutMs      int64 `json:"callTimeoutMs"`
	StartTimeoutMs     int64 `json:"startTimeoutMs"`
	DrainTimeoutMs     int64 `json:"drainTimeoutMs"`
	FrameBytes         int64 `json:"frameBytes"`
	BudgetBytes        int64 `json:"budgetBytes"`
}

// Counters count what has happened since the daemon started.
type Counters struct {
	// Accepted counts connections, RefusedPeers those of processes that may
	// not connect, RefusedSessions those over the limit.
	Accepted        uint64 `json:"accepted"`
	RefusedPeers    uint64 `json:"refusedPeers"`
	RefusedSessions uint64 `json:"refusedSessions"`
	// Calls counts requests taken from clients, RefusedBusy those refused at a
	// limit, RefusedLeases those refused for want of a lease.
	Calls         uint64 `json:"calls"`
	RefusedBusy   uint64 `json:"refusedBusy"`
	RefusedLeases uint64 `json:"refusedLeases"`
	// DroppedFrames counts frames that were too large, StrayAnswers answers to
	// no question, ParseErrors frames that are no JSON-RPC message.
	DroppedFrames uint64 `json:"droppedFrames"`
	StrayAnswers  uint64 `json:"strayAnswers"`
	ParseErrors   uint64 `json:"parseErrors"`
	// Panics counts sessions ended by a fault of the daemon.
	Panics uint64 `json:"panics"`
	// Spawned counts server processes started, Exited those that ended by
	// themselves.
	Spawned uint64 `json:"spawned"`
	Exited  uint64 `json:"exited"`
}

// MarshalJSON encodes the snapshot in its compatible form: lists are never
// null, times are in UTC, and text from outside is clipped to its bound.
func (s Snapshot) MarshalJSON() ([]byte, error) {
	type plain Snapshot // without this method
	return json.Marshal(plain(s.canonical()))
}

// canonical returns a copy of s as it is encoded; it shares no list with s.
func (s Snapshot) canonical() Snapshot {
	s.StartedAt, s.ConfigModifiedAt = s.StartedAt.UTC(), s.ConfigModifiedAt.UTC()
	s.Servers = convert(s.Servers, func(name string) string { return clip(name, maxName) })
	s.ActiveRuns = convert(s.ActiveRuns, func(r Run) Run {
		r.RequestID, r.OwnerID, r.StartedAt = clip(r.RequestID, maxName), clip(r.OwnerID, maxName), r.StartedAt.UTC()
		return r
	})
	s.Sessions = convert(s.Sessions, func(e Session) Session {
		e.Client = Client{clip(e.Client.Name, maxName), clip(e.Client.Version, maxName)}
		e.Owner, e.Server, e.Project = clip(e.Owner, maxName), clip(e.Server, maxName), clip(e.Project, maxPath)
		e.Era, e.StartedAt = clip(e.Era, maxName), e.StartedAt.UTC()
		return e
	})
	s.Upstreams = convert(s.Upstreams, func(u Upstream) Upstream {
		u.Name, u.StartedAt, u.Findings = clip(u.Name, maxName), u.StartedAt.UTC(), slices.Clone(u.Findings)
		return u
	})
	s.Leases = convert(s.Leases, func(l Lease) Lease {
		l.Resource, l.Owner, l.Client = clip(l.Resource, maxPath), clip(l.Owner, maxName), clip(l.Client, maxName)
		l.AcquiredAt, l.ExpiresAt = l.AcquiredAt.UTC(), l.ExpiresAt.UTC()
		return l
	})
	s.LeaseWaits = convert(s.LeaseWaits, LeaseWait.canonical)
	s.Findings = convert(s.Findings, Finding.canonical)
	return s
}

// maxResources bounds the resources that are listed of one who waits.
const maxResources = 8

func (w LeaseWait) canonical() LeaseWait {
	w.Owner, w.Client, w.Since = clip(w.Owner, maxName), clip(w.Client, maxName), w.Since.UTC()
	w.Resources = convert(w.Resources[:min(len(w.Resources), maxResources)], func(r string) string { return clip(r, maxPath) })
	w.BlockedBy.Resource, w.BlockedBy.Owner, w.BlockedBy.Client = clip(w.BlockedBy.Resource, maxPath), clip(w.BlockedBy.Owner, maxName), clip(w.BlockedBy.Client, maxName)
	return w
}

// convert applies f to each element of a copy of list, which is never nil.
func convert[T any](list []T, f func(T) T) []T {
	out := make([]T, 0, len(list))
	for _, e := range list {
		out = append(out, f(e))
	}
	return out
}
