package mcpd

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"interlock/mcpd/internal/config"
	"interlock/mcpd/internal/endpoint"
	"interlock/mcpd/internal/endpoint/private"
	"interlock/mcpd/internal/life"
	"interlock/recovery"
	"interlock/session"
	"interlock/status"
)

// maxActiveRuns bounds the runs that a snapshot lists.
const maxActiveRuns = 64

// maxFindings bounds the findings that a daemon keeps for status.
const maxFindings = 64

// note keeps a finding for status and doctor. The first of equal ones stays.
func (d *Daemon) note(f status.Finding) {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := string(f.Code) + "\x00" + f.Detail
	if _, ok := d.findings[key]; ok || len(d.findings) >= maxFindings {
		return
	}
	d.findings[key] = f
	d.changed()
}

// notePeer keeps one finding of each code about peers, of which there may be many:
// what it says is of the latest, and since when of the first.
func (d *Daemon) notePeer(f status.Finding) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if first, ok := d.peerFindings[f.Code]; ok {
		f.Since = first.Since
	}
	d.peerFindings[f.Code] = f
	d.changed()
}

// troubled keeps a finding about a server until recovered is called for it. What
// exactly went wrong is in the server's log: it may name what is secret.
func (d *Daemon) troubled(server string, code status.Code, detail string) {
	d.log.Warn("server in trouble", zap.String("server", server), zap.String("code", string(code)))
	f := code.Finding(fmt.Sprintf("server %q %s", server, detail),
		d.options.Command+" daemon logs --server "+private.Quote(server), time.Now())
	d.mu.Lock()
	defer d.mu.Unlock()
	d.troubles[server] = f
	d.changed()
}

// recovered follows an answer of a server to its handshake.
func (d *Daemon) recovered(server string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.troubles[server]; ok {
		delete(d.troubles, server)
		d.changed()
	}
}

// alive takes every lock that serving takes, and so returns only if none is held
// for ever.
func (d *Daemon) alive() bool {
	d.Snapshot()
	return true
}

// unacknowledged returns the pending runs, none if they are not to be reported.
func (d *Daemon) unacknowledged() []recovery.Record {
	if d.config.Load().RecoveryPending == config.PendingOff {
		return nil
	}
	return d.journal.Pending()
}

// recoveryFindings says what is to be acknowledged, and what is wrong with the
// record.
func (d *Daemon) recoveryFindings() []status.Finding {
	return recordFindings(d.unacknowledged(), d.journal.Problems(), d.options.Command, d.started)
}

// recordFindings says what is to be acknowledged, and what is wrong with the
// record. Command is how the user calls this program.
func recordFindings(pending []recovery.Record, problems []recovery.Problem, command string, since time.Time) []status.Finding {
	var all []status.Finding
	if len(pending) > 0 {
		all = append(all, status.RecoveryPending.Finding(cutOff(len(pending)), command+" daemon recovery", pending[0].StartedAt))
	}
	for _, p := range problems {
		all = append(all, recordFinding(p, command, since))
	}
	return all
}

// cutOff says that there are runs of unknown outcome.
func cutOff(runs int) string {
	if runs == 1 {
		return "a call was cut off and nobody knows what it did"
	}
	return fmt.Sprintf("%d calls were cut off and nobody knows what they did", runs)
}

// recordFinding is a problem of the record as a finding.
func recordFinding(p recovery.Problem, command string, since time.Time) status.Finding {
	code, remedy := status.StateUnwritable, p.Remedy
	switch p.Code {
	case recovery.CodeTorn:
		code = status.JournalTorn
	case recovery.CodeDamaged:
		code, remedy = status.JournalDamaged, command+" daemon recovery --repair"
	case recovery.CodeBadRecovery:
		code, remedy = status.RecoveryUnreadable, command+" daemon recovery --repair"
	case recovery.CodeUnreadable:
		code = status.RecoveryUnreadable
	case recovery.CodeSchema:
		code = status.RecoveryUnsupported
	}
	return code.Finding(p.Detail, remedy, since)
}

