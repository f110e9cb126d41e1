package integration

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// repeats is how often something is done: in the short form, or in the full one,
// which the environment variable INTERLOCK_FULL=1 asks for.
func repeats(short, full int) int {
	if os.Getenv("INTERLOCK_FULL") == "1" {
		return full
	}
	return short
}

// oracleProgram builds the oracle beside the other programs, once.
var oracleProgram = sync.OnceValues(func() (string, error) {
	bin := filepath.Dir(programs.fakeserver)
	return filepath.Join(bin, "oracleserver"), goBuild(bin, "interlock/integration/oracleserver")
})

// oracle gives the server that remembers what it was asked to do.
func (r *rig) oracle(flags ...string) server {
	r.t.Helper()
	program, err := oracleProgram()
	if err != nil {
		r.t.Fatal(err)
	}
	return server{Command: program, Args: append([]string{"-log", r.oracleLog()}, flags...)}
}

func (r *rig) oracleLog() string   { return filepath.Join(r.dir, "oracle.log") }
func (r *rig) journalPath() string { return filepath.Join(r.home(), "daemon.journal") }
func (r *rig) pendingPath() string { return filepath.Join(r.home(), "daemon.recovery.json") }

// sight is a call that an oracle has received, or "unrecorded" and its id.
type sight struct {
	pid  int
	tool string
	id   string
}

// sights are all calls that oracles have received so far, in order.
func (r *rig) sights() (list []sight) {
	r.t.Helper()
	text, err := os.ReadFile(r.oracleLog())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			r.t.Fatalf("the oracle wrote %q", line)
		}
		pid, err := strconv.Atoi(fields[0])
		if err != nil {
			r.t.Fatal(err)
		}
		list = append(list, sight{pid, fields[1], fields[2]})
	}
	return list
}

// awaitSeen waits until oracles have received all the calls, and gives the process
// that received the last.
func (r *rig) awaitSeen(ids ...string) (pid int) {
	r.t.Helper()
	eventually(r.t, "the oracle receives the calls", func() error {
		missing := slices.Clone(ids)
		for _, s := range r.sights() {
			if i := slices.Index(missing, s.id); i >= 0 {
				missing, pid = slices.Delete(missing, i, i+1), s.pid
			}
		}
		if len(missing) > 0 {
			return fmt.Errorf("it has not received %v", missing)
		}
		return nil
	})
	return pid
}

// sentOnce fails the test if an oracle received a call twice.
func (r *rig) sentOnce() {
	r.t.Helper()
	count := map[string]int{}
	for _, s := range r.sights() {
		if s.tool == "unrecorded" {
			r.t.Errorf("call %s was sent before it was on record", s.id)
			continue
		}
		if count[s.id]++; count[s.id] == 2 {
			r.t.Errorf("call %s was sent twice", s.id)
		}
	}
}

// pendingRun is a run of the recovery file, as far as the tests read it.
type pendingRun struct {
	RequestID       string    `json:"requestId"`
	OwnerID         string    `json:"ownerId"`
	StartedAt       time.Time `json:"startedAt"`
	Client          string    `json:"client"`
	ClientRequestID string    `json:"clientRequestId"`
	Server          string    `json:"server"`
	Tool            string    `json:"tool"`
	Class           string    `json:"class"`
	Resource        string    `json:"resource"`
	ArgumentsDigest string    `json:"argumentsDigest"`
	Outcome         string    `json:"outcome"`
	Reason          string    `json:"reason"`
}

// pendingFile is the recovery file.
type pendingFile struct {
	SchemaVersion int          `json:"schemaVersion"`
	State         string       `json:"state"`
	RecoveredAt   time.Time    `json:"recoveredAt"`
	Runs          []pendingRun `json:"runs"`
}

// pending reads the recovery file; without one nothing is pending.
func (r *rig) pending() []pendingRun {
	r.t.Helper()
	text, err := os.ReadFile(r.pendingPath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		r.t.Fatal(err)
	}
	var file pendingFile
	if err := json.Unmarshal(text, &file); err != nil {
		r.t.Fatalf("the recovery file: %v\n%s", err, text)
	}
	return file.Runs
}

