package recovery

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// retryEvery is how long a failed attempt to write is taken for the answer to
	// the next ones.
	retryEvery = time.Second
	// maxReason bounds the text of an end record, so that the reserve holds the ends
	// of every call that can be active.
	maxReason = 160
)

// Journal is the open record. Its methods are safe for concurrent use.
type Journal struct {
	o       Options
	number  uint64 // of this Open
	key     *digester
	history *history
	serial  atomic.Uint64 // of the last run id
	found   []Problem     // what Open found that does not block
	// recoveredAt is when the last merge happened.
	recoveredAt time.Time

	// turn holds a value while somebody writes to the segment; that one owns seg,
	// failedAt and failure. It is a place in a queue rather than a lock: callers that
	// arrive meanwhile gather in the batch.
	turn     chan struct{}
	seg      *segment
	failedAt time.Time // when no segment could be started, with
	failure  error     // the cause

	// fileTurn holds a value while somebody writes the recovery file.
	fileTurn chan struct{}
	// ackTurn holds a value during an acknowledgement or a repair.
	ackTurn chan struct{}

	mu     sync.Mutex // guards the fields below; never held over I/O
	batch  *batch     // records that wait for the turn
	spare  []byte     // a buffer for the next batch
	closed bool
	frozen bool      // nothing may be written
	blocks []Problem // why no run may begin
	state  state
	// saved is the version of the pending set that the recovery file holds.
	saved uint64
	// unwritable and stale are why begin records and the recovery file cannot be
	// written at present.
	unwritable, stale error

	keeper keeper // does what nobody waits for
}

// Open reads what earlier daemons left, merges it into the recovery file, and begins
// or resumes the journal. The caller holds the daemon's lock until Close. It fails
// only for a directory that cannot be listed: everything else that is wrong is in
// the report, and the journal then refuses what it cannot do.
func Open(o Options) (*Journal, Report, error) {
	o = o.withDefaults()
	if o.Dir == "" {
		return nil, Report{}, errors.New("opening journal: no directory given")
	}
	l, err := load(o)
	if err != nil {
		return nil, Report{}, err
	}
	j := &Journal{
		o:        o,
		number:   l.number + 1,
		turn:     make(chan struct{}, 1),
		fileTurn: make(chan struct{}, 1),
		ackTurn:  make(chan struct{}, 1),
		frozen:   l.frozen,

		recoveredAt: o.Now(),
		state:       newState(),
		keeper:      newKeeper(),
	}
	interrupted := j.adopt(l)
	j.key = openDigester(o, !j.frozen)
	j.history = openHistory(o)
	report := Report{Epoch: j.number, Interrupted: interrupted}
	if !j.frozen {
		report.Torn = j.establish(l)
	}
	report.Pending = len(j.state.pending)
	report.Problems = j.Problems()
	go j.keeper.run(j)
	return j, report, nil
}

// adopt makes what was loaded the state of the journal.
func (j *Journal) adopt(l *loaded) (interrupted int) {
	runs, interrupted := l.pending(j.o.BootID)
	for id, r := range runs {
		filed, ok := l.filed[id]
		j.state.addPending(r, ok && filed.Outcome == r.Outcome)
	}
	j.state.acked = l.acked
	l.recent(j.state.remember)
	j.state.sortRecent()
	if j.state.allFiled() && len(l.filed) == len(runs) && l.recoveryFound == (len(runs) > 0) {
		j.saved = j.state.version
	}
	for _, p := range l.problems {
		if p.Blocks {
			j.blocks = append(j.blocks, p)
		} else {
			j.found = append(j.found, p)
		}
	}
	return interrupted
}

// establish does to the files what loading found to be necessary. Each step leaves
// them so that loading again finds the same runs.
func (j *Journal) establish(l *loaded) (torn int64) {
	// What a crash left half-made. If it cannot go now, the next making removes it.
	for _, name := range []string{j.o.Journal + nextSuffix, j.o.Recovery + tmpSuffix} {
		_ = remove(j.o.FS, name)
	}
	for _, name := range l.setAside {
		if err := setAside(j.o, name); err != nil {
			// Writing would go over the damaged file.
			j.frozen = true
			j.unwritable = fmt.Errorf("setting aside damaged %q: %w", name, err)
			return 0
		}
	}
	// A failure is kept as a problem; the journal holds the runs meanwhile.
	_ = j.saveRecovery()
	whole := l.journalFound && l.journal.damage == ""
	if whole && (l.journal.torn > 0 || l.journal.holes) {
		torn = j.keepTorn(l)
	}
	if whole && !l.journal.holes {
		if seg, err := resumeSegment(j.o.FS, j.o.Journal, l.journal); err == nil {
			j.seg = seg
		}
	}
	opened := j.opened()
	// A failure is kept as a problem, and each segment begins with this record.
	_ = j.commit(&op{entry: opened, sync: true})
	return torn
}

