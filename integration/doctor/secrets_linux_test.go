package doctor

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestSecrets puts a canary wherever a secret may be, lets calls succeed, fail and
// be cut off, and looks for it in everything that interlock writes down or says of
// itself. What a server writes to its standard error is its own, and only in its
// own log.
func TestSecrets(t *testing.T) {
	t.Parallel()
	w := newWard(t)
	var canaries []string
	canary := func(where string) string {
		c := fmt.Sprintf("canary-%d-%s-%x", len(canaries), where, os.Getpid())
		canaries = append(canaries, c)
		return c
	}
	gate := filepath.Join(w.base, canary("gate"))
	servers := map[string]any{
		"fake": map[string]any{
			"command": filepath.Join(bin, "fakeserver"), "annotations": "ignore",
			"args": []string{"-log", filepath.Join(w.base, "fake.log"), "-gate", gate},
			"env":  map[string]string{"API_KEY": canary("env"), "TOKEN": "${FROM_CLIENT}-" + canary("env-text")},
		},
		"broken":  map[string]any{"command": canary("command") + " --key " + canary("command-line")},
		"absent":  map[string]any{"command": "${FROM_CLIENT}/program", "args": []string{canary("argument")}},
		"missing": map[string]any{"command": "no-such-program-anywhere", "args": []string{canary("missing-argument")}, "env": map[string]string{"K": canary("missing-env")}},
		"typed":   map[string]any{"command": "sh", "args": canary("wrong-type"), "env": map[string]any{"X": []string{canary("wrong-env")}}},
		"remote":  map[string]any{"url": "https://user:" + canary("password") + "@localhost:1/mcp?key=" + canary("query"), "headers": map[string]string{"Authorization": "Bearer " + canary("header")}},
		"failing": map[string]any{"command": "sh", "args": []string{"-c", "echo " + canary("stderr") + " >&2; exit 3", canary("failing-argument")}},
		"unset":   map[string]any{"command": "sh", "args": []string{"${NO_SUCH_VARIABLE_ANYWHERE}" + canary("beside-variable")}},
	}
	member := canary("unknown-member")
	text, err := json.Marshal(map[string]any{"mcpServers": servers, member: canary("unknown-value")})
	w.must(err)
	w.configure(string(text))
	w.must(os.WriteFile(gate, nil, 0o600))
	c := w.connect("fake", "FROM_CLIENT="+canary("client-env"), "CLIENT_TOKEN="+canary("client-token"))
	argument := func(where string) string { return fmt.Sprintf(`{"text":%q,%q:1}`, canary(where), canary(where+"-key")) }
	c.call("1", "echo", argument("echoed"))
	c.call(canary("request-id-is-not-secret-but-long"), "odd", argument("odd"))
	c.call("3", "no-such-tool", argument("unknown-tool"))
	c.send(`{"jsonrpc":"2.0","id":"4","method":"tools/call","params":{"_meta":{"x":%q},"name":"echo","arguments":%s}}`, canary("meta"), argument("with-meta"))
	c.answer("4")
	c.send(`{"jsonrpc":"2.0","id":"5","method":"resources/read","params":{"uri":%q}}`, "file:///"+canary("uri"))
	c.answer("5")
	c.send(`{"jsonrpc":"2.0","id":"6","method":"tools/call","params":{"name":"echo","arguments":%q`, canary("broken-frame"))
	c.send(`{"jsonrpc":"2.0","id":"7","method":"tools/call","params":{"name":"hold","arguments":{"key":%q}}}`, canary("held"))
	for _, server := range []string{"failing", "absent", "broken", "unset", "missing"} {
		w.connect(server, "FROM_CLIENT="+canaries[0]).leave()
	}
	eventually(t, "the server has the call", func() error {
		log, err := os.ReadFile(filepath.Join(w.base, "fake.log"))
		if !strings.Contains(string(log), "-held-") && err == nil {
			return os.ErrNotExist
		}
		return err
	})
	said := map[string]string{}
	look := func(when string) {
		for _, line := range []string{"doctor", "doctor --json", "status", "status --json", "recovery", "recovery --json", "history", "history --json", "logs"} {
			out, errs, _ := w.run("interlock daemon " + line)
			said[when+": "+line] = out + errs
		}
		files, err := filepath.Glob(w.path("daemon.*"))
		w.must(err)
		for _, file := range files {
			data, err := os.ReadFile(file)
			w.must(err)
			said[when+": "+filepath.Base(file)] = string(data)
		}
	}
	look("calls in flight")
	for _, p := range processesOf(w.home) {
		arguments, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.pid))
		if strings.HasPrefix(string(arguments), filepath.Join(bin, "interlock")) {
			said[fmt.Sprintf("arguments of %d", p.pid)] = string(arguments)
		}
	}
	w.must(syscall.Kill(w.status().PID, syscall.SIGKILL))
	c.leave()
	w.do("interlock daemon restart")
	look("after a crash")

	if len(canaries) < 30 {
		t.Errorf("%d canaries are few", len(canaries))
	}
	for _, c := range canaries {
		if c == member || strings.Contains(c, "request-id") {
			continue // names of members and ids of requests are shown, and no secrets
		}
		for where, text := range said {
			if i := strings.Index(text, c); i >= 0 {
				t.Errorf("%s tells %s: …%s", where, c, text[max(0, i-100):min(len(text), i+60)])
			}
		}
	}
}