// configFindings are the mistakes in a configuration.
func configFindings(cfg *config.Config) []status.Finding {
	var all []status.Finding
	for i := range cfg.Problems {
		all = append(all, configFinding(&cfg.Problems[i], cfg.Modified))
	}
	return all
}

func configFinding(p *config.Problem, since time.Time) status.Finding {
	detail := p.Place()
	if p.Server != "" {
		detail += fmt.Sprintf(": server %q", p.Server)
	}
	return status.Code(p.Code).Finding(detail+": "+p.Message, p.Remedy, since)
}

// ownFindings say what does not work at this moment in the daemon itself.
func (d *Daemon) ownFindings() []status.Finding {
	var all []status.Finding
	if err := d.status.Err(); err != nil {
		all = append(all, status.StatusUnwritable.Finding(err.Error(), "", time.Now()))
	}
	if d.homeLost.Load() {
		all = append(all, status.DirectoryLost.Finding(d.options.Paths.Dir, "Connect again: a new daemon starts by itself.", time.Now()))
	}
	if wanted := d.config.Load().Limits.Sessions; d.limits.Sessions < wanted {
		all = append(all, status.DescriptorsLow.Finding(
			fmt.Sprintf("the daemon may open too few files for %d sessions and takes %d", wanted, d.limits.Sessions),
			"ulimit -n 65536; "+d.options.Command+" daemon restart", d.started))
	}
	// Between the loss of a helper and the start of the next there is none.
	if helper, ok := d.spawner.(interface{ PID() int }); ok && helper.PID() == 0 {
		all = append(all, status.HelperLost.Finding("its servers ended with it; the daemon starts another within seconds", d.options.Command+" daemon restart", time.Now()))
	}
	return all
}

// peerFinding says what is odd about a peer that is served all the same.
func peerFinding(n endpoint.Note) status.Finding {
	code := status.PeerNamespace
	if n.Code == endpoint.CodePeerHidden {
		code = status.PeerUnreadable
	}
	return code.Finding(n.Detail, "", time.Now())
}

// refusalFinding says which process of the user's own was refused, and why.
func refusalFinding(e *endpoint.PeerError) status.Finding {
	code := status.PeerRefused
	if e.Code == endpoint.CodePeerSandboxed {
		code = status.PeerSandboxed
	}
	return code.Finding(e.Message, sentence(e.Remedy), time.Now())
}

// changed tells the status file's writer that there is something new.
func (d *Daemon) changed() { d.status.Update(d.Snapshot) }

