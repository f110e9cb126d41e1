package main

import (
	"github.com/spf13/cobra"

	"interlock/mcpd"
)

func newDemo(std streams) *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "Show three clients at work on one daemon",
		Long: `demo runs a daemon of its own in a temporary directory, lets three clients use
the built-in server "local" at the same time, prints what happens, and removes
everything again. It touches nothing else.`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return mcpd.Demo(c.Context(), std.out) },
	}
}
