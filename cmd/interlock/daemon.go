package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"interlock/mcpd"
	"interlock/status"
)

func newDaemon(place *mcpd.Place, std streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "daemon",
		Short: "Run and inspect the daemon",
		Args:  noArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(
		newServe(place, std), newStart(place, std), newStop(place, std), newRestart(place, std),
		newStatus(place, std), newDoctor(place, std), newLogs(place, std), newHistory(place, std),
		newRecovery(place, std), newLeases(place, std), newUnit(place, std),
	)
	return c
}

func newServe(place *mcpd.Place, std streams) *cobra.Command {
	var idleExit time.Duration
	c := &cobra.Command{
		Use:   "serve",
		Short: "Serve in the foreground",
		Long: `serve is the daemon in the foreground, for a service manager or a terminal.
SIGTERM or SIGINT ends it once the calls in flight are answered, a second one
at once. SIGHUP reads the configuration anew.`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			hurry := make(chan struct{})
			go hurryOnSecondSignal(c.Context(), hurry)
			reload := make(chan os.Signal, 1)
			signal.Notify(reload, syscall.SIGHUP)
			return mcpd.Serve(c.Context(), *place, mcpd.ServeOptions{
				Hurry: hurry, Reload: reload, IdleExit: idleExit,
				Ready: func(s status.Snapshot) { fmt.Fprintf(std.err, "interlock: serving on %s\n", s.Socket) },
			})
		},
	}
	c.Flags().DurationVar(&idleExit, "idle-exit", 0, "end when nobody has been connected for so long (default never)")
	return c
}

// hurryOnSecondSignal closes hurry at the first signal after the one that ended
// ctx. It ends with the process.
func hurryOnSecondSignal(ctx context.Context, hurry chan<- struct{}) {
	<-ctx.Done()
	second := make(chan os.Signal, 1)
	signal.Notify(second, os.Interrupt, syscall.SIGTERM)
	<-second
	close(hurry)
}

func newStart(place *mcpd.Place, std streams) *cobra.Command {
	return &cobra.Command{
		Use:   "start",
		Short: "Start the daemon in the background",
		Long: `start starts the daemon and returns when it accepts connections, or says in the
daemon's own words why it does not. One that runs already is left alone, which
is no error. A client that connects starts the daemon by itself.`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			pid, already, err := mcpd.Start(c.Context(), *place)
			switch {
			case err != nil:
				return err
			case already:
				fmt.Fprintf(std.out, "interlock is running already (pid %d)\n", pid)
			default:
				fmt.Fprintf(std.out, "interlock started (pid %d)\n", pid)
			}
			return nil
		},
	}
}

func newStop(place *mcpd.Place, std streams) *cobra.Command {
	var force bool
	c := &cobra.Command{
		Use:   "stop",
		Short: "Stop the daemon and its servers",
		Long: `stop ends the daemon and returns when it is gone, and its servers with it. Calls
in flight have limits.drainTimeout to end. A daemon that does not end when asked
is sent SIGTERM, then SIGKILL, each only once it is certain that the process is
the daemon. Processes of its servers that outlive it are named, or ended with
--force. That none runs is no error.`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return stop(c.Context(), *place, force, std) },
	}
	c.Flags().BoolVar(&force, "force", false, "end what outlives the daemon of its servers, too")
	return c
}

// stop stops the daemon and says how it went. That none runs is no error.
func stop(ctx context.Context, place mcpd.Place, force bool, std streams) error {
	began := time.Now()
	err := mcpd.Stop(ctx, place, mcpd.StopOptions{Force: force, Report: func(s mcpd.StopStep) {
		fmt.Fprintf(std.err, "interlock: %s took %v\n", s.Name, s.Took.Round(time.Millisecond))
	}})
	if errors.Is(err, mcpd.ErrNotRunning) {
		fmt.Fprintln(std.out, "interlock is not running")
		return nil
	}
	if err == nil {
		fmt.Fprintf(std.out, "interlock stopped in %v\n", time.Since(began).Round(time.Millisecond))
	}
	return err
}

func newRestart(place *mcpd.Place, std streams) *cobra.Command {
	return &cobra.Command{
		Use:   "restart",
		Short: "Stop the daemon and start it again",
		Long: `restart is stop and then start: it puts a new version into service, or limits
that were changed in the configuration. Open sessions end.`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := stop(c.Context(), *place, false, std); err != nil {
				return err
			}
			pid, _, err := mcpd.Start(c.Context(), *place)
			if err == nil {
				fmt.Fprintf(std.out, "interlock started (pid %d)\n", pid)
			}
			return err
		},
	}
}
