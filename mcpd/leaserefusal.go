package mcpd

import (
	"errors"
	"fmt"
	"time"

	"interlock/leases"
)

// partyData and waitData say in an answer who has something, and who waits for what.
type (
	partyData struct {
		Owner  string `json:"ownerId"`
		Client string `json:"client,omitempty"`
	}
	waitData struct {
		Resource string     `json:"resource"`
		Holder   *partyData `json:"holder"`
	}
)

func dataOf(p leases.Party) *partyData { return &partyData{p.Owner, p.Client} }

// isLeaseError reports whether the error is one of package leases.
func isLeaseError(err error) bool {
	for _, target := range []error{
		leases.ErrHeld, leases.ErrNotHeld, leases.ErrExpired, leases.ErrNotFound, leases.ErrNotOwner,
		leases.ErrInvalid, leases.ErrBroken, leases.ErrExhausted,
	} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

// leaseRefusal says in the daemon's words why a call or an agent cannot have its
// leases, and what to do. Effect is what has become of the call, if it was one.
func leaseRefusal(err error, effect string) *refusal {
	var held *leases.HeldError
	switch {
	case errors.As(err, &held):
		return heldRefusal(held, effect)
	case errors.Is(err, leases.ErrNotHeld):
		return refuse(codeLeaseRequired, "this call needs a lease that you must hold: %v.%s Get it with lease_acquire, and carry its handle in _meta interlock/lease.", err, effect)
	case errors.Is(err, leases.ErrExpired):
		return refuse(codeLeaseExpired, "%v, so somebody else may have changed what it was for.%s Read it again, and get a new lease with lease_acquire.", err, effect)
	case errors.Is(err, leases.ErrNotFound):
		return refuse(codeLeaseNotFound, "%v.%s lease_list shows the leases there are.", err, effect)
	case errors.Is(err, leases.ErrNotOwner):
		return refuse(codeLeaseNotOwner, "%v: a handle is good in the session that got it.%s Get a lease of your own with lease_acquire.", err, effect)
	case errors.Is(err, leases.ErrBroken):
		return refuse(codeLeaseBroken, "%v by hand before the call was sent.%s Look at it again before you repeat the call.", err, effect)
	case errors.Is(err, leases.ErrExhausted):
		return refuse(codeLeaseLimit, "%v.%s Release what is not needed any more with lease_release.", err, effect)
	default:
		return refuse(codeLeaseInvalid, "%v.%s", err, effect)
	}
}

// heldRefusal says who has what is wanted.
func heldRefusal(e *leases.HeldError, effect string) *refusal {
	r := refuse(codeLeaseHeld, "%s", heldText(e, effect))
	if !e.Deadlock && !e.Own {
		r.later()
	}
	r.data.Resource, r.data.Holder = string(e.Resource), dataOf(e.Holder)
	r.data.AgeMs, r.data.ExpiresInMs, r.data.Calls = e.Age.Milliseconds(), e.Expires.Milliseconds(), e.Calls
	r.data.Deadlock, r.waited = e.Deadlock, e.Waited
	if w := e.WaitsFor; w != nil {
		r.data.WaitsFor = &waitData{string(w.Resource), &partyData{w.Owner, w.Client}}
	}
	return r
}

func heldText(e *leases.HeldError, effect string) string {
	if e.Own {
		return fmt.Sprintf("you hold a lease on %s already, for %s.%s Renew it with lease_renew and its handle, or release it first.", e.Resource, roundedAge(e.Age), effect)
	}
	verb := "is being changed by"
	switch {
	case e.Waits:
		verb = "is next for"
	case e.Calls == 0:
		verb = "is held by"
	}
	text := fmt.Sprintf("%s %s %s, for %s so far", e.Resource, verb, partyText(e.Holder), roundedAge(e.Age))
	if e.Expires > 0 {
		text += fmt.Sprintf(" and for %s at most if it is not used", roundedAge(e.Expires))
	}
	if w := e.WaitsFor; w != nil {
		text += fmt.Sprintf("; that one waits for %s", w.Resource)
	}
	if e.Deadlock {
		return text + ", and so for a lease of yours: neither could ever go on." + effect + " Release what you hold with lease_release, and then try again."
	}
	return text + "." + effect + " Try again later, or do something else first."
}

// partyText names an owner and what its client calls itself.
func partyText(p leases.Party) string {
	if p.Client == "" {
		return p.Owner
	}
	return fmt.Sprintf("%s (%q)", p.Owner, p.Client)
}

// roundedAge writes a time as people say it.
func roundedAge(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	default:
		return d.Round(time.Second).String()
	}
}
