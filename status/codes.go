package status

import "time"

// Code names a kind of finding. Codes are stable: scripts may act on them.
type Code string

// The codes of findings about the daemon and its directory.
const (
	DaemonNotRunning   Code = "daemon_not_running"
	DaemonStarting     Code = "daemon_starting"
	DaemonCrashed      Code = "daemon_crashed"
	DaemonUnresponsive Code = "daemon_unresponsive"
	DaemonDraining     Code = "daemon_draining"
	DaemonStopped      Code = "daemon_stopped"
	DaemonOutdated     Code = "daemon_outdated"
	DaemonPanic        Code = "daemon_panic"
	IdentityMismatch   Code = "identity_mismatch"
	VersionUnsupported Code = "version_unsupported"
	DirectoryUnknown   Code = "directory_unknown"
	DirectoryUnsafe    Code = "directory_unsafe"
	DirectoryLost      Code = "directory_lost"
	FileUnsafe         Code = "file_unsafe"
	TemporaryFiles     Code = "temporary_files"
	SocketPathTooLong  Code = "socket_path_too_long"
	SocketMissing      Code = "socket_missing"
	SocketForeign      Code = "socket_foreign"
	SocketUnsafe       Code = "socket_unsafe"
	LockMismatch       Code = "lock_mismatch"
	StatusUnreadable   Code = "status_unreadable"
	StatusUnwritable   Code = "status_unwritable"
	StatusForeign      Code = "status_foreign"
	StatusStale        Code = "status_stale"
	LogUnwritable      Code = "log_unwritable"
	LogLarge           Code = "log_large"
	DiskLow            Code = "disk_low"
	FileSystemRemote   Code = "file_system_remote"
	DescriptorsLow     Code = "descriptors_low"
	ClockSkew          Code = "clock_skew"
	OtherDaemons       Code = "other_daemons"
	CheckFailed        Code = "check_failed"
)

// The codes of findings about clients.
const (
	PeerRefused     Code = "peer_refused"
	PeerSandboxed   Code = "peer_sandboxed"
	PeerNamespace   Code = "peer_namespace"
	PeerUnreadable  Code = "peer_unreadable"
	SessionsAtLimit Code = "sessions_at_limit"
)

// The codes of findings about servers and their processes.
const (
	UpstreamStartFailed Code = "upstream_start_failed"
	UpstreamCrashed     Code = "upstream_crashed"
	UpstreamNoCommand   Code = "upstream_no_command"
	HelperLost          Code = "helper_lost"
	Orphans             Code = "orphans"
	Zombies             Code = "zombies"
)

// The codes of findings about runs and leases.
const (
	RecoveryPending     Code = "recovery_pending"
	RecoveryUnreadable  Code = "recovery_unreadable"
	RecoveryUnsupported Code = "recovery_unsupported"
	JournalTorn         Code = "journal_torn"
	JournalDamaged      Code = "journal_damaged"
	StateUnwritable     Code = "state_unwritable"
	LeaseWaitLong       Code = "lease_wait"
	LeaseBroken         Code = "lease_broken"
	StaleWrite          Code = "stale_write"
)

// The codes of findings about the configuration. But for the first they are those
// of the problems that are found when it is read.
const (
	ConfigOutdated      Code = "config_outdated"
	ConfigMissing       Code = "config_missing"
	ConfigUnreadable    Code = "config_unreadable"
	ConfigWritable      Code = "config_writable"
	ConfigSyntax        Code = "config_syntax"
	ConfigType          Code = "config_type"
	ConfigRange         Code = "config_range"
	ConfigDuplicate     Code = "config_duplicate"
	ConfigUnknownField  Code = "config_unknown_field"
	ConfigFieldIgnored  Code = "config_field_ignored"
	ConfigWrongKey      Code = "config_wrong_key"
	ConfigNoServers     Code = "config_no_servers"
	ConfigUnknownServer Code = "config_unknown_server"
	HTTPUnsupported     Code = "http_unsupported"
	CommandMissing      Code = "command_missing"
	CommandHasArgs      Code = "command_has_args"
	CommandAndURL       Code = "command_and_url"
	NestedInterlock     Code = "nested_interlock"
	NameInvalid         Code = "name_invalid"
	NameReserved        Code = "name_reserved"
	VariableUnset       Code = "variable_unset"
	VariableUnsupported Code = "variable_unsupported"
)

// CodeInfo describes a code.
type CodeInfo struct {
	Code Code
	// Severity is what a finding of this code has unless there is a reason for
	// another.
	Severity Severity
	// Title is the finding's title.
	Title string
}

