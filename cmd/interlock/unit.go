package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"interlock/mcpd"
)

func newUnit(place *mcpd.Place, std streams) *cobra.Command {
	var launchd bool
	c := &cobra.Command{
		Use:   "unit",
		Short: "Print the files by which systemd or launchd starts the daemon",
		Long: `unit prints a service and a socket for systemd's user manager, or with --launchd
an agent for launchd. Nothing needs them: the daemon starts by itself when a
client connects.`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			service, socket, agent, err := mcpd.UnitFiles(*place)
			if err != nil {
				return err
			}
			if launchd {
				fmt.Fprintln(std.err, "interlock: save this as ~/Library/LaunchAgents/interlock.plist, then: launchctl load ~/Library/LaunchAgents/interlock.plist")
				_, err = std.out.WriteString(agent)
				return err
			}
			fmt.Fprintln(std.err, "interlock: save each part under the name above it, then: systemctl --user daemon-reload && systemctl --user enable --now interlock.socket")
			_, err = fmt.Fprintf(std.out, "# ~/.config/systemd/user/interlock.service\n%s\n# ~/.config/systemd/user/interlock.socket\n%s", service, socket)
			return err
		},
	}
	c.Flags().BoolVar(&launchd, "launchd", false, "print an agent for launchd")
	return c
}
