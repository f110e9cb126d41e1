package mcpd

import (
	"testing"

	"interlock/mcpd/internal/config"
)

func TestFitDescriptors(t *testing.T) {
	defaults := config.Defaults()
	for _, test := range []struct {
		files             uint64
		pending, sessions int
	}{
		{1<<64 - 1, 256, 256},
		{1 << 20, 256, 256},
		{4096, 256, 256},
		{1024, 128, 169},
		{96, 12, 7},
		{20, 2, 1},
	} {
		got := fitDescriptors(defaults, test.files)
		if got.PendingConnections != test.pending || got.Sessions != test.sessions {
			t.Errorf("%d descriptors: %d pending, %d sessions; want %d and %d", test.files, got.PendingConnections, got.Sessions, test.pending, test.sessions)
		}
		got.PendingConnections, got.Sessions = defaults.PendingConnections, defaults.Sessions
		if got != defaults {
			t.Errorf("%d descriptors change other limits: %+v", test.files, got)
		}
	}
}
