package recovery

import (
	"errors"
	"path/filepath"
	"time"
)

// Sync says what a begin record survives once Begin has returned.
type Sync int

const (
	// SyncCrash survives the end of the process, SIGKILL included, but not the loss
	// of power: a record is one write, without a wait for the disk.
	SyncCrash Sync = iota
	// SyncPower survives the loss of power: a record is on the disk, by an fdatasync
	// that concurrent callers share.
	SyncPower
)

// Errors that callers branch on.
var (
	// ErrUnwritable means that the record could not be made durable; it wraps the
	// cause. Nothing may be sent. The journal heals by itself once writes work.
	ErrUnwritable = errors.New("recovery state is not writable")
	// ErrQuarantined means that damaged or foreign files stop mutations until
	// somebody acts; the message says how.
	ErrQuarantined = errors.New("recovery state needs repair")
	// ErrTooLarge means that an Intent does not fit a record of 60 KiB.
	ErrTooLarge = errors.New("intent is too large to record")
	// ErrClosed means that the journal was closed.
	ErrClosed = errors.New("journal is closed")
	// ErrEnded means that a run was ended twice.
	ErrEnded = errors.New("run has already ended")
)

// Options say where the record lives and how durable it is. Only Dir is required.
type Options struct {
	// Dir holds every file; it must exist, be ours alone and survive a restart of
	// the machine.
	Dir string
	// Journal and Recovery are file paths; by default Dir/daemon.journal and
	// Dir/daemon.recovery.json.
	Journal, Recovery string
	Sync              Sync
	// FS is the file system; nil means the real one.
	FS FS
	// Now is the wall clock; nil means time.Now.
	Now func() time.Time
	// BootID identifies the boot of the machine. With it, what power loss did to a
	// file can be told from damage; empty counts as one boot.
	BootID string
	// Command is how messages name this program on a command line, options such as
	// --dir included; by default "interlock".
	Command string
	// SegmentSize is the size of the journal in bytes; 0 means 4 MiB.
	SegmentSize int64
}

// withDefaults fills in what was left out.
func (o Options) withDefaults() Options {
	if o.Journal == "" {
		o.Journal = filepath.Join(o.Dir, "daemon.journal")
	}
	if o.Recovery == "" {
		o.Recovery = filepath.Join(o.Dir, "daemon.recovery.json")
	}
	if o.FS == nil {
		o.FS = osFS{}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Command == "" {
		o.Command = "interlock"
	}
	if o.SegmentSize <= 0 {
		o.SegmentSize = 4 << 20
	}
	o.SegmentSize = max(o.SegmentSize, minSegment)
	return o
}

// Outcome is how a run ended.
type Outcome string

// The outcomes. Only a run that ended OutcomeUnknown is pending.
const (
	OutcomeOK            Outcome = "ok"             // answered
	OutcomeError         Outcome = "error"          // answered with an error
	OutcomeInputRequired Outcome = "input_required" // the server asked for more input; a retry is a new run
	OutcomeNotSent       Outcome = "not_sent"       // provably never written to the server
	OutcomeCancelled     Outcome = "cancelled"      // the client cancelled it
	OutcomeUnknown       Outcome = "unknown"        // nobody knows what was done
)

// Classes of calls that are recorded, as [Intent.Class] and [Record.Class] hold them.
const (
	ClassMutate  = "mutate"
	ClassUnknown = "unknown"
)

// Intent is what is known of a call before it is sent.
type Intent struct {
	ClientRequestID string   // the client's id of the request, as JSON text
	Owner           string   // whose call it is: the identity of leases
	Client          string   // what the client calls itself
	Server, Tool    string   // what is called
	Class           string   // ClassMutate or ClassUnknown
	Resources       []string // what it was given a lease on, in order
	Epoch           uint64   // the lease's fencing number, 0 without a lease
	// Arguments are digested with a key of this directory and not kept: equal
	// arguments give equal digests, and nothing can be guessed from one.
	Arguments []byte
	// Waited is how long the call waited for its leases, and WaitedFor whose they
	// were; for the history.
	Waited    time.Duration
	WaitedFor string
}

// Record is one run as the recovery file holds it.
type Record struct {
	RequestID       string    `json:"requestId"` // the run's id, unique for ever
	OwnerID         string    `json:"ownerId"`
	StartedAt       time.Time `json:"startedAt"`
	Client          string    `json:"client,omitempty"`
	ClientRequestID string    `json:"clientRequestId,omitempty"` // JSON text
	Server          string    `json:"server,omitempty"`
	Tool            string    `json:"tool,omitempty"`
	Class           string    `json:"class,omitempty"`
	Resource        string    `json:"resource,omitempty"`  // the first one
	Resources       []string  `json:"resources,omitempty"` // all, when there are several
	Epoch           uint64    `json:"epoch,omitempty"`
	ArgumentsDigest string    `json:"argumentsDigest,omitempty"`
	Outcome         Outcome   `json:"outcome,omitempty"` // empty while the run is active
	Reason          string    `json:"reason,omitempty"`
}

// AllResources returns every resource of the run, in the order they were taken.
func (r *Record) AllResources() []string {
	if len(r.Resources) > 0 {
		return r.Resources
	}
	if r.Resource != "" {
		return []string{r.Resource}
	}
	return nil
}

// setResources stores a list in the two fields that hold it.
func (r *Record) setResources(list []string) {
	r.Resource, r.Resources = "", nil
	if len(list) > 0 {
		r.Resource = list[0]
	}
	if len(list) > 1 {
		r.Resources = list
	}
}

// Codes of problems.
const (
	CodeTorn        = "journal_torn"         // a tail was cut and kept aside
	CodeDamaged     = "journal_damaged"      // a damaged journal was set aside
	CodeBadRecovery = "recovery_damaged"     // a damaged recovery file was set aside
	CodeSchema      = "recovery_unsupported" // a file of another version
	CodeUnreadable  = "recovery_unreadable"  // a file that cannot be read
	CodeUnwritable  = "state_unwritable"     // begin records cannot be written
	CodeStale       = "recovery_stale"       // the recovery file could not be rewritten
)

// Problem is something about the record that somebody should know or do.
type Problem struct {
	Code   string `json:"code"`
	Detail string `json:"detail"`
	Remedy string `json:"remedy"`
	// Blocks says that no run can begin while the problem lasts.
	Blocks bool `json:"blocks"`
}

// Report is what Open found and did.
type Report struct {
	Epoch       uint64    // the number of this Open, greater than any before it
	Interrupted int       // runs found begun and not ended
	Pending     int       // runs pending now
	Torn        int64     // bytes of torn tails cut off and kept aside
	Problems    []Problem // what is wrong; empty when all is well
}
