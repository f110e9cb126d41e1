package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// ErrDuplicate is returned for a call whose id is that of a call in flight.
var ErrDuplicate = errors.New("id is already in use by a call in flight")

// ErrCancelled is returned for a call that the client has cancelled before it was
// submitted. No answer is due, and its work has been dropped.
var ErrCancelled = errors.New("call is cancelled")

// BusyError says that a call found no place under a limit.
type BusyError struct {
	Limit    string        // which limit, in words
	InFlight int           // calls of the session that hold a permit
	Waiting  int           // calls of the session that wait for one
	Waited   time.Duration // how long this one waited; 0 if the line was full
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("%s: %d calls of this session are running, %d wait", e.Limit, e.InFlight, e.Waiting)
}

// Work is what becomes of a call. Its methods are called without a lock held and
// at most once a call.
type Work interface {
	// Forward sends the call to its server; its permits are held until Settle.
	Forward()
	// Hold makes the call outlive the frame it came in: it has to wait.
	Hold()
	// Refuse answers a call that has waited too long.
	Refuse(error)
	// Drop ends a call that waits without an answer: its session is over.
	Drop()
}

// A line may be overfull for a moment: a client that asks a hundred things at
// once is served, one whose calls do not move is told so soon.
const (
	burstFactor = 4           // times the line's limit may stand in it
	burstWait   = time.Second // how long the limit may be exceeded
	lineFull    = "the line of waiting calls is full"
)

type stage uint8

const (
	begun stage = iota
	aside
	waiting
	running
	settled
)

// Call is the place of one request in its session, to be embedded in what the
// caller knows of the request. The zero Call is ready for Begin.
type Call struct {
	work     Work
	key      string
	deadline time.Time // when it is refused if it still waits; set when it begins to

	// guarded by the session's mutex
	stage     stage
	burst     *time.Timer // of a call that came when the line was full
	free      bool        // runs without permits
	long      bool        // counts against the limit of long requests
	endless   bool        // no answer is owed
	cancelled bool        // by the client, who expects no answer any more
}

