package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// options are the flags of a run.
type options struct {
	rounds   int
	time     time.Duration
	clients  []int
	sizes    []int
	binary   string
	recorded bool
	plain    bool
	settle   time.Duration
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("bench: ")
	if len(os.Args) > 2 && os.Args[1] == "peer" {
		if err := peer(os.Args[2], os.Args[3:]); err != nil {
			log.Fatal(err)
		}
		return
	}
	var o options
	flag.IntVar(&o.rounds, "rounds", 5, "how many `times` every set-up takes its turn")
	flag.DurationVar(&o.time, "time", 400*time.Millisecond, "how `long` one turn lasts")
	clients := flag.String("clients", "1,4,16", "`numbers` of clients")
	sizes := flag.String("sizes", "64,16384", "`bytes` of text in a call")
	flag.StringVar(&o.binary, "interlock", "", "`path` of the binary to measure (default: built from this module)")
	flag.BoolVar(&o.recorded, "recorded", false, "have interlock record every call")
	flag.BoolVar(&o.plain, "plain", false, "leave the relay and its servers in the session of the benchmark")
	flag.DurationVar(&o.settle, "settle", 15*time.Second, "how `long` everything rests before memory is measured")
	flag.Parse()
	var err error
	if o.clients, err = numbers(*clients); err == nil {
		o.sizes, err = numbers(*sizes)
	}
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		log.Fatal(err)
	}
}

func numbers(list string) (all []int, err error) {
	for field := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(field)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q is not a number from 1 on", field)
		}
		all = append(all, n)
	}
	return all, nil
}

// run measures in a directory of its own, which it removes with all that ran.
func run(ctx context.Context, o options) (err error) {
	dir, err := os.MkdirTemp("", "il-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if o.binary == "" {
		o.binary = filepath.Join(dir, "interlock")
		build := exec.CommandContext(ctx, "go", "build", "-o", o.binary, "interlock/cmd/interlock")
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("building interlock: %w\n%s", err, out)
		}
	}
	setups, err := setUp(o, dir)
	defer func() {
		for _, s := range slices.Backward(setups) { // clients before what they are connected to
			s.close()
		}
	}()
	if err != nil {
		return err
	}
	table, err := measure(ctx, o, setups)
	if err != nil {
		return err
	}
	table.print(os.Stdout, setups)
	return printMemory(ctx, os.Stdout, o.settle, setups)
}
