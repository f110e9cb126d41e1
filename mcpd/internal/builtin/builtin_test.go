package builtin_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"interlock/mcpd/internal/builtin"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// response is what the tests read of an answer.
type response struct {
	ID     json.RawMessage `json:"id"`
	Result struct {
		Content []struct {
			Text string `json:"text"`
		} `json:"content"`
		StructuredContent json.RawMessage `json:"structuredContent"`
		IsError           bool            `json:"isError"`
	} `json:"result"`
	Error *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

func (r response) text() string {
	var parts []string
	for _, c := range r.Result.Content {
		parts = append(parts, c.Text)
	}
	return strings.Join(parts, "\n")
}

func newLocal(t *testing.T, o builtin.LocalOptions) *builtin.Server {
	t.Helper()
	s, err := builtin.NewLocal(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func open(t *testing.T, s *builtin.Server, id, dir string, notify func([]byte)) *builtin.Session {
	t.Helper()
	c, err := s.Open(id, dir, 0o022, notify)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// openLocal opens a session in dir on a server of its own.
func openLocal(t *testing.T, dir string) *builtin.Session {
	t.Helper()
	return open(t, newLocal(t, builtin.LocalOptions{Version: "1"}), "session-1", dir, nil)
}

func handle(t *testing.T, c *builtin.Session, frame string) response {
	t.Helper()
	answer := c.Handle(t.Context(), []byte(frame))
	var r response
	if err := json.Unmarshal(answer, &r); err != nil {
		t.Errorf("answer %q to %s: %v", answer, frame, err)
	}
	return r
}

// call calls a tool; args are key, value pairs.
func call(t *testing.T, c *builtin.Session, tool string, args ...any) response {
	t.Helper()
	var members []string
	for i := 0; i < len(args); i += 2 {
		value, err := json.Marshal(args[i+1])
		if err != nil {
			t.Fatal(err)
		}
		members = append(members, fmt.Sprintf("%q:%s", args[i], value))
	}
	r := handle(t, c, callFrame(1, tool, "{"+strings.Join(members, ",")+"}"))
	if r.Error != nil {
		t.Errorf("%s %v: JSON-RPC error %+v", tool, args, *r.Error)
	}
	return r
}

func callFrame(id int, tool, args string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, id, tool, args)
}

func wantOK(t *testing.T, r response) {
	t.Helper()
	if r.Result.IsError || len(r.Result.Content) == 0 {
		t.Fatalf("failed: %s", r.text())
	}
}

func wantRefusal(t *testing.T, r response, saying string) {
	t.Helper()
	if !r.Result.IsError || !strings.Contains(r.text(), saying) {
		t.Errorf("got isError=%v %q, want a refusal saying %q", r.Result.IsError, r.text(), saying)
	}
}

func put(t *testing.T, content string, path ...string) string {
	t.Helper()
	name := filepath.Join(path...)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

func wantFile(t *testing.T, content string, path ...string) {
	t.Helper()
	got, err := os.ReadFile(filepath.Join(path...))
	if err != nil || string(got) != content {
		t.Errorf("%s has %q (%v), want %q", filepath.Join(path...), got, err, content)
	}
}

// daemon answers for the interlock tools.
type daemon struct {
	builtin.Leases // nil: no test here calls them
	status         func(ctx context.Context) (json.RawMessage, error)
	list           func(session string) (json.RawMessage, error)
	ack            func(session string, ids []string) (json.RawMessage, error)
}

func (d daemon) Status(ctx context.Context) (json.RawMessage, error) { return d.status(ctx) }

func (d daemon) RecoveryList(_ context.Context, session string) (json.RawMessage, error) {
	return d.list(session)
}

func (d daemon) RecoveryAck(_ context.Context, session string, ids []string) (json.RawMessage, error) {
	return d.ack(session, ids)
}

func newInterlock(t *testing.T, d daemon, onPanic func(string)) *builtin.Server {
	t.Helper()
	s, err := builtin.NewInterlock(d, builtin.InterlockOptions{Version: "1", OnPanic: onPanic})
	if err != nil {
		t.Fatal(err)
	}
	return s
}
