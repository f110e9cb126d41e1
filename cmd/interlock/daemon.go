package main

import (
	"context"
	"encoding/json"
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
	c.AddCommand(newServe(place, std), newStart(place, std), newStop(place, std), newRestart(place, std), newStatus(place, std))
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
		Args:  noArgs,
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
	return &cobra.Command{
		Use:   "stop",
		Short: "Stop the daemon and its servers",
		Args:  noArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return stop(c.Context(), *place, std) },
	}
}

// stop stops the daemon and says how it went. That none runs is no error.
func stop(ctx context.Context, place mcpd.Place, std streams) error {
	began := time.Now()
	err := mcpd.Stop(ctx, place, func(s mcpd.StopStep) {
		fmt.Fprintf(std.err, "interlock: %s took %v\n", s.Name, s.Took.Round(time.Millisecond))
	})
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
		Args:  noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := stop(c.Context(), *place, std); err != nil {
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

func newStatus(place *mcpd.Place, std streams) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "status",
		Short: "Show the daemon's sessions and servers",
		Args:  noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(c.Context(), 5*time.Second)
			defer cancel()
			s, err := mcpd.Status(ctx, *place)
			if err != nil && s.PID == 0 {
				return err
			}
			if asJSON {
				out := json.NewEncoder(std.out)
				out.SetIndent("", "  ")
				return errors.Join(out.Encode(s), err)
			}
			return errors.Join(status.WriteText(std.out, s, time.Now()), err)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}
