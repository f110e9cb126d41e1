package recovery

import (
	"cmp"
	"slices"
	"time"
)

// Bounds of what a new segment takes over.
const (
	ackedFor   = 30 * 24 * time.Hour
	maxAcked   = 8192
	recentFor  = 10 * time.Minute
	maxRecent  = 4096
	ackedChunk = 512 // ids in one record
)

// state is what the journal and the recovery file say together.
type state struct {
	active  map[string]*Run
	pending map[string]*pendingRun
	acked   map[string]time.Time
	// recent is a ring of the last runs that ended with a known outcome or were
	// acknowledged; next is where the next one goes once it is full.
	recent []recentRun
	next   int
	// version rises with each change of the pending set; list is the set, sorted, nil
	// when it has to be made again.
	version uint64
	list    []Record
}

// pendingRun is a run to be acknowledged. Filed means that the recovery file holds
// it durably, so the journal need not.
type pendingRun struct {
	record Record
	filed  bool
}

// recentRun is what is kept of a run that ended.
type recentRun struct {
	id, owner, clientRequestID string
	outcome                    Outcome
	at                         time.Time
}

func newState() state {
	return state{
		active:  map[string]*Run{},
		pending: map[string]*pendingRun{},
		acked:   map[string]time.Time{},
		version: 1,
	}
}

// apply makes a written record part of the state.
func (s *state) apply(p *op) {
	e := &p.entry
	switch {
	case e.kind == kindEnd:
		delete(s.active, e.run.RequestID)
		began := *p.run.record()
		if e.run.Outcome != OutcomeUnknown {
			s.remember(began, e.run.Outcome, time.Unix(0, e.at))
			return
		}
		began.Outcome, began.Reason = e.run.Outcome, e.run.Reason
		s.addPending(began, false)
	case p.err != nil:
	case e.kind == kindBegin:
		s.active[e.run.RequestID] = p.run
	case e.kind == kindAck:
		for _, id := range e.ids {
			s.acknowledge(id, time.Unix(0, e.at))
		}
		s.changed()
	}
}

// acknowledge takes a run out of the pending set. It stays known for a while: its
// client may still ask what became of the request.
func (s *state) acknowledge(id string, at time.Time) {
	s.acked[id] = at
	if p := s.pending[id]; p != nil {
		s.remember(p.record, OutcomeUnknown, at)
		delete(s.pending, id)
	}
}

// stubs returns what an acknowledgement of ids has to put into the journal for
// lookup to find them after a restart: the recovery file will not hold them any more.
func (s *state) stubs(ids []string) []entry {
	var list []entry
	for _, id := range ids {
		if p := s.pending[id]; p != nil && p.filed {
			list = append(list, entry{kind: kindBegin, at: nanos(p.record.StartedAt), run: Record{
				RequestID: id, OwnerID: p.record.OwnerID, ClientRequestID: p.record.ClientRequestID,
			}})
		}
	}
	return list
}

// changed notes a change of the pending set.
func (s *state) changed() {
	s.version++
	s.list = nil
}

func (s *state) addPending(r Record, filed bool) {
	s.pending[r.RequestID] = &pendingRun{r, filed}
	s.changed()
}

// pendingRuns returns the pending set, oldest first. It is not changed afterwards.
func (s *state) pendingRuns() []Record {
	if s.list == nil && len(s.pending) > 0 {
		s.list = make([]Record, 0, len(s.pending))
		for _, p := range s.pending {
			s.list = append(s.list, p.record)
		}
		sortRuns(s.list)
	}
	return s.list
}

// file notes that the recovery file holds these runs.
func (s *state) file(runs []Record) {
	for i := range runs {
		if p := s.pending[runs[i].RequestID]; p != nil {
			p.filed = true
		}
	}
}

func (s *state) allFiled() bool {
	for _, p := range s.pending {
		if !p.filed {
			return false
		}
	}
	return true
}

// remember keeps a run that ended with a known outcome in place of the oldest one.
func (s *state) remember(r Record, outcome Outcome, at time.Time) {
	ended := recentRun{r.RequestID, r.OwnerID, r.ClientRequestID, outcome, at}
	if len(s.recent) < maxRecent {
		s.recent = append(s.recent, ended)
		return
	}
	s.recent[s.next] = ended
	s.next = (s.next + 1) % maxRecent
}

