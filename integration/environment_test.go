package integration

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// environment is what the fake server's tool env tells.
type environment struct {
	PID  int
	CWD  string
	Env  map[string]*string
	Args []string
}

func environmentOf(t testing.TB, m *message) environment {
	t.Helper()
	var result struct{ StructuredContent environment }
	if m.Error != nil || json.Unmarshal(m.Result, &result) != nil || result.StructuredContent.PID == 0 {
		t.Fatalf("not an environment: %s", m.raw)
	}
	return result.StructuredContent
}

// TestEnvironment gives an server what it would have had from its
// client: variables, the configuration's above the client's, and directory.
func TestEnvironment(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, w way) {
		r := newRig(t)
		s := r.fake()
		s.Env = map[string]string{"CONFIGURED": "by the entry", "EMPTY": "", "ODD": "☃ = a b\n\"q\" $HOME"}
		r.servers["fake"] = s
		for _, client := range []string{"first", "second"} {
			c := r.open(w, "fake", "OF_CLIENT="+client, "CONFIGURED=by the client").ready()
			got := environmentOf(t, c.call("1", "env", `{"names":["OF_CLIENT","CONFIGURED","EMPTY","ODD","HOME","PATH","UNSET","INTERLOCK_DIR","INTERLOCK_DEPTH"]}`))
			for name, want := range map[string]string{
				"OF_CLIENT": client, "CONFIGURED": "by the entry", "EMPTY": "", "ODD": s.Env["ODD"], "HOME": os.Getenv("HOME"), "PATH": os.Getenv("PATH"),
			} {
				if value := got.Env[name]; value == nil || *value != want {
					t.Errorf("%s is %v, want %q", name, value, want)
				}
			}
			if got.Env["UNSET"] != nil || got.Env["INTERLOCK_DIR"] != nil {
				t.Errorf("the server sees what nobody gave it: %v", got.Env)
			}
			if got.CWD != r.dir {
				t.Errorf("the directory is %s, want %s", got.CWD, r.dir)
			}
		}
	})
}

// TestPath finds a server's program where its own client would: on that
// client's PATH, not on the daemon's.
func TestPath(t *testing.T) {
	t.Parallel()
	eachRelay(t, func(t *testing.T, w way) {
		r := newRig(t)
		var paths []string
		for _, version := range []string{"one", "two"} {
			bin := filepath.Join(r.dir, version)
			if err := os.Mkdir(bin, 0o700); err != nil {
				t.Fatal(err)
			}
			script := "#!/bin/sh\nexec " + programs.fakeserver + " -log " + r.fakeLog() + " " + version + "\n"
			if err := os.WriteFile(filepath.Join(bin, "only-for-clients"), []byte(script), 0o700); err != nil {
				t.Fatal(err)
			}
			paths = append(paths, bin)
		}
		r.servers["fake"] = server{Command: "only-for-clients"}
		for i, version := range []string{"one", "two"} {
			c := r.open(w, "fake", "PATH="+paths[i]+":"+os.Getenv("PATH")).ready()
			if got := environmentOf(t, c.call("1", "env", `{}`)); got.Args[len(got.Args)-1] != version {
				t.Errorf("the client of %s got %v", version, got.Args)
			}
		}
	})
}

// TestServerLearns has a server see the client's own handshake: version and
// capabilities decide what it offers.
func TestServerLearns(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, w way) {
		r := newRig(t)
		r.servers["fake"] = r.fake()
		for version, capabilities := range map[string]string{
			"2024-11-05": `{}`, "2025-11-25": `{"roots":{"listChanged":true},"sampling":{},"elicitation":{"url":{}},"experimental":{"x":{"n":1.0}}}`,
		} {
			c := r.open(w, "fake")
			if m := c.initialize(version, capabilities); !strings.Contains(m.raw, `"protocolVersion":"`+version+`"`) {
				t.Errorf("asked for %s, got %s", version, m.raw)
			}
			c.settle()
			seen := r.logged(1, "in", version)[0].detail
			from, to, _ := member(seen, "params")
			params := seen[from:to]
			from, to, _ = member(params, "capabilities")
			if got := params[from:to]; got != capabilities {
				t.Errorf("the server saw the capabilities %s, want %s", got, capabilities)
			}
		}
	})
}
