package integration

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// TestTypeScriptSDK runs the exercise of the TypeScript SDK's client directly
// and over the bridge: each check that passes with the server itself must pass
// through interlock. The SDK knows no sockets, so there is no third way.
func TestTypeScriptSDK(t *testing.T) {
	t.Parallel()
	results := map[way]map[string]string{}
	t.Run("ways", func(t *testing.T) {
		for _, w := range ways() {
			if w == socket {
				continue
			}
			outcome := map[string]string{}
			results[w] = outcome
			t.Run(string(w), func(t *testing.T) {
				t.Parallel()
				exercise(t, w, outcome)
			})
		}
	})
	for name, outcome := range results[direct] {
		if outcome != "ok" {
			t.Errorf("%s fails without interlock: %s", name, outcome)
		}
		if relayed, ran := results[bridge]; ran && relayed[name] != "ok" {
			t.Errorf("%s passes without interlock; over the bridge: %s", name, relayed[name])
		}
	}
	if n := len(results[direct]); n < 50 {
		t.Errorf("only %d checks ran", n)
	}
}

// exercise fills outcome with "ok" or what went wrong for every check.
func exercise(t *testing.T, w way, outcome map[string]string) {
	r := newRig(t)
	r.servers["everything"] = reference(t, "everything", "stdio")
	command := []string{node(t, "exercise.mjs"), "node"}
	command = append(command, r.servers["everything"].Args...)
	if w == bridge {
		r.start()
		command = append(command[:1], r.command("connect", "everything").Args...)
	}
	cmd := exec.Command("node", command...)
	cmd.Env, cmd.Dir = r.environ(), r.dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "ok "); ok {
			outcome[name] = "ok"
		} else if failure, ok := strings.CutPrefix(line, "FAIL "); ok {
			name, why, _ := strings.Cut(failure, "\t")
			outcome[name] = why
		}
	}
	if len(outcome) == 0 || !strings.Contains(string(out), fmt.Sprintf("%d passed", len(outcome))) {
		t.Logf("%v\n%s\n%s", err, out, tail(stderr.String()))
	}
}
