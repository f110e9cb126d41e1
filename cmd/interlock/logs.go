package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"interlock/mcpd"
	"interlock/status"
)

func newLogs(place *mcpd.Place, std streams) *cobra.Command {
	var follow, asJSON bool
	var server string
	var lines int
	c := &cobra.Command{
		Use:   "logs",
		Short: "Show the end of the daemon's log or of a server's",
		Long: `logs shows at most the last 64 KiB of the daemon's log or, with --server, of
what that server has written to its standard error. What a terminal would act
on is escaped.`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case lines < 0:
				return &usageError{errors.New("-n takes a number of lines from 0 on")}
			case follow && asJSON:
				return &usageError{errors.New("-f and --json exclude each other: a log that goes on is no JSON document")}
			case follow:
				return mcpd.FollowLog(c.Context(), *place, server, firstLast(lines, func(text string) error {
					_, err := std.out.WriteString(status.EscapeText(text))
					return err
				}))
			default:
				return showLog(*place, server, lines, std, asJSON)
			}
		},
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on with what is added, until interrupted")
	c.Flags().StringVar(&server, "server", "", "the server whose standard error to show")
	c.Flags().IntVarP(&lines, "lines", "n", 0, "show at most so many lines; 0 is no bound but the 64 KiB")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// showLog prints the end of a log. That there is none is no error.
func showLog(place mcpd.Place, server string, lines int, std streams, asJSON bool) error {
	answer, err := mcpd.ReadLog(place, server)
	if err != nil {
		return err
	}
	if content := lastLines(answer.Content, lines); len(content) < len(answer.Content) {
		answer.Content, answer.Truncated = content, true
	}
	if asJSON {
		return status.WriteJSON(std.out, answer)
	}
	if answer.Status != "available" {
		fmt.Fprintf(std.err, "interlock: there is no log at %s\n", status.EscapeLine(answer.Path))
	}
	_, err = std.out.WriteString(status.EscapeText(answer.Content))
	return err
}

// firstLast passes what comes to show, of the first only the last lines.
func firstLast(lines int, show func(string) error) func(string) error {
	first := true
	return func(text string) error {
		if first {
			text, first = lastLines(text, lines), false
		}
		return show(text)
	}
}

// lastLines returns the last n lines of text, all for n of 0.
func lastLines(text string, n int) string {
	start := len(strings.TrimSuffix(text, "\n"))
	for range n {
		if start = strings.LastIndexByte(text[:start], '\n'); start < 0 {
			return text
		}
	}
	if n == 0 {
		return text
	}
	return text[start+1:]
}

// isTerminal reports whether somebody looks at what is written to f.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
