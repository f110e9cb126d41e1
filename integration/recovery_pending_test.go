package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// exitWrongSet is the exit code of an acknowledgement of a wrong set.
const exitWrongSet = 7

// interrupt leaves a call of unknown outcome: its server is killed under it.
func (r *rig) interrupt(server, tool string, ids ...string) (runs []string) {
	r.t.Helper()
	c := r.open(socket, server).ready()
	for _, id := range ids {
		c.oracleCall(id, tool, "hang")
	}
	killProcess(r.t, r.awaitSeen(ids...))
	for _, id := range ids {
		runs = append(runs, cutOff(r.t, c.answer(strconv.Quote(id)), "server_lost"))
	}
	c.close()
	return runs
}

// againstSchema fails the test unless the text is valid by a schema of docs/schema.
func againstSchema(t testing.TB, schema string, text []byte) {
	t.Helper()
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	paths, err := filepath.Glob("../docs/schema/*.json")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no schemas: %v", err)
	}
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		doc, err := jsonschema.UnmarshalJSON(f)
		f.Close()
		if err == nil {
			err = compiler.AddResource(filepath.Base(path), doc)
		}
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	compiled, err := compiler.Compile(schema)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(text)))
	if err == nil {
		err = compiled.Validate(doc)
	}
	if err != nil {
		t.Errorf("not valid by %s: %v\n%s", schema, err, text)
	}
}

// TestPendingOutlives has calls cut off under several lives of the daemon, killed
// and stopped: they stay pending, all together, in a file that is private and as its
// schema says.
func TestPendingOutlives(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.servers["oracle"] = r.oracle()
	var ids []string
	for life := range 4 {
		r.start()
		r.awaitPending(ids...)
		more := []string{fmt.Sprintf("%d-a", life), fmt.Sprintf("%d-b", life)}
		r.interrupt("oracle", []string{"write", "plain"}[life%2], more...)
		ids = append(ids, more...)
		before := r.awaitPending(ids...)
		if life%2 == 0 {
			r.kill()
		} else {
			r.stop()
		}
		if after := r.awaitPending(ids...); !slices.Equal(before, after) {
			t.Errorf("the daemon's end changed the record from %+v to %+v", before, after)
		}
		if life == 2 { // the recovery file alone has them now
			if err := os.Remove(r.journalPath()); err != nil {
				t.Fatal(err)
			}
		}
	}
	info, err := os.Stat(r.pendingPath())
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode() != 0o600 {
		t.Errorf("the recovery file has mode %v", info.Mode())
	}
	text, err := os.ReadFile(r.pendingPath())
	if err != nil {
		t.Fatal(err)
	}
	againstSchema(t, "recovery.v1.json", text)
	for _, running := range []bool{false, true} {
		if running {
			r.start()
		}
		answer, code := r.output("daemon", "recovery", "--json")
		if code != 0 {
			t.Fatalf("daemon recovery: exit code %d\n%s", code, answer)
		}
		againstSchema(t, "recovery-answer.v1.json", []byte(answer))
	}
	r.acknowledgeAll()
	clear, _ := r.output("daemon", "recovery", "--json")
	againstSchema(t, "recovery-answer.v1.json", []byte(clear))
}

