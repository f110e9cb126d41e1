package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// idle is how many sessions more are opened to see what one costs.
const idle = 64

// process is one whose memory is told.
type process struct {
	name string
	pid  int
}

// printMemory tells the proportional set sizes of the processes in between, each
// time after they have rested: with the sessions of the measurement, and interlock's
// daemon with more of them and with none.
func printMemory(ctx context.Context, to io.Writer, settle time.Duration, setups []*setup) error {
	named := map[string]*setup{}
	for _, s := range setups {
		if len(s.clients) > 0 {
			named[s.name] = s
		}
	}
	socket, connect := named["socket"], named["connect"]
	daemon := socket.middle[0]
	helper, err := onlyChild(daemon)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "sessions\tprocess\tPSS KiB\t\n")
	working := len(socket.clients) + len(connect.clients)
	before, err := printRested(ctx, w, settle, working, []process{
		{"daemon", daemon}, {"its helper", helper}, {"interlock connect", connect.hop},
		{"bare relay", named["relay"].middle[0]}, {"bare bridge", named["bridge"].hop},
	})
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
	after, err := printRested(ctx, w, settle, working+idle, []process{{"daemon", daemon}, {"its helper", helper}})
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "1\tdaemon, for a session without calls\t%d\t\n", (after-before)/idle)
	for _, s := range []*setup{socket, connect} {
		for _, c := range s.clients {
			c.close()
		}
		s.clients = nil
	}
	if _, err := printRested(ctx, w, settle, 0, []process{{"daemon", daemon}, {"its helper", helper}}); err != nil {
		return err
	}
	return w.Flush()
}

// printRested waits until the processes have rested, prints a row for each and
// gives the size of the first.
func printRested(ctx context.Context, to io.Writer, settle time.Duration, sessions int, list []process) (first int, err error) {
	select {
	case <-time.After(settle):
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	for i, p := range list {
		pss, err := proportional(p.pid)
		if err != nil {
			return 0, err
		}
		if i == 0 {
			first = pss
		}
		fmt.Fprintf(to, "%d\t%s\t%d\t\n", sessions, p.name, pss)
	}
	return first, nil
}
