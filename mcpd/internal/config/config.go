package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Config is what a configuration file says, with defaults where it says
// nothing. A Config is not changed after [Load] returns it.
type Config struct {
	// Path is the file that was read or looked for; empty if there is no home
	// directory to look in.
	Path string
	// Missing is true if there is no file. The built-in server local is then
	// served.
	Missing bool
	// Modified is when the file was written last before it was read.
	Modified time.Time
	// Broken is set if the file as a whole could not be understood. No server
	// is then configured, and sessions are to be told why.
	Broken *Problem
	// Servers are the entries in the order of the file, those out of service
	// and those disabled included.
	Servers []Server
	// Socket says what a session gets that does not name its servers.
	Socket Socket
	// Limits bound what the daemon accepts and how long it waits.
	Limits Limits
	// Peers says which local processes may connect.
	Peers Peers
	// Sync is how durable a begin record is before its call is sent.
	Sync Sync
	// RecoveryPending says what runs of unknown outcome do to later calls.
	RecoveryPending Pending
	// Problems are all mistakes found, those of servers included, in the order
	// in which they were found.
	Problems []Problem
}

// Server returns the entry called name.
func (c *Config) Server(name string) (Server, bool) {
	for _, s := range c.Servers {
		if s.Name == name {
			return s, true
		}
	}
	return Server{}, false
}

// Socket is the configuration of the endpoint.
type Socket struct {
	// Servers are the servers of a session that sends no hello. Nil means all
	// of them, an empty list none.
	Servers []string
}

// Peers is the configuration of who may connect.
type Peers struct {
	// Sandboxed says whether a process of the same user that is confined by
	// seccomp or no_new_privs may connect to a daemon that is not.
	Sandboxed Access
}

// Access allows or refuses.
type Access string

// The values of [Access]. Refuse is the default.
const (
	Refuse Access = "refuse"
	Allow  Access = "allow"
)

// Sync is the durability of a begin record.
type Sync string

// The values of [Sync]. SyncCrash, the default, survives the end of the daemon
// by SIGKILL; SyncPower survives a power cut too.
const (
	SyncCrash Sync = "crash"
	SyncPower Sync = "power"
)

// Pending is what runs of unknown outcome do to later calls.
type Pending string

// The values of [Pending]. PendingWarn, the default, reports them;
// PendingBlock also refuses mutating calls on the same resource until they are
// acknowledged; PendingOff does neither.
const (
	PendingWarn  Pending = "warn"
	PendingBlock Pending = "block"
	PendingOff   Pending = "off"
)

// Server is one entry of mcpServers. A member that the file does not give is
// the zero value, so that a catalogue can speak before the default does.
type Server struct {
	Name string
	// Builtin names a built-in server, BuiltinLocal or BuiltinInterlock. Then
	// Command and URL are empty.
	Builtin string
	// Command, Args, Env and Dir describe a stdio server as the file has it,
	// with expansions not yet made: see [Server.Expand].
	Command string
	Args    []string
	Env     map[string]string
	Dir     string
	// URL is set for an HTTP server.
	URL string
	// Disabled entries are kept for display and never started.
	Disabled bool

	Scope       Scope
	Instances   Instances
	State       State
	Mutations   Mutations
	Annotations Annotations
	// Guard says what becomes of a write over somebody else's newer one.
	Guard Guard
	// Tools has rules for single tools by name.
	Tools map[string]Tool
	// MaxRequests bounds the calls in flight on one process; 0 is no bound,
	// nil is not said.
	MaxRequests *int
	// LeaseHold is how long a lease outlives its call; nil is not said.
	LeaseHold *time.Duration
	// PassEnv names variables that a shared process gets from the session that
	// starts it.
	PassEnv []string
	// PassEpoch adds the fencing epoch of the lease to each leased call.
	PassEpoch bool

	// Line is where the entry begins.
	Line int
	// Problem is the first mistake that takes the entry out of service, nil if
	// there is none.
	Problem *Problem

	file string
	// at has the places of values with expansions in them, for the message
	// when one cannot be made.
	at map[string]position
}

// Names of the built-in servers; both are reserved.
const (
	BuiltinLocal     = "local"
	BuiltinInterlock = "interlock"
)

// Scope is who may share one process of a server.
type Scope string

// The values of [Scope].
const (
	ScopeSession Scope = "session"
	ScopeProject Scope = "project"
	ScopeUser    Scope = "user"
)

// Instances says whether a second process of a server may run.
type Instances string

// The values of [Instances]. InstancesOne forbids a second process, as for
// servers that own a file, a database or a browser profile.
const (
	InstancesOne  Instances = "one"
	InstancesMany Instances = "many"
)