// TestAcknowledge names wrong sets, which change nothing, and then the right one, on
// the command line with and without a daemon, and by the tool.
func TestAcknowledge(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"with a daemon", "without a daemon", "by the tool"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.servers["oracle"], r.servers["other"] = r.oracle(), r.oracle()
			runs := r.interrupt("oracle", "write", "a", "b")
			rest := r.interrupt("other", "plain", "c")
			var ack func(ids ...string) bool
			switch how {
			case "without a daemon":
				r.stop()
				fallthrough
			case "with a daemon":
				ack = func(ids ...string) bool { return r.acknowledge(ids...) }
			case "by the tool":
				c := r.open(bridge, "interlock").ready()
				ack = func(ids ...string) bool { return acknowledgeByTool(c, slices.Concat(runs, rest), ids) }
			}
			all := slices.Concat(runs, rest)
			for _, wrong := range [][]string{
				all[:1], runs, append(slices.Clone(all), "1-1-0123456789abcdef"), append(slices.Clone(all), all[0]), {"*"},
			} {
				if ack(wrong...) {
					t.Errorf("acknowledging %v of %v succeeded", wrong, all)
				}
				r.awaitPending("a", "b", "c")
			}
			if how != "by the tool" {
				if ack(append([]string{"--server", "oracle"}, all...)...) {
					t.Error("acknowledging the runs of both servers as those of one succeeded")
				}
				if !ack(append([]string{"--server", "oracle"}, runs...)...) {
					t.Error("acknowledging the runs of one server failed")
				}
				r.awaitPending("c")
			}
			if !ack(all...) { // what has been acknowledged already is ignored
				t.Error("acknowledging all that is pending failed")
			}
			r.clear()
			if !ack(all...) {
				t.Error("acknowledging again is no success")
			}
			if r.daemon != nil {
				r.stop()
			}
			r.start()
			r.clear()
		})
	}
}

// acknowledge acknowledges on the command line, and checks what a refusal says.
func (r *rig) acknowledge(args ...string) (done bool) {
	r.t.Helper()
	text, code := r.output(append([]string{"daemon", "recovery", "ack", "--json"}, args...)...)
	switch code {
	case 0:
		againstSchema(r.t, "recovery-answer.v1.json", []byte(text))
		return true
	case exitWrongSet:
		for _, run := range r.pending() {
			if slices.Contains(args, "--server") && run.Server != args[1] {
				continue
			}
			if !strings.Contains(text, run.RequestID) {
				r.t.Errorf("the refusal does not name run %s:\n%s", run.RequestID, text)
			}
		}
	default:
		r.t.Errorf("exit code %d\n%s", code, text)
	}
	return false
}

// acknowledgeByTool acknowledges by the tool, and checks what a refusal says.
func acknowledgeByTool(c *client, pending, ids []string) (done bool) {
	c.t.Helper()
	list, err := json.Marshal(ids)
	if err != nil {
		c.t.Fatal(err)
	}
	m := c.call(`"ack"`, "recovery_ack", fmt.Sprintf(`{"ids":%s}`, list))
	var result struct {
		IsError bool
		Content []struct{ Text string }
	}
	if err := json.Unmarshal(m.Result, &result); err != nil || len(result.Content) == 0 {
		c.t.Fatalf("recovery_ack: %s", m.raw)
	}
	if !result.IsError {
		againstSchema(c.t, "recovery-answer.v1.json", []byte(result.Content[0].Text))
		return true
	}
	for _, run := range pending {
		if !strings.Contains(result.Content[0].Text, run) {
			c.t.Errorf("the refusal does not name run %s: %s", run, m.raw)
		}
	}
	return false
}

// TestRecoveryText pastes the command that `daemon recovery` prints.
func TestRecoveryText(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3, 20} { // more than a few are named by their digest
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.servers["oracle"] = r.oracle()
			r.settings.Limits.ClientCalls = n
			var ids []string
			for i := range n {
				ids = append(ids, fmt.Sprintf("call-%d", i))
			}
			r.interrupt("oracle", "write", ids...)
			r.awaitPending(ids...)
			text, code := r.output("daemon", "recovery")
			if code != 0 {
				t.Fatalf("exit code %d\n%s", code, text)
			}
			for line := range strings.Lines(text) {
				if strings.Contains(line, " daemon recovery ack ") {
					r.shell(line)
				}
			}
			if text, _ := r.output("daemon", "recovery"); text != "Nothing is pending.\n" {
				t.Errorf("after the printed command: %q", text)
			}
			r.clear()
		})
	}
}

