package mcpd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"go.uber.org/zap"

	"interlock/leases"
	"interlock/mcpd/internal/config"
	"interlock/mcpd/internal/endpoint"
	"interlock/mcpd/internal/policy"
	"interlock/recovery"
	"interlock/status"
)

// longWait is how long a call waits for a lease before status and doctor say so.
const longWait = 10 * time.Second

// leaseList is who has which lease and who waits, the oldest first.
func (d *Daemon) leaseList() status.LeaseList {
	list := status.LeaseList{Leases: []status.Lease{}, Waiting: []status.LeaseWait{}}
	for _, l := range d.leases.List() {
		list.Leases = append(list.Leases, statusLease(l))
	}
	for _, w := range d.leases.Waiting() {
		wait := status.LeaseWait{
			Owner: w.Owner, Session: w.Session, Client: w.Client, Since: w.Since.UTC(),
			BlockedBy: status.LeaseBlocker{Resource: string(w.Blocked.Resource), Owner: w.Blocked.Owner, Client: w.Blocked.Client, InLine: w.Blocked.Waits},
		}
		for _, r := range w.Resources {
			wait.Resources = append(wait.Resources, string(r))
		}
		list.Waiting = append(list.Waiting, wait)
	}
	return list
}

func statusLease(l leases.Lease) status.Lease {
	return status.Lease{
		Resource: string(l.Resource), Owner: l.Owner, Session: l.Session, Client: l.Client, Epoch: l.Epoch,
		AcquiredAt: l.Granted.UTC(), ExpiresAt: l.Expires.UTC(), InFlight: l.Calls, Waiting: l.Waiting, ByHand: l.ByHand, Ending: l.Ending,
	}
}

// waitFindings says who waits long, and for whom.
func (d *Daemon) waitFindings(list status.LeaseList, now time.Time) []status.Finding {
	var all []status.Finding
	for _, w := range list.Waiting {
		if now.Sub(w.Since) < longWait || len(all) == maxFindings {
			continue
		}
		b := w.BlockedBy
		detail := fmt.Sprintf("%s waits for %s, which %s has", partyText(leases.Party{Owner: w.Owner, Client: w.Client}), b.Resource, partyText(leases.Party{Owner: b.Owner, Client: b.Client}))
		all = append(all, status.LeaseWaitLong.Finding(detail, d.options.Command+" daemon leases", w.Since))
	}
	return all
}

// toolsSeen keeps what a server's list has last said of its tools, for people who
// ask when the server does not run.
func (d *Daemon) toolsSeen(server string, classes map[string]string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	known := d.listed[server]
	if known == nil {
		known = make(map[string]string)
		d.listed[server] = known
	}
	maps.Copy(known, classes)
}

// staleWrite says in status and log that a call goes, or would have gone, over
// somebody else's newer change.
func (d *Daemon) staleWrite(x *exchange, w leases.Write) {
	d.log.Warn("a call concerned what somebody else had changed", zap.String("server", x.up.server.Name),
		zap.String("tool", x.tool), zap.String("owner", x.owner), zap.String("other", w.Owner))
	detail := fmt.Sprintf("%s called %q of server %q on what %s had changed since it was read", x.owner, x.tool, x.up.server.Name, w.Owner)
	d.note(status.StaleWrite.Finding(detail, d.options.Command+" daemon history", time.Now()))
}

// breakParams are what a client of the method leases.break says.
type breakParams struct {
	Resource string `json:"resource"`
}

