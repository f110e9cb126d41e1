package doctor

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

// recoveryAnswer is what `daemon recovery --json` prints.
type recoveryAnswer struct {
	Status   string
	Path     string
	Set      string
	Recovery *struct{ Runs []struct{ RequestID string } }
}

// ackAnswer is what `daemon recovery ack --json` prints, a refusal included.
type ackAnswer struct {
	Status                               string
	Path                                 string
	Runs                                 int
	ReconciledRequestIDs                 []string
	Acknowledged                         bool
	Pending, Missing, Unknown, Duplicate []string
	Digest                               string
}

func (w *ward) recovery(flags string) (a recoveryAnswer, ids []string) {
	w.t.Helper()
	w.must(json.Unmarshal([]byte(w.do("interlock daemon recovery --json "+flags)), &a))
	if a.Recovery != nil {
		for _, run := range a.Recovery.Runs {
			ids = append(ids, run.RequestID)
		}
	}
	return a, ids
}

// ack acknowledges and returns the answer and the exit code.
func (w *ward) ack(words string) (a ackAnswer, code int) {
	w.t.Helper()
	out, errs, code := w.run("interlock daemon recovery ack --json " + words)
	if err := json.Unmarshal([]byte(out), &a); err != nil {
		w.t.Fatalf("ack %s: %v\n%s%s", words, err, out, errs)
	}
	return a, code
}

// TestAcknowledge acknowledges wrong sets, which changes nothing and says which
// set is right, and then the right one, with and without a daemon.
func TestAcknowledge(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(*ward){
		"no daemon": func(*ward) {}, "daemon running": (*ward).running,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWard(t)
			w.pending(3)
			prepare(w)
			state, ids := w.recovery("")
			if state.Status != "reconciliation_required" || len(ids) != 3 || state.Set == "" {
				t.Fatalf("recovery: %+v", state)
			}
			all := strings.Join(ids, " ")
			for words, want := range map[string]ackAnswer{
				"":                        {Missing: ids},
				ids[0]:                    {Missing: ids[1:]},
				all + " never-was":        {Unknown: []string{"never-was"}},
				all + " " + ids[1]:        {Duplicate: ids[1:2]},
				"--set " + ids[0]:         {},
				all + " --set 0000":       {},
				ids[0] + " --server fake": {Missing: ids[1:]},
			} {
				got, code := w.ack(words)
				if code != 7 || got.Status != "refused" || !slices.Equal(got.Pending, ids) || got.Digest != state.Set {
					t.Errorf("ack %s: exit code %d, %+v", words, code, got)
				}
				if !slices.Equal(got.Missing, want.Missing) || !slices.Equal(got.Unknown, want.Unknown) || !slices.Equal(got.Duplicate, want.Duplicate) {
					t.Errorf("ack %s: %+v, want %+v", words, got, want)
				}
				if _, now := w.recovery(""); !slices.Equal(now, ids) {
					t.Fatalf("ack %s left %v", words, now)
				}
			}
			_, errs, code := w.run("interlock daemon recovery ack " + ids[0])
			if code != 7 || !strings.Contains(errs, all) {
				t.Errorf("the refusal does not name the set: exit code %d\n%s", code, errs)
			}
			if got, code := w.ack("--server other " + all); code != 0 || got.Acknowledged || got.Status != "clear" {
				t.Errorf("of a server with nothing pending: exit code %d, %+v", code, got)
			}
			got, code := w.ack(all)
			if code != 0 || got.Status != "acknowledged" || !got.Acknowledged || got.Runs != 3 || !slices.Equal(got.ReconciledRequestIDs, ids) {
				t.Errorf("exit code %d, %+v", code, got)
			}
			if got, code := w.ack(all); code != 0 || got.Status != "clear" || got.Acknowledged {
				t.Errorf("again: exit code %d, %+v", code, got)
			}
			if _, err := os.Lstat(w.path("daemon.recovery.json")); err == nil {
				t.Error("the recovery file is still there")
			}
			w.do("interlock daemon restart")
			if state, _ := w.recovery(""); state.Status != "clear" {
				t.Errorf("after a restart: %+v", state)
			}
		})
	}
}

// TestPastedAcknowledgement runs the command that recovery prints, for everything
// and for one server.
func TestPastedAcknowledgement(t *testing.T) {
	t.Parallel()
	for _, flags := range []string{"", "--server fake"} {
		w := newWard(t)
		w.pending(2)
		lines := strings.Split(strings.TrimSpace(w.do("interlock daemon recovery "+flags)), "\n")
		command := strings.TrimSpace(lines[len(lines)-1])
		if out := w.do(command); out != "Acknowledged 2 runs.\n" {
			t.Errorf("%s: %s", command, out)
		}
		if out := w.do("interlock daemon recovery"); out != "Nothing is pending.\n" {
			t.Error(out)
		}
	}
}

