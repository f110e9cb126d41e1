package leases_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"interlock/leases"
)

// runs is how many histories TestLinearizable checks; the full form is 100.
var runs = flag.Int("runs", 10, "histories of TestLinearizable")

const (
	linearClients   = 16
	linearOps       = 5000
	linearResources = 4
)

// step is an operation of a client on one resource, and what came of it.
type step struct {
	what  string // enter, leave, acquire, renew, release, validate, gone
	owner string
	epoch uint64        // of the handle
	ttl   time.Duration // asked for
	call  time.Duration // the clock before

	err     error // what was answered
	holder  string
	got     uint64        // the epoch of the lease
	granted time.Duration // its times, by the table's clock
	expires time.Duration
	ret     time.Duration // the clock after
}

// held1 is the state of one resource in the model.
type held1 struct {
	owner   string
	epoch   uint64
	byHand  bool
	ttl     time.Duration
	expires time.Duration // while it is not in use, at the earliest
	uses    int
	last    uint64 // epoch so far
}

// free is the resource without its lease.
func (h held1) free() held1 { return held1{last: h.last} }

// model says which answers are possible, one operation after the other.
func model() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return held1{} },
		Step: func(state, input, _ any) (bool, any) {
			ok, next := state.(held1).after(input.(step))
			return ok, next
		},
	}
}

// after is what the operation leaves, if it may have had its answer.
func (h held1) after(s step) (possible bool, next held1) {
	mine := h.owner == s.owner
	switch s.what {
	case "enter":
		if s.err != nil {
			return true, h // it waited in vain, perhaps behind others
		}
		if !mine || h.uses == 0 && h.byHand && s.granted >= h.expires && s.got != h.epoch {
			if possible, h = h.over(s.granted); !possible || s.got <= h.last {
				return false, h
			}
			return true, held1{owner: s.owner, epoch: s.got, last: s.got, uses: 1}
		}
		h.uses++
		return s.got == h.epoch, h
	case "leave":
		if !mine || h.uses == 0 {
			return false, h
		}
		if h.uses--; h.uses > 0 {
			return true, h
		}
		if !h.byHand {
			return true, h.free()
		}
		h.expires = s.call + h.ttl
		return true, h
	case "acquire":
		return h.acquired(s)
	case "gone":
		switch {
		case !mine:
		case h.uses == 0:
			h = h.free()
		default:
			h.byHand = false
		}
		return true, h
	}
	return h.shown(s)
}

// over is the resource once the lease on it has run out, if it may have by then.
func (h held1) over(at time.Duration) (possible bool, next held1) {
	return h.owner == "" || h.uses == 0 && h.byHand && at >= h.expires, h.free()
}

func (h held1) acquired(s step) (possible bool, next held1) {
	if s.err != nil {
		return s.holder == "" || s.holder == h.owner, h // behind others, or the owner's
	}
	if h.owner == s.owner && !h.byHand { // a lease of a call of its own
		h.byHand, h.ttl, h.expires = true, s.ttl, s.expires
		return s.got == h.epoch, h
	}
	possible, h = h.over(s.granted)
	return possible && s.got > h.last, held1{owner: s.owner, epoch: s.got, last: s.got, byHand: true, ttl: s.ttl, expires: s.expires}
}

// shown is about what takes a handle.
func (h held1) shown(s step) (possible bool, next held1) {
	lives := h.owner == s.owner && h.byHand && h.epoch == s.epoch
	if s.err != nil {
		if !lives {
			return errors.Is(s.err, leases.ErrExpired), h
		}
		return errors.Is(s.err, leases.ErrExpired) && h.uses == 0 && s.ret >= h.expires, h.free()
	}
	switch {
	case !lives || s.got != h.epoch:
		return false, h
	case s.what == "renew":
		h.ttl, h.expires = s.ttl, s.expires
	case s.what == "release" && h.uses == 0:
		h = h.free()
	case s.what == "release":
		h.byHand = false
	}
	return true, h
}

// linear is one run: a table whose clock and wall clock read the same.
type linear struct {
	*leases.Table
	began time.Time
	last  atomic.Int64 // the clock as the table has read it last; under its lock

	mu      sync.Mutex // guards history
	history [linearResources][]porcupine.Operation
}

func (l *linear) clock() time.Duration { return time.Since(l.began) }

func (l *linear) record(client, resource int, s step) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.history[resource] = append(l.history[resource], porcupine.Operation{ClientId: client, Input: s, Call: int64(s.call), Output: s, Return: int64(s.ret)})
}

