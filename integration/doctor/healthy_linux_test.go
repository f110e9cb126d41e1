package doctor

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestHealthy has doctor find nothing where nothing is wrong, however the daemon
// got there.
func TestHealthy(t *testing.T) {
	t.Parallel()
	for round := range 5 {
		w := newWard(t)
		w.healthy("unavailable") // a new machine
		w.configureFake()
		w.healthy("unavailable")
		w.running()
		w.healthy("healthy")
		c := w.connect("fake")
		c.call("1", "echo", `{}`)
		w.healthy("healthy")
		c.leave()
		w.healthy("healthy")
		if round%2 == 0 {
			w.do("interlock daemon stop")
		} else {
			pid := w.status().PID
			w.must(syscall.Kill(pid, syscall.SIGTERM))
			w.ended(pid)
		}
		w.healthy("unavailable")
		w.do("interlock daemon restart")
		w.healthy("healthy")
	}
}

// healthy fails the test if doctor finds more than something to know.
func (w *ward) healthy(status string) {
	w.t.Helper()
	d := w.doctor()
	for _, f := range d.Findings {
		if f.Severity != "info" {
			w.t.Errorf("a false alarm: %+v", f)
		}
	}
	if d.Status != status || len(d.Checks) < 20 {
		w.t.Errorf("%s (%s) after %d checks, want %s", d.Status, d.Detail, len(d.Checks), status)
	}
	if (d.Daemon == nil) != (status == "unavailable") {
		w.t.Errorf("daemon %+v, though %s", d.Daemon, status)
	}
	out, _, _ := w.run("interlock daemon doctor --json")
	var whole map[string]json.RawMessage
	w.must(json.Unmarshal([]byte(out), &whole))
	for _, member := range []string{"status", "recovery", "socketExists", "pidAlive", "findings"} {
		if _, ok := whole[member]; !ok {
			w.t.Errorf("doctor's answer has no %q", member)
		}
	}
}

// TestStatusFindings has status say what is wrong with the configuration, and no
// longer once it is mended and read.
func TestStatusFindings(t *testing.T) {
	t.Parallel()
	w := newWard(t)
	w.configure(`{"mcpServers": {"a": {"url": "http://localhost:1/mcp"}, "b": {"command": "npx -y thing"}}}`)
	w.running()
	codes := func() (list []string) {
		for _, f := range w.status().Findings {
			list = append(list, f.Code)
		}
		return list
	}
	if got := codes(); !slices.Equal(got, []string{"command_has_args", "http_unsupported"}) {
		t.Errorf("findings %v", got)
	}
	w.configureFake()
	w.must(syscall.Kill(w.status().PID, syscall.SIGHUP))
	eventually(t, "the configuration is read", func() error {
		if got := codes(); len(got) > 0 {
			return fmt.Errorf("findings %v", got)
		}
		return nil
	})
}

// TestStatusWithoutAnswer asks for the status of daemons that cannot say it.
func TestStatusWithoutAnswer(t *testing.T) {
	t.Parallel()
	w := newWard(t)
	if out, errs, code := w.run("interlock daemon status --json"); code != 3 || out != "" || errs == "" {
		t.Errorf("never started: exit code %d\n%s%s", code, out, errs)
	}
	w.running()
	pid := w.status().PID
	w.crash()
	var s daemonStatus
	out, _, code := w.run("interlock daemon status --json")
	if err := json.Unmarshal([]byte(out), &s); err != nil || code != 3 || s.State != "stopped" || s.PID != pid {
		t.Errorf("crashed: exit code %d, %v, %+v", code, err, s)
	}
	w.must(os.Truncate(w.path("daemon.json"), 10))
	if out, errs, code := w.run("interlock daemon status"); code != 3 || out != "" || !strings.Contains(errs, "damaged") {
		t.Errorf("crashed and damaged: exit code %d\n%s%s", code, out, errs)
	}
}