// breakLease ends somebody's lease because a person says so, and records that.
func (d *Daemon) breakLease(resource string) (status.Lease, error) {
	l, err := d.leases.Break(leases.Resource(resource))
	if errors.Is(err, leases.ErrNotFound) {
		return status.Lease{}, refuse(codeLeaseNotFound, "nobody has a lease on %s; see who has which with: %s daemon leases", resource, d.options.Command)
	}
	if err != nil {
		return status.Lease{}, err
	}
	d.log.Warn("lease broken by hand", zap.String("resource", resource), zap.String("owner", l.Owner), zap.Uint64("epoch", l.Epoch), zap.Int("calls", l.Calls))
	now := time.Now()
	d.journal.Note(recovery.Call{
		EndedAt: now.UTC(), DurationMS: float64(now.Sub(l.Granted).Microseconds()) / 1000,
		OwnerID: l.Owner, Client: l.Client, Tool: "leases break", Resource: resource, Epoch: l.Epoch,
		Outcome: recovery.OutcomeOK, Reason: "broken by hand",
	})
	d.note(status.LeaseBroken.Finding(fmt.Sprintf("that of %s on %s, with %d calls under it", partyText(l.Party), resource, l.Calls), "", now))
	d.changed()
	return statusLease(l), nil
}

// explainParams are what a client of the method leases.explain says.
type explainParams struct {
	Server string `json:"server"`
}

// Explanation is what holds for a server's leases, and why.
type Explanation struct {
	ServerPolicy
	// Listed is true if the server has listed its tools to somebody since the daemon
	// started; else tools that neither configuration nor catalogue name are missing.
	Listed bool         `json:"listed"`
	Tools  []ToolPolicy `json:"tools"`
}

// explain says what holds for each tool of a server.
func (d *Daemon) explain(name string) (Explanation, error) {
	s, err := d.server(name)
	if err != nil {
		return Explanation{}, err
	}
	p := d.catalogue.For(s, d.limits)
	d.mu.Lock()
	listed, ok := d.listed[name]
	listed = maps.Clone(listed)
	d.mu.Unlock()
	return explanation(s, p, listed, ok), nil
}

// explanation puts together what is said of a server and what it says itself.
func explanation(s config.Server, p *policy.Policy, listed map[string]string, ok bool) Explanation {
	e := Explanation{ServerPolicy: serverPolicy(s, p), Listed: ok, Tools: []ToolPolicy{}}
	names := p.Tools()
	for name := range listed {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		e.Tools = append(e.Tools, toolPolicy(p, name, listed[name]))
	}
	return e
}

// Leases returns who has which lease in the daemon of the place, and who waits.
func Leases(ctx context.Context, place Place) (status.LeaseList, error) {
	return askDaemon[status.LeaseList](ctx, place, methodLeases, nil)
}

// BreakLease ends the lease on a resource, whoever has it, and returns it.
func BreakLease(ctx context.Context, place Place, resource string) (status.Lease, error) {
	return askDaemon[status.Lease](ctx, place, methodBreak, breakParams{resource})
}

// Explain returns what holds for each tool of a server, and why. Without a daemon
// it is what configuration and catalogue say.
func Explain(ctx context.Context, place Place, server string) (Explanation, error) {
	e, err := askDaemon[Explanation](ctx, place, methodExplain, explainParams{server})
	if !errors.Is(err, ErrNotRunning) {
		return e, err
	}
	servers, err := loadPolicies(place)
	if err != nil {
		return e, err
	}
	for _, s := range servers {
		if s.server.Name == server {
			return explanation(s.server, s.policy, nil, false), nil
		}
	}
	return e, fmt.Errorf("there is no server %q in %s", server, place.configPath())
}

// askDaemon asks the running daemon of the place. Without one the error is
// [ErrNotRunning].
func askDaemon[T any](ctx context.Context, place Place, method string, params any) (answer T, err error) {
	paths, err := place.paths()
	if err != nil {
		return answer, err
	}
	if err := endpoint.Verify(paths); err != nil {
		return answer, err
	}
	ctx, cancel := context.WithTimeout(ctx, recordLimit)
	defer cancel()
	answer, err = askOnce[T](ctx, paths, method, params)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return answer, unresponsive(place, paths, recordLimit)
	case noAnswer(err):
		return answer, ErrNotRunning
	}
	return answer, err
}