// Codes returns the registry of all codes, in the order in which the
// documentation lists them.
func Codes() []CodeInfo {
	return []CodeInfo{
		{DaemonNotRunning, Info, "no daemon is running"},
		{DaemonStarting, Info, "the daemon is starting"},
		{DaemonCrashed, Warning, "the daemon ended without stopping"},
		{DaemonUnresponsive, Failure, "the daemon does not answer"},
		{DaemonDraining, Info, "the daemon is about to end"},
		{DaemonStopped, Info, "the daemon was stopped on purpose"},
		{DaemonOutdated, Info, "the daemon is of another build than this program"},
		{DaemonPanic, Failure, "the daemon met a fault of its own"},
		{IdentityMismatch, Warning, "the daemon is not the process it says it is"},
		{VersionUnsupported, Failure, "the daemon speaks another version"},
		{DirectoryUnknown, Failure, "the directory cannot be worked out"},
		{DirectoryUnsafe, Failure, "the directory is not private"},
		{DirectoryLost, Failure, "the directory is gone or replaced"},
		{FileUnsafe, Failure, "a file of the daemon's is not private"},
		{TemporaryFiles, Info, "files of interrupted writes are left"},
		{SocketPathTooLong, Failure, "the path of the socket is too long"},
		{SocketMissing, Failure, "the socket is missing"},
		{SocketForeign, Failure, "the socket is not this daemon's"},
		{SocketUnsafe, Failure, "the socket is not private"},
		{LockMismatch, Failure, "the lock is not this daemon's"},
		{StatusUnreadable, Warning, "the status file cannot be read"},
		{StatusUnwritable, Warning, "the status file cannot be written"},
		{StatusForeign, Failure, "the status file is another daemon's"},
		{StatusStale, Warning, "the status file is out of date"},
		{LogUnwritable, Warning, "the log cannot be written"},
		{LogLarge, Warning, "a log is larger than it may be"},
		{DiskLow, Warning, "the disk is almost full"},
		{FileSystemRemote, Warning, "the directory is on a network file system"},
		{DescriptorsLow, Warning, "few file descriptors are left"},
		{ClockSkew, Info, "the clock was set back"},
		{OtherDaemons, Info, "you run other daemons"},
		{CheckFailed, Warning, "a check could not be made"},

		{PeerRefused, Warning, "a process was refused"},
		{PeerSandboxed, Warning, "a sandboxed process was refused"},
		{PeerNamespace, Warning, "a client sees other files"},
		{PeerUnreadable, Info, "it cannot be told whether a client is sandboxed"},
		{SessionsAtLimit, Warning, "no more sessions are accepted"},

		{UpstreamStartFailed, Failure, "a server does not start"},
		{UpstreamCrashed, Warning, "a server ended by itself"},
		{UpstreamNoCommand, Failure, "a server's program is not found"},
		{HelperLost, Failure, "the process that keeps the servers is gone"},
		{Orphans, Warning, "processes of an earlier daemon are left"},
		{Zombies, Warning, "processes that have ended are not reaped"},

		{RecoveryPending, Warning, "calls ended with an unknown outcome"},
		{RecoveryUnreadable, Failure, "the recovery file cannot be read"},
		{RecoveryUnsupported, Failure, "the recovery file is of another version"},
		{JournalTorn, Info, "the journal was cut short by a crash"},
		{JournalDamaged, Failure, "the journal is damaged"},
		{StateUnwritable, Failure, "calls cannot be recorded"},
		{LeaseWaitLong, Warning, "calls wait long for somebody's lease"},
		{LeaseBroken, Info, "a lease was broken by hand"},
		{StaleWrite, Warning, "a call concerned what somebody else had just changed"},

		{ConfigOutdated, Info, "the daemon has not read the configuration as it is now"},
		{ConfigMissing, Failure, "the configuration is missing"},
		{ConfigUnreadable, Failure, "the configuration cannot be read"},
		{ConfigWritable, Warning, "others can write the configuration"},
		{ConfigSyntax, Failure, "the configuration is not JSON"},
		{ConfigType, Failure, "a value in the configuration is of the wrong kind"},
		{ConfigRange, Failure, "a value in the configuration is out of bounds"},
		{ConfigDuplicate, Failure, "the configuration says something twice"},
		{ConfigUnknownField, Info, "the configuration has an unknown member"},
		{ConfigFieldIgnored, Warning, "a member of the configuration has no effect"},
		{ConfigWrongKey, Warning, "servers are configured in the wrong place"},
		{ConfigNoServers, Info, "no servers are configured"},
		{ConfigUnknownServer, Warning, "the configuration names a server that is not there"},
		{HTTPUnsupported, Failure, "a server is reached by URL"},
		{CommandMissing, Failure, "a server has no command"},
		{CommandHasArgs, Failure, "a server's command is a whole command line"},
		{CommandAndURL, Failure, "a server has both a command and a URL"},
		{NestedInterlock, Failure, "a server is interlock itself"},
		{NameInvalid, Failure, "a server's name is not allowed"},
		{NameReserved, Failure, "a server's name is reserved"},
		{VariableUnset, Failure, "a server needs a variable that is not set"},
		{VariableUnsupported, Failure, "a server needs a value that only an editor has"},
	}
}

// Info returns what the registry says about c. A code that is not in it, as one
// of a newer daemon, is a warning under its own name.
func (c Code) Info() CodeInfo {
	for _, info := range Codes() {
		if info.Code == c {
			return info
		}
	}
	return CodeInfo{c, Warning, string(c)}
}

// Finding returns a finding of this code with the severity and title that the
// registry gives it.
func (c Code) Finding(detail, remedy string, since time.Time) Finding {
	info := c.Info()
	return Finding{Code: c, Severity: info.Severity, Title: info.Title, Detail: detail, Remedy: remedy, Since: since}
}
