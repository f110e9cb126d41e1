package builtin_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"interlock/mcpd/internal/builtin"
)

func TestIDs(t *testing.T) {
	c := openLocal(t, t.TempDir())
	for _, id := range []string{"0", "1", "1000000", "9007199254740991"} {
		r := handle(t, c, `{"jsonrpc":"2.0","id":`+id+`,"method":"ping"}`)
		if string(r.ID) != id || r.Error != nil {
			t.Errorf("id %s came back as %s, error %v", id, r.ID, r.Error)
		}
	}
	for _, id := range []string{"9007199254740992", "-1", "1.0", "1e3", `"1"`, "{}", "[1]", "true", "null"} {
		r := handle(t, c, `{"jsonrpc":"2.0","id":`+id+`,"method":"ping"}`)
		if string(r.ID) != "null" || r.Error == nil || r.Error.Code != -32600 {
			t.Errorf("id %s: got id %s, error %v; want -32600 with id null", id, r.ID, r.Error)
		}
	}
}

func TestFramesThatAreNoRequests(t *testing.T) {
	c := openLocal(t, t.TempDir())
	for _, frame := range []string{"", "{", `{"method":7}`} {
		if r := handle(t, c, frame); r.Error == nil || r.Error.Code != -32700 {
			t.Errorf("%q: error %v, want -32700", frame, r.Error)
		}
	}
	for _, frame := range []string{
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","method":"notifications/no/such"}`,
		`{"jsonrpc":"2.0","id":7,"result":{}}`,
		`{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"x"}}`,
	} {
		if answer := c.Handle(t.Context(), []byte(frame)); answer != nil {
			t.Errorf("%s was answered: %s", frame, answer)
		}
	}
	if r := handle(t, c, `{"jsonrpc":"2.0","id":1,"method":"no/such"}`); r.Error == nil || r.Error.Code != -32601 {
		t.Errorf("unknown method: error %v, want -32601", r.Error)
	}
}

func TestArgumentsAreReadAsSpelt(t *testing.T) {
	dir := t.TempDir()
	put(t, "x", dir, "a")
	c := openLocal(t, dir)
	for _, args := range []string{`{}`, `{"PATH":"a"}`, `{"path":"a","Offset":1}`, `{"path":7}`, `{"path":""}`, `{"path":"a","limit":1}`, `{"path":"a","limit":8388609}`, `[]`} {
		r := handle(t, c, callFrame(1, "read_file", args))
		if !r.Result.IsError {
			t.Errorf("read_file %s was accepted: %s", args, r.text())
		}
	}
	if r := handle(t, c, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_directory"}}`); r.Result.IsError || r.Error != nil {
		t.Errorf("a call without arguments: %s %v", r.text(), r.Error)
	}
}

func TestPanicStaysInItsCall(t *testing.T) {
	var told string
	server := newInterlock(t, daemon{
		status: func(context.Context) (json.RawMessage, error) { panic("secret of the daemon") },
		list:   func(string) (json.RawMessage, error) { return json.RawMessage(`{"runs":[]}`), nil },
	}, func(text string) { told = text })
	c := open(t, server, "session-1", "", nil)

	answer := c.Handle(t.Context(), []byte(callFrame(5, "daemon_status", "{}")))
	var r response
	if err := json.Unmarshal(answer, &r); err != nil {
		t.Fatal(err)
	}
	if string(r.ID) != "5" || r.Error == nil || r.Error.Code != -32603 || strings.Contains(string(answer), "secret") {
		t.Errorf("answer %s, want -32603 for id 5 without the panic's text", answer)
	}
	if !strings.Contains(told, "secret of the daemon") || !strings.Contains(told, "builtin_test.TestPanic") {
		t.Errorf("OnPanic was told %q, want text and stack", told)
	}
	wantOK(t, call(t, c, "recovery_list"))
}

