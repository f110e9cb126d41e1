package recovery

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Reasons of runs that nobody ended.
const (
	reasonDaemonDied = "the daemon ended before the call did"
	reasonRebooted   = "the machine was restarted before the call ended"
)

// loaded is the union of everything that the files say. It is only a value: loading
// changes nothing on disk.
type loaded struct {
	begun  map[string]*begun
	ended  map[string]ending
	acked  map[string]time.Time
	filed  map[string]Record // runs of the intact recovery file
	loose  map[string]Record // runs salvaged from damaged recovery files
	number uint64            // the greatest number of an Open

	journal       scan // of the current segment
	journalData   []byte
	journalFound  bool
	recoveryFound bool
	recoveredAt   time.Time

	corrupt  []string // damaged files that were set aside before and wait for repair
	setAside []string // damaged files that still have their name
	// frozen means that a file must not be touched, and so nothing is written.
	frozen   bool
	problems []Problem
}

// ending is an end record.
type ending struct {
	outcome Outcome
	reason  string
	at      time.Time
}

// begun is a begin record and the boot of the daemon that wrote it.
type begun struct {
	run  Record
	boot string
}

func newLoaded() *loaded {
	return &loaded{
		begun: map[string]*begun{}, ended: map[string]ending{}, acked: map[string]time.Time{},
		filed: map[string]Record{}, loose: map[string]Record{},
	}
}

// load reads everything and judges it.
func load(o Options) (*loaded, error) {
	l := newLoaded()
	if err := l.loadCorrupt(o); err != nil {
		return nil, err
	}
	l.loadRecovery(o)
	l.loadJournal(o)
	return l, nil
}

// loadCorrupt takes over what is intact in files that were set aside as damaged.
func (l *loaded) loadCorrupt(o Options) error {
	journals, err := corruptCopies(o.FS, o.Journal)
	if err != nil {
		return fmt.Errorf("reading directory of %q: %w", o.Journal, err)
	}
	recoveries, err := corruptCopies(o.FS, o.Recovery)
	if err != nil {
		return fmt.Errorf("reading directory of %q: %w", o.Recovery, err)
	}
	for _, name := range journals {
		if data, _, ok := l.read(o, name, maxSegment); ok {
			scanSegment(data, o.BootID, l.taker())
		}
		l.corrupt = append(l.corrupt, name)
		l.problems = append(l.problems, damaged(o, CodeDamaged, "journal", name, "it was set aside earlier"))
	}
	for _, name := range recoveries {
		if data, _, ok := l.read(o, name, maxDocument); ok {
			l.salvage(data)
		}
		l.corrupt = append(l.corrupt, name)
		l.problems = append(l.problems, damaged(o, CodeBadRecovery, "recovery file", name, "it was set aside earlier"))
	}
	return nil
}

// loadRecovery reads the recovery file.
func (l *loaded) loadRecovery(o Options) {
	data, size, ok := l.read(o, o.Recovery, maxDocument)
	if !ok {
		return
	}
	l.recoveryFound = true
	doc, err := decodeDocument(data)
	if size > maxDocument {
		err = fmt.Errorf("it has %d bytes, more than are ever written", size)
	}
	switch {
	case errors.Is(err, errSchema):
		l.freeze(Problem{
			Code:   CodeSchema,
			Detail: fmt.Sprintf("Recovery file %q was written by another version: %v.", o.Recovery, err),
			Remedy: "Run the version that wrote it, or move the file out of the way and start the daemon again.",
		})
	case err != nil:
		l.salvage(data)
		l.damage(o, CodeBadRecovery, "recovery file", o.Recovery, err.Error())
	default:
		l.recoveredAt = doc.RecoveredAt
		l.number = max(l.number, doc.Epoch)
		for _, r := range doc.Runs {
			l.filed[r.RequestID] = r
		}
	}
}

// loadJournal reads the current segment.
func (l *loaded) loadJournal(o Options) {
	data, size, ok := l.read(o, o.Journal, maxSegment)
	if !ok {
		return
	}
	l.journalFound, l.journalData = true, data
	l.journal = scanSegment(data, o.BootID, l.taker())
	if size > maxSegment {
		l.journal.damage = fmt.Sprintf("it has %d bytes, more than are ever written", size)
	}
	if l.journal.foreign {
		l.freeze(Problem{
			Code:   CodeSchema,
			Detail: fmt.Sprintf("Journal %q was written by another version.", o.Journal),
			Remedy: "Run the version that wrote it, or move the file out of the way and start the daemon again.",
		})
		return
	}
	if l.journal.damage != "" {
		l.damage(o, CodeDamaged, "journal", o.Journal, l.journal.damage)
	}
}

// read reads a file. Whatever is wrong with it becomes a problem; ok is false then,
// and when there is no such file.
func (l *loaded) read(o Options, name string, limit int64) (data []byte, size int64, ok bool) {
	data, size, err := readFile(o.FS, name, limit)
	switch {
	case err == nil:
		return data, size, true
	case errors.Is(err, fs.ErrNotExist):
	case errors.Is(err, errIrregular) && !isCopy(name):
		code, what := CodeDamaged, "journal"
		if name == o.Recovery {
			code, what = CodeBadRecovery, "recovery file"
		}
		l.damage(o, code, what, name, err.Error())
	case errors.Is(err, errIrregular):
	default:
		l.freeze(Problem{
			Code:   CodeUnreadable,
			Detail: fmt.Sprintf("Cannot read %q: %v.", name, err),
			Remedy: "Make the file readable for this user and start the daemon again.",
		})
	}
	return nil, 0, false
}

