package mcpd

import (
	"context"
	"encoding/json"
	"net/url"
	"strings"
	"time"

	"interlock/leases"
	"interlock/mcpd/internal/builtin"
	"interlock/recovery"
)

// tools is what the built-in server interlock asks of the daemon.
type tools struct{ d *Daemon }

// Status implements builtin.Daemon.
func (t tools) Status(context.Context) (json.RawMessage, error) { return json.Marshal(t.d.Snapshot()) }

// RecoveryList implements builtin.Daemon. A session of the server interlock sees
// the runs of all servers: it is the user's own view of the daemon.
func (t tools) RecoveryList(context.Context, string) (json.RawMessage, error) {
	return json.Marshal(t.d.journal.State())
}

// RecoveryAck implements builtin.Daemon.
func (t tools) RecoveryAck(_ context.Context, _ string, ids []string) (json.RawMessage, error) {
	ack, err := t.d.acknowledge(recovery.Selection{IDs: ids})
	if err != nil {
		return nil, err
	}
	return json.Marshal(ack)
}

// acknowledge acknowledges pending runs and brings status up to date.
func (d *Daemon) acknowledge(s recovery.Selection) (recovery.Ack, error) {
	ack, err := d.journal.Acknowledge(s)
	if err == nil {
		d.changed()
	}
	return ack, err
}

// leaseData is a lease as the lease tools answer it. The handle is only ever in the
// answer to who acquired the lease.
type leaseData struct {
	SessionID string        `json:"sessionId"`
	OwnerID   string        `json:"ownerId"`
	Resource  string        `json:"resource"`
	Epoch     uint64        `json:"epoch"`
	ExpiresAt time.Time     `json:"expiresAt"`
	Handle    leases.Handle `json:"handle,omitempty"`
	// Released is true in the answer to a release; Ending, too, if calls still use
	// the lease, which ends when they are done.
	Released bool `json:"released,omitempty"`
	Ending   bool `json:"ending,omitempty"`
}

func leaseDataOf(l leases.Lease) leaseData {
	return leaseData{
		SessionID: l.Session, OwnerID: l.Owner, Resource: string(l.Resource),
		Epoch: l.Epoch, ExpiresAt: l.Expires.UTC(), Ending: l.Ending,
	}
}

// caller is who calls a tool of the daemon's: a party, and where its paths start.
type caller struct {
	leases.Party
	up *upstream
}

// caller finds the session that calls, and its actor if the call names one.
func (t tools) caller(who builtin.Caller) (caller, error) {
	for _, c := range t.d.open() {
		u := c.upstream.Load()
		if u == nil || c.session.ID() != who.Session {
			continue
		}
		p := leases.Party{Owner: c.session.Owner(), Session: who.Session, Client: clientName(c.session)}
		if who.Actor != nil {
			actor, err := actorOf(who.Actor)
			if err != nil {
				return caller{}, err
			}
			p.Owner += "/" + actor
		}
		return caller{p, u}, nil
	}
	return caller{}, errSessionOver
}

// resource reads the name of a resource as an agent writes it: paths may be
// relative and have links in them, and need not be encoded.
func (c caller) resource(name string) (leases.Resource, error) {
	for kind, make := range map[string]func(string) (leases.Resource, error){"file:": leases.File, "tree:": leases.Tree} {
		path, ok := strings.CutPrefix(name, kind)
		if !ok {
			continue
		}
		if plain, err := url.PathUnescape(path); err == nil {
			path = plain
		}
		absolute, ok := c.up.workplace().Resolve(path)
		if !ok {
			return "", refuse(codeLeaseInvalid, "%s is not a path that can be resolved: your client has named no working directory, so it must be absolute", name)
		}
		return make(absolute)
	}
	if strings.HasPrefix(name, "session:") && name != string(leases.Session(c.Session)) {
		return "", refuse(codeLeaseInvalid, "%s is private to another session and cannot be leased", name)
	}
	return leases.Parse(name)
}

// LeaseAcquire implements builtin.Leases.
func (t tools) LeaseAcquire(ctx context.Context, who builtin.Caller, a builtin.Acquisition) (json.RawMessage, error) {
	c, err := t.caller(who)
	if err != nil {
		return nil, told(err)
	}
	asked := leases.Acquisition{Party: c.Party, TTL: t.ttl(a.TTL)}
	for _, name := range a.Resources {
		r, err := c.resource(name)
		if err != nil {
			return nil, told(err)
		}
		asked.Resources = append(asked.Resources, r)
	}
	ctx, cancel := context.WithTimeout(ctx, min(a.Wait, t.d.limits.WaitLimit))
	defer cancel()
	grants, err := t.d.leases.Acquire(ctx, asked)
	if err != nil {
		return nil, told(err)
	}
	t.d.changed()
	list := make([]leaseData, len(grants))
	for i, g := range grants {
		list[i] = leaseDataOf(g.Lease)
		list[i].Handle = g.Handle
	}
	if a.One && len(list) == 1 {
		return json.Marshal(list[0])
	}
	return json.Marshal(struct {
		Leases []leaseData `json:"leases"`
	}{list})
}

// ttl is the time to live that is asked for, or the default.
func (t tools) ttl(asked time.Duration) time.Duration {
	if asked == 0 {
		return t.d.limits.LeaseTTL
	}
	return asked
}

// LeaseRenew implements builtin.Leases.
func (t tools) LeaseRenew(_ context.Context, who builtin.Caller, handle string, ttl time.Duration) (json.RawMessage, error) {
	c, err := t.caller(who)
	if err != nil {
		return nil, told(err)
	}
	l, err := t.d.leases.Renew(c.Owner, leases.Handle(handle), t.ttl(ttl))
	if err != nil {
		return nil, told(err)
	}
	t.d.changed()
	return json.Marshal(leaseDataOf(l))
}

// LeaseRelease implements builtin.Leases.
func (t tools) LeaseRelease(_ context.Context, who builtin.Caller, handle string) (json.RawMessage, error) {
	c, err := t.caller(who)
	if err != nil {
		return nil, told(err)
	}
	l, err := t.d.leases.Release(c.Owner, leases.Handle(handle))
	if err != nil {
		return nil, told(err)
	}
	t.d.changed()
	data := leaseDataOf(l)
	data.Released = true
	if !l.Ending {
		data.ExpiresAt = time.Now().UTC()
	}
	return json.Marshal(data)
}

// LeaseList implements builtin.Leases.
func (t tools) LeaseList(context.Context, builtin.Caller) (json.RawMessage, error) {
	return json.Marshal(t.d.leaseList())
}

// told is an error as a tool answers it, with what a program can act on.
func told(err error) error {
	if isLeaseError(err) {
		return toolRefusal{leaseRefusal(err, "")}
	}
	return toolRefusal{refusalOf(err)}
}

// toolRefusal implements builtin.Refusal.
type toolRefusal struct{ *refusal }

// Data implements builtin.Refusal.
func (r toolRefusal) Data() json.RawMessage {
	b, err := json.Marshal(r.data)
	if err != nil {
		return json.RawMessage("{}")
	}
	return b
}