func TestCancellationStaysInItsSession(t *testing.T) {
	begun := make(chan struct{}, 2)
	server := newInterlock(t, daemon{status: func(ctx context.Context) (json.RawMessage, error) {
		begun <- struct{}{}
		<-ctx.Done()
		return nil, errors.New("cancelled")
	}}, nil)
	one, two := open(t, server, "session-1", "", nil), open(t, server, "session-2", "", nil)
	answers := map[*builtin.Session]chan []byte{one: make(chan []byte, 1), two: make(chan []byte, 1)}
	for c, answer := range answers {
		go func() { answer <- c.Handle(context.Background(), []byte(callFrame(3, "daemon_status", "{}"))) }()
		<-begun
	}

	if answer := one.Handle(t.Context(), []byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}`)); answer != nil {
		t.Errorf("the cancellation was answered: %s", answer)
	}
	<-answers[one]
	select {
	case answer := <-answers[two]:
		t.Errorf("the other session's request 3 ended too: %s", answer)
	default:
	}
	two.Close()
	<-answers[two]
	if r := handle(t, two, `{"jsonrpc":"2.0","id":4,"method":"ping"}`); r.Error == nil || string(r.ID) != "4" {
		t.Errorf("a closed session answered %+v, want an error", r)
	}
	two.Close()
}

const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

func TestNotificationsStayInTheirSession(t *testing.T) {
	server := newLocal(t, builtin.LocalOptions{})
	// Notify runs in the session's goroutine; what it wrote is visible here because the answer comes after it.
	var one, two []string
	first := open(t, server, "session-1", "", func(f []byte) { one = append(one, string(f)) })
	second := open(t, server, "session-2", "", func(f []byte) { two = append(two, string(f)) })

	listen := `{"jsonrpc":"2.0","id":6,"method":"subscriptions/listen","params":{"notifications":{},` + modernMeta + `}}`
	if r := handle(t, first, listen); r.Error != nil {
		t.Fatalf("listening: %+v", *r.Error)
	}
	handle(t, second, `{"jsonrpc":"2.0","id":6,"method":"tools/list","params":{`+modernMeta+`}}`)
	if len(one) != 1 || !strings.Contains(one[0], "notifications/subscriptions/acknowledged") || strings.Contains(one[0], "\n") {
		t.Errorf("the first session was told %q before its answer, want one acknowledgement", one)
	}
	if len(two) != 0 {
		t.Errorf("the second session was told %q", two)
	}
}

func TestSessionIDIsUniqueWhileOpen(t *testing.T) {
	server := newLocal(t, builtin.LocalOptions{})
	first := open(t, server, "session-1", "", nil)
	if _, err := server.Open("session-1", "", 0, nil); err == nil {
		t.Error("a second session with the id of an open one was accepted")
	}
	first.Close()
	open(t, server, "session-1", "", nil)
}

func TestSessionsWorkInTheirOwnDirectories(t *testing.T) {
	server := newLocal(t, builtin.LocalOptions{})
	const sessions, rounds = 2, 20
	base := t.TempDir()
	var wg sync.WaitGroup
	for i := range sessions {
		dir := filepath.Join(base, fmt.Sprint(i))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		c := open(t, server, fmt.Sprintf("session-%d", i), dir, nil)
		for j := range 3 {
			wg.Go(func() {
				name := fmt.Sprintf("file-%d", j)
				for k := range rounds {
					content := fmt.Sprintf("session %d file %d round %d", i, j, k)
					if r := call(t, c, "write_file", "path", name, "content", content); r.Result.IsError {
						t.Errorf("writing: %s", r.text())
					}
					if r := call(t, c, "read_file", "path", name); r.text() != content {
						t.Errorf("read %q, want %q", r.text(), content)
					}
				}
			})
		}
	}
	wg.Wait()
	for i := range sessions {
		entries, err := os.ReadDir(filepath.Join(base, fmt.Sprint(i)))
		if err != nil || len(entries) != 3 {
			t.Errorf("directory %d has %v (%v), want 3 files and no temporary ones", i, entries, err)
		}
	}
}

func TestInterlockTools(t *testing.T) {
	server := newInterlock(t, daemon{
		status: func(context.Context) (json.RawMessage, error) {
			return json.RawMessage(`{"pid":12345678901234567890}`), nil
		},
		list: func(session string) (json.RawMessage, error) {
			return json.RawMessage(`{"for":"` + session + `"}`), nil
		},
		ack: func(session string, ids []string) (json.RawMessage, error) {
			return nil, fmt.Errorf("%s: the pending ids are run-9, not %s", session, strings.Join(ids, " "))
		},
	}, nil)
	c := open(t, server, "session-7", "", nil)
	if r := call(t, c, "daemon_status"); string(r.Result.StructuredContent) != `{"pid":12345678901234567890}` || r.text() != `{"pid":12345678901234567890}` {
		t.Errorf("status %s, text %s: not the daemon's bytes", r.Result.StructuredContent, r.text())
	}
	if r := call(t, c, "recovery_list"); r.text() != `{"for":"session-7"}` {
		t.Errorf("recovery list %s, want the one of the session", r.text())
	}
	wantRefusal(t, call(t, c, "recovery_ack", "ids", []string{"run-1", "run-2"}), "session-7: the pending ids are run-9, not run-1 run-2")
	wantRefusal(t, call(t, c, "recovery_ack"), "ids")
	if _, err := builtin.NewInterlock(nil, builtin.InterlockOptions{}); err == nil {
		t.Error("a server without a daemon was made")
	}
}

// TestAnnotations holds the words by which the daemon and its clients decide what a call does.
func TestAnnotations(t *testing.T) {
	reads := `{"readOnlyHint":true,"destructiveHint":false,"idempotentHint":true,"openWorldHint":false}`
	changes := `{"readOnlyHint":false,"destructiveHint":true,"idempotentHint":true,"openWorldHint":false}`
	harmless := `{"readOnlyHint":false,"destructiveHint":false,"idempotentHint":false,"openWorldHint":false}`
	want := map[string]string{
		"read_file": reads, "list_directory": reads, "write_file": changes,
		"daemon_status": reads, "recovery_list": reads, "recovery_ack": changes,
		"lease_acquire": harmless, "lease_renew": harmless, "lease_release": harmless, "lease_list": reads,
	}
	seen := 0
	for _, server := range []*builtin.Server{newLocal(t, builtin.LocalOptions{}), newInterlock(t, daemon{}, nil)} {
		c := open(t, server, "session-1", "", nil)
		var r struct {
			Result struct {
				Tools []struct {
					Name        string          `json:"name"`
					Annotations json.RawMessage `json:"annotations"`
				} `json:"tools"`
			} `json:"result"`
		}
		answer := c.Handle(t.Context(), []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`))
		if err := json.Unmarshal(answer, &r); err != nil {
			t.Fatalf("tools/list: %s (%v)", answer, err)
		}
		seen += len(r.Result.Tools)
		for _, tool := range r.Result.Tools {
			if string(tool.Annotations) != want[tool.Name] {
				t.Errorf("%s: annotations %s, want %s", tool.Name, tool.Annotations, want[tool.Name])
			}
		}
	}
	if seen != len(want) {
		t.Errorf("%d tools, want %d", seen, len(want))
	}
}
