package mcpd

import (
	"errors"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"interlock/leases"
	"interlock/mcpd/internal/config"
	"interlock/mcpd/internal/wire"
	"interlock/recovery"
	"interlock/session"
)

// record writes the begin record of a call that may change something. When it
// returns nil the call may be sent; else nothing was, and the error says why.
func (x *exchange) record(frame *wire.Frame) error {
	if x.kind != kindToolCall || x.class == classRead {
		return nil
	}
	d := x.conn.d
	if d.homeLost.Load() {
		return refuse(codeHomeLost, "the daemon's directory %s is gone or belongs to another daemon, so calls that may change something are refused; nothing was sent. Connect again.", d.options.Paths.Dir)
	}
	resources := x.resourceTexts()
	if x.class == classMutate && d.config.Load().RecoveryPending == config.PendingBlock {
		if r := d.blocked(x.up.server.Name, resources); r != nil {
			return r
		}
	}
	intent := recovery.Intent{
		ClientRequestID: string(x.id),
		Owner:           x.owner,
		Client:          x.conn.session.Client().Name,
		Server:          x.up.server.Name,
		Tool:            x.tool,
		Class:           x.class,
		Resources:       resources,
		Arguments:       x.arguments.Of(frame.Bytes()),
	}
	if x.turn != nil {
		intent.Epoch = x.turn.use.Epoch()
		waited, first := x.turn.use.Waited()
		intent.Waited, intent.WaitedFor = waited, first.Owner
	}
	run, err := d.journal.Begin(intent)
	if err != nil {
		return unrecorded(err)
	}
	x.run = run
	d.changed()
	return nil
}

// unrecorded says why a call could not be recorded, and so was not sent.
func unrecorded(err error) *refusal {
	return refuse(codeUnwritable, "this call may change something and could not be recorded, so it was not sent: %v", err).notSent()
}

// blocked refuses a call on resources with runs of unknown outcome that nobody has
// acknowledged. Only runs that certainly were to change something block, and those
// of an earlier daemon's sessions do not: their state is gone, and their ids are
// given to others.
func (d *Daemon) blocked(server string, resources []string) *refusal {
	var ids []string
	overlaps := func(other string) bool {
		return slices.ContainsFunc(resources, func(r string) bool { return leases.Resource(r).Conflicts(leases.Resource(other)) })
	}
	for _, run := range d.journal.PendingOn(server, overlaps) {
		ids = append(ids, run.RequestID)
	}
	if len(ids) == 0 {
		return nil
	}
	r := refuse(codePending, "calls on what this call to %q changes were interrupted and nobody knows what they did (%s); nothing was sent. Somebody must look, and then run: %s daemon recovery",
		server, strings.Join(ids, ", "), d.options.Command)
	r.data.Pending = ids
	return r
}

// end records how a tool call ended. Whoever has taken the exchange out of its
// instance's pending ones calls it, before the client is answered. What the
// client cancelled is no incident, whatever became of it.
func (x *exchange) end(outcome recovery.Outcome, reason string) {
	if x.kind != kindToolCall {
		return
	}
	if x.withdrawn.Load() && outcome != recovery.OutcomeNotSent {
		outcome = recovery.OutcomeCancelled
	}
	x.observe(outcome)
	d := x.conn.d
	if x.run != nil {
		defer d.changed()
		if err := x.run.End(outcome, reason); err != nil && !errors.Is(err, recovery.ErrEnded) {
			d.log.Error("recording the end of a run", zap.String("run", x.run.ID()), zap.Error(err))
		}
		return
	}
	now := time.Now()
	d.journal.Note(recovery.Call{
		EndedAt: now.UTC(), DurationMS: float64(now.Sub(x.began).Microseconds()) / 1000,
		OwnerID: x.owner, Client: x.conn.session.Client().Name,
		Server: x.up.server.Name, Tool: x.tool, Class: x.class, Outcome: outcome, Reason: reason,
	})
}

// lost ends a call that will not be answered by its server, and says so to the
// client. MayHaveBegun is false only if no byte of it was sent.
func (x *exchange) lost(cause *refusal, mayHaveBegun bool) {
	x.refuse(x.endLost(cause, mayHaveBegun))
}

// endLost is lost without the answer, which it returns. What is not recorded only
// reads, and may be repeated in any case.
func (x *exchange) endLost(cause *refusal, mayHaveBegun bool) *refusal {
	r := *cause
	safe := !mayHaveBegun || x.run == nil
	r.data.RetrySafe = &safe
	outcome := recovery.OutcomeUnknown
	switch {
	case !mayHaveBegun:
		outcome = recovery.OutcomeNotSent
		r.message += ". It was not sent, so it is safe to repeat it."
	case x.run == nil:
		r.message += ". It only reads, so it is safe to repeat it."
	default:
		r.message += ". The call may have taken effect: check before you repeat it."
	}
	r.data.Outcome = string(outcome)
	x.end(outcome, x.reason(cause))
	if x.run != nil {
		r.data.Run = x.run.ID()
	}
	return &r
}

// reason is the word in the record for why a call was not answered. A server whose
// session is over is ended by the daemon: then the end of the session is the reason.
func (x *exchange) reason(cause *refusal) string {
	switch {
	case x.conn.session.Snapshot().State != session.Closed:
		return cause.data.Code
	case x.conn.d.sessions.Draining():
		return codeDraining.name()
	default:
		return "client_left"
	}
}

// outcomeOf is how a call ended that its server has answered.
func outcomeOf(b []byte, env *wire.Envelope) recovery.Outcome {
	switch {
	case env.Kind == wire.Error:
		return recovery.OutcomeError
	case string(env.ResultType.Of(b)) == `"input_required"`:
		return recovery.OutcomeInputRequired
	case string(env.IsError.Of(b)) == "true":
		return recovery.OutcomeError
	default:
		return recovery.OutcomeOK
	}
}

// noteRefused keeps in the history that a call was refused for want of a lease.
func (x *exchange) noteRefused(r *refusal) {
	if !r.code.isLease() {
		return
	}
	now := time.Now()
	call := recovery.Call{
		EndedAt: now.UTC(), DurationMS: float64(now.Sub(x.began).Microseconds()) / 1000,
		OwnerID: x.owner, Client: x.conn.session.Client().Name, Server: x.up.server.Name, Tool: x.tool, Class: x.class,
		Outcome: recovery.OutcomeNotSent, Reason: r.data.Code, Resource: r.data.Resource, WaitedMS: float64(r.waited.Microseconds()) / 1000,
	}
	if r.data.Holder != nil {
		call.WaitedFor = r.data.Holder.Owner
	}
	x.conn.d.journal.Note(call)
}
