package main

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"interlock/mcpd"
	"interlock/status"
)

// defaultHistory is how many calls history shows unless told otherwise.
const defaultHistory = 50

func newHistory(place *mcpd.Place, std streams) *cobra.Command {
	var asJSON bool
	var n int
	c := &cobra.Command{
		Use:   "history",
		Short: "Show the last calls: who, what, how long, how it ended",
		Long: `history shows the last finished tool calls, oldest first. It has neither
arguments nor results, and keeps about the last ten thousand calls.`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if n < 1 {
				return &usageError{errors.New("-n takes a number of calls from 1 on")}
			}
			answer, err := mcpd.History(c.Context(), *place, n)
			switch {
			case err != nil:
				return err
			case asJSON:
				return status.WriteJSON(std.out, answer)
			default:
				return writeHistory(std.out, answer)
			}
		},
	}
	c.Flags().IntVarP(&n, "calls", "n", defaultHistory, "show at most so many calls")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// writeHistory writes a table of calls that is safe on a terminal.
func writeHistory(w io.Writer, answer mcpd.HistoryAnswer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if len(answer.Calls) > 0 {
		fmt.Fprintln(table, "ENDED\tOWNER\tCLIENT\tSERVER\tTOOL\tCLASS\tON\tTOOK\tWAITED\tOUTCOME")
	}
	for _, call := range answer.Calls {
		took := time.Duration(call.DurationMS * float64(time.Millisecond)).Round(100 * time.Microsecond)
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%v\t%s\t%s\n", call.EndedAt.UTC().Format(time.RFC3339), cell(call.OwnerID),
			cell(call.Client), cell(call.Server), cell(call.Tool), cell(call.Class), cell(call.Resource), took, waited(call), outcome(call))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if len(answer.Calls) == 0 {
		fmt.Fprintln(w, "No calls are on record.")
	}
	if answer.Dropped > 0 {
		fmt.Fprintf(w, "%d calls could not be recorded.\n", answer.Dropped)
	}
	return nil
}

// waited says how long a call waited for leases, and whose.
func waited(call mcpd.Call) string {
	if call.WaitedMS == 0 {
		return "-"
	}
	took := time.Duration(call.WaitedMS * float64(time.Millisecond)).Round(100 * time.Microsecond)
	if call.WaitedFor == "" {
		return took.String()
	}
	return fmt.Sprintf("%v for %s", took, cell(call.WaitedFor))
}

// outcome says how a call ended, and why if that is not what calls are for.
func outcome(call mcpd.Call) string {
	if call.Reason == "" {
		return cell(string(call.Outcome))
	}
	return cell(string(call.Outcome)) + " (" + cell(call.Reason) + ")"
}

// cell is text for one cell of a table.
func cell(text string) string {
	if text == "" {
		return "-"
	}
	return status.EscapeLine(text)
}
