package config

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Limits bound what the daemon accepts, keeps and waits for. Counts of 0 are
// not "no limit" unless the field says so.
type Limits struct {
	// Sessions is how many sessions may be open.
	Sessions int
	// PendingConnections is how many connections may be open that have not
	// sent a whole frame yet; they do not count as sessions.
	PendingConnections int
	// ClientCalls and ClientWaiting bound the calls of one client that run,
	// and those that wait to.
	ClientCalls, ClientWaiting int
	// Calls bounds the calls that run in the whole daemon.
	Calls int
	// WaitLimit bounds the wait of one call for its lease and its permits
	// together.
	WaitLimit time.Duration
	// CallTimeout ends a call that neither answers nor reports progress for so
	// long; 0 is no deadline.
	CallTimeout time.Duration
	// StartTimeout bounds the start of a server up to its handshake.
	StartTimeout time.Duration
	// IdleTimeout ends a shared process that nobody uses.
	IdleTimeout time.Duration
	// LeaseTTL is the time to live of an explicit lease whose client asks for
	// none.
	LeaseTTL time.Duration
	// LeaseHold is how long a lease outlives its call where neither the
	// server's entry nor the catalogue says; LeaseHoldMax bounds that in all
	// while somebody waits.
	LeaseHold, LeaseHoldMax time.Duration
	// CancelGrace is how long a cancelled call may take to settle before its
	// owner is given up; LockDelay is how long its lease then stays.
	CancelGrace, LockDelay time.Duration
	// TurnWait bounds the wait for a server that serves one session at a time.
	TurnWait time.Duration
	// DrainTimeout is what running calls get when the daemon ends.
	DrainTimeout time.Duration
	// HalfCloseGrace is what running calls get when a client ends its input.
	HalfCloseGrace time.Duration
	// Frame bounds one message, SessionBudget the messages held for one
	// session and direction, Budget all that are held; in bytes.
	Frame, SessionBudget, Budget int64
}

// Defaults returns the limits that hold where the file says nothing.
func Defaults() Limits {
	return Limits{
		Sessions:           256,
		PendingConnections: 256,
		ClientCalls:        16,
		ClientWaiting:      64,
		Calls:              256,
		WaitLimit:          25 * time.Second,
		CallTimeout:        0,
		StartTimeout:       60 * time.Second,
		IdleTimeout:        10 * time.Minute,
		LeaseTTL:           30 * time.Second,
		LeaseHold:          0,
		LeaseHoldMax:       15 * time.Second,
		CancelGrace:        5 * time.Second,
		LockDelay:          15 * time.Second,
		TurnWait:           25 * time.Second,
		DrainTimeout:       10 * time.Second,
		HalfCloseGrace:     30 * time.Second,
		Frame:              64 << 20,
		SessionBudget:      96 << 20,
		Budget:             256 << 20,
	}
}

// Bounds of an explicit lease's time to live.
const (
	MinLeaseTTL = 100 * time.Millisecond
	MaxLeaseTTL = 15 * time.Minute
)

// Validate returns what is out of bounds, one error for each, joined.
func (l Limits) Validate() error {
	var errs []error
	for _, s := range l.settings() {
		errs = append(errs, s.check())
	}
	return errors.Join(append(errs, l.consistent())...)
}

// consistent checks limits against each other.
func (l Limits) consistent() error {
	switch {
	case l.LeaseHold > l.LeaseHoldMax:
		return fmt.Errorf("leaseHold (%s) is more than leaseHoldMax (%s)", l.LeaseHold, l.LeaseHoldMax)
	case l.Frame > l.SessionBudget:
		return fmt.Errorf("frame (%s) is more than sessionBudget (%s)", sizeText(l.Frame), sizeText(l.SessionBudget))
	case l.SessionBudget > l.Budget:
		return fmt.Errorf("sessionBudget (%s) is more than budget (%s)", sizeText(l.SessionBudget), sizeText(l.Budget))
	}
	return nil
}

// setting is one member of limits: its name in the file, the field it sets,
// exactly one of count, time and size, and its bounds in the field's unit.
type setting struct {
	name     string
	count    *int
	time     *time.Duration
	size     *int64
	min, max int64
}

