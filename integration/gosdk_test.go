package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// sdkSession is a session of the official Go SDK's client.
type sdkSession struct {
	*mcp.ClientSession
	client *mcp.Client
	ctx    context.Context

	mu       sync.Mutex // guards what follows
	heard    []any      // parameters of the server's notifications and questions, in order
	wake     chan struct{}
	sampling func(*mcp.CreateMessageParams) *mcp.CreateMessageResult
	elicit   func(*mcp.ElicitParams) *mcp.ElicitResult
}

// connectSDK opens a session to the server of that name. The version is what
// the client offers first, by default the SDK's newest.
func (r *rig) connectSDK(w way, name, version string) *sdkSession {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	r.t.Cleanup(cancel)
	s := &sdkSession{ctx: ctx, wake: make(chan struct{})}
	s.client = mcp.NewClient(&mcp.Implementation{Name: "integration-go", Version: "1.0.0"}, s.options())
	s.client.AddRoots(&mcp.Root{URI: "file:///go/one", Name: "root-one"})
	session, err := s.client.Connect(ctx, r.sdkTransport(w, name), &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		r.t.Fatalf("connecting: %v", err)
	}
	s.ClientSession = session
	r.t.Cleanup(func() {
		var exit *exec.ExitError
		if err := session.Close(); err != nil && !errors.As(err, &exit) && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
			r.t.Errorf("closing: %v", err)
		}
	})
	return s
}

// sdkTransport is the SDK's own: a command, or a connection that has said hello.
func (r *rig) sdkTransport(w way, name string) mcp.Transport {
	r.t.Helper()
	var cmd *exec.Cmd
	switch w {
	case direct:
		cmd = exec.Command(r.servers[name].Command, r.servers[name].Args...)
		cmd.Env, cmd.Dir = r.environ(), r.dir
	case bridge:
		r.start()
		cmd = r.command("connect", name)
	case socket:
		r.start()
		conn, err := net.Dial("unix", r.socketPath())
		if err != nil {
			r.t.Fatal(err)
		}
		h, _ := json.Marshal(hello{Protocol: 1, Servers: []string{name}, CWD: r.dir, Env: r.environ()})
		fmt.Fprintf(conn, `{"jsonrpc":"2.0","id":"hello","method":"interlock/hello","params":%s}`+"\n", h)
		// A byte at a time: what follows the answer is the SDK's.
		for b := []byte{0}; b[0] != '\n'; {
			conn.SetReadDeadline(time.Now().Add(patience))
			if _, err := conn.Read(b); err != nil {
				r.t.Fatalf("no answer to hello: %v", err)
			}
		}
		conn.SetReadDeadline(time.Time{})
		return &mcp.IOTransport{Reader: conn, Writer: conn}
	}
	return &mcp.CommandTransport{Command: cmd, TerminateDuration: 2 * time.Second}
}

func (s *sdkSession) options() *mcp.ClientOptions {
	s.sampling = func(*mcp.CreateMessageParams) *mcp.CreateMessageResult {
		return &mcp.CreateMessageResult{Model: "m", Role: "assistant", Content: &mcp.TextContent{Text: "a sampled answer"}}
	}
	s.elicit = func(*mcp.ElicitParams) *mcp.ElicitResult { return &mcp.ElicitResult{Action: "cancel"} }
	return &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{
			RootsV2:     &mcp.RootCapabilities{ListChanged: true},
			Elicitation: &mcp.ElicitationCapabilities{Form: &mcp.FormElicitationCapabilities{}, URL: &mcp.URLElicitationCapabilities{}},
		},
		CreateMessageHandler: func(_ context.Context, r *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
			s.hear(r.Params)
			return s.sampling(r.Params), nil
		},
		ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			s.hear(r.Params)
			return s.elicit(r.Params), nil
		},
		ToolListChangedHandler:      func(_ context.Context, r *mcp.ToolListChangedRequest) { s.hear(r.Params) },
		ResourceListChangedHandler:  func(_ context.Context, r *mcp.ResourceListChangedRequest) { s.hear(r.Params) },
		ResourceUpdatedHandler:      func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) { s.hear(r.Params) },
		LoggingMessageHandler:       func(_ context.Context, r *mcp.LoggingMessageRequest) { s.hear(r.Params) },
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { s.hear(r.Params) },
	}
}

