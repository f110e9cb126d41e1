package status

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// began is when the daemon of the tests started, in a zone that is not UTC.
func began() time.Time {
	return time.Date(2026, 11, 30, 10, 0, 0, 500_000_000, time.FixedZone("CET", 3600))
}

// full returns a snapshot with something in every field.
func full() Snapshot {
	return Snapshot{
		ProtocolVersion: ProtocolVersion, State: StateRunning, PID: 4242,
		Socket: "/run/i/interlock.sock", StatusPath: "/run/i/daemon.json", LogPath: "/run/i/daemon.log", RecoveryPath: "/run/i/daemon.recovery.json",
		ConfigPath: "/home/ann/.config/interlock/config.json", ConfigModifiedAt: began().Add(-time.Hour), Servers: []string{"git", "notes"},
		StartedAt: began(), Transport: Transport, ClientSessions: 2, MutationLeaseOwner: "client-1",
		ActiveRuns:      []Run{{RequestID: "r-1", OwnerID: "client-1", StartedAt: began().Add(time.Hour)}},
		ActiveRunsTotal: 1,
		Identity:        Identity{StartTicks: 987654, BootID: "b007", PIDNamespace: 4026531836, Instance: "1n5t", UID: 1000, Build: "v1.2.3", SocketDevice: 66306, SocketInode: 1<<63 + 1},
		Sessions: []Session{
			{ID: "session-1", Owner: "client-1", Client: Client{"claude-code", "2.1"}, PID: 100, Server: "git", State: "ready", Era: "2025-11-25", StartedAt: began().Add(time.Minute), InFlight: 1, Waiting: 2, Project: "/home/ann/p"},
			{ID: "session-2", Owner: "client-2", Client: Client{"cursor", ""}, PID: 101, State: "ready", StartedAt: began().Add(time.Hour)},
		},
		Upstreams: []Upstream{
			{Name: "git", Scope: "project", State: "running", PID: 300, StartedAt: began().Add(2 * time.Minute), Restarts: 1, Sessions: 1, InFlight: 1},
			{Name: "jira", Scope: "session", State: "out of service", Findings: []Code{HTTPUnsupported}},
		},
		UpstreamsTotal: 2,
		Leases:         []Lease{{Resource: "server:git", Owner: "client-1", Session: "session-1", Client: "claude-code", Epoch: 7, AcquiredAt: began().Add(time.Hour), ExpiresAt: began().Add(26*time.Hour + 30*time.Second), InFlight: 1, Waiting: 3, ByHand: true, Ending: true}},
		LeasesTotal:    1,
		LeaseWaits: []LeaseWait{{
			Owner: "client-2", Session: "session-2", Client: "cursor", Resources: []string{"server:git", "file:/a"}, Since: began().Add(26 * time.Hour),
			BlockedBy: LeaseBlocker{Resource: "server:git", Owner: "client-1", Client: "claude-code", InLine: true},
		}},
		LeaseWaitsTotal: 1,
		Limits:          Limits{256, 256, 16, 64, 256, 25000, 1, 60000, 10000, 64 << 20, 256 << 20},
		Counters:        Counters{5, 1, 1, 1204, 2, 1, 1, 1, 1, 1, 4, 1},
		Findings: []Finding{
			PeerNamespace.Finding("pid 101 (cursor) has another root", "start it outside its container", began()),
			HTTPUnsupported.Finding(`server "jira" in config.json:5:14`, "start it through mcp-remote", began()),
		},
		FindingsTotal: 2,
	}
}

// checkGolden compares got with a file in testdata.
func checkGolden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
	}
}

// writeFile writes a file for a test.
func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// numbered returns n elements.
func numbered[T any](n int, f func(i int) T) []T {
	out := make([]T, n)
	for i := range out {
		out[i] = f(i)
	}
	return out
}

// stressed returns a snapshot that is far too large to be written whole.
func stressed() Snapshot {
	s := full()
	tail := strings.Repeat("x", 2000)
	long := func(i int) string { return fmt.Sprint(i, "-") + tail }
	s.Sessions = numbered(600, func(i int) Session {
		return Session{ID: fmt.Sprintf("session-%d", i), Owner: "client-1", Client: Client{long(i), long(i)}, Project: long(i)}
	})
	s.ClientSessions = 600
	s.Leases = numbered(400, func(i int) Lease { return Lease{Resource: long(i), Owner: "client-1"} })
	s.LeasesTotal = 400
	s.LeaseWaits = numbered(400, func(i int) LeaseWait {
		return LeaseWait{Owner: long(i), Client: long(i), Resources: []string{long(i), long(i)}, BlockedBy: LeaseBlocker{Resource: long(i), Owner: long(i), Client: long(i)}}
	})
	s.LeaseWaitsTotal = 400
	s.Findings = numbered(300, func(i int) Finding { return UpstreamCrashed.Finding(long(i), long(i), began()) })
	s.FindingsTotal = 300
	return s
}
