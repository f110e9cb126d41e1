package recovery_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"interlock/recovery"
)

// handWritten is a recovery file with only what every version has.
const handWritten = `{
  "schemaVersion": 1,
  "state": "reconciliation_required",
  "recoveredAt": "2026-03-01T10:00:00Z",
  "future": {"x": 1},
  "runs": [
    {"requestId": "old-run", "ownerId": "client-3", "startedAt": "2026-03-01T09:59:58Z", "server": "git"},
    {"requestId": "it's \u001b[31m odd", "ownerId": "client-3", "startedAt": "2026-03-01T09:59:59Z", "tool": "a\tb\u202e"}
  ]
}`

func TestText(t *testing.T) {
	o := recovery.Options{Dir: t.TempDir(), SegmentSize: 1}
	path := filepath.Join(o.Dir, "daemon.recovery.json")
	if err := os.WriteFile(path, []byte(handWritten), 0o600); err != nil {
		t.Fatal(err)
	}
	state, err := recovery.Inspect(o)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := state.WriteText(&text, "interlock --dir /d"); err != nil {
		t.Fatal(err)
	}
	want := strings.Join([]string{
		"2 runs to reconcile:",
		"",
		"RUN             STARTED               CLIENT  SERVER  TOOL  RESOURCE  WHY",
		"old-run         2026-03-01T09:59:58Z  -       git     -     -         -",
		"it's \uFFFD[31m odd  2026-03-01T09:59:59Z  -       -       a\uFFFDb\uFFFD  -         -",
		"",
		"Nobody knows what these runs did. Look, then acknowledge exactly these runs:",
		"",
		"  interlock --dir /d daemon recovery ack --set " + state.Set,
		"",
	}, "\n")
	if text.String() != want {
		t.Errorf("got\n%s\nwant\n%s", text.String(), want)
	}
	if _, err := recovery.AcknowledgeOffline(o, recovery.Selection{Digest: state.Set}); err != nil {
		t.Errorf("acknowledging with what was printed: %v", err)
	}
	text.Reset()
	state, err = recovery.Inspect(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := state.WriteText(&text, "interlock"); err != nil || text.String() != "Nothing is pending.\n" {
		t.Errorf("clear: %q, %v", text.String(), err)
	}
}

// TestPastedIDs checks the command for ids of ours and for many runs.
func TestPastedIDs(t *testing.T) {
	j, _ := open(t, recovery.Options{Dir: t.TempDir(), SegmentSize: 1})
	all := unknownRuns(t, j, "a", "b")
	var text strings.Builder
	if err := j.State().WriteText(&text, "interlock"); err != nil {
		t.Fatal(err)
	}
	if want := "interlock daemon recovery ack " + strings.Join(all, " ") + "\n"; !strings.HasSuffix(text.String(), want) {
		t.Errorf("text ends with %q, want %q", text.String(), want)
	}
	unknownRuns(t, j, "a", "b", "c", "d", "e", "f", "g")
	text.Reset()
	if err := j.State().WriteText(&text, "interlock"); err != nil {
		t.Fatal(err)
	}
	if want := "interlock daemon recovery ack --set " + j.State().Set + "\n"; !strings.HasSuffix(text.String(), want) {
		t.Errorf("text ends with %q, want %q", text.String(), want)
	}
	narrow := j.State().Narrow(recovery.Selection{Servers: []string{"a"}})
	if len(narrow.Recovery.Runs) != 2 || narrow.Set == j.State().Set {
		t.Errorf("narrowed to %v", narrow)
	}
	text.Reset()
	if err := narrow.WriteText(&text, "interlock"); err != nil {
		t.Fatal(err)
	}
	// What is pasted must name the same part of the set.
	if want := "interlock daemon recovery ack --server 'a' " + narrow.Recovery.Runs[0].RequestID + " " + narrow.Recovery.Runs[1].RequestID + "\n"; !strings.HasSuffix(text.String(), want) {
		t.Errorf("text ends with %q, want %q", text.String(), want)
	}
	if clear := j.State().Narrow(recovery.Selection{Servers: []string{"z"}}); clear.Status != "clear" || clear.Recovery != nil {
		t.Errorf("narrowed to %v", clear)
	}
}

// TestJSON pins the fields that others rely on.
func TestJSON(t *testing.T) {
	now := time.Date(2026, 3, 1, 11, 0, 0, 0, time.FixedZone("CET", 3600))
	m := newMemFS()
	o := recovery.Options{Dir: "/d", FS: m, Now: func() time.Time { return now }}
	j, _ := open(t, o)
	id := unknownRuns(t, j, "git")[0]
	digest := j.Pending()[0].ArgumentsDigest
	var file struct {
		Checksum string `json:"checksum"`
	}
	if err := json.Unmarshal(m.content("/d/daemon.recovery.json"), &file); err != nil {
		t.Fatal(err)
	}
	runs := `[{"requestId":"` + id + `","ownerId":"client-1","startedAt":"2026-03-01T10:00:00Z","client":"claude-code",` +
		`"clientRequestId":"0","server":"git","tool":"git_commit","class":"mutate","resource":"server:git",` +
		`"resources":["server:git","file:/shared"],"epoch":7,"argumentsDigest":"` + digest + `","outcome":"unknown","reason":"server died"}]`
	head := `{"schemaVersion":1,"state":"reconciliation_required","recoveredAt":"2026-03-01T10:00:00Z","epoch":1,`
	var compact bytes.Buffer
	if err := json.Compact(&compact, m.content("/d/daemon.recovery.json")); err != nil {
		t.Fatal(err)
	}
	if want := head + `"checksum":"` + file.Checksum + `","runs":` + runs + `}`; compact.String() != want {
		t.Errorf("file\n%s\nwant\n%s", compact.String(), want)
	}
	check := func(what string, v any, want string) {
		t.Helper()
		got, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("%s\n%s\nwant\n%s", what, got, want)
		}
	}
	state := j.State()
	check("recovery", state, `{"status":"reconciliation_required","path":"/d/daemon.recovery.json","recovery":`+
		head+`"runs":`+runs+`},"set":"`+state.Set+`"}`)
	ack, err := j.Acknowledge(recovery.Selection{IDs: []string{id}})
	if err != nil {
		t.Fatal(err)
	}
	check("ack", ack, `{"status":"acknowledged","path":"/d/daemon.recovery.json","runs":1,"reconciledRequestIds":["`+id+`"],"acknowledged":true}`)
	ack, err = j.Acknowledge(recovery.Selection{})
	if err != nil {
		t.Fatal(err)
	}
	check("ack of nothing", ack, `{"status":"clear","path":"/d/daemon.recovery.json","acknowledged":false}`)
	check("clear", j.State(), `{"status":"clear","path":"/d/daemon.recovery.json"}`)
}

