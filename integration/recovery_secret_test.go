package integration

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// canaries are secrets, each named after the place that it is put in.
type canaries map[string]string

// at makes a secret for a place.
func (c canaries) at(place string) string {
	c[place] = fmt.Sprintf("CANARY-%s-%x", strings.ReplaceAll(place, " ", "-"), len(c)+0x5eed)
	return c[place]
}

// TestNoSecrets puts secrets wherever a user or server may have some, and looks for
// them in everything that the daemon writes or says of itself: its log, the status,
// the record, the history, the answers of the commands. The servers' own logs are
// theirs, and not looked at.
func TestNoSecrets(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	secret := canaries{}
	s := r.oracle("-say", secret.at("stderr"), "-journal", r.journalPath())
	s.Env = map[string]string{"TOKEN": secret.at("configured environment")}
	r.servers["oracle"] = s
	r.servers["broken"] = server{Command: "sh", Args: []string{
		"-c", fmt.Sprintf("echo %s >&2; echo %s; exit 1", secret.at("stderr of a start"), secret.at("stdout of a start")),
		"sh", secret.at("argument of a command")},
	}
	r.servers["missing"] = server{Command: "/nowhere/program", Args: []string{secret.at("argument of a missing command")}}

	for _, name := range []string{"broken", "missing"} {
		c := r.open(bridge, name, "API_KEY="+secret.at("environment of "+name))
		c.send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`)
		c.answer("1")
	}
	c := r.open(socket, "oracle", "PASSWORD="+secret.at("environment"))
	c.initialize("2025-06-18", fmt.Sprintf(`{"experimental":{"x":{"key":%q}}}`, secret.at("capabilities")))
	for _, mode := range []string{"", "error", "fail"} { // the result and the error repeat the id
		c.sendCall(`"`+"answered"+mode+`"`, "write", fmt.Sprintf(`{"id":%q,"mode":%q}`, secret.at("result "+mode), mode))
		c.answer(`"answered` + mode + `"`)
	}
	for _, tool := range []string{"read", "plain"} {
		c.sendCall(`"`+tool+`"`, tool, fmt.Sprintf(`{"id":"x","deep":{%q:[%q]}}`, secret.at("key for "+tool), secret.at("value for "+tool)))
		c.answer(`"` + tool + `"`)
	}
	c.send(`{"jsonrpc":"2.0","id":"meta","method":"tools/call","params":{"name":"write","arguments":{"id":"y"},"_meta":{"progressToken":%q,"vendor/x":%q,"interlock/lease":%q}}}`,
		secret.at("progress token"), secret.at("meta"), secret.at("lease handle"))
	c.answer(`"meta"`)
	for _, line := range []string{
		fmt.Sprintf(`{"jsonrpc":"2.0","id":2,"method":"resources/read","params":{"uri":"https://user:%s@host/?token=%s"}}`, secret.at("password in a URI"), secret.at("query of a URI")),
		fmt.Sprintf(`{"jsonrpc":"2.0","id":3,"method":"prompts/get","params":{"name":"p","arguments":{"a":%q}}}`, secret.at("argument of a prompt")),
		fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/vendor","params":{"x":%q}}`, secret.at("notification")),
		fmt.Sprintf(`{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"write","name":%q}}`, secret.at("ambiguous request")),
		fmt.Sprintf(`{"jsonrpc":"2.0","id":[%q],"method":"ping"}`, secret.at("bad id")),
		fmt.Sprintf(`this is no JSON: %s`, secret.at("malformed line")),
		fmt.Sprintf(`[{"jsonrpc":"2.0","id":5,"method":"ping","params":{"x":%q}}]`, secret.at("batch")),
		fmt.Sprintf(`{"jsonrpc":"2.0","id":999,"result":{"text":%q}}`, secret.at("stray answer")),
		fmt.Sprintf(`{"jsonrpc":"2.0","id":6,"method":"interlock/history","params":{"x":%q}}`, secret.at("control method")),
	} {
		c.send("%s", line)
	}
	// The last are cut off, cancelled or left.
	hang := func(id, place string) {
		c.sendCall(`"`+id+`"`, "write", fmt.Sprintf(`{"id":%q,"mode":"hang","content":%q}`, id, secret.at(place)))
		r.awaitSeen(id)
	}
	hang("cancelled", "cancelled call")
	c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"cancelled","reason":%q}}`, secret.at("reason"))
	hang("killed", "killed call")
	killProcess(t, r.awaitSeen("killed"))
	c.answer(`"killed"`)
	c.sendCall(`"left"`, "plain", fmt.Sprintf(`{"id":"left","mode":"hang","content":%q}`, secret.at("left call")))
	r.awaitSeen("left")
	raw := r.dial()
	raw.send(`{"jsonrpc":"2.0","id":1,"method":"interlock/hello","params":{"protocol":"x","env":[%q]}}`, "A="+secret.at("environment of a bad hello"))
	raw.answer("1")

	said := r.everythingSaid()
	c.vanish()
	r.awaitPending("killed", "left")
	d := r.daemon
	r.stop()
	said["the daemon's output"] = d.output.String()
	for name, text := range r.everythingSaid() {
		said[name+" afterwards"] = text
	}
	if len(secret) < 30 {
		t.Errorf("only %d secrets", len(secret))
	}
	own, err := os.ReadFile(filepath.Join(r.home(), "servers", "oracle.log"))
	if err != nil || !strings.Contains(string(own), secret["stderr"]) {
		t.Errorf("the server's log does not have what the server said: %q, %v", own, err)
	}
	for name, text := range said {
		for place, value := range secret {
			if strings.Contains(text, value) {
				t.Errorf("%s shows the secret in %s", name, place)
			}
		}
	}
}

// everythingSaid is all that the daemon has written, its servers' logs left out, and
// what the commands say, by name.
func (r *rig) everythingSaid() map[string]string {
	r.t.Helper()
	said := map[string]string{}
	err := filepath.WalkDir(r.home(), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || filepath.Base(filepath.Dir(path)) == "servers" {
			return err
		}
		text, err := os.ReadFile(path)
		said[filepath.Base(path)] = string(text)
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, name := range []string{"daemon.log", "daemon.journal"} {
		if said[name] == "" {
			r.t.Errorf("there is no %s", name)
		}
	}
	for _, command := range []string{"status", "doctor", "recovery", "history", "logs"} {
		for _, form := range [][]string{nil, {"--json"}} {
			name := strings.Join(append([]string{command}, form...), " ")
			said[name], _ = r.output(append([]string{"daemon", command}, form...)...) // what is wrong is an exit code, too
			if said[name] == "" {
				r.t.Errorf("daemon %s says nothing", name)
			}
		}
	}
	return said
}
