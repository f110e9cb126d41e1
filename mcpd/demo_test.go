package mcpd

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// demoProgram builds the program that a demo runs.
func demoProgram(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "interlock")
	if out, err := exec.Command("go", "build", "-o", program, "interlock/cmd/interlock").CombinedOutput(); err != nil {
		t.Fatalf("building interlock: %v\n%s", err, out)
	}
	return program
}

// demoBase makes demos use a temporary directory of the test, and checks at the
// end that they have left nothing in it and no process.
func demoBase(t *testing.T) {
	t.Helper()
	base, err := os.MkdirTemp("/tmp", "il") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", base)
	t.Cleanup(func() {
		if processes := demoProcesses(base + "/interlock-demo-"); len(processes) > 0 {
			t.Errorf("processes are left: %v", processes)
		}
		if err := os.Remove(base); err != nil {
			t.Errorf("files are left: %v", err)
			os.RemoveAll(base)
		}
	})
}

func TestDemo(t *testing.T) {
	program := demoProgram(t)

	t.Run("leaves the user's own places alone", func(t *testing.T) {
		demoBase(t)
		own := t.TempDir()
		for _, name := range []string{"INTERLOCK_DIR", "XDG_STATE_HOME", "XDG_CONFIG_HOME"} {
			t.Setenv(name, filepath.Join(own, name))
		}
		config := filepath.Join(own, "XDG_CONFIG_HOME", "interlock")
		if err := os.MkdirAll(config, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(config, "config.json"), []byte("{ not to be read"), 0o600); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := demonstrate(t.Context(), &out, program); err != nil {
			t.Fatalf("%v\n%s", err, out.String())
		}
		if n := strings.Count(out.String(), "\nok: "); !strings.Contains(out.String(), fmt.Sprintf("\n%d claims checked in ", n)) || n < 10 {
			t.Errorf("%d claims in\n%s", n, out.String())
		}
		for _, name := range []string{"INTERLOCK_DIR", "XDG_STATE_HOME"} {
			if left := exist(filepath.Join(own, name)); len(left) > 0 {
				t.Errorf("the demo has made %v", left)
			}
		}
	})

	t.Run("finds what does not hold", func(t *testing.T) {
		for name, c := range map[string]struct{ connect, want string }{
			"a bridge that fails":      {"exit 7", "anna: "},
			"an answer of another":     {`"$real" "$@" | sed -u 's/ben\.txt/anna.txt/'`, "each has the answer to its own request"},
			"content of another":       {`"$real" "$@" | sed -u 's/round 7"/round 8"/'`, "has read what it had written"},
			"a refusal that is none":   {`"$real" "$@" | sed -u 's/"isError":true/"isError":false/'`, "carol is refused"},
			"an answer that is no one": {`"$real" "$@" | sed -u 's/"id":1,/"id":2,/'`, "it is to request 2, not 1"},
		} {
			t.Run(name, func(t *testing.T) {
				demoBase(t)
				script := filepath.Join(t.TempDir(), "interlock")
				text := fmt.Sprintf("#!/bin/sh\nreal=%q\ncase $1 in\nconnect) %s ;;\n*) exec \"$real\" \"$@\" ;;\nesac\n", program, c.connect)
				if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
					t.Fatal(err)
				}
				err := demonstrate(t.Context(), io.Discard, script)
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("the error is %v, and should say %q", err, c.want)
				}
			})
		}
	})

	t.Run("ends when it is interrupted", func(t *testing.T) {
		demoBase(t)
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		err := demonstrate(ctx, writerFunc(func(text []byte) {
			if bytes.Contains(text, []byte("carol")) {
				cancel()
			}
		}), program)
		if err == nil {
			t.Error("an interrupted demo succeeds")
		}
		if took := time.Since(began); took > demoLimit/2 {
			t.Errorf("it took %v", took)
		}
	})
}

type writerFunc func([]byte)

func (f writerFunc) Write(b []byte) (int, error) {
	f(b)
	return len(b), nil
}