// State is where a server keeps what its tools change.
type State string

// The values of [State]: in something that its processes have in common, or in
// each process for itself.
const (
	StateShared  State = "shared"
	StatePrivate State = "private"
)

// Mutations says how a mutating call comes by its lease.
type Mutations string

// The values of [Mutations]: taken for the call, to be held by the client
// already, or not needed.
const (
	MutationsAuto     Mutations = "auto"
	MutationsExplicit Mutations = "explicit"
	MutationsOff      Mutations = "off"
)

// Annotations says whether a server's own tool annotations are believed.
type Annotations string

// The values of [Annotations].
const (
	AnnotationsTrust  Annotations = "trust"
	AnnotationsIgnore Annotations = "ignore"
)

// Guard says what becomes of a call that changes what somebody else has changed
// since its session read it.
type Guard string

// The values of [Guard].
const (
	GuardOff    Guard = "off"
	GuardWarn   Guard = "warn"
	GuardRefuse Guard = "refuse"
)

// Class is what a call does.
type Class string

// The values of [Class].
const (
	ClassRead    Class = "read"
	ClassMutate  Class = "mutate"
	ClassUnknown Class = "unknown"
)

// Tool is the rule for one tool of a server.
type Tool struct {
	// Class is empty if the rule does not give it.
	Class Class
	// Resources are what the call changes, or reads.
	Resources []Template
	// LeaseHold is that of calls of this tool; nil is the server's.
	LeaseHold *time.Duration
}

// maxFileBytes bounds the configuration file; a real one has a few KiB.
const maxFileBytes = 16 << 20

// Path returns the configuration file to read: flag if it is not empty, else
// interlock/config.json under XDG_CONFIG_HOME, or under ~/.config if that is
// unset or, as the XDG base directory specification asks, not absolute. It
// returns the empty string if there is no home directory either.
func Path(env func(string) string, flag string) string {
	if flag != "" {
		if abs, err := filepath.Abs(flag); err == nil {
			return abs
		}
		return flag
	}
	base := env("XDG_CONFIG_HOME")
	if !filepath.IsAbs(base) {
		home := env("HOME")
		if !filepath.IsAbs(home) {
			return ""
		}
		base = filepath.Join(home, ".config")
	}
	return filepath.Join(base, "interlock", "config.json")
}

// Load reads the file at path. A file that does not exist is an error wrapping
// [fs.ErrNotExist] if named is true, as when the user gave --config, and else
// gives a Config with Missing set. A file that exists always gives a Config:
// what is wrong with it is in Broken, in Problems and in the Servers.
func Load(path string, named bool) (*Config, error) {
	cfg := &Config{
		Path:            path,
		Limits:          Defaults(),
		Peers:           Peers{Sandboxed: Refuse},
		Sync:            SyncCrash,
		RecoveryPending: PendingWarn,
	}
	data, info, err := readFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && named:
		return nil, fmt.Errorf("reading configuration: %w", &Problem{
			Code: CodeMissing, File: path, Message: "the file does not exist", Remedy: "create it, or correct --config",
			cause: fs.ErrNotExist,
		})
	case errors.Is(err, fs.ErrNotExist):
		cfg.Missing = true
		return cfg, nil
	case err != nil:
		cfg.breakWith(Problem{Code: CodeUnreadable, File: path, Message: err.Error(), Remedy: "make it a regular file that you can read"})
		return cfg, nil
	}
	cfg.Modified = info.ModTime()
	if info.Mode()&0o002 != 0 {
		cfg.Problems = append(cfg.Problems, Problem{
			Code: CodeWritable, File: path, Note: true,
			Message: "every user of this machine can write the file, and so run commands as you",
			Remedy:  fmt.Sprintf("chmod o-w %q", path),
		})
	}
	cfg.parse(data)
	return cfg, nil
}

// breakWith records that the file as a whole says nothing.
func (c *Config) breakWith(p Problem) {
	c.Broken = &p
	c.Problems = append(c.Problems, p)
}

// readFile reads a regular file within maxFileBytes. Its errors do not repeat
// the path.
func readFile(path string) ([]byte, fs.FileInfo, error) {
	if path == "" {
		return nil, nil, fs.ErrNotExist
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, bare(err)
	}
	if !info.Mode().IsRegular() { // reading a pipe could wait for ever
		return nil, nil, errors.New("it is not a regular file")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, bare(err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, nil, bare(err)
	}
	if len(data) > maxFileBytes {
		return nil, nil, fmt.Errorf("it has more than %d MiB", maxFileBytes>>20)
	}
	return data, info, nil
}

// bare takes the operation and the path off an error of package os.
func bare(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
