package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"text/tabwriter"
	"time"
)

// cell names what one figure is of.
type cell struct {
	setup         string
	clients, size int
}

// turn is what one set-up did when it was its turn.
type turn struct {
	perSecond float64
	p50, p99  time.Duration
}

// table is what a run came to.
type table struct {
	options options
	turns   map[cell][]turn
	cpu     map[cell]time.Duration // of all turns together
	calls   map[cell]int
}

// measure gives every set-up its turn, in every round, for every cell.
func measure(ctx context.Context, o options, setups []*setup) (*table, error) {
	t := &table{options: o, turns: map[cell][]turn{}, cpu: map[cell]time.Duration{}, calls: map[cell]int{}}
	for range o.rounds {
		for _, size := range o.sizes {
			for _, clients := range o.clients {
				for _, s := range setups {
					if len(s.clients) == 0 {
						continue
					}
					if err := ctx.Err(); err != nil {
						return nil, err
					}
					if err := t.turn(s, cell{s.name, clients, size}); err != nil {
						return nil, fmt.Errorf("%s: %w", s.name, err)
					}
				}
			}
		}
	}
	return t, nil
}

// turn keeps the cell's clients busy, one goroutine each, until its time is up.
func (t *table) turn(s *setup, c cell) error {
	before, err := cpuTime(s.middle)
	if err != nil {
		return err
	}
	latencies := make([][]time.Duration, c.clients)
	errs := make([]error, c.clients)
	began := time.Now()
	var busy sync.WaitGroup
	for i, client := range s.clients[:c.clients] {
		busy.Go(func() {
			for start := time.Now(); start.Sub(began) < t.options.time; {
				if errs[i] = client.call(c.size); errs[i] != nil {
					return
				}
				now := time.Now()
				latencies[i] = append(latencies[i], now.Sub(start))
				start = now
			}
		})
	}
	busy.Wait()
	took := time.Since(began)
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	after, err := cpuTime(s.middle)
	if err != nil {
		return err
	}
	all := slices.Sorted(slices.Values(slices.Concat(latencies...)))
	t.turns[c] = append(t.turns[c], turn{float64(len(all)) / took.Seconds(), all[len(all)/2], all[len(all)*99/100]})
	t.cpu[c] += after - before
	t.calls[c] += len(all)
	return nil
}

// median is the middle turn by each figure apart.
func (t *table) median(c cell) (m turn) {
	turns := t.turns[c]
	middle := func(f func(turn) float64) float64 {
		var all []float64
		for _, x := range turns {
			all = append(all, f(x))
		}
		slices.Sort(all)
		return all[len(all)/2]
	}
	return turn{
		middle(func(x turn) float64 { return x.perSecond }),
		time.Duration(middle(func(x turn) float64 { return float64(x.p50) })),
		time.Duration(middle(func(x turn) float64 { return float64(x.p99) })),
	}
}

func (t *table) cpuPerCall(c cell) time.Duration {
	return t.cpu[c] / time.Duration(max(t.calls[c], 1))
}

func (t *table) print(to io.Writer, setups []*setup) {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	us := func(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d)/1e3) }
	fmt.Fprintf(w, "bytes\tclients\tset-up\tcalls/s\tp50 µs\tp99 µs\tCPU µs/call\t\n")
	for _, size := range t.options.sizes {
		for _, clients := range t.options.clients {
			for _, s := range setups {
				if len(s.clients) > 0 {
					c := cell{s.name, clients, size}
					m := t.median(c)
					fmt.Fprintf(w, "%d\t%d\t%s\t%.0f\t%s\t%s\t%s\t\n", size, clients, s.name, m.perSecond, us(m.p50), us(m.p99), us(t.cpuPerCall(c)))
				}
			}
		}
	}
	w.Flush()
	fmt.Fprintln(to)
	fmt.Fprintf(w, "bytes\tclients\tratio\tcalls/s\tp50\tp99\tCPU\t\n")
	for _, size := range t.options.sizes {
		for _, clients := range t.options.clients {
			for _, pair := range [][2]string{{"socket", "relay"}, {"connect", "bridge"}} {
				a, b := cell{pair[0], clients, size}, cell{pair[1], clients, size}
				x, y := t.median(a), t.median(b)
				fmt.Fprintf(w, "%d\t%d\t%s/%s\t%.2f\t%.2f\t%.2f\t%.2f\t\n", size, clients, pair[0], pair[1], x.perSecond/y.perSecond,
					float64(x.p50)/float64(y.p50), float64(x.p99)/float64(y.p99), float64(t.cpuPerCall(a))/float64(max(t.cpuPerCall(b), 1)))
			}
		}
	}
	w.Flush()
	fmt.Fprintln(to)
}