// opened is the record that a daemon begins with.
func (j *Journal) opened() entry {
	return entry{kind: kindOpened, at: j.o.Now().UnixNano(), num: j.number, boot: j.o.BootID}
}

// keepTorn copies a tail that is about to be cut, the whole file if intact frames
// follow it. It is for the curious only: no Begin returned for what is in it.
func (j *Journal) keepTorn(l *loaded) int64 {
	data, size := l.journalData[l.journal.end:l.journal.end+l.journal.torn], l.journal.torn
	if l.journal.holes {
		data, size = l.journalData, int64(len(l.journalData))
	}
	where := "it could not be kept"
	if name, err := asideName(j.o, j.o.Journal, tornSuffix); err == nil {
		if err := writeNew(j.o.FS, name, data); err == nil {
			where = fmt.Sprintf("it is kept in %q", name)
		}
	}
	j.found = append(j.found, Problem{
		Code:   CodeTorn,
		Detail: fmt.Sprintf("The last write to journal %q had not finished: %d bytes were cut off; %s.", j.o.Journal, size, where),
		Remedy: "Nothing needs to be done: no call was sent for an unfinished record.",
	})
	if l.journal.holes {
		j.found[len(j.found)-1].Remedy = "Calls that ran when the machine stopped may be missing from the record. With \"sync\": \"power\" in the configuration they would not be."
	}
	return size
}

// Begin records that a call is about to be sent. Once it returned without an error
// the record is as durable as Options.Sync says, and the caller must End the run.
// Errors: ErrUnwritable, ErrQuarantined, ErrTooLarge, ErrClosed; nothing may be sent
// then.
func (j *Journal) Begin(in Intent) (*Run, error) {
	now := j.o.Now()
	r := &Run{j: j, waited: in.Waited, waitedFor: clean(in.WaitedFor)}
	r.begin = op{
		entry: entry{kind: kindBegin, at: now.UnixNano(), run: Record{
			RequestID:       j.newID(),
			OwnerID:         clean(in.Owner),
			StartedAt:       now.UTC(),
			Client:          clean(in.Client),
			ClientRequestID: clean(in.ClientRequestID),
			Server:          clean(in.Server),
			Tool:            clean(in.Tool),
			Class:           clean(in.Class),
			Epoch:           in.Epoch,
			ArgumentsDigest: j.key.digest(in.Arguments),
		}},
		run:  r,
		sync: j.o.Sync == SyncPower,
	}
	resources := slices.Clone(in.Resources)
	for i := range resources {
		resources[i] = clean(resources[i])
	}
	r.begin.entry.run.setResources(resources)
	if r.record().size() > maxBegin-1024 {
		return nil, fmt.Errorf("recording call of %q: %w", in.Tool, ErrTooLarge)
	}
	if err := j.commit(&r.begin); err != nil {
		return nil, err
	}
	return r, nil
}

// size is the length of all texts of a record.
func (r *Record) size() int {
	n := len(r.OwnerID) + len(r.Client) + len(r.ClientRequestID) + len(r.Server) + len(r.Tool) + len(r.Class)
	for _, resource := range r.AllResources() {
		n += len(resource) + 4
	}
	return n
}

