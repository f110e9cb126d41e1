package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"interlock/mcpd"
)

func TestMain(m *testing.M) {
	if mcpd.IsHelper(os.Args) { // a daemon of a script starts its helper from this binary
		os.Exit(mcpd.HelperMain())
	}
	testscript.Main(m, map[string]func(){"interlock": main})
}

// TestScripts runs the command as a user does, each script with a directory of
// its own in INTERLOCK_DIR and none of the user's configuration.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		Setup:               setup,
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
	})
}

// setup gives a script a daemon's directory short enough for its socket, and
// stops the daemon at the end.
func setup(env *testscript.Env) error {
	dir, err := os.MkdirTemp("/tmp", "il")
	if err != nil {
		return err
	}
	env.Defer(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := mcpd.Stop(ctx, mcpd.Place{Dir: dir}, mcpd.StopOptions{}); err != nil && !errors.Is(err, mcpd.ErrNotRunning) {
			env.T().Log("stopping the daemon:", err)
		}
		os.RemoveAll(dir)
	})
	home := filepath.Join(env.WorkDir, "home")
	env.Setenv("HOME", home)
	env.Setenv("INTERLOCK_DIR", dir)
	return os.Mkdir(home, 0o700)
}

// exits runs a command that must end with the exit code given first.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND...")
	}
	err := ts.Exec(args[1], args[2:]...)
	code := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if want, err := strconv.Atoi(args[0]); err != nil || code != want {
		ts.Fatalf("exit code %d, not %s", code, args[0])
	}
}
