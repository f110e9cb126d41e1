package main

import (
	"os"

	"github.com/spf13/cobra"

	"interlock/mcpd"
)

// streams are the standard streams of a command.
type streams struct{ in, out, err *os.File }

// newRoot returns the whole command tree.
func newRoot(std streams) *cobra.Command {
	var place mcpd.Place
	root := &cobra.Command{
		Use:   "interlock",
		Short: "One daemon for all your MCP clients and servers",
		Long: `interlock is one daemon per user that all MCP clients share over one Unix
socket. It gives every client an isolated session, runs the configured MCP
servers for it, and leaves no process behind.

To use a configured server through interlock, make "interlock connect NAME"
its command in the client's configuration. The daemon starts by itself.`,
		Example: `  interlock demo             see it at work; touches nothing of yours
  interlock connect memory   what a client runs in place of the server "memory"
  interlock daemon status    who is connected, what runs
  interlock servers          what is known of your servers`,
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
		Args:              noArgs,
		RunE:              func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetIn(std.in)
	root.SetOut(std.out)
	root.SetErr(std.err)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{err} })
	flags := root.PersistentFlags()
	flags.StringVar(&place.Dir, "dir", "", "the daemon's `directory` (default $INTERLOCK_DIR, or ~/.local/state/interlock)")
	flags.StringVar(&place.Socket, "socket", "", "the daemon's socket `file`; without --dir, its parent is the directory")
	flags.StringVar(&place.Status, "status", "", "the daemon's status `file`, where it is not in the directory")
	flags.StringVar(&place.Config, "config", "", "the configuration `file` (default ~/.config/interlock/config.json)")
	root.AddCommand(newConnect(&place, std), newDaemon(&place, std), newServers(&place, std), newDemo(std), newVersion(std))
	return root
}

// noArgs refuses arguments with a usage error.
func noArgs(c *cobra.Command, args []string) error {
	if err := cobra.NoArgs(c, args); err != nil {
		return &usageError{err}
	}
	return nil
}

func newVersion(std streams) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := std.out.WriteString("interlock " + mcpd.Version() + "\n")
			return err
		},
	}
}
