package mcpd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"interlock/mcpd/internal/config"
	"interlock/mcpd/internal/proc"
	"interlock/status"
)

// checkDescriptors looks whether the daemon can open anything more. That it takes
// fewer sessions than configured for want of descriptors, it says itself.
func (p *patient) checkDescriptors(context.Context) []status.Finding {
	if p.live == nil || p.process != nil {
		return nil
	}
	used, limit, ok := descriptors(p.live.PID)
	if !ok || used*10 <= limit*9 {
		return nil
	}
	return []status.Finding{p.finding(status.DescriptorsLow, "ulimit -n 65536; "+p.daemon("restart"), "the daemon has %d of %d descriptors open", used, limit)}
}

// maxNamed bounds the processes that a finding names.
const maxNamed = 20

// group is the running processes with one instance marker.
type group struct {
	helper    *proc.Marked // nil if there is none: its daemon is gone, too
	processes []proc.Marked
}

// checkProcesses looks for processes whose daemon is gone, for a spawn helper that
// was stopped, and for other daemons of this user. Processes are told by the marker
// in their environment and never by a name.
func (p *patient) checkProcesses(context.Context) []status.Finding {
	found, err := proc.FindMarked("")
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	if err != nil {
		return []status.Finding{p.finding(status.CheckFailed, "", "%v", err)}
	}
	groups := map[string]*group{}
	for i, m := range found {
		g := groups[m.Marker]
		if g == nil {
			g = &group{}
			groups[m.Marker] = g
		}
		if m.Helper {
			g.helper = &found[i]
		}
		g.processes = append(g.processes, m)
	}
	var all []status.Finding
	if s := p.record(); s != nil {
		if g := groups[s.Identity.Instance]; g != nil {
			all = append(all, p.ownProcesses(g)...)
		}
		delete(groups, s.Identity.Instance)
	}
	return append(all, p.otherProcesses(groups)...)
}

// ownProcesses judges the processes of the daemon on record.
func (p *patient) ownProcesses(g *group) []status.Finding {
	switch {
	case p.running() && g.helper != nil && proc.Stopped(g.helper.PID):
		return []status.Finding{p.finding(status.HelperLost, fmt.Sprintf("kill -CONT %d", g.helper.PID), "the spawn helper (pid %d) was stopped by a signal: no server can start or end", g.helper.PID)}
	case p.running():
		return nil
	default:
		return []status.Finding{p.finding(status.Orphans, p.daemon("start"), "%s of the daemon that was pid %d; the next one ends them", named(g.processes), p.file.PID)}
	}
}

// otherProcesses lists what belongs to other daemons, or to none.
func (p *patient) otherProcesses(groups map[string]*group) []status.Finding {
	var daemons []int
	var strays []proc.Marked
	for _, g := range groups {
		if g.helper != nil {
			daemons = append(daemons, g.helper.Parent)
		} else {
			strays = append(strays, g.processes...)
		}
	}
	var all []status.Finding
	if len(daemons) > 0 {
		slices.Sort(daemons)
		all = append(all, p.finding(status.OtherDaemons, "", "%d, for other directories: pid %s", len(daemons), strings.Join(texts(daemons), ", ")))
	}
	if len(strays) > 0 {
		slices.SortFunc(strays, func(a, b proc.Marked) int { return a.PID - b.PID })
		f := p.finding(status.Orphans, "kill "+strings.Join(texts(pidsOf(strays)), " "), "%s of daemons for other directories that are gone; end them if nobody else keeps them", named(strays))
		f.Severity = status.Info // another program may keep them for a reason
		all = append(all, f)
	}
	return all
}

func pidsOf(list []proc.Marked) []int {
	var pids []int
	for _, m := range list[:min(len(list), maxNamed)] {
		pids = append(pids, m.PID)
	}
	return pids
}

func texts(numbers []int) []string {
	var list []string
	for _, n := range numbers {
		list = append(list, strconv.Itoa(n))
	}
	return list
}