// TestPendingBlocks tries what a run of unknown outcome does to later calls, for
// each setting.
func TestPendingBlocks(t *testing.T) {
	t.Parallel()
	for _, setting := range []string{"warn", "block", "off"} {
		t.Run(setting, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.settings.Recovery.Pending = setting
			s := r.oracle()
			s.State = "shared"
			r.servers["oracle"], r.servers["other"] = s, s
			r.interrupt("oracle", "plain", "of-unknown-class") // never blocks
			r.settleTool("oracle", "write", "after-unknown")
			runs := r.interrupt("oracle", "write", "mutating")
			r.stop()
			r.start() // it is the record that blocks, not the daemon's memory
			c := r.open(socket, "oracle").ready()
			c.oracleCall("next", "write", "")
			if m := c.answer(`"next"`); setting == "block" {
				e := notSent(t, m, "recovery_pending")
				if !slices.Equal(e.Pending, runs) || !strings.Contains(e.text, "daemon recovery") {
					t.Errorf("the refusal %q names %v, want %v", e.text, e.Pending, runs)
				}
			} else if got := textOf(t, m); got != "did next" {
				t.Errorf("with %s the call is answered %q", setting, got)
			}
			for _, tool := range []string{"read", "plain"} {
				r.settleTool("oracle", tool, "beside-"+tool)
			}
			r.settleTool("other", "write", "elsewhere")
			r.wantFinding("recovery_pending", setting != "off")
			r.acknowledgeAll()
			r.settleTool("oracle", "write", "afterwards")
			r.wantFinding("recovery_pending", false)
			r.sentOnce()
		})
	}
}

// settleTool calls a tool, which must be answered.
func (r *rig) settleTool(server, tool, id string) {
	r.t.Helper()
	c := r.open(socket, server).ready()
	c.oracleCall(id, tool, "")
	if got := textOf(r.t, c.answer(strconv.Quote(id))); got != "did "+id {
		r.t.Errorf("call %s is answered %q", id, got)
	}
	c.close()
}

// wantFinding checks whether the status has a finding of that code.
func (r *rig) wantFinding(code string, want bool) {
	r.t.Helper()
	s := decoded[struct {
		Findings []struct {
			Code   string `json:"code"`
			Remedy string `json:"remedy"`
		} `json:"findings"`
	}](r, "daemon", "status", "--json")
	got := false
	for _, f := range s.Findings {
		got = got || f.Code == code
	}
	if got != want {
		r.t.Errorf("status has finding %s: %v, want %v: %+v", code, got, want, s.Findings)
	}
}

// TestSessionsDoNotBlockOthers has a run of a session's private state pending: later
// sessions, whose state is their own, go on.
func TestSessionsDoNotBlockOthers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.settings.Recovery.Pending = "block"
	r.servers["oracle"] = r.oracle()
	r.interrupt("oracle", "write", "private")
	r.settleTool("oracle", "write", "of-another-session")
	r.stop()
	r.settleTool("oracle", "write", "of-a-session-of-the-next-daemon")
	r.acknowledgeAll()
}

// TestNewerRecoveryFile finds a recovery file of a later version: it is left as it
// is, calls that may change something are refused, and reads go on.
func TestNewerRecoveryFile(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.servers["oracle"] = r.oracle()
	r.start()
	r.stop()
	newer := []byte(`{"schemaVersion":2,"state":"reconciliation_required","runs":{"of":"another form"}}`)
	if err := os.WriteFile(r.pendingPath(), newer, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		c := r.open(socket, "oracle").ready()
		for _, tool := range []string{"write", "plain"} {
			c.oracleCall("refused", tool, "")
			notSent(t, c.answer(`"refused"`), "state_unwritable")
		}
		r.settleTool("oracle", "read", "read")
		r.wantFinding("recovery_unsupported", true)
		for _, args := range [][]string{{"ack", "x"}, {"--repair"}} {
			if text, code := r.output(append([]string{"daemon", "recovery"}, args...)...); code == 0 {
				t.Errorf("daemon recovery %v succeeds: %s", args, text)
			}
		}
		r.stop()
		if text, err := os.ReadFile(r.pendingPath()); err != nil || string(text) != string(newer) {
			t.Fatalf("the file is now %q, %v", text, err)
		}
	}
	for _, s := range r.sights() {
		if s.tool != "read" {
			t.Errorf("call %s of %s was sent", s.id, s.tool)
		}
	}
	if err := os.Remove(r.pendingPath()); err != nil {
		t.Fatal(err)
	}
	r.settleTool("oracle", "write", "after-its-end")
}

