package mcpd

import (
	"slices"
	"testing"
	"time"

	"interlock/mcpd/internal/config"
	"interlock/mcpd/internal/endpoint"
	"interlock/mcpd/internal/proc"
	"interlock/status"
)

// codesOf are the codes of findings, in their order.
func codesOf(findings []status.Finding) (codes []status.Code) {
	for _, f := range findings {
		codes = append(codes, f.Code)
	}
	return codes
}

// TestJudgeDisk judges file systems that a test cannot make.
func TestJudgeDisk(t *testing.T) {
	p := &patient{paths: endpoint.Paths{Dir: "/d"}, now: time.Now()}
	const plenty = 1 << 40
	for name, tt := range map[string]struct {
		disk disk
		want []status.Code
	}{
		"roomy":            {disk{free: plenty, files: 1e6, freeFiles: 1e5}, nil},
		"without inodes":   {disk{free: plenty}, nil}, // as btrfs reports it
		"full":             {disk{free: minFree - 1, files: 1e6, freeFiles: 1e5}, []status.Code{status.DiskLow}},
		"out of inodes":    {disk{free: plenty, files: 1e6, freeFiles: 10}, []status.Code{status.DiskLow}},
		"on the network":   {disk{free: plenty, remote: true}, []status.Code{status.FileSystemRemote}},
		"all that at once": {disk{files: 1, remote: true}, []status.Code{status.DiskLow, status.DiskLow, status.FileSystemRemote}},
	} {
		if got := codesOf(p.judgeDisk(tt.disk)); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

// TestLiveDaemon tells another build, version and drain from this one's daemon.
func TestLiveDaemon(t *testing.T) {
	live := func(edit func(*status.Snapshot)) *patient {
		s := &status.Snapshot{ProtocolVersion: status.ProtocolVersion, State: status.StateRunning, PID: 1}
		s.Identity.Build = Version()
		edit(s)
		return &patient{live: s, held: true, now: time.Now()}
	}
	for name, tt := range map[string]struct {
		edit func(*status.Snapshot)
		want []status.Code
	}{
		"the same":        {func(*status.Snapshot) {}, nil},
		"another build":   {func(s *status.Snapshot) { s.Identity.Build = "v0.0.1" }, []status.Code{status.DaemonOutdated}},
		"another version": {func(s *status.Snapshot) { s.ProtocolVersion++ }, []status.Code{status.VersionUnsupported}},
		"draining":        {func(s *status.Snapshot) { s.State = status.StateDraining }, []status.Code{status.DaemonDraining}},
	} {
		p := live(tt.edit)
		got := codesOf(append(p.checkAnswer(t.Context()), p.checkBuild(t.Context())...))
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

// TestOtherProcesses tells the processes of other daemons from those that are left
// of one.
func TestOtherProcesses(t *testing.T) {
	p := &patient{now: time.Now()}
	helper := proc.Marked{PID: 11, Parent: 10, Comm: "interlock", Helper: true}
	found := p.otherProcesses(map[string]*group{
		"running": {helper: &helper, processes: []proc.Marked{helper, {PID: 12, Comm: "node"}}},
		"gone":    {processes: []proc.Marked{{PID: 22, Comm: "node"}, {PID: 21, Comm: "sh"}}},
	})
	if len(found) != 2 || found[0].Code != status.OtherDaemons || found[0].Detail != "1, for other directories: pid 10" {
		t.Fatalf("found %+v", found)
	}
	if f := found[1]; f.Code != status.Orphans || f.Severity != status.Info || f.Remedy != "kill 21 22" {
		t.Errorf("found %+v", f)
	}
	if found := p.otherProcesses(nil); found != nil {
		t.Errorf("found %+v of nothing", found)
	}
}

// TestUnlocated answers where it is not clear which daemon is meant.
func TestUnlocated(t *testing.T) {
	for _, name := range []string{"HOME", "XDG_STATE_HOME", "INTERLOCK_DIR"} {
		t.Setenv(name, "")
	}
	a := Doctor(t.Context(), Place{})
	if a.Status != status.Unavailable || a.Detail == "" || !slices.Equal(codesOf(a.Findings), []status.Code{status.DirectoryUnknown}) {
		t.Errorf("answered %+v", a)
	}
}

// TestConfigCodes has every code of a configuration problem registered as one of a
// finding, with a title of its own.
func TestConfigCodes(t *testing.T) {
	for _, code := range config.Codes() {
		if info := status.Code(code).Info(); info.Title == string(code) {
			t.Errorf("%s is not registered", code)
		}
	}
}

// TestSentence tells commands from what is none.
func TestSentence(t *testing.T) {
	for remedy, want := range map[string]string{
		"run: chmod 700 '/a b'": "chmod 700 '/a b'",
		"move it away":          "Move it away.",
		"":                      "",
	} {
		if got := sentence(remedy); got != want {
			t.Errorf("%q became %q, want %q", remedy, got, want)
		}
	}
}
