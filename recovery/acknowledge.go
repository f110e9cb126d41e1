package recovery

import (
	"fmt"
	"slices"
	"strings"
)

// Selection names the runs that somebody has looked into. By IDs or Digest, or both,
// it must be exactly the pending set, or exactly the part of it that Servers and
// Resource leave.
type Selection struct {
	IDs []string `json:"ids,omitempty"`
	// Digest is what SetDigest gives for the set.
	Digest string `json:"digest,omitempty"`
	// Servers, if any, leave only runs of these servers.
	Servers []string `json:"servers,omitempty"`
	// Resource, if not empty, leaves only runs on it.
	Resource string `json:"resource,omitempty"`
}

// admits says whether a run is in the part that the selection is about.
func (s Selection) admits(r *Record) bool {
	return (len(s.Servers) == 0 || slices.Contains(s.Servers, r.Server)) &&
		(s.Resource == "" || slices.Contains(r.AllResources(), s.Resource))
}

// narrow returns the runs that the selection is about.
func (s Selection) narrow(runs []Record) []Record {
	var part []Record
	for i := range runs {
		if s.admits(&runs[i]) {
			part = append(part, runs[i])
		}
	}
	return part
}

// SetError means that a selection is not exactly the pending set. Nothing was
// changed.
type SetError struct {
	Pending   []string `json:"pending"`             // the right set
	Digest    string   `json:"digest"`              // the right set's
	Missing   []string `json:"missing,omitempty"`   // pending and not named
	Unknown   []string `json:"unknown,omitempty"`   // named and neither pending nor acknowledged
	Duplicate []string `json:"duplicate,omitempty"` // named more than once
}

func (e *SetError) Error() string {
	var b strings.Builder
	b.WriteString("this is not exactly the set of pending runs, so nothing was acknowledged")
	for _, part := range []struct {
		what string
		ids  []string
	}{{"not named", e.Missing}, {"not pending", e.Unknown}, {"named twice", e.Duplicate}} {
		if len(part.ids) > 0 {
			fmt.Fprintf(&b, "; %s: %s", part.what, strings.Join(part.ids, " "))
		}
	}
	fmt.Fprintf(&b, "; pending: %s", strings.Join(e.Pending, " "))
	return b.String()
}

// check returns the ids to acknowledge: all of part, or a *SetError. Ids that were
// acknowledged before are ignored.
func (s Selection) check(part []Record, acked func(id string) bool) ([]string, error) {
	pending := idsOf(part)
	bad := &SetError{Pending: pending, Digest: SetDigest(part)}
	isPending := make(map[string]bool, len(pending))
	for _, id := range pending {
		isPending[id] = true
	}
	named := make(map[string]int, len(s.IDs))
	for _, id := range s.IDs {
		named[id]++
		switch {
		case named[id] == 2:
			bad.Duplicate = append(bad.Duplicate, id)
		case named[id] == 1 && !isPending[id] && !acked(id):
			bad.Unknown = append(bad.Unknown, id)
		}
	}
	byDigest := s.Digest != "" && len(s.IDs) == 0
	for _, id := range pending {
		if !byDigest && named[id] == 0 {
			bad.Missing = append(bad.Missing, id)
		}
	}
	wrongDigest := s.Digest != "" && s.Digest != bad.Digest
	if wrongDigest || len(bad.Missing)+len(bad.Unknown)+len(bad.Duplicate) > 0 {
		return nil, bad
	}
	return pending, nil
}

// Acknowledge takes runs out of the pending set: somebody knows what they did. A
// selection that is not exactly right gives a *SetError and changes nothing. With
// nothing pending it is a success that says so. ErrUnwritable and ErrQuarantined:
// nothing was changed.
func (j *Journal) Acknowledge(sel Selection) (Ack, error) {
	j.ackTurn <- struct{}{}
	defer func() { <-j.ackTurn }()
	j.mu.Lock()
	err := j.refusalLocked(kindAck)
	part := sel.narrow(j.state.pendingRuns())
	var ids []string
	var stubs []entry
	if err == nil && len(part) > 0 {
		ids, err = sel.check(part, func(id string) bool { _, ok := j.state.acked[id]; return ok })
		stubs = j.state.stubs(ids)
	}
	j.mu.Unlock()
	if err != nil {
		return Ack{}, err
	}
	if len(part) == 0 {
		return Ack{Status: StatusClear, Path: j.o.Recovery}, nil
	}
	err = j.commit(&op{entry: entry{kind: kindAck, at: j.o.Now().UnixNano(), ids: ids}, stubs: stubs, sync: true})
	if err != nil {
		return Ack{}, fmt.Errorf("acknowledging %d runs: %w", len(ids), err)
	}
	// A failure is kept as a problem and tried again; the journal has it.
	_ = j.saveRecovery()
	return Ack{
		Status: statusAcknowledged, Path: j.o.Recovery,
		Runs: len(ids), ReconciledRequestIDs: ids, Acknowledged: true,
	}, nil
}

// AcknowledgeOffline is Acknowledge without a running daemon; the caller holds the
// daemon's lock.
func AcknowledgeOffline(o Options, sel Selection) (ack Ack, err error) {
	err = offline(o, func(j *Journal) error {
		ack, err = j.Acknowledge(sel)
		return err
	})
	return ack, err
}

// offline opens the journal for one action.
func offline(o Options, act func(*Journal) error) error {
	j, _, err := Open(o)
	if err != nil {
		return err
	}
	// The action is durable by itself; what Close could not do, the next Open does.
	defer j.Close()
	return act(j)
}

// saveRecovery makes the recovery file hold the pending set, or removes it when the
// set is empty. Callers that come meanwhile share the next writing.
func (j *Journal) saveRecovery() error {
	j.fileTurn <- struct{}{}
	defer func() { <-j.fileTurn }()
	j.mu.Lock()
	version, runs := j.state.version, j.state.pendingRuns()
	current := j.saved == version || j.frozen
	j.mu.Unlock()
	if current {
		return nil
	}
	err := j.writeRecovery(runs)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.stale = err
	if err != nil {
		j.keeper.nudge()
		return err
	}
	j.saved = version
	j.state.file(runs)
	return nil
}

// writeRecovery replaces or removes the recovery file.
func (j *Journal) writeRecovery(runs []Record) error {
	if len(runs) == 0 {
		return removeDurably(j.o.FS, j.o.Recovery)
	}
	data, err := encodeDocument(j.o.Now(), j.number, runs)
	if err != nil {
		return err
	}
	return writeFile(j.o.FS, j.o.Recovery, data)
}