func (s *sdkSession) hear(params any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard = append(s.heard, params)
	close(s.wake)
	s.wake = make(chan struct{})
}

// since gives all parameters of type P heard from mark on.
func since[P any](s *sdkSession, mark int) (found []P) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.heard[mark:] {
		if p, ok := h.(P); ok {
			found = append(found, p)
		}
	}
	return found
}

func (s *sdkSession) mark() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.heard)
}

// hears waits for n parameters of type P from mark on, and gives them.
func hears[P any](t *testing.T, s *sdkSession, mark, n int) []P {
	t.Helper()
	for {
		s.mu.Lock()
		wake := s.wake
		s.mu.Unlock()
		if found := since[P](s, mark); len(found) >= n {
			return found
		}
		select {
		case <-wake:
		case <-s.ctx.Done():
			t.Fatalf("heard %d of %d %T", len(since[P](s, mark)), n, *new(P))
		}
	}
}

// tool calls a tool and gives the text of its answer.
func (s *sdkSession) tool(name string, args map[string]any) (string, error) {
	if args == nil {
		args = map[string]any{}
	}
	r, err := s.CallTool(s.ctx, &mcp.CallToolParams{Name: name, Arguments: args})
	if err != nil {
		return "", err
	}
	var text strings.Builder
	for _, c := range r.Content {
		if part, ok := c.(*mcp.TextContent); ok {
			text.WriteString(part.Text)
		}
	}
	if r.IsError {
		return text.String(), errors.New("the tool failed")
	}
	return text.String(), nil
}

// says fails the test unless the tool's answer contains part.
func (s *sdkSession) says(t *testing.T, part, name string, args map[string]any) {
	t.Helper()
	if text, err := s.tool(name, args); err != nil || !strings.Contains(text, part) {
		t.Errorf("%s: %.200q, %v; want %q", name, text, err, part)
	}
}

func codeOf(err error) int64 {
	var e *jsonrpc.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return 0
}

// names collects what a list holds.
func names[T any](t *testing.T, items func(func(T, error) bool), name func(T) string) (list []string) {
	t.Helper()
	for item, err := range items {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, name(item))
	}
	if n := len(slices.Compact(slices.Sorted(slices.Values(list)))); n != len(list) {
		t.Errorf("%d of %d names are there twice", len(list)-n, len(list))
	}
	return list
}

// TestGoSDK takes the official Go SDK's client, which begins with
// server/discover, through what the reference server offers. What passes
// directly passes over the bridge and over the socket.
func TestGoSDK(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, w way) {
		r := newRig(t)
		r.servers["everything"] = reference(t, "everything", "stdio")
		s := r.connectSDK(w, "everything", "")
		for name, check := range sdkChecks {
			t.Run(name, func(t *testing.T) { check(t, s) })
		}
	})
}

// TestPages collects lists that come in pages, in both eras of the protocol.
func TestPages(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			eachWay(t, func(t *testing.T, w way) {
				r := newRig(t)
				r.servers["pager"] = server{Command: programs.pager}
				s := r.connectSDK(w, "pager", version)
				if got := s.InitializeResult().ProtocolVersion; got != version {
					t.Errorf("the session speaks %s, want %s", got, version)
				}
				tools := names(t, s.Tools(s.ctx, nil), func(x *mcp.Tool) string { return x.Name })
				resources := names(t, s.Resources(s.ctx, nil), func(x *mcp.Resource) string { return x.Name })
				prompts := names(t, s.Prompts(s.ctx, nil), func(x *mcp.Prompt) string { return x.Name })
				if len(tools) != 95 || !slices.Equal(resources, tools) || !slices.Equal(prompts, tools) {
					t.Fatalf("%d tools, %d resources, %d prompts; want 95 of each, in one order", len(tools), len(resources), len(prompts))
				}
				s.says(t, "item-094", "item-094", nil)
				if _, err := s.ListTools(s.ctx, &mcp.ListToolsParams{Cursor: "made up"}); err == nil {
					t.Error("a made-up cursor gives a page")
				}
			})
		})
	}
}
