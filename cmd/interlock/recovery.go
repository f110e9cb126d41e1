package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"interlock/mcpd"
	"interlock/status"
)

func newRecovery(place *mcpd.Place, std streams) *cobra.Command {
	var asJSON, repair bool
	var part mcpd.Selection
	c := &cobra.Command{
		Use:   "recovery",
		Short: "Show the calls that were cut off and whose outcome is unknown",
		Long: `recovery shows the calls that may have changed something and whose outcome
nobody knows, because the daemon or a server ended first. Find out what they
did, then acknowledge them with the command that is printed. It works with and
without a running daemon.`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if repair {
				return repairRecovery(c, *place, std, asJSON)
			}
			state, err := mcpd.Recovery(c.Context(), *place)
			if err != nil {
				return err
			}
			state = state.Narrow(part)
			if asJSON {
				return status.WriteJSON(std.out, state)
			}
			return state.WriteText(std.out, place.Command())
		},
	}
	partFlags(c, &part)
	c.Flags().BoolVar(&repair, "repair", false, "take over what is intact in damaged files, and keep the files")
	c.PersistentFlags().BoolVar(&asJSON, "json", false, "print JSON")
	c.AddCommand(newAcknowledge(place, std, &asJSON))
	return c
}

func partFlags(c *cobra.Command, part *mcpd.Selection) {
	c.Flags().StringArrayVar(&part.Servers, "server", nil, "only calls to this server; may be given again")
	c.Flags().StringVar(&part.Resource, "resource", "", "only calls on this resource")
}

func repairRecovery(c *cobra.Command, place mcpd.Place, std streams, asJSON bool) error {
	done, err := mcpd.RepairRecovery(c.Context(), place)
	switch {
	case err != nil:
		return err
	case asJSON:
		return status.WriteJSON(std.out, done)
	case len(done.Files) == 0:
		fmt.Fprintln(std.out, "Nothing is damaged.")
	}
	for _, file := range done.Files {
		fmt.Fprintf(std.out, "Took over what was intact; the damaged file is kept as %s\n", status.EscapeLine(file))
	}
	return nil
}

func newAcknowledge(place *mcpd.Place, std streams, asJSON *bool) *cobra.Command {
	var selection mcpd.Selection
	c := &cobra.Command{
		Use:   "ack [ID…]",
		Short: "Acknowledge exactly the pending calls",
		Long: `ack takes calls from the pending ones: somebody knows now what they did. The ids,
or the digest of the set, must be exactly those that are pending, or those that
--server and --resource leave. Otherwise nothing is acknowledged, the right set
is printed, and the exit code is 7.`,
		Args: cobra.ArbitraryArgs, // which are ids
		RunE: func(c *cobra.Command, ids []string) error {
			selection.IDs = ids
			ack, err := mcpd.Acknowledge(c.Context(), *place, selection)
			var wrong *mcpd.SetError
			switch {
			case errors.As(err, &wrong) && *asJSON:
				return errors.Join(status.WriteJSON(std.out, refusedSet{"refused", wrong}), err)
			case err != nil:
				return err
			case *asJSON:
				return status.WriteJSON(std.out, ack)
			default:
				return ack.WriteText(std.out)
			}
		},
	}
	partFlags(c, &selection)
	c.Flags().StringVar(&selection.Digest, "set", "", "digest of the set, as recovery prints it")
	return c
}

// refusedSet is the answer to an acknowledgement of a wrong set.
type refusedSet struct {
	Status string `json:"status"`
	*mcpd.SetError
}
