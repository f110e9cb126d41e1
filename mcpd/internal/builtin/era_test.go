package builtin_test

import (
	"bufio"
	"context"
	"io"
	"strings"
	"sync"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"interlock/mcpd/internal/builtin"
)

// TestOfficialClient lets a client that is not mcp-go's use the file tools, over the newline framing of stdio.
func TestOfficialClient(t *testing.T) {
	dir := t.TempDir()
	put(t, "text", dir, "file")

	fromClient, toServer := io.Pipe()
	fromServer, toClient := io.Pipe()
	var mu sync.Mutex // guards toClient
	send := func(frame []byte) {
		mu.Lock()
		defer mu.Unlock()
		_, _ = toClient.Write(append(frame, '\n')) // fails only when the client has left
	}
	c := open(t, newLocal(t, builtin.LocalOptions{Version: "1"}), "session-1", dir, send)
	var serving sync.WaitGroup
	serving.Go(func() {
		for lines := bufio.NewScanner(fromClient); lines.Scan(); {
			if answer := c.Handle(context.Background(), lines.Bytes()); answer != nil {
				send(answer)
			}
		}
	})

	client := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), &sdk.IOTransport{Reader: fromServer, Writer: toServer}, nil)
	if err != nil {
		t.Fatal(err)
	}
	result, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: "read_file", Arguments: readArguments{Path: "file"}})
	if err != nil {
		t.Fatal(err)
	}
	if text, ok := result.Content[0].(*sdk.TextContent); !ok || text.Text != "text" {
		t.Errorf("read %+v", result.Content[0])
	}
	if tools, err := session.ListTools(t.Context(), nil); err != nil || len(tools.Tools) != 3 {
		t.Errorf("tools %v, %v", tools, err)
	}
	_ = session.Close() // the pipes end with it
	_ = toServer.Close()
	_ = toClient.Close()
	serving.Wait()
}

type readArguments struct {
	Path string `json:"path"`
}

func TestBothEras(t *testing.T) {
	c := openLocal(t, t.TempDir())
	tests := []struct{ name, frame, want string }{
		{"handshake", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`,
			`"protocolVersion":"2025-06-18"`},
		{"discovery", `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{` + modernMeta + `}}`, `"2026-07-28"`},
		{"stateless call", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_directory","arguments":{},` + modernMeta + `}}`, `"resultType":"complete"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			answer := string(c.Handle(t.Context(), []byte(tt.frame)))
			if !strings.Contains(answer, tt.want) || strings.Contains(answer, `"error"`) {
				t.Errorf("answer %s, want %s in it", answer, tt.want)
			}
		})
	}
}