// TestLinearizable is A8: what many clients are told about leases could have been
// told to them one after the other, and nobody has what another has.
func TestLinearizable(t *testing.T) {
	for run := range *runs {
		l := &linear{began: time.Now()}
		l.Table = leases.New(leases.Options{
			Clock: func() time.Duration {
				now := l.clock()
				l.last.Store(int64(now))
				return now
			},
			Now:     func() time.Time { return time.Unix(0, l.last.Load()) },
			HoldMax: holdMax,
		})
		var clients sync.WaitGroup
		for n := range linearClients {
			c := &linearClient{linear: l, n: n, random: rand.New(rand.NewPCG(uint64(run), uint64(n)))}
			clients.Go(c.work)
		}
		clients.Wait()
		if left := l.Waiting(); len(left) != 0 {
			t.Errorf("%d wait for ever", len(left))
		}
		l.Close()
		for r, history := range l.history {
			if result := porcupine.CheckOperationsTimeout(model(), history, 20*time.Second); result != porcupine.Ok {
				t.Errorf("run %d, resource %d, %d operations: %s", run, r, len(history), result)
			}
		}
	}
}

// linearClient is one client of a run, under one owner's name after another.
type linearClient struct {
	*linear
	n, life int
	random  *rand.Rand
	uses    [linearResources][]*leases.Use
	handles [linearResources][]leases.Handle
}

func (c *linearClient) owner() string { return fmt.Sprintf("client-%d-%d", c.n, c.life) }

func (c *linearClient) work() {
	for range linearOps / linearClients {
		r := c.random.IntN(linearResources)
		switch p := c.random.IntN(100); {
		case p < 35:
			c.enter(r)
		case p < 60 && len(c.uses[r]) > 0:
			c.leave(r)
		case p < 75:
			c.acquire(r)
		case p < 97 && len(c.handles[r]) > 0:
			c.show(r, []string{"renew", "release", "validate"}[c.random.IntN(3)])
		case p >= 97:
			c.disconnect()
		}
	}
	c.disconnect()
}

func resourceOf(r int) leases.Resource { return leases.Resource(fmt.Sprint("r", r)) }

func (c *linearClient) begin(what string) step {
	return step{what: what, owner: c.owner(), call: c.clock()}
}

// result takes what was answered.
func (s *step) result(l leases.Lease, err error) {
	s.err, s.got = err, l.Epoch
	s.granted, s.expires = time.Duration(l.Granted.UnixNano()), time.Duration(l.Expires.UnixNano())
	var h *leases.HeldError
	if errors.As(err, &h) && !h.Waits {
		s.holder = h.Holder.Owner
	}
}

func (c *linearClient) enter(r int) {
	s := c.begin("enter")
	u := new(leases.Use)
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(c.random.IntN(2000))*time.Microsecond)
	defer cancel()
	_, err := c.Enter(u, leases.Request{Party: party(s.owner), Resources: []leases.Resource{resourceOf(r)}})
	if err == nil {
		err = u.Wait(ctx)
	}
	s.err, s.got, s.ret = err, u.Epoch(), c.clock()
	s.granted = s.ret // at the latest
	if err == nil {
		c.uses[r] = append(c.uses[r], u)
	}
	c.record(c.n, r, s)
}

func (c *linearClient) leave(r int) {
	s := c.begin("leave")
	last := len(c.uses[r]) - 1
	c.uses[r][last].Leave()
	c.uses[r] = c.uses[r][:last]
	s.ret = c.clock()
	c.record(c.n, r, s)
}

func (c *linearClient) acquire(r int) {
	s := c.begin("acquire")
	s.ttl = leases.MinTTL + time.Duration(c.random.IntN(400))*time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	grants, err := c.Acquire(ctx, leases.Acquisition{Party: party(s.owner), Resources: []leases.Resource{resourceOf(r)}, TTL: s.ttl})
	var l leases.Lease
	if err == nil {
		l = grants[0].Lease
		c.handles[r] = append(c.handles[r], grants[0].Handle)
	}
	s.result(l, err)
	s.ret = c.clock()
	c.record(c.n, r, s)
}

func (c *linearClient) show(r int, what string) {
	s := c.begin(what)
	h := c.handles[r][len(c.handles[r])-1]
	fmt.Sscanf(string(h), "%d.", &s.epoch)
	s.ttl = leases.MinTTL
	var l leases.Lease
	var err error
	switch what {
	case "renew":
		l, err = c.Renew(s.owner, h, s.ttl)
	case "release":
		l, err = c.Release(s.owner, h)
	default:
		l, err = c.Validate(s.owner, h)
	}
	s.result(l, err)
	s.ret = c.clock()
	c.record(c.n, r, s)
}

// disconnect ends the client's session, settles what it was at, and begins another.
func (c *linearClient) disconnect() {
	s := c.begin("gone")
	c.ReleaseOwner(s.owner)
	s.ret = c.clock()
	for r := range linearResources {
		c.record(c.n, r, s)
	}
	for r := range linearResources {
		for len(c.uses[r]) > 0 {
			c.leave(r)
		}
		c.handles[r] = nil
	}
	c.life++
}
