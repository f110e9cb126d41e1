package main

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// idle is how many sessions more are opened to see what one costs.
const idle = 64

// printMemory tells the proportional set sizes of the processes in between, and
// what a session that does nothing costs the daemon, its server apart.
func printMemory(to io.Writer, setups []*setup) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "process\tPSS KiB\t\n")
	var socket *setup
	for _, s := range setups {
		switch s.name {
		case "relay", "socket":
			if len(s.middle) == 0 {
				continue
			}
			pss, err := proportional(s.middle[0])
			if err != nil {
				return err
			}
			fmt.Fprintf(w, "%s, with %d sessions\t%d\t\n", map[string]string{"relay": "bare relay", "socket": "daemon"}[s.name], 2*len(s.clients), pss)
		case "bridge", "connect":
			pss, err := proportional(s.hop)
			if err != nil {
				return err
			}
			fmt.Fprintf(w, "%s\t%d\t\n", map[string]string{"bridge": "bare bridge", "connect": "interlock connect"}[s.name], pss)
		}
		if s.name == "socket" {
			socket = s
		}
	}
	before, err := proportional(socket.middle[0])
	if err != nil {
		return err
	}
	for range idle {
		c, err := dial(socket.path)
		if err != nil {
			return err
		}
		socket.clients = append(socket.clients, c)
		if err := c.greet(hello); err != nil {
			return err
		}
	}
	after, err := proportional(socket.middle[0])
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "daemon, for each of %d idle sessions more\t%d\t\n", idle, (after-before)/idle)
	return w.Flush()
}
