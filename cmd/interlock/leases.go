package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"interlock/mcpd"
	"interlock/status"
)

func newLeases(place *mcpd.Place, std streams) *cobra.Command {
	var asJSON bool
	var server string
	c := &cobra.Command{
		Use:   "leases",
		Short: "Show who holds what, and who waits for whom",
		Long: `leases shows the leases there are: on what, whose, since when, and who waits for
them. With --explain it shows for each tool of a server what a call does, which
resource it is leased on, and who says so: the configuration, the catalogue of
well-known servers, or the server's own annotations.`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if server != "" {
				return explain(c.Context(), *place, server, std, asJSON)
			}
			list, err := mcpd.Leases(c.Context(), *place)
			switch {
			case err != nil:
				return err
			case asJSON:
				return status.WriteJSON(std.out, list)
			}
			return list.WriteText(std.out, time.Now())
		},
	}
	c.Flags().StringVar(&server, "explain", "", "show what holds for each tool of a `server`, and why")
	c.PersistentFlags().BoolVar(&asJSON, "json", false, "print JSON")
	c.AddCommand(newBreak(place, std, &asJSON))
	return c
}

// explain shows what holds for the tools of a server.
func explain(ctx context.Context, place mcpd.Place, server string, std streams, asJSON bool) error {
	e, err := mcpd.Explain(ctx, place, server)
	switch {
	case err != nil:
		return err
	case asJSON:
		return status.WriteJSON(std.out, e)
	}
	return writeExplanation(std.out, e)
}

func newBreak(place *mcpd.Place, std streams, asJSON *bool) *cobra.Command {
	return &cobra.Command{
		Use:   "break RESOURCE",
		Short: "End somebody's lease",
		Long: `break ends the lease on a resource, whoever has it, so that the next in line can
go on. A call under the lease that has been sent already goes on, too: find out
what it does first. It is recorded in the history and in the daemon's log.`,
		Args: func(c *cobra.Command, args []string) error {
			if err := cobra.ExactArgs(1)(c, args); err != nil {
				return &usageError{errors.New("name one resource, as interlock daemon leases shows it")}
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			was, err := mcpd.BreakLease(c.Context(), *place, args[0])
			switch {
			case err != nil:
				return err
			case *asJSON:
				return status.WriteJSON(std.out, was)
			}
			fmt.Fprintf(std.out, "%s is no longer held by %s.\n", status.EscapeLine(was.Resource), status.EscapeLine(was.Owner))
			if was.InFlight > 0 {
				fmt.Fprintf(std.out, "Calls under that lease still run: %d.\n", was.InFlight)
			}
			return nil
		},
	}
}

func newServers(place *mcpd.Place, std streams) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "servers [NAME]",
		Short: "Show what holds for each configured server, and why",
		Long: `servers shows what holds for each server of the configuration, and who says so:
"config" is the configuration, "known" the catalogue of well-known servers that
interlock has in it, and nothing beside a value the default. With NAME it shows
each tool of that server, as daemon leases --explain NAME does. It needs no daemon.`,
		Args: func(c *cobra.Command, args []string) error {
			if err := cobra.MaximumNArgs(1)(c, args); err != nil {
				return &usageError{err}
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 1 {
				return explain(c.Context(), *place, args[0], std, asJSON)
			}
			answer, err := mcpd.Servers(*place)
			switch {
			case err != nil:
				return err
			case asJSON:
				return status.WriteJSON(std.out, answer)
			}
			return writeServers(std.out, answer)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// writeServers writes a table of servers that is safe on a terminal.
func writeServers(w io.Writer, answer mcpd.ServersAnswer) error {
	if len(answer.Servers) == 0 {
		fmt.Fprintf(w, "No servers are configured in %s.\n", status.EscapeLine(answer.ConfigPath))
		return nil
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "SERVER\tKNOWN AS\tSTATE\tMUTATIONS\tHOLD\tAT ONCE\tGUARD\tANNOTATIONS")
	for _, s := range answer.Servers {
		switch {
		case s.Disabled:
			fmt.Fprintf(table, "%s\tdisabled\n", cell(s.Name))
			continue
		case s.Problem != "":
			fmt.Fprintf(table, "%s\tout of service: %s\n", cell(s.Name), cell(s.Problem))
			continue
		}
		known := ""
		if s.Known != nil {
			known = s.Known.Name
		}
		atOnce := s.MaxRequests
		if atOnce.Value == "0" {
			atOnce.Value = "any"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", cell(s.Name), cell(known), setting(s.State),
			setting(s.Mutations), setting(s.LeaseHold), setting(atOnce), setting(s.Guard), setting(s.Annotations))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w, "\nFor the tools of one: interlock servers NAME")
	return nil
}

// writeExplanation writes what holds for a server's tools, safe on a terminal.
func writeExplanation(w io.Writer, e mcpd.Explanation) error {
	fmt.Fprintf(w, "%s: state %s, mutations %s, hold %s, guard %s\n", cell(e.Name), setting(e.State), setting(e.Mutations), setting(e.LeaseHold), setting(e.Guard))
	if k := e.Known; k != nil {
		fmt.Fprintf(w, "known as %s (%s)\n%s\n%s\n", cell(k.Name), cell(k.Checked), cell(k.Source), cell(k.Why))
	}
	fmt.Fprintln(w)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if len(e.Tools) > 0 {
		fmt.Fprintln(table, "TOOL\tCLASS\tSAID BY\tLEASED ON\tSAID BY\tHOLD")
	}
	for _, t := range e.Tools {
		on, by, hold := "-", "-", "-"
		if t.Leased {
			on, by, hold = strings.Join(t.Resources, ", "), t.ResourcesFrom, t.LeaseHold.Value
		}
		class, from := t.Class.Value, t.Class.From
		if class == "" {
			class, from = "?", "its list, which nobody has asked for yet"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", cell(t.Name), cell(class), cell(from), cell(on), cell(by), cell(hold))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if !e.Listed {
		fmt.Fprintln(w, "\nTools that are not here are told apart by the server's own annotations, once a session has used it.")
	}
	return nil
}

// setting is a value, with who says it unless that is nobody.
func setting(s mcpd.Setting) string {
	switch s.From {
	case "configuration":
		return cell(s.Value) + " (config)"
	case "catalogue":
		return cell(s.Value) + " (known)"
	}
	return cell(s.Value)
}