// settings ties the members of limits to the fields of l.
func (l *Limits) settings() []setting {
	const (
		hour = int64(time.Hour)
		day  = 24 * hour
	)
	return []setting{
		{name: "sessions", count: &l.Sessions, min: 1, max: 4096},
		{name: "pendingConnections", count: &l.PendingConnections, min: 1, max: 4096},
		{name: "clientCalls", count: &l.ClientCalls, min: 1, max: 4096},
		{name: "clientWaiting", count: &l.ClientWaiting, min: 0, max: 65536},
		{name: "calls", count: &l.Calls, min: 1, max: 65536},
		{name: "waitLimit", time: &l.WaitLimit, min: 0, max: hour},
		{name: "callTimeout", time: &l.CallTimeout, min: 0, max: 7 * day},
		{name: "startTimeout", time: &l.StartTimeout, min: int64(time.Second), max: hour},
		{name: "idleTimeout", time: &l.IdleTimeout, min: int64(time.Second), max: 7 * day},
		{name: "leaseTTL", time: &l.LeaseTTL, min: int64(MinLeaseTTL), max: int64(MaxLeaseTTL)},
		{name: "leaseHold", time: &l.LeaseHold, min: 0, max: int64(MaxLeaseTTL)},
		{name: "leaseHoldMax", time: &l.LeaseHoldMax, min: 0, max: int64(MaxLeaseTTL)},
		{name: "cancelGrace", time: &l.CancelGrace, min: 0, max: hour},
		{name: "lockDelay", time: &l.LockDelay, min: 0, max: hour},
		{name: "turnWait", time: &l.TurnWait, min: 0, max: hour},
		{name: "drainTimeout", time: &l.DrainTimeout, min: 0, max: hour},
		{name: "halfCloseGrace", time: &l.HalfCloseGrace, min: 0, max: day},
		{name: "frame", size: &l.Frame, min: 64 << 10, max: 1 << 30},
		{name: "sessionBudget", size: &l.SessionBudget, min: 64 << 10, max: 16 << 30},
		{name: "budget", size: &l.Budget, min: 64 << 10, max: 64 << 30},
	}
}

// check reports a value out of bounds.
func (s setting) check() error {
	if v := s.value(); v < s.min || v > s.max {
		return fmt.Errorf("%s is %s, and must be from %s to %s", s.name, s.show(v), s.show(s.min), s.show(s.max))
	}
	return nil
}

func (s setting) value() int64 {
	switch {
	case s.count != nil:
		return int64(*s.count)
	case s.time != nil:
		return int64(*s.time)
	}
	return *s.size
}

// put sets the field, and expects a value of its type.
func (s setting) put(v int64) {
	switch {
	case s.count != nil:
		*s.count = int(v)
	case s.time != nil:
		*s.time = time.Duration(v)
	default:
		*s.size = v
	}
}

func (s setting) show(v int64) string {
	switch {
	case s.count != nil:
		return strconv.FormatInt(v, 10)
	case s.time != nil:
		return time.Duration(v).String()
	}
	return sizeText(v)
}

// sizeUnit is a power of two with a name.
type sizeUnit struct {
	suffix string
	shift  uint
}

// sizeUnits returns the units of a size, the largest first.
func sizeUnits() []sizeUnit {
	return []sizeUnit{{"GiB", 30}, {"MiB", 20}, {"KiB", 10}, {"B", 0}}
}

// parseSize reads a whole number of bytes, or one with the unit B, KiB, MiB or
// GiB behind it.
func parseSize(text string) (int64, error) {
	digits, shift := text, uint(0)
	for _, u := range sizeUnits() {
		if rest, ok := strings.CutSuffix(text, u.suffix); ok {
			digits, shift = strings.TrimRight(rest, " "), u.shift
			break
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 || n<<shift>>shift != n {
		return 0, errors.New(`not a size such as "64MiB" or a number of bytes`)
	}
	return n << shift, nil
}

// sizeText writes a size in the largest unit that divides it.
func sizeText(n int64) string {
	for _, u := range sizeUnits() {
		if n != 0 && n%(1<<u.shift) == 0 {
			return strconv.FormatInt(n>>u.shift, 10) + u.suffix
		}
	}
	return "0B"
}