// awaitPending waits until exactly these calls are pending and gives their runs in
// that order. A call is named by the id that the oracle saw.
func (r *rig) awaitPending(ids ...string) (runs []pendingRun) {
	r.t.Helper()
	eventually(r.t, fmt.Sprintf("%d calls are pending", len(ids)), func() error {
		byCall := map[string]pendingRun{}
		for _, run := range r.pending() {
			byCall[run.call(r.t)] = run
		}
		runs = runs[:0]
		for _, id := range ids {
			run, ok := byCall[id]
			if !ok {
				return fmt.Errorf("call %s is not", id)
			}
			runs = append(runs, run)
		}
		if len(byCall) != len(ids) {
			return fmt.Errorf("%d are", len(byCall))
		}
		return nil
	})
	return runs
}

// call is the id that the oracle saw: the tests use it as id of the request, too.
func (p pendingRun) call(t testing.TB) (id string) {
	t.Helper()
	if err := json.Unmarshal([]byte(p.ClientRequestID), &id); err != nil {
		t.Fatalf("the client's request id %q: %v", p.ClientRequestID, err)
	}
	return id
}

// runIDs are the ids of runs.
func runIDs(runs []pendingRun) (ids []string) {
	for _, run := range runs {
		ids = append(ids, run.RequestID)
	}
	return ids
}

// oracleCall calls a tool of the oracle in a mode, with one id for the request and
// in its arguments, and does not wait.
func (c *client) oracleCall(id, tool, mode string) {
	c.t.Helper()
	c.sendCall(strconv.Quote(id), tool, fmt.Sprintf(`{"id":%q,"mode":%q}`, id, mode))
}

// ownError is what interlock says of a call that it answers itself.
type ownError struct {
	Code      string   `json:"code"`
	Run       string   `json:"run"`
	Outcome   string   `json:"outcome"`
	RetrySafe *bool    `json:"retrySafe"`
	Pending   []string `json:"pending"`

	RetryAfterMs int64  `json:"retryAfterMs"`
	Resource     string `json:"resource"`
	Deadlock     bool   `json:"deadlock"`
	Holder       *struct {
		OwnerID string `json:"ownerId"`
		Client  string `json:"client"`
	} `json:"holder"`

	text string // of the result
}

// ownErrorOf reads an answer of interlock's own to a tool call.
func ownErrorOf(t testing.TB, m *message) (e ownError) {
	t.Helper()
	var result struct {
		IsError bool
		Content []struct{ Type, Text string }
		Meta    struct {
			Error *ownError `json:"interlock/error"`
		} `json:"_meta"`
	}
	if err := json.Unmarshal(m.Result, &result); err != nil || !result.IsError || result.Meta.Error == nil || len(result.Content) != 1 {
		t.Fatalf("not an answer of interlock's own: %s", m.raw)
	}
	e = *result.Meta.Error
	e.text = result.Content[0].Text
	return e
}

// cutOff checks the answer to a call whose outcome is unknown, and gives its run.
func cutOff(t testing.TB, m *message, code string) (run string) {
	t.Helper()
	e := ownErrorOf(t, m)
	if e.Code != code || e.Run == "" || e.Outcome != "unknown" || e.RetrySafe == nil || *e.RetrySafe {
		t.Errorf("answer %s, want code %s, a run, outcome unknown and retrySafe false", m.raw, code)
	}
	if !strings.Contains(e.text, "may have taken effect") {
		t.Errorf("the text %q does not say that the call may have taken effect", e.text)
	}
	return e.Run
}

// notSent checks the answer to a call that was refused before it was sent.
func notSent(t testing.TB, m *message, code string) ownError {
	t.Helper()
	e := ownErrorOf(t, m)
	if e.Code != code || e.Run != "" {
		t.Errorf("answer %s, want code %s without a run", m.raw, code)
	}
	return e
}