// Begin registers c under the key of the client's id. It returns ErrDuplicate
// for a key in flight, ErrDraining and ErrClosed.
func (s *Session) Begin(c *Call, w Work, key string) error {
	if s.registry.draining.Load() {
		return ErrDraining
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == Closed {
		return ErrClosed
	}
	if _, ok := s.inFlight[key]; ok {
		return ErrDuplicate
	}
	c.work, c.key = w, key
	s.inFlight[key] = c
	return nil
}

// Submit forwards a begun call as soon as its permits are free and its turn has
// come: before Submit returns if that is now, else on the goroutine of the
// session's line. It returns a *BusyError when the line is full; the call is
// then over, as one is already that was cancelled since Begin, which is
// ErrCancelled. Calls that one goroutine submits keep their order.
func (s *Session) Submit(c *Call) error { return s.submit(c, false) }

// SubmitApart is Submit for a call that takes time to forward: that is never done
// before SubmitApart returns, but on the goroutine of the session's line.
func (s *Session) SubmitApart(c *Call) error { return s.submit(c, true) }

func (s *Session) submit(c *Call, apart bool) error {
	s.mu.Lock()
	if over, err := s.overLocked(c); over {
		s.mu.Unlock()
		return err
	}
	if !apart && !s.served && s.tryPermits() {
		s.leaveLineLocked(c)
		s.runLocked(c)
		s.mu.Unlock()
		c.work.Forward()
		return nil
	}
	if c.stage == begun {
		room := s.registry.limits.Waiting * burstFactor
		if apart {
			room = max(room, 1) // it does not wait for others only
		}
		if err := s.beginWaitLocked(c, room); err != nil {
			s.mu.Unlock()
			return err
		}
	}
	s.leaveLineLocked(c)
	c.stage = waiting
	s.line = append(s.line, c)
	if !s.served {
		s.served = true
		ctx, cancel := context.WithCancel(context.Background())
		s.giveUp = cancel
		s.serving.Add(1)
		go s.serveLine(ctx, cancel)
	}
	s.mu.Unlock()
	return nil
}

// beginWaitLocked makes a begun call outlive its frame and starts the time that it
// may wait, unless as many wait as there is room for. It unlocks the session for a
// moment; on an error the call is over.
func (s *Session) beginWaitLocked(c *Call, room int) error {
	if len(s.line)+len(s.aside) >= room {
		err := s.busyErrorLocked(lineFull)
		s.endLocked(c)
		return err
	}
	s.mu.Unlock()
	c.work.Hold()
	s.mu.Lock()
	if over, err := s.overLocked(c); over {
		s.mu.Unlock()
		c.work.Drop()
		s.mu.Lock()
		return err
	}
	c.deadline = time.Now().Add(s.registry.limits.WaitLimit)
	if len(s.line)+len(s.aside) >= s.registry.limits.Waiting {
		c.burst = time.AfterFunc(burstWait, func() { s.endBurst(c) })
	}
	return nil
}

// StepAside lets a begun call wait for something else than permits, which it may
// have to hold before it is submitted. It counts among those that wait, and the
// deadline that is returned is that of the whole wait, permits included. The caller
// ends the wait with Submit or GiveUp, from whatever goroutine; cancellation and
// Close drop the call meanwhile. The errors are those of Submit, and the call is
// then over.
func (s *Session) StepAside(c *Call) (deadline time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if over, err := s.overLocked(c); over {
		return time.Time{}, err
	}
	if c.stage == begun {
		if err := s.beginWaitLocked(c, s.registry.limits.Waiting*burstFactor); err != nil {
			return time.Time{}, err
		}
		c.stage = aside
		s.aside = append(s.aside, c)
	}
	return c.deadline, nil
}

// GiveUp refuses a call that stands aside, or was only begun, for the reason given.
// One that is over is left alone, and so is one that has been submitted.
func (s *Session) GiveUp(c *Call, reason error) {
	s.mu.Lock()
	if c.stage > aside {
		s.mu.Unlock()
		return
	}
	s.leaveLineLocked(c)
	s.refuseAndUnlock(c, reason)
}

// GiveUpAside refuses all calls that stand aside.
func (s *Session) GiveUpAside(reason error) {
	s.mu.Lock()
	all := slices.Clone(s.aside)
	s.mu.Unlock()
	for _, c := range all {
		s.GiveUp(c, reason)
	}
}

// leaveLineLocked takes a call out of those that wait, if it is one of them.
func (s *Session) leaveLineLocked(c *Call) {
	if i := slices.Index(s.line, c); i >= 0 {
		s.line = slices.Delete(s.line, i, i+1)
	}
	if i := slices.Index(s.aside, c); i >= 0 {
		s.aside = slices.Delete(s.aside, i, i+1)
	}
}

// SubmitLong forwards a begun request that lasts as long as the client likes. It
// takes no permit and has a limit of its own. An endless one (a subscription
// stream) does not count as in flight when a session is to become idle.
func (s *Session) SubmitLong(c *Call, endless bool) error {
	return s.forwardFree(c, true, endless)
}

// Pass forwards a begun request ahead of every queue, without a permit: a ping,
// or the handshake on which all else waits.
func (s *Session) Pass(c *Call) error { return s.forwardFree(c, false, false) }

// forwardFree forwards a begun call without a permit.
func (s *Session) forwardFree(c *Call, long, endless bool) error {
	s.mu.Lock()
	if over, err := s.overLocked(c); over {
		s.mu.Unlock()
		return err
	}
	if long && s.long >= s.registry.limits.Running {
		err := s.busyErrorLocked("the limit of long requests is reached")
		s.endLocked(c)
		s.mu.Unlock()
		return err
	}
	c.free, c.long, c.endless = true, long, endless
	c.stage = running
	if long {
		s.long++
	}
	if !endless {
		s.owed++
	}
	s.mu.Unlock()
	c.work.Forward()
	return nil
}

// overLocked reports whether nothing comes any more of a call that is not submitted
// yet, and why: its session is closed, or it was cancelled.
func (s *Session) overLocked(c *Call) (bool, error) {
	if s.state == Closed {
		if c.stage <= aside {
			s.endLocked(c)
		}
		return true, ErrClosed
	}
	if c.stage > aside {
		return true, ErrCancelled
	}
	return false, nil
}

// tryPermits takes both permits if they are free now.
func (s *Session) tryPermits() bool {
	if !s.permits.TryAcquire(1) {
		return false
	}
	if s.registry.global.TryAcquire(1) {
		return true
	}
	s.permits.Release(1)
	return false
}

func (s *Session) awaitPermits(ctx context.Context, deadline time.Time) error {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	if err := s.permits.Acquire(ctx, 1); err != nil {
		return err
	}
	if err := s.registry.global.Acquire(ctx, 1); err != nil {
		s.permits.Release(1)
		return err
	}
	return nil
}

func (s *Session) releasePermits() {
	s.registry.global.Release(1)
	s.permits.Release(1)
}

func (s *Session) runLocked(c *Call) {
	c.stopBurst()
	c.stage = running
	s.running++
	s.owed++
}

// serveLine brings the calls in the line to their turn, one after another, and
// ends when the line is empty or the session is closed.
func (s *Session) serveLine(ctx context.Context, cancel context.CancelFunc) {
	defer s.serving.Done()
	defer cancel()
	for {
		s.mu.Lock()
		if len(s.line) == 0 {
			s.served = false
			s.mu.Unlock()
			return
		}
		first := slices.MinFunc(s.line, func(a, b *Call) int { return a.deadline.Compare(b.deadline) })
		deadline := first.deadline // who stood aside before may have less time left
		s.mu.Unlock()

		if err := s.awaitPermits(ctx, deadline); err != nil {
			s.refuseExpired()
			continue
		}
		s.mu.Lock()
		if len(s.line) == 0 { // cancelled meanwhile
			s.served = false
			s.mu.Unlock()
			s.releasePermits()
			return
		}
		c := s.line[0]
		s.line = slices.Delete(s.line, 0, 1)
		s.runLocked(c)
		s.mu.Unlock()
		c.work.Forward()
	}
}

// refuseExpired takes the calls whose time is over out of the line.
func (s *Session) refuseExpired() {
	now := time.Now()
	for {
		s.mu.Lock()
		i := slices.IndexFunc(s.line, func(c *Call) bool { return !c.deadline.After(now) })
		if i < 0 {
			s.mu.Unlock()
			return
		}
		c := s.line[i]
		s.line = slices.Delete(s.line, i, i+1)
		err := s.busyErrorLocked("no permit became free in time")
		err.Waited = s.registry.limits.WaitLimit
		s.refuseAndUnlock(c, err)
	}
}

// endBurst refuses a call that came when the line was full and still stands
// beyond its limit.
func (s *Session) endBurst(c *Call) {
	s.mu.Lock()
	rank := slices.Index(s.aside, c)
	if i := slices.Index(s.line, c); i >= 0 {
		rank = len(s.aside) + i
	}
	if rank < s.registry.limits.Waiting {
		s.mu.Unlock()
		return
	}
	s.leaveLineLocked(c)
	err := s.busyErrorLocked(lineFull)
	err.Waited = burstWait
	s.refuseAndUnlock(c, err)
}

// refuseAndUnlock refuses a call that was taken out of the line. The session is
// not idle before the refusal has been handed on.
func (s *Session) refuseAndUnlock(c *Call, err error) {
	s.owed++
	s.endLocked(c)
	s.mu.Unlock()
	c.work.Refuse(err)
	s.Answered(c)
}

func (s *Session) busyErrorLocked(limit string) *BusyError {
	return &BusyError{Limit: limit, InFlight: s.running, Waiting: len(s.line) + len(s.aside)}
}

// endLocked takes a call that is not running out of the session.
func (s *Session) endLocked(c *Call) {
	c.stopBurst()
	c.stage = settled
	if !c.cancelled {
		delete(s.inFlight, c.key)
	}
	s.wakeIdleLocked()
}

func (c *Call) stopBurst() {
	if c.burst != nil {
		c.burst.Stop()
	}
}

// Cancel gives up the call in flight under the key on the client's behalf: its
// id is free, and no answer is due. It returns the call's work, or nil where
// there is no such call, and whether the call was running: it is then still to
// be settled. One that was not is over.
func (s *Session) Cancel(key string) (w Work, wasRunning bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.inFlight[key]
	if !ok {
		return nil, false
	}
	delete(s.inFlight, key)
	c.cancelled = true
	if c.stage == running {
		return c.work, true
	}
	s.leaveLineLocked(c)
	s.endLocked(c)
	return c.work, false
}

// Abandon takes back a call that was begun and not submitted.
func (s *Session) Abandon(c *Call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.stage == begun {
		s.endLocked(c)
	}
}

// Settle ends a running call: its permits and its id are free. It reports
// whether the client still expects an answer, which is false for a call that
// was cancelled or is settled already. Where it is true, the caller hands
// the answer on and then calls Answered.
func (s *Session) Settle(c *Call) (wanted bool) {
	s.mu.Lock()
	if c.stage != running {
		s.mu.Unlock()
		return false
	}
	c.stage = settled
	wanted = !c.cancelled && s.state != Closed
	if !c.cancelled {
		delete(s.inFlight, c.key)
	}
	if c.free {
		if c.long {
			s.long--
		}
		s.mu.Unlock()
	} else {
		s.running--
		s.mu.Unlock()
		s.releasePermits()
	}
	if !wanted {
		s.Answered(c)
	}
	return wanted
}

// Answered says that the answer that Settle found wanted has been handed on: a
// session is idle only when all answers are.
func (s *Session) Answered(c *Call) {
	if c.endless {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owed--
	s.wakeIdleLocked()
}
