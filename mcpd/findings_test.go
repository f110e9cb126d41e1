package mcpd

import (
	"fmt"
	"net"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"interlock/mcpd/internal/endpoint"
	"interlock/status"
)

// about returns the daemon's findings of one code.
func (r *rig) about(code status.Code) []status.Finding {
	return slices.DeleteFunc(r.d.Snapshot().Findings, func(f status.Finding) bool { return f.Code != code })
}

// TestPeerFindings has peers of all kinds come again and again: there is one
// finding a code, about the latest.
func TestPeerFindings(t *testing.T) {
	t.Parallel()
	r := startRig(t, rigOptions{})
	for _, tt := range []struct {
		err  endpoint.PeerError
		want status.Code // empty: none
	}{
		{endpoint.PeerError{Code: endpoint.CodePeerNamespace, Own: true}, status.PeerRefused},
		{endpoint.PeerError{Code: endpoint.CodePeerSandboxed, Own: true, Remedy: "allow it"}, status.PeerSandboxed},
		{endpoint.PeerError{Code: endpoint.CodePeerEnded, Own: true}, ""},
		{endpoint.PeerError{Code: endpoint.CodePeerForeign}, ""},
	} {
		before := len(r.d.Snapshot().Findings)
		var lines pacer
		for pid := range 2 * maxFindings {
			e := tt.err
			e.Message = fmt.Sprintf("pid %d", pid)
			r.d.refusePeer(lonelyConn(t), &e, &lines)
		}
		if tt.want == "" {
			if after := len(r.d.Snapshot().Findings); after != before {
				t.Errorf("%s leaves %d findings", tt.err.Code, after-before)
			}
			continue
		}
		got := r.about(tt.want)
		if len(got) != 1 || got[0].Detail != fmt.Sprintf("pid %d", 2*maxFindings-1) || got[0].Remedy != sentence(tt.err.Remedy) {
			t.Errorf("%s: %+v", tt.err.Code, got)
		}
	}
	for code, want := range map[string]status.Code{endpoint.CodePeerHidden: status.PeerUnreadable, endpoint.CodePeerMount: status.PeerNamespace} {
		for pid := range 3 {
			r.d.notePeer(peerFinding(endpoint.Note{Code: code, Detail: fmt.Sprintf("pid %d", pid)}))
		}
		if got := r.about(want); len(got) != 1 || got[0].Detail != "pid 2" {
			t.Errorf("%s: %+v", code, got)
		}
	}
}

// lonelyConn is a connection whose other end is closed.
func lonelyConn(t *testing.T) *net.UnixConn {
	t.Helper()
	fds := must(unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0))
	ok(t, unix.Close(fds[1]))
	f := os.NewFile(uintptr(fds[0]), "socket")
	defer f.Close()
	return must(net.FileConn(f)).(*net.UnixConn)
}

// TestDirectoryLost takes the lock away and puts it back: the finding goes with
// what it is about.
func TestDirectoryLost(t *testing.T) {
	t.Parallel()
	r := startRig(t, rigOptions{})
	aside := r.paths.Lock + ".aside"
	ok(t, os.Rename(r.paths.Lock, aside))
	eventually(t, "the loss is found", func() bool { return len(r.about(status.DirectoryLost)) == 1 })
	ok(t, os.Rename(aside, r.paths.Lock))
	eventually(t, "the finding is gone", func() bool { return len(r.about(status.DirectoryLost)) == 0 })
}