func TestHistory(t *testing.T) {
	o := recovery.Options{Dir: t.TempDir(), SegmentSize: 1}
	j, _ := open(t, o)
	begin(t, j, intent(1)).End(recovery.OutcomeError, "why")
	j.Note(recovery.Call{Server: "files", Tool: "read", Outcome: recovery.OutcomeOK})
	calls, dropped, err := j.History(10)
	if err != nil || dropped != 0 || len(calls) != 2 || calls[0].Tool != "git_commit" ||
		calls[0].Outcome != recovery.OutcomeError || calls[0].Reason != "why" || calls[0].RequestID == "" || calls[1].Tool != "read" {
		t.Fatalf("%+v, %d, %v", calls, dropped, err)
	}
	// Close writes what waits.
	j.Note(recovery.Call{Server: "files", Tool: "last", Outcome: recovery.OutcomeOK})
	j.Close()
	if calls, err := recovery.ReadHistory(o, 1); err != nil || len(calls) != 1 || calls[0].Tool != "last" {
		t.Errorf("after Close: %+v, %v", calls, err)
	}
	// It is bounded, on disk and in memory, and says what it dropped.
	j, _ = open(t, o)
	long := strings.Repeat("x", 1000)
	for range 5 {
		for range 1000 {
			j.Note(recovery.Call{Tool: long})
		}
		if _, _, err := j.History(0); err != nil {
			t.Fatal(err)
		}
	}
	for range 5000 {
		j.Note(recovery.Call{Tool: "late"})
	}
	calls, dropped, err = j.History(3000)
	if err != nil || len(calls) != 3000 || calls[2999].Tool != "late" || dropped == 0 {
		t.Errorf("%d calls, %d dropped, %v", len(calls), dropped, err)
	}
	for _, name := range []string{"daemon.history", "daemon.history.1"} {
		info, err := os.Stat(filepath.Join(o.Dir, name))
		if err != nil || info.Size() > 2<<20 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
}
