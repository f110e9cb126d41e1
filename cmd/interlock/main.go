package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"interlock/mcpd"
)

func main() {
	if mcpd.IsHelper(os.Args) {
		os.Exit(mcpd.HelperMain())
	}
	os.Exit(run())
}

func run() int {
	// Before anything slow, so that no signal is lost.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := newRoot(streams{os.Stdin, os.Stdout, os.Stderr})
	root.SetArgs(os.Args[1:])
	return report(os.Stderr, root.ExecuteContext(ctx))
}