// named lists processes by pid and name.
func named(list []proc.Marked) string {
	var names []string
	for _, m := range list[:min(len(list), maxNamed)] {
		names = append(names, fmt.Sprintf("%d (%s)", m.PID, m.Comm))
	}
	if more := len(list) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

// zombiePatience is how long a process that has ended may wait to be reaped.
const zombiePatience = 500 * time.Millisecond

// checkZombies looks for children of the daemon that nobody reaps.
func (p *patient) checkZombies(ctx context.Context) []status.Finding {
	if p.live == nil || p.process != nil {
		return nil
	}
	found := p.zombies()
	if len(found) == 0 || pause(ctx, zombiePatience) != nil {
		return nil
	}
	still := p.zombies()
	found = slices.DeleteFunc(found, func(pid int) bool { return !slices.Contains(still, pid) })
	if len(found) == 0 {
		return nil
	}
	return []status.Finding{p.finding(status.Zombies, p.daemon("restart"), "pid %s", strings.Join(texts(found), ", "))}
}

// zombies are the ended children of the daemon and of its spawn helper.
func (p *patient) zombies() []int {
	found := proc.Zombies(p.live.PID)
	helpers, _ := proc.FindMarked(p.live.Identity.Instance) // without /proc there are none to find
	for _, m := range helpers {
		if m.Helper {
			found = append(found, proc.Zombies(m.PID)...)
		}
	}
	return found
}

// checkConfiguration reports the mistakes in the configuration, and whether the
// daemon has read it.
func (p *patient) checkConfiguration(context.Context) []status.Finding {
	if p.problem != nil {
		return []status.Finding{configFinding(p.problem, p.now)}
	}
	if p.config == nil {
		return nil
	}
	all := configFindings(p.config)
	if p.live != nil && p.live.ConfigPath == p.config.Path && !p.live.ConfigModifiedAt.Equal(p.config.Modified) {
		all = append(all, p.finding(status.ConfigOutdated, fmt.Sprintf("kill -HUP %d", p.live.PID), "%s has changed since the daemon read it", p.config.Path))
	}
	return all
}

// checkCommands looks whether the servers' programs are there, in this process's
// environment: a client's may differ.
func (p *patient) checkCommands(context.Context) []status.Finding {
	if p.config == nil {
		return nil
	}
	var all []status.Finding
	for _, s := range p.config.Servers {
		if s.Disabled || s.Problem != nil || s.Command == "" {
			continue
		}
		if f, bad := p.checkCommand(s); bad {
			all = append(all, f)
		}
	}
	return all
}

func (p *patient) checkCommand(s config.Server) (f status.Finding, bad bool) {
	env := environment(childEnv(os.Environ()))
	command, err := s.Expand(env.lookup)
	var problem *config.Problem
	if errors.As(err, &problem) {
		f = configFinding(problem, p.now)
		f.Severity = status.Warning // clients have environments of their own
		return f, true
	}
	for name, value := range command.Env {
		env[name] = value
	}
	place := fmt.Sprintf("%s:%d: server %q", p.config.Path, s.Line, s.Name)
	if info, err := os.Stat(command.Dir); filepath.IsAbs(command.Dir) && (err != nil || !info.IsDir()) {
		return p.finding(status.UpstreamStartFailed, "Make the directory, or correct cwd.", "%s: its working directory is not there", place), true
	}
	dir := command.Dir
	if !filepath.IsAbs(dir) {
		if strings.Contains(command.Program, "/") && !filepath.IsAbs(command.Program) {
			return f, false // it depends on where the client is
		}
		dir = p.paths.Dir
	}
	if _, err := proc.Resolve(command.Program, env.list(), dir); err != nil {
		// The command as it is written, not as it is expanded: variables hold secrets.
		return p.finding(status.UpstreamNoCommand, "Install it, or write its absolute path.", "%s: command %q is not an executable file, or not in PATH", place, s.Command), true
	}
	return f, false
}

// checkOwnFindings passes on what the daemon says of itself, but for what has been
// looked at here.
func (p *patient) checkOwnFindings(context.Context) []status.Finding {
	if p.live == nil {
		return nil
	}
	judged := []status.Code{
		status.RecoveryPending, status.RecoveryUnreadable, status.RecoveryUnsupported,
		status.JournalTorn, status.JournalDamaged, status.StateUnwritable,
	}
	for _, code := range config.Codes() {
		judged = append(judged, status.Code(code))
	}
	return slices.DeleteFunc(slices.Clone(p.live.Findings), func(f status.Finding) bool { return slices.Contains(judged, f.Code) })
}
