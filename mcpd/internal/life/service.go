package life

import (
	"context"
	"fmt"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// NotifyReady tells the service manager, if there is one, that the daemon
// serves; sd_notify(3). Call it once connections are accepted.
func NotifyReady() error { return notify(daemon.SdNotifyReady) }

// NotifyStopping tells the service manager that the daemon is ending, and that
// this may take as long as the limit, which may be more than its unit allows.
func NotifyStopping(limit time.Duration) error {
	return notify(fmt.Sprintf("%s\nEXTEND_TIMEOUT_USEC=%d", daemon.SdNotifyStopping, limit.Microseconds()))
}

func notify(state string) error {
	if _, err := daemon.SdNotify(false, state); err != nil {
		return fmt.Errorf("notifying the service manager of %s: %w", state, err)
	}
	return nil
}

// Watchdog tells the service manager, twice in each of its intervals, that the
// daemon is alive, for as long as healthy says so, until ctx ends. It returns
// at once if the service manager watches nothing.
func Watchdog(ctx context.Context, healthy func() bool) error {
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		return fmt.Errorf("reading the watchdog interval: %w", err)
	}
	if interval == 0 {
		return nil
	}
	tick := time.NewTicker(max(interval/2, time.Millisecond))
	defer tick.Stop()
	for {
		if healthy() {
			if err := notify(daemon.SdNotifyWatchdog); err != nil {
				return err
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}