// inOrder returns the ring, oldest first.
func (s *state) inOrder() []recentRun {
	return slices.Concat(s.recent[s.next:], s.recent[:s.next])
}

// sortRecent orders runs that were remembered in no order.
func (s *state) sortRecent() {
	slices.SortFunc(s.recent, func(a, b recentRun) int { return a.at.Compare(b.at) })
	s.next = 0
}

// lookup finds the latest run of a request.
func (s *state) lookup(owner, clientRequestID string) (found Record, ok bool) {
	take := func(r Record) {
		if r.OwnerID == owner && r.ClientRequestID == clientRequestID && (!ok || !r.StartedAt.Before(found.StartedAt)) {
			found, ok = r, true
		}
	}
	for _, p := range s.pending {
		take(p.record)
	}
	for _, r := range s.active {
		take(*r.record())
	}
	if ok {
		return found, true
	}
	recent := s.inOrder()
	for i := len(recent) - 1; i >= 0; i-- {
		if r := recent[i]; r.owner == owner && r.clientRequestID == clientRequestID {
			return Record{RequestID: r.id, OwnerID: owner, ClientRequestID: clientRequestID, Outcome: r.outcome}, true
		}
	}
	return Record{}, false
}

// appendLive appends the frames of everything that a new segment has to hold, and
// forgets what it need not. An acknowledgement is forgotten together with the
// segment that may still hold its run's begin record, and never while keepAcked says
// that another file may hold it, too.
func (s *state) appendLive(b []byte, now time.Time, keepAcked bool) []byte {
	for _, r := range s.active {
		b = appendEntry(b, &r.begin.entry)
	}
	for _, p := range s.pending {
		if !p.filed {
			b = appendRun(b, p.record, p.record.StartedAt, now)
		}
	}
	if !keepAcked {
		s.forgetAcked(now)
	}
	b = s.appendAcked(b)
	for _, r := range s.inOrder() {
		_, acked := s.acked[r.id]
		// Without the acknowledgement an unknown outcome would be pending again.
		if now.Sub(r.at) < recentFor && (acked || r.outcome != OutcomeUnknown) {
			b = appendRun(b, Record{
				RequestID: r.id, OwnerID: r.owner, ClientRequestID: r.clientRequestID, Outcome: r.outcome,
			}, r.at, r.at)
		}
	}
	return b
}

// appendRun appends a run that has ended as its begin and end records.
func appendRun(b []byte, r Record, began, ended time.Time) []byte {
	end := Record{RequestID: r.RequestID, Outcome: r.Outcome, Reason: r.Reason}
	r.Outcome, r.Reason = "", ""
	b = appendEntry(b, &entry{kind: kindBegin, at: nanos(began), run: r})
	return appendEntry(b, &entry{kind: kindEnd, at: nanos(ended), run: end})
}

// forgetAcked drops acknowledgements that are too old or too many, oldest first.
func (s *state) forgetAcked(now time.Time) {
	for id, at := range s.acked {
		if now.Sub(at) > ackedFor {
			delete(s.acked, id)
		}
	}
	if over := len(s.acked) - maxAcked; over > 0 {
		for _, id := range s.ackedIDs()[:over] {
			delete(s.acked, id)
		}
	}
}

// ackedIDs lists the acknowledged ids, oldest first.
func (s *state) ackedIDs() []string {
	ids := make([]string, 0, len(s.acked))
	for id := range s.acked {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b string) int {
		return cmp.Or(s.acked[a].Compare(s.acked[b]), cmp.Compare(a, b))
	})
	return ids
}

// appendAcked appends the acknowledgements, those of one moment together.
func (s *state) appendAcked(b []byte) []byte {
	ids := s.ackedIDs()
	for len(ids) > 0 {
		at, n := s.acked[ids[0]], 1
		for n < len(ids) && n < ackedChunk && s.acked[ids[n]].Equal(at) {
			n++
		}
		b = appendEntry(b, &entry{kind: kindAck, at: at.UnixNano(), ids: ids[:n]})
		ids = ids[n:]
	}
	return b
}