// Snapshot describes the daemon at this moment.
func (d *Daemon) Snapshot() status.Snapshot {
	p, id := d.options.Paths, d.options.Identity
	s := status.Snapshot{
		ProtocolVersion: status.ProtocolVersion,
		State:           status.StateRunning,
		PID:             id.PID,
		Socket:          p.Socket, StatusPath: p.Status, LogPath: p.Log, RecoveryPath: p.Recovery,
		StartedAt:  d.started,
		ConfigPath: d.config.Load().Path, ConfigModifiedAt: d.config.Load().Modified,
		Servers:   d.served(),
		Transport: status.Transport,
		Identity:  statusIdentity(id),
		Limits:    d.limitsSnapshot(),
		Counters:  d.countersSnapshot(),
	}
	if d.sessions.Draining() {
		s.State = status.StateDraining
	}
	for _, e := range d.sessions.All() {
		s.Sessions = append(s.Sessions, sessionSnapshot(e))
	}
	s.ClientSessions = len(s.Sessions)
	s.Upstreams = d.upstreams()
	s.UpstreamsTotal = len(s.Upstreams)
	d.mu.Lock()
	for _, f := range d.findings {
		s.Findings = append(s.Findings, f)
	}
	for _, f := range d.peerFindings {
		s.Findings = append(s.Findings, f)
	}
	for _, f := range d.troubles {
		s.Findings = append(s.Findings, f)
	}
	d.mu.Unlock()
	list := d.leaseList()
	s.Leases, s.LeasesTotal = list.Leases, len(list.Leases)
	s.LeaseWaits, s.LeaseWaitsTotal = list.Waiting, len(list.Waiting)
	if len(list.Leases) > 0 {
		s.MutationLeaseOwner = list.Leases[0].Owner
	}
	runs, total := d.journal.Active(maxActiveRuns)
	for _, r := range runs {
		s.ActiveRuns = append(s.ActiveRuns, status.Run{RequestID: r.RequestID, OwnerID: r.OwnerID, StartedAt: r.StartedAt})
	}
	s.ActiveRunsTotal = total
	s.Findings = append(s.Findings, d.recoveryFindings()...)
	s.Findings = append(s.Findings, configFindings(d.config.Load())...)
	s.Findings = append(s.Findings, d.ownFindings()...)
	s.Findings = append(s.Findings, d.waitFindings(list, time.Now())...)
	status.SortFindings(s.Findings)
	s.FindingsTotal = len(s.Findings)
	return s
}

func statusIdentity(id life.Identity) status.Identity {
	return status.Identity{
		StartTicks: id.StartTicks, BootID: id.BootID, PIDNamespace: id.PIDNamespace, Instance: id.Instance,
		UID: int(id.UID), Build: id.Build, SocketDevice: id.SocketDevice, SocketInode: id.SocketInode,
	}
}

func sessionSnapshot(e session.Snapshot) status.Session {
	era := ""
	if e.Era != session.EraUnknown {
		era = e.Era.String()
	}
	return status.Session{
		ID: e.ID, Owner: e.Owner, Client: status.Client(e.Client), PID: int(e.Info.PID),
		Server: e.Info.Server, State: e.State.String(), Era: era, StartedAt: e.Opened,
		InFlight: e.Running, Waiting: e.Waiting, Project: e.Info.Project,
	}
}

// upstreams describes the servers that have been needed so far.
func (d *Daemon) upstreams() []status.Upstream {
	var all []status.Upstream
	for _, c := range d.open() {
		u := c.upstream.Load()
		if u == nil {
			continue
		}
		e := u.snapshot()
		if e.StartedAt.IsZero() {
			continue
		}
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b status.Upstream) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), a.StartedAt.Compare(b.StartedAt))
	})
	return all
}

func (d *Daemon) limitsSnapshot() status.Limits {
	l := d.limits
	return status.Limits{
		Sessions: l.Sessions, PendingConnections: l.PendingConnections,
		ClientCalls: l.ClientCalls, ClientWaiting: l.ClientWaiting, Calls: l.Calls,
		WaitLimitMs: l.WaitLimit.Milliseconds(), CallTimeoutMs: l.CallTimeout.Milliseconds(),
		StartTimeoutMs: l.StartTimeout.Milliseconds(), DrainTimeoutMs: l.DrainTimeout.Milliseconds(),
		FrameBytes: l.Frame, BudgetBytes: l.Budget,
	}
}

func (d *Daemon) countersSnapshot() status.Counters {
	c := &d.counters
	return status.Counters{
		Accepted: c.accepted.Load(), RefusedPeers: c.refusedPeers.Load(), RefusedSessions: c.refusedSessions.Load(),
		Calls: c.calls.Load(), RefusedBusy: c.refusedBusy.Load(), RefusedLeases: c.refusedLeases.Load(),
		DroppedFrames: c.droppedFrames.Load(), StrayAnswers: c.strayFrames.Load(), ParseErrors: c.parseErrors.Load(),
		Panics: c.panics.Load(), Spawned: c.spawned.Load(), Exited: c.exited.Load(),
	}
}