// taker returns a function that adds the records of one journal, in any order and any
// number of times.
func (l *loaded) taker() func(*entry) {
	boot := ""
	return func(e *entry) {
		switch e.kind {
		case kindOpened:
			boot = e.boot
			l.number = max(l.number, e.num)
		case kindBegin:
			if l.begun[e.run.RequestID] == nil {
				e.run.StartedAt = instant(e.at)
				l.begun[e.run.RequestID] = &begun{e.run, boot}
			}
		case kindEnd:
			l.ended[e.run.RequestID] = ending{e.run.Outcome, e.run.Reason, instant(e.at)}
		case kindAck:
			for _, id := range e.ids {
				l.acked[id] = instant(e.at)
			}
		}
	}
}

// salvage adds the readable runs of a damaged recovery file.
func (l *loaded) salvage(data []byte) {
	for _, r := range salvageRuns(data) {
		l.loose[r.RequestID] = r
	}
}

// pending returns what is begun and not ended, ended unknown, or filed, and not
// acknowledged; and how many of them nobody had noted before.
func (l *loaded) pending(boot string) (runs map[string]Record, interrupted int) {
	runs = map[string]Record{}
	add := func(r Record) {
		if _, gone := l.acked[r.RequestID]; gone {
			return
		}
		if _, known := runs[r.RequestID]; !known {
			runs[r.RequestID] = r
		}
	}
	for _, r := range l.filed {
		add(r)
	}
	for id, b := range l.begun {
		r := b.run
		end, ended := l.ended[id]
		switch {
		case !ended:
			r.Outcome, r.Reason = OutcomeUnknown, reasonDaemonDied
			if b.boot != "" && boot != "" && b.boot != boot {
				r.Reason = reasonRebooted
			}
			if _, known := l.filed[id]; !known {
				if _, gone := l.acked[id]; !gone {
					interrupted++
				}
			}
		case end.outcome == OutcomeUnknown:
			r.Outcome, r.Reason = OutcomeUnknown, end.reason
		default:
			continue
		}
		add(r)
	}
	for id, r := range l.loose {
		if end, ended := l.ended[id]; !ended || end.outcome == OutcomeUnknown {
			add(r)
		}
	}
	return runs, interrupted
}

// recent hands over the runs that are not pending any more: ended with a known
// outcome, or acknowledged.
func (l *loaded) recent(remember func(Record, Outcome, time.Time)) {
	for id, b := range l.begun {
		acked, gone := l.acked[id]
		end, ended := l.ended[id]
		switch {
		case ended && end.outcome != OutcomeUnknown:
			remember(b.run, end.outcome, end.at)
		case gone:
			remember(b.run, OutcomeUnknown, acked)
		}
	}
}

// damage records that a file has to be set aside and mended.
func (l *loaded) damage(o Options, code, what, name, detail string) {
	l.setAside = append(l.setAside, name)
	l.problems = append(l.problems, damaged(o, code, what, name, detail))
}

// freeze records a problem with a file that must stay as it is.
func (l *loaded) freeze(p Problem) {
	l.frozen = true
	p.Blocks = true
	l.problems = append(l.problems, p)
}

// damaged describes a damaged file and how to mend it.
func damaged(o Options, code, what, name, detail string) Problem {
	return Problem{
		Code:   code,
		Detail: fmt.Sprintf("The %s %q is damaged: %s. Calls that change something are refused.", what, name, detail),
		Remedy: fmt.Sprintf("Run `%s daemon recovery --repair`: it takes over every intact record and keeps the file.", o.Command),
		Blocks: true,
	}
}

const (
	corruptSuffix  = ".corrupt-"
	repairedSuffix = ".repaired-"
	tornSuffix     = ".torn-"
)

// isCopy says that a path is one that was set aside.
func isCopy(name string) bool { return strings.Contains(filepath.Base(name), corruptSuffix) }

// corruptCopies lists the damaged copies of a file that wait for repair.
func corruptCopies(fsys FS, name string) ([]string, error) {
	dir := filepath.Dir(name)
	names, err := fsys.Names(dir)
	if err != nil {
		return nil, err
	}
	var copies []string
	for _, n := range names {
		if strings.HasPrefix(n, filepath.Base(name)+corruptSuffix) && !strings.HasSuffix(n, tmpSuffix) {
			copies = append(copies, filepath.Join(dir, n))
		}
	}
	slices.Sort(copies)
	return copies, nil
}

// asideName returns a name for a copy of a file that is not taken yet.
func asideName(o Options, name, suffix string) (string, error) {
	names, err := o.FS.Names(filepath.Dir(name))
	if err != nil {
		return "", err
	}
	aside := name + suffix + o.Now().UTC().Format("20060102T150405Z")
	for n := 2; slices.Contains(names, filepath.Base(aside)); n++ {
		aside = name + suffix + o.Now().UTC().Format("20060102T150405Z") + "-" + strconv.Itoa(n)
	}
	return aside, nil
}
