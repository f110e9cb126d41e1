package mcpd

import "time"

// A call can be over for its client while the server may still be at work on it:
// it was cancelled, its deadline has passed, or it goes on as a task. It then
// lingers: it keeps its leases until the server answers it all the same, its
// process is gone, or a delay is over.

// forgetUnsettled is forget for a call that lingers from now on.
func (in *instance) forgetUnsettled(x *exchange, delay time.Duration) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if !in.forgetLocked(x) {
		return false
	}
	in.lingerLocked(x, delay)
	return true
}

// lingerLocked lets a call linger that is not pending any more, for the delay at the
// most.
func (in *instance) lingerLocked(x *exchange, delay time.Duration) {
	if x.turn != nil {
		in.lingerUntilLocked(x, delay, func() { in.settleLate(x.number) })
	}
}

// lingerUntilLocked lets a call linger; then is called after the delay.
func (in *instance) lingerUntilLocked(x *exchange, delay time.Duration, then func()) {
	if in.gone {
		return // and its leases are free as soon as it settles
	}
	x.linger()
	if in.lingering == nil {
		in.lingering = make(map[int64]*exchange)
	}
	in.lingering[x.number] = x
	x.timer = time.AfterFunc(delay, then)
}

// settleLate frees the leases of the lingering call with the number, if it is one.
func (in *instance) settleLate(n int64) {
	in.mu.Lock()
	x := in.lingering[n]
	delete(in.lingering, n)
	in.mu.Unlock()
	if x != nil {
		x.timer.Stop()
		x.leave()
		in.up.d.changed()
	}
}

// settleAll frees the leases of all lingering calls: the process is gone.
func (in *instance) settleAll() {
	in.mu.Lock()
	in.gone = true
	all := in.lingering
	in.lingering = nil
	in.mu.Unlock()
	for _, x := range all {
		x.timer.Stop()
		x.leave()
	}
}

// boundLocked bounds how long a call of a session that is over keeps its leases, if
// its process cannot be ended: it then counts as unknown.
func (in *instance) boundLocked(x *exchange) {
	if x.turn == nil {
		return
	}
	if x.timer != nil {
		x.timer.Stop()
	}
	x.timer = time.AfterFunc(in.up.d.limits.CancelGrace+in.up.d.limits.LockDelay, func() {
		defer x.guard()
		if in.forget(x) {
			x.lost(refuse(codeServerLost, "server %q neither ended nor settled a call of a client that has left", in.up.server.Name), true)
		}
	})
}