// clean makes text valid UTF-8, which the format relies on.
func clean(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// newID returns an id that no run had before.
func (j *Journal) newID() string {
	b := make([]byte, 0, 64)
	b = strconv.AppendUint(b, j.number, 10)
	b = append(b, '-')
	b = strconv.AppendUint(b, j.serial.Add(1), 10)
	b = append(b, '-')
	random := strconv.FormatUint(rand.Uint64(), 16)
	b = append(b, "0000000000000000"[len(random):]...)
	return string(append(b, random...))
}

// Run is one recorded call from Begin to End.
type Run struct {
	j     *Journal
	begin op
	ended atomic.Bool

	waited    time.Duration // for leases
	waitedFor string
}

// record is what was written when the run began.
func (r *Run) record() *Record { return &r.begin.entry.run }

// ID returns the run's id: at most 128 characters of [0-9a-z-], never used again.
func (r *Run) ID() string { return r.record().RequestID }

// End records how the call ended, once: later calls return ErrEnded. The caller sends
// the client's answer after it. With an error the outcome is not on disk and the run
// will be listed as unknown if the daemon dies now; the answer may be given all the
// same. A reason is for people, and cut to 160 bytes.
func (r *Run) End(outcome Outcome, reason string) error {
	if r.ended.Swap(true) {
		return fmt.Errorf("ending run %s: %w", r.ID(), ErrEnded)
	}
	now := r.j.o.Now()
	if len(reason) > maxReason {
		reason = reason[:maxReason]
	}
	end := &op{run: r, entry: entry{kind: kindEnd, at: now.UnixNano(), run: Record{
		RequestID: r.ID(), Outcome: outcome, Reason: strings.ToValidUTF8(reason, ""),
	}}}
	err := r.j.commit(end)
	r.j.Note(r.call(now, end.entry.run))
	if outcome == OutcomeUnknown {
		// A failure is kept as a problem and tried again; the journal has the run.
		_ = r.j.saveRecovery()
	}
	return err
}

// Pending returns the runs that wait to be acknowledged, oldest first. The slice is
// shared: callers must not change it.
func (j *Journal) Pending() []Record {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.state.pendingRuns()
}

// PendingOn returns the pending runs of class mutate that a new call must wait for
// when pending runs block: those on a resource that overlaps says conflicts with
// the call's; with a nil overlaps, those of the server.
func (j *Journal) PendingOn(server string, overlaps func(resource string) bool) []Record {
	var on []Record
	for _, r := range j.Pending() {
		if r.Class != ClassMutate {
			continue
		}
		if overlaps == nil && r.Server == server || overlaps != nil && slices.ContainsFunc(r.AllResources(), overlaps) {
			on = append(on, r)
		}
	}
	return on
}

// Active returns the runs that have begun and not ended, at most limit of them,
// oldest first, and how many there are in all.
func (j *Journal) Active(limit int) (runs []Record, total int) {
	j.mu.Lock()
	for _, r := range j.state.active {
		runs = append(runs, *r.record())
	}
	j.mu.Unlock()
	sortRuns(runs)
	return runs[:min(limit, len(runs))], len(runs)
}

// Lookup finds the latest run of an owner's request: active (no outcome yet),
// pending (OutcomeUnknown), acknowledged or ended in the last 10 minutes and among
// the last 4,096 of this and earlier daemons. When it finds none for a request that
// was unanswered a moment ago, the request was not sent.
func (j *Journal) Lookup(owner, clientRequestID string) (Record, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.state.lookup(owner, clientRequestID)
}

// Problems returns what is wrong now; what stops mutations comes first.
func (j *Journal) Problems() []Problem {
	j.mu.Lock()
	defer j.mu.Unlock()
	list := slices.Concat(j.blocks, j.found)
	if j.unwritable != nil {
		list = append(list, Problem{
			Code:   CodeUnwritable,
			Detail: fmt.Sprintf("Journal %q cannot be written: %v. Calls that change something are refused.", j.o.Journal, j.unwritable),
			Remedy: "Free space or make the directory writable; it is tried again every second.",
			Blocks: true,
		})
	}
	if j.stale != nil {
		list = append(list, Problem{
			Code:   CodeStale,
			Detail: fmt.Sprintf("Recovery file %q is out of date: %v. The journal holds what it lacks.", j.o.Recovery, j.stale),
			Remedy: "Free space or make the directory writable; it is tried again every second.",
		})
	}
	return list
}

// Close ends the use of the journal. Runs that are active stay on record as begun.
// It waits for every goroutine of the journal.
func (j *Journal) Close() error {
	j.mu.Lock()
	closed := j.closed
	j.closed = true
	j.mu.Unlock()
	if closed {
		return nil
	}
	j.keeper.stop()
	j.turn <- struct{}{}
	defer func() { <-j.turn }()
	err := j.history.flush()
	if j.seg != nil {
		if j.seg.usable() {
			err = errors.Join(err, j.seg.file.Datasync())
			j.seg.failed = ErrClosed
		}
		err = errors.Join(err, j.seg.file.Close())
		j.seg = nil
	}
	return err
}
