package leases

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Bounds of the time to live of a lease that is acquired by hand.
const (
	MinTTL = 100 * time.Millisecond
	MaxTTL = 15 * time.Minute
)

// Errors that callers branch on.
var (
	// ErrInvalid means that a name, a time or a handle is not one.
	ErrInvalid = errors.New("invalid")
	// ErrHeld is what every [HeldError] is.
	ErrHeld = errors.New("lease is held")
	// ErrNotFound means that there is no such lease and, as far as is known, was none.
	ErrNotFound = errors.New("no such lease")
	// ErrNotOwner means that the lease belongs to somebody else.
	ErrNotOwner = errors.New("lease belongs to another owner")
	// ErrExpired means that the lease has ended: it ran out, was released or broken.
	ErrExpired = errors.New("lease has ended")
	// ErrNotHeld means that a call needs a lease that its owner must hold before it.
	ErrNotHeld = errors.New("no lease covers the call")
	// ErrBroken means that a lease was broken by hand while a call relied on it.
	ErrBroken = errors.New("lease was broken")
	// ErrExhausted means that the table has given out all its epochs, or that an
	// owner has as many leases as it may.
	ErrExhausted = errors.New("no more leases")
)

// Party is who has a lease or asks for one.
type Party struct {
	Owner   string // the identity that counts, 1 to 128 characters
	Session string // the session it belongs to
	Client  string // what its client calls itself; for display
}

// Lease describes a live lease at one moment. Times are for display.
type Lease struct {
	Resource Resource
	Party
	Epoch uint64
	// ByHand is true for a lease that its owner acquired, false for one that was
	// taken for a call.
	ByHand bool
	// Ending is true if the lease ends when its last call leaves.
	Ending  bool
	Granted time.Time
	// Expires is when the lease ends if nothing more happens and nobody waits. While
	// it is in use that is after the last call leaves.
	Expires time.Time
	Calls   int // that use it
	Waiting int // that wait for it next
}

// Waiter describes who waits for resources.
type Waiter struct {
	Party
	Resources []Resource
	Since     time.Time
	// Blocked says which lease, or whose earlier turn, it waits for.
	Blocked Blocker
}

// Blocker is what somebody waits for.
type Blocker struct {
	Resource Resource
	Owner    string
	Client   string
	// Waits is true if the blocker is itself waiting, and is only earlier in line.
	Waits bool
}

// HeldError says why resources cannot be had now: who has them, since when, for how
// long, and what that owner waits for itself.
type HeldError struct {
	Resource Resource
	Holder   Party
	// Waits is true if Holder has no lease yet, but stands earlier in line.
	Waits bool
	// Own is true if the holder is who asks.
	Own bool
	// Age is how long the holder has had it, or has waited for it.
	Age time.Duration
	// Expires is in how long the lease ends by itself; 0 if it is in use, or if
	// Waits.
	Expires time.Duration
	// Calls is how many calls of the holder use it now.
	Calls int
	// WaitsFor is what the holder itself waits for, nil if nothing.
	WaitsFor *Blocker
	// Deadlock is true if waiting would be in vain, because the holder waits, at
	// once or over others, for a lease of who asks or for its earlier turn.
	Deadlock bool
	// Waited is how long who asks has waited in vain.
	Waited time.Duration
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("%s is held by %s", e.Resource, e.Holder.Owner)
}

// Is makes every HeldError an [ErrHeld].
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// Handle proves that who shows it was given a lease that was acquired by hand: its
// epoch and 128 random bits. It is shown once, to its owner.
type Handle string

type secret [16]byte

func newSecret() (s secret) {
	rand.Read(s[:]) // never fails (crypto/rand)
	return s
}

func handleOf(epoch uint64, s secret) Handle {
	return Handle(strconv.FormatUint(epoch, 10) + "." + base64.RawURLEncoding.EncodeToString(s[:]))
}

// parse takes the handle apart.
func (h Handle) parse() (epoch uint64, s secret, err error) {
	number, rest, ok := strings.Cut(string(h), ".")
	epoch, numErr := strconv.ParseUint(number, 10, 64)
	raw, rawErr := base64.RawURLEncoding.DecodeString(rest)
	if !ok || numErr != nil || rawErr != nil || len(raw) != len(s) {
		return 0, s, fmt.Errorf("%w: this is not a handle of a lease", ErrInvalid)
	}
	return epoch, secret(raw), nil
}

func (s secret) equal(o secret) bool { return subtle.ConstantTimeCompare(s[:], o[:]) == 1 }