// TestUnknownFields gives the daemon a recovery file with members that it does not
// know: the runs count.
func TestUnknownFields(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.servers["oracle"] = r.oracle()
	r.start()
	r.stop()
	if err := os.WriteFile(r.pendingPath(), []byte(`{"schemaVersion":1,"state":"reconciliation_required","recoveredAt":"2030-01-01T00:00:00Z","later":[1],
		"runs":[{"requestId":"77-1-abc","ownerId":"client-1","startedAt":"2030-01-01T00:00:00Z","clientRequestId":"\"early\"","more":{}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	r.interrupt("oracle", "write", "late")
	runs := r.awaitPending("early", "late")
	if runs[0].RequestID != "77-1-abc" {
		t.Errorf("the run is now %+v", runs[0])
	}
	r.acknowledgeAll()
}

// paste runs the command that a message of interlock has between backquotes.
func (r *rig) paste(text string) {
	r.t.Helper()
	parts := strings.Split(text, "`")
	if len(parts) != 3 {
		r.t.Fatalf("the message has not one command: %q", text)
	}
	r.shell(parts[1])
}

// shell runs a line that was printed as a user's shell does.
func (r *rig) shell(line string) {
	r.t.Helper()
	cmd := exec.Command("sh", "-c", line)
	cmd.Env = r.environ("PATH=" + filepath.Dir(programs.interlock) + ":" + os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil {
		r.t.Errorf("%s: %v\n%s", line, err, out)
	}
}

// TestDamagedJournal damages the journal in the middle: calls are refused with the
// command that mends it, the command works as printed, and nothing intact is lost.
func TestDamagedJournal(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.servers["oracle"] = r.oracle()
	runs := r.interrupt("oracle", "write", "first", "second", "third")
	r.kill()
	if err := os.Remove(r.pendingPath()); err != nil { // the journal alone has them now
		t.Fatal(err)
	}
	journal, err := os.ReadFile(r.journalPath())
	if err != nil {
		t.Fatal(err)
	}
	at := strings.Index(string(journal), runs[1])
	journal[at] ^= 1
	if err := os.WriteFile(r.journalPath(), journal, 0o600); err != nil {
		t.Fatal(err)
	}
	c := r.open(socket, "oracle").ready()
	c.oracleCall("refused", "write", "")
	e := notSent(t, c.answer(`"refused"`), "state_unwritable")
	r.settleTool("oracle", "read", "read")
	r.wantFinding("journal_damaged", true)
	r.paste(e.text)
	c.oracleCall("mended", "write", "")
	c.answer(`"mended"`)
	pending := r.pending()
	for _, run := range []string{runs[0], runs[2]} {
		if !slices.Contains(runIDs(pending), run) {
			t.Errorf("run %s is lost: %+v", run, pending)
		}
	}
	r.wantFinding("journal_damaged", false)
	kept, err := filepath.Glob(r.journalPath() + ".repaired-*")
	if err != nil || len(kept) != 1 {
		t.Errorf("the damaged file is kept as %v, %v", kept, err)
	}
	r.acknowledgeAll()
	if _, err := os.Lstat(r.journalPath()); errors.Is(err, fs.ErrNotExist) {
		t.Error("there is no journal")
	}
}