// killProcess ends a process as the kernel does when memory is short.
func killProcess(t testing.TB, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// output runs interlock with these arguments and gives what it prints and its exit
// code.
func (r *rig) output(args ...string) (text string, code int) {
	r.t.Helper()
	cmd := r.command(args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if cmd.ProcessState == nil {
		r.t.Fatal(err)
	}
	if code = cmd.ProcessState.ExitCode(); code != 0 {
		out = append(out, stderr.String()...)
	}
	return string(out), code
}

// decoded runs interlock, which must succeed, and decodes what it prints.
func decoded[T any](r *rig, args ...string) (answer T) {
	r.t.Helper()
	text, code := r.output(args...)
	if code != 0 {
		r.t.Fatalf("interlock %s: exit code %d\n%s", strings.Join(args, " "), code, text)
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		r.t.Fatalf("interlock %s: %v\n%s", strings.Join(args, " "), err, text)
	}
	return answer
}

// recoveryAnswer is what `daemon recovery --json` prints.
type recoveryAnswer struct {
	Status   string       `json:"status"`
	Path     string       `json:"path"`
	Recovery *pendingFile `json:"recovery"`
	Set      string       `json:"set"`
}

// ackAnswer is what `daemon recovery ack --json` prints.
type ackAnswer struct {
	Status       string   `json:"status"`
	Runs         int      `json:"runs"`
	Reconciled   []string `json:"reconciledRequestIds"`
	Acknowledged bool     `json:"acknowledged"`
}

// acknowledgeAll acknowledges what is pending by its digest, on the command line.
func (r *rig) acknowledgeAll() {
	r.t.Helper()
	shown := decoded[recoveryAnswer](r, "daemon", "recovery", "--json")
	if shown.Status == "clear" {
		return
	}
	ack := decoded[ackAnswer](r, "daemon", "recovery", "ack", "--json", "--set", shown.Set)
	if !ack.Acknowledged || ack.Runs != len(shown.Recovery.Runs) {
		r.t.Errorf("acknowledged %+v, want %d runs", ack, len(shown.Recovery.Runs))
	}
	r.clear()
}

// clear fails the test unless nothing is pending and no file says otherwise.
func (r *rig) clear() {
	r.t.Helper()
	if _, err := os.Lstat(r.pendingPath()); !errors.Is(err, fs.ErrNotExist) {
		r.t.Errorf("nothing is pending, and the recovery file is there (%v): %v", err, r.pending())
	}
}

// finishedCall is a call of the history.
type finishedCall struct {
	Tool      string `json:"tool"`
	Class     string `json:"class"`
	Outcome   string `json:"outcome"`
	RequestID string `json:"requestId"`
	Reason    string `json:"reason"`
	Resource  string `json:"resource"`
	Epoch     uint64 `json:"epoch"`
	WaitedFor string `json:"waitedFor"`
	OwnerID   string `json:"ownerId"`
}

// history is the last n finished calls, oldest first.
func (r *rig) history(n int) []finishedCall {
	r.t.Helper()
	return decoded[struct {
		Calls []finishedCall `json:"calls"`
	}](r, "daemon", "history", "--json", "-n", strconv.Itoa(n)).Calls
}

// quickClient is a client for load: it has no hello, sends one call at a time, and
// may be used by any goroutine, since it returns errors.
type quickClient struct {
	conn  net.Conn
	lines *bufio.Reader
}

// quick connects without a word. The rig must have one server only.
func (r *rig) quick() (*quickClient, error) {
	conn, err := net.Dial("unix", r.socketPath())
	if err != nil {
		return nil, err
	}
	return &quickClient{conn, bufio.NewReaderSize(conn, 16<<10)}, nil
}

// shake does the handshake.
func (c *quickClient) shake() error {
	_, err := fmt.Fprint(c.conn, `{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"quick","version":"1"}}}`+"\n"+
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n")
	if err != nil {
		return err
	}
	_, err = c.lines.ReadString('\n')
	return err
}

// call calls the oracle's tool and waits for the answer, which must be the oracle's.
func (c *quickClient) call(id, tool string) error {
	if _, err := fmt.Fprintf(c.conn, `{"jsonrpc":"2.0","id":%q,"method":"tools/call","params":{"name":%q,"arguments":{"id":%q}}}`+"\n", id, tool, id); err != nil {
		return err
	}
	line, err := c.lines.ReadString('\n')
	if err != nil {
		return err
	}
	if !strings.Contains(line, `"did `+id+`"`) || !strings.Contains(line, `"id":"`+id+`"`) {
		return fmt.Errorf("call %s was answered %w: %s", id, errWrongAnswer, line)
	}
	return nil
}

// errWrongAnswer tells an answer that must not be from a connection that ended.
var errWrongAnswer = errors.New("wrongly")
