package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"interlock/mcpd"
	"interlock/status"
)

const (
	// statusLimit is how long a daemon may take to say how it is.
	statusLimit = 5 * time.Second
	// watchInterval is how often a status that is watched is shown anew.
	watchInterval = time.Second
)

func newStatus(place *mcpd.Place, std streams) *cobra.Command {
	var asJSON, watch bool
	c := &cobra.Command{
		Use:   "status",
		Short: "Show the daemon's sessions and servers",
		Args:  noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if watch {
				return watchStatus(c.Context(), *place, std, asJSON)
			}
			return showStatus(c.Context(), *place, std, asJSON)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.Flags().BoolVarP(&watch, "watch", "w", false, "show it anew every second until interrupted")
	return c
}

func showStatus(ctx context.Context, place mcpd.Place, std streams, asJSON bool) error {
	ctx, cancel := context.WithTimeout(ctx, statusLimit)
	defer cancel()
	s, err := mcpd.Status(ctx, place)
	switch {
	case err != nil && (s.PID == 0 || !asJSON):
		return err // what a daemon was that is gone is for programs
	case asJSON:
		return errors.Join(status.WriteJSON(std.out, s), err)
	default:
		return status.WriteText(std.out, s, time.Now())
	}
}

// watchStatus shows the status until ctx ends, on a terminal always in the same
// place. A daemon that is not there may come.
func watchStatus(ctx context.Context, place mcpd.Place, std streams, asJSON bool) error {
	clear := ""
	if isTerminal(std.out) && !asJSON {
		clear = "\x1b[H\x1b[2J"
	}
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		fmt.Fprint(std.out, clear)
		if err := showStatus(ctx, place, std, asJSON); err != nil && ctx.Err() == nil {
			report(std.err, err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
