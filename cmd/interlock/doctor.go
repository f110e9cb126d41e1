package main

import (
	"io"

	"github.com/spf13/cobra"

	"interlock/mcpd"
	"interlock/status"
)

func newDoctor(place *mcpd.Place, std streams) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Look for what is wrong and say how to mend it",
		Long: `doctor looks at the daemon's directory, its files and processes, the record of
calls and the configuration, whether a daemon runs or not, and changes nothing.
Each finding has a stable code and, where one helps, a command to paste.`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			answer := mcpd.Doctor(c.Context(), *place)
			if err := c.Context().Err(); err != nil {
				return err
			}
			write := status.WriteDoctorText
			if asJSON {
				write = func(w io.Writer, a status.DoctorAnswer) error { return status.WriteJSON(w, a) }
			}
			if err := write(std.out, answer); err != nil {
				return err
			}
			switch answer.Status {
			case status.Unavailable:
				return verdict(exitNotRunning)
			case status.Unhealthy:
				return verdict(exitUnhealthy)
			default:
				return nil
			}
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}