// TestAcknowledgeTogether has several processes acknowledge the same set at once,
// while the daemon starts: all succeed, and exactly one has done it.
func TestAcknowledgeTogether(t *testing.T) {
	t.Parallel()
	for _, start := range []bool{false, true} {
		w := newWard(t)
		w.pending(2)
		_, ids := w.recovery("")
		var together sync.WaitGroup
		answers := make([]ackAnswer, 4)
		for i := range answers {
			together.Go(func() {
				var code int
				if answers[i], code = w.ack(strings.Join(ids, " ")); code != 0 {
					t.Errorf("exit code %d, %+v", code, answers[i])
				}
			})
		}
		if start {
			together.Go(w.running)
		}
		together.Wait()
		done := slices.DeleteFunc(answers, func(a ackAnswer) bool { return !a.Acknowledged })
		if len(done) != 1 || !slices.Equal(done[0].ReconciledRequestIDs, ids) {
			t.Errorf("start %v: %+v have acknowledged", start, done)
		}
		if state, _ := w.recovery(""); state.Status != "clear" {
			t.Errorf("left: %+v", state)
		}
	}
}

// TestNothingPending answers where there never was a daemon, and makes nothing.
func TestNothingPending(t *testing.T) {
	t.Parallel()
	w := newWard(t)
	if state, _ := w.recovery(""); state.Status != "clear" || state.Path != w.path("daemon.recovery.json") {
		t.Errorf("recovery: %+v", state)
	}
	if got, code := w.ack("some-id"); code != 0 || got.Status != "clear" || got.Path != w.path("daemon.recovery.json") {
		t.Errorf("ack: exit code %d, %+v", code, got)
	}
	if out := w.do("interlock daemon history --json"); !strings.Contains(out, `"calls": []`) {
		t.Errorf("history: %s", out)
	}
	if out := w.do("interlock daemon recovery --repair --json"); !strings.Contains(out, `"files": []`) {
		t.Errorf("repair: %s", out)
	}
	for _, line := range []string{"recovery", "recovery --repair", "history", "history --json", "logs", "logs --json", "doctor"} {
		if _, errs, code := w.run("interlock daemon " + line); code != 0 && line != "doctor" {
			t.Errorf("%s: exit code %d\n%s", line, code, errs)
		}
	}
	if _, err := os.Lstat(w.home); err == nil {
		t.Error("looking has made the directory")
	}
}

// TestFrozen asks for the record of a daemon that does not answer: an error within
// bounds, and nothing is acknowledged behind its back.
func TestFrozen(t *testing.T) {
	t.Parallel()
	w := newWard(t)
	w.pending(1)
	w.running()
	_, ids := w.recovery("")
	pid := w.status().PID
	w.do(fmt.Sprintf("kill -STOP %d", pid))
	_, errs, code := w.run("interlock daemon recovery ack " + ids[0])
	if code != 1 || !strings.Contains(errs, fmt.Sprintf("pid %d", pid)) {
		t.Errorf("exit code %d\n%s", code, errs)
	}
	w.do(fmt.Sprintf("kill -CONT %d", pid))
	if _, now := w.recovery(""); !slices.Equal(now, ids) && len(now) > 0 {
		t.Errorf("left %v", now)
	}
}

// TestBridgeSaysPending has a bridge say in one line that calls are pending.
func TestBridgeSaysPending(t *testing.T) {
	t.Parallel()
	w := newWard(t)
	w.pending(2)
	if said := w.connect("fake").leave(); said != "interlock: 2 calls were cut off and nobody knows what they did; look at it with: interlock daemon recovery" {
		t.Errorf("the bridge said %q", said)
	}
	_, ids := w.recovery("")
	w.ack(strings.Join(ids, " "))
	if said := w.connect("fake").leave(); said != "" {
		t.Errorf("the bridge said %q", said)
	}
}

// TestHistory lists calls with and without a daemon.
func TestHistory(t *testing.T) {
	t.Parallel()
	w := newWard(t)
	w.configureFake()
	c := w.connect("fake")
	for i := range 3 {
		c.call(fmt.Sprint("call-", i), "echo", `{"text":"hidden"}`)
	}
	c.leave()
	type history struct {
		Calls   []struct{ Client, Server, Tool, Outcome string }
		Dropped int
	}
	for _, step := range []string{"daemon running", "no daemon"} {
		var h history
		w.must(json.Unmarshal([]byte(w.do("interlock daemon history -n 2 --json")), &h))
		if len(h.Calls) != 2 || h.Calls[0].Client != "tester" || h.Calls[0].Server != "fake" || h.Calls[0].Tool != "echo" || h.Calls[0].Outcome != "ok" {
			t.Errorf("%s: %+v", step, h)
		}
		if text := w.do("interlock daemon history"); strings.Count(text, "\n") != 4 || strings.Contains(text, "hidden") {
			t.Errorf("%s:\n%s", step, text)
		}
		w.do("interlock daemon stop")
	}
}
