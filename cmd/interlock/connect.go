package main

import (
	"github.com/spf13/cobra"

	"interlock/mcpd"
)

func newConnect(place *mcpd.Place, std streams) *cobra.Command {
	var project string
	var withLeases bool
	c := &cobra.Command{
		Use:   "connect [NAME]",
		Short: "Connect an MCP client on stdin and stdout to a server of the daemon",
		Long: `connect is what an MCP client runs in place of a server: it speaks MCP on
stdin and stdout, and the daemon does the rest. The daemon is started if none
runs. NAME is that of a server in the configuration, or "local" for the built-in
file tools; it may be left out where there is only one.

The server runs in the working directory and the environment of this command.`,
		Example: `  In a client's configuration, a server named "memory" becomes

    "memory": {"command": "interlock", "args": ["connect", "memory"]}`,
		Args: func(c *cobra.Command, args []string) error {
			if err := cobra.MaximumNArgs(1)(c, args); err != nil {
				return &usageError{err}
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			o := mcpd.BridgeOptions{Place: *place, Project: project, WithLeases: withLeases, Stdin: std.in, Stdout: std.out, Stderr: std.err}
			if len(args) == 1 {
				o.Server = args[0]
			}
			return mcpd.Connect(c.Context(), o)
		},
	}
	c.Flags().StringVar(&project, "project", "", "project `directory` (default $CLAUDE_PROJECT_DIR, or the git work tree)")
	c.Flags().BoolVar(&withLeases, "with-leases", false, "add the tools of leases, interlock__lease_…, to the server's own")
	return c
}
