package recovery

import (
	"errors"
	"fmt"
)

// op is a record on its way to the disk.
type op struct {
	entry entry
	stubs []entry // ack: begin records that have to be in the journal with it
	run   *Run    // begin and end: whose
	sync  bool    // must be on the disk, not only written
	err   error
	from  int // where its frame lies in the batch
	to    int
}

// batch gathers records while somebody else writes. The caller that opened it
// writes it; the others wait for done.
type batch struct {
	ops    []*op
	frames []byte
	sync   bool
	begins bool
	// refused is why begin records were taken out again.
	refused error
	done    chan struct{} // made by the first that joins, closed by the writer
}

// add appends a record.
func (b *batch) add(p *op) {
	p.from = len(b.frames)
	for i := range p.stubs {
		b.frames = appendEntry(b.frames, &p.stubs[i])
	}
	b.frames = appendEntry(b.frames, &p.entry)
	p.to = len(b.frames)
	b.ops = append(b.ops, p)
	b.sync = b.sync || p.sync
	b.begins = b.begins || p.entry.kind == kindBegin
}

// refuseBegins fails the begin records and takes their frames out.
func (b *batch) refuseBegins(cause error) {
	var frames []byte
	b.sync, b.begins, b.refused = false, false, cause
	for _, p := range b.ops {
		if p.entry.kind == kindBegin {
			p.err = fmt.Errorf("%w: %w", ErrUnwritable, cause)
			continue
		}
		frames = append(frames, b.frames[p.from:p.to]...)
		b.sync = b.sync || p.sync
	}
	b.frames = frames
}

// commit writes a record together with those of callers that come meanwhile, and
// applies it to the state. It returns once the record is as durable as it asks for.
// With an error a begin or ack record is not applied; an end is, since what the state
// says is what the next segment will hold.
func (j *Journal) commit(p *op) error {
	j.mu.Lock()
	if err := j.refusalLocked(p.entry.kind); err != nil {
		j.mu.Unlock()
		return err
	}
	b := j.batch
	leads := b == nil
	if leads {
		b = &batch{frames: j.spare[:0]}
		j.batch, j.spare = b, nil
	} else if b.done == nil {
		b.done = make(chan struct{})
	}
	b.add(p)
	j.mu.Unlock()

	if !leads {
		<-b.done
		return p.err
	}
	j.turn <- struct{}{}
	j.mu.Lock()
	j.batch = nil // from here on nobody joins
	j.mu.Unlock()
	j.write(b)
	<-j.turn
	if b.done != nil {
		close(b.done)
	}
	return p.err
}

// refusalLocked says why a record may not be written at all.
func (j *Journal) refusalLocked(k kind) error {
	switch {
	case j.closed:
		return ErrClosed
	case k == kindBegin && len(j.blocks) > 0, j.frozen && len(j.blocks) > 0:
		return fmt.Errorf("%w: %s %s", ErrQuarantined, j.blocks[0].Detail, j.blocks[0].Remedy)
	case j.frozen:
		return fmt.Errorf("%w: %w", ErrUnwritable, j.unwritable)
	}
	return nil
}

// write puts a batch on disk and applies it. The caller has the turn. A segment that
// fails is given up for a new one, once.
func (j *Journal) write(b *batch) {
	err := j.put(b)
	if err != nil && j.seg != nil && j.seg.failed != nil {
		err = j.put(b)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case err != nil:
		j.unwritable = err
	case b.refused != nil:
		j.unwritable = b.refused
	case b.begins:
		j.unwritable = nil
	}
	if j.unwritable != nil {
		j.keeper.nudge()
	}
	for _, p := range b.ops {
		if p.err == nil && err != nil {
			p.err = fmt.Errorf("%w: %w", ErrUnwritable, err)
		}
		j.state.apply(p)
	}
	if cap(b.frames) <= maxBegin {
		j.spare = b.frames
	}
}

// put writes a batch to the segment, or to a new one if it does not fit. If there
// can be no new one, the reserve of the old still takes everything but begins.
func (j *Journal) put(b *batch) error {
	if j.seg.usable() && j.seg.fits(len(b.frames), !b.begins) {
		return j.seg.append(b.frames, b.sync)
	}
	cause := j.startSegment(len(b.frames))
	if cause == nil {
		return j.seg.append(b.frames, b.sync)
	}
	if !j.seg.usable() {
		return cause
	}
	b.refuseBegins(cause)
	switch {
	case len(b.frames) == 0:
		return nil
	case !j.seg.fits(len(b.frames), true):
		return cause
	}
	return j.seg.append(b.frames, b.sync)
}

// startSegment replaces the segment by one that holds what lives and has room for
// need more bytes. The caller has the turn, so the state is what was written.
func (j *Journal) startSegment(need int) error {
	now := j.o.Now()
	if since := now.Sub(j.failedAt); j.failure != nil && since >= 0 && since < retryEvery {
		return j.failure
	}
	j.failure = nil
	j.mu.Lock()
	opened := j.opened()
	frames := appendEntry(nil, &opened)
	frames = j.state.appendLive(frames, now, len(j.blocks) > 0 || j.saved != j.state.version)
	closed := j.closed
	j.mu.Unlock()
	if closed {
		return ErrClosed
	}
	least := int64(len(frames)+need) + headerSize + minSegment
	if least > maxSegment {
		return fmt.Errorf("starting journal: %d bytes of runs are waiting to be filed or acknowledged", len(frames))
	}
	seg, err := makeSegment(j.o.FS, j.o.Journal, frames, max(least, j.o.SegmentSize))
	if err != nil && least < j.o.SegmentSize {
		// A nearly full disk may have room for a small one.
		seg, err = makeSegment(j.o.FS, j.o.Journal, frames, least)
	}
	if err == nil {
		err = j.replace(seg)
	}
	if err != nil {
		j.failedAt, j.failure = now, err
		return err
	}
	j.mu.Lock()
	j.unwritable = nil
	j.mu.Unlock()
	return nil
}

// replace puts a new segment in the place of the old one.
func (j *Journal) replace(seg *segment) error {
	replaced, err := publish(j.o.FS, j.o.Journal)
	if !replaced {
		return errors.Join(err, seg.file.Close())
	}
	if j.seg != nil {
		// Its content no longer counts, so neither does an error.
		_ = j.seg.file.Close()
	}
	seg.failed = err
	j.seg = seg
	return err
}

// heal tries to get a segment that takes begin records if there is none.
func (j *Journal) heal() {
	j.turn <- struct{}{}
	defer func() { <-j.turn }()
	j.mu.Lock()
	idle := j.unwritable == nil || j.frozen || j.closed
	j.mu.Unlock()
	if idle {
		return
	}
	if err := j.startSegment(0); err != nil {
		j.mu.Lock()
		j.unwritable = err
		j.mu.Unlock()
	}
}
