package integration

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const longRunning = "trigger-long-running-operation"

// sdkChecks are what TestGoSDK checks, each on a session that others have used.
var sdkChecks = map[string]func(*testing.T, *sdkSession){
	"handshake": func(t *testing.T, s *sdkSession) {
		r := s.InitializeResult()
		if r.ProtocolVersion != "2025-11-25" || r.ServerInfo.Name != "mcp-servers/everything" || len(r.Instructions) < 100 {
			t.Errorf("unexpected handshake: %+v", r)
		}
		if c := r.Capabilities; c.Tools == nil || !c.Tools.ListChanged || c.Resources == nil || !c.Resources.Subscribe || c.Prompts == nil || c.Logging == nil || c.Completions == nil {
			t.Errorf("capabilities are missing: %+v", c)
		}
		hears[*mcp.ToolListChangedParams](t, s, 0, 1)
	},
	"ping": func(t *testing.T, s *sdkSession) {
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				if err := s.Ping(s.ctx, nil); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	},
	"tools by capability": func(t *testing.T, s *sdkSession) {
		list := names(t, s.Tools(s.ctx, nil), func(x *mcp.Tool) string { return x.Name })
		for _, name := range []string{"echo", "get-roots-list", "trigger-sampling-request", "trigger-elicitation-request", "trigger-url-elicitation"} {
			if !slices.Contains(list, name) {
				t.Errorf("%s is not listed", name)
			}
		}
		if len(list) != 17 {
			t.Errorf("%d tools, want 17", len(list))
		}
	},
	"odd characters": func(t *testing.T, s *sdkSession) {
		message := "a\nb\r\n\u2028\u2029\x00\x7f \"q\" \\ \U0001F980\U0010FFFF \ufeff é <b>&amp;</b>"
		if text, err := s.tool("echo", map[string]any{"message": message}); text != "Echo: "+message {
			t.Errorf("echo: %q, %v", text, err)
		}
	},
	"large": func(t *testing.T, s *sdkSession) {
		message := strings.Repeat("é", 1<<20)
		if text, err := s.tool("echo", map[string]any{"message": message}); text != "Echo: "+message {
			t.Errorf("%d bytes came back of %d: %v", len(text), len(message), err)
		}
	},
	"refusals": func(t *testing.T, s *sdkSession) {
		for name, args := range map[string]map[string]any{"echo": {"wrong": 1}, "no-such-tool": nil} {
			if text, err := s.tool(name, args); err == nil {
				t.Errorf("%s answers %q", name, text)
			}
		}
		_, err := s.ReadResource(s.ctx, &mcp.ReadResourceParams{URI: "demo://resource/unknown"})
		if code := codeOf(err); code != mcp.CodeResourceNotFound && code != -32602 {
			t.Errorf("an unknown resource: %v", err)
		}
		if _, err := s.GetPrompt(s.ctx, &mcp.GetPromptParams{Name: "args-prompt"}); codeOf(err) != -32602 {
			t.Errorf("a missing argument of a prompt: %v", err)
		}
	},
	"many calls at once": func(t *testing.T, s *sdkSession) {
		var all sync.WaitGroup
		for i := range 64 {
			all.Go(func() { s.says(t, fmt.Sprintf("is %d.", 5000+i), "get-sum", map[string]any{"a": i, "b": 5000}) })
		}
		all.Wait()
	},
	"kinds of content": func(t *testing.T, s *sdkSession) {
		content := func(name string, args map[string]any) []mcp.Content {
			r, err := s.CallTool(s.ctx, &mcp.CallToolParams{Name: name, Arguments: args})
			if err != nil {
				t.Fatal(err)
			}
			return r.Content
		}
		if !slices.ContainsFunc(content("get-tiny-image", map[string]any{}), func(c mcp.Content) bool {
			image, ok := c.(*mcp.ImageContent)
			return ok && bytes.HasPrefix(image.Data, []byte("\x89PNG"))
		}) {
			t.Error("no picture")
		}
		if !slices.ContainsFunc(content("get-resource-links", map[string]any{"count": 2}), func(c mcp.Content) bool { _, ok := c.(*mcp.ResourceLink); return ok }) {
			t.Error("no link")
		}
		if !slices.ContainsFunc(content("get-resource-reference", map[string]any{"resourceType": "Blob", "resourceId": 3}), func(c mcp.Content) bool {
			embedded, ok := c.(*mcp.EmbeddedResource)
			return ok && bytes.HasPrefix(embedded.Resource.Blob, []byte("Resource 3:"))
		}) {
			t.Error("no embedded resource")
		}
		text, ok := content("get-annotated-message", map[string]any{"messageType": "error"})[0].(*mcp.TextContent)
		if !ok || text.Annotations == nil || text.Annotations.Priority != 1 {
			t.Error("no annotations")
		}
	},
	"structured content": func(t *testing.T, s *sdkSession) {
		r, err := s.CallTool(s.ctx, &mcp.CallToolParams{Name: "get-structured-content", Arguments: map[string]any{"location": "Chicago"}})
		if err != nil || fmt.Sprint(r.StructuredContent) != "map[conditions:Light rain / drizzle humidity:82 temperature:36]" {
			t.Errorf("%v, %v", r, err)
		}
	},
	"progress": func(t *testing.T, s *sdkSession) {
		mark := s.mark()
		params := &mcp.CallToolParams{Name: longRunning, Arguments: map[string]any{"duration": 0.3, "steps": 3}}
		params.SetProgressToken("go-token")
		if _, err := s.CallTool(s.ctx, params); err != nil {
			t.Fatal(err)
		}
		var steps []string
		for _, p := range hears[*mcp.ProgressNotificationParams](t, s, mark, 3) {
			steps = append(steps, fmt.Sprintf("%v %v/%v", p.ProgressToken, p.Progress, p.Total))
		}
		if got := strings.Join(steps, ", "); got != "go-token 1/3, go-token 2/3, go-token 3/3" {
			t.Error(got)
		}
	},
	"cancel": func(t *testing.T, s *sdkSession) {
		ctx, cancel := context.WithCancel(s.ctx)
		mark := s.mark()
		params := &mcp.CallToolParams{Name: longRunning, Arguments: map[string]any{"duration": 1, "steps": 10}}
		params.SetProgressToken("cancelled")
		ended := make(chan error, 1)
		go func() {
			_, err := s.CallTool(ctx, params)
			ended <- err
		}()
		hears[*mcp.ProgressNotificationParams](t, s, mark, 1)
		cancel()
		if err := <-ended; err == nil {
			t.Error("a cancelled call succeeded")
		}
		s.says(t, "completed", longRunning, map[string]any{"duration": 1.2, "steps": 1}) // by then a late answer has come
	},
	"resources": func(t *testing.T, s *sdkSession) {
		list := names(t, s.Resources(s.ctx, nil), func(x *mcp.Resource) string { return x.URI })
		if len(list) < 7 {
			t.Errorf("only %d resources", len(list))
		}
		if n := len(names(t, s.ResourceTemplates(s.ctx, nil), func(x *mcp.ResourceTemplate) string { return x.URITemplate })); n != 2 {
			t.Errorf("%d templates", n)
		}
		r, err := s.ReadResource(s.ctx, &mcp.ReadResourceParams{URI: "demo://resource/dynamic/text/5"})
		if err != nil || !strings.HasPrefix(r.Contents[0].Text, "Resource 5:") {
			t.Errorf("%v, %v", r, err)
		}
	},
	"subscriptions": func(t *testing.T, s *sdkSession) {
		kept, dropped := "demo://resource/dynamic/text/52", "demo://resource/dynamic/text/51"
		for _, err := range []error{
			s.Subscribe(s.ctx, &mcp.SubscribeParams{URI: dropped}), s.Subscribe(s.ctx, &mcp.SubscribeParams{URI: kept}),
			s.Unsubscribe(s.ctx, &mcp.UnsubscribeParams{URI: dropped}),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		mark := s.mark()
		s.says(t, "Started", "toggle-subscriber-updates", nil)
		for _, p := range hears[*mcp.ResourceUpdatedNotificationParams](t, s, mark, 1) {
			if p.URI != kept {
				t.Errorf("an update of %s", p.URI)
			}
		}
		s.says(t, "Stopped", "toggle-subscriber-updates", nil)
		if err := s.Unsubscribe(s.ctx, &mcp.UnsubscribeParams{URI: kept}); err != nil {
			t.Fatal(err)
		}
	},
	"prompts and completion": func(t *testing.T, s *sdkSession) {
		if list := names(t, s.Prompts(s.ctx, nil), func(x *mcp.Prompt) string { return x.Name }); len(list) != 4 {
			t.Errorf("prompts: %v", list)
		}
		r, err := s.GetPrompt(s.ctx, &mcp.GetPromptParams{Name: "args-prompt", Arguments: map[string]string{"city": "Lyon"}})
		if err != nil || !strings.Contains(r.Messages[0].Content.(*mcp.TextContent).Text, "Lyon") {
			t.Errorf("%v, %v", r, err)
		}
		c, err := s.Complete(s.ctx, &mcp.CompleteParams{
			Ref:      &mcp.CompleteReference{Type: "ref/prompt", Name: "completable-prompt"},
			Argument: mcp.CompleteParamsArgument{Name: "department", Value: "S"},
		})
		if err != nil || !slices.Equal(c.Completion.Values, []string{"Sales", "Support"}) {
			t.Errorf("%v, %v", c, err)
		}
	},
	"log level": func(t *testing.T, s *sdkSession) {
		mark := s.mark()
		for _, at := range []struct {
			level mcp.LoggingLevel
			uri   string // of a subscription, which the server logs at level info
		}{{"error", "demo://resource/dynamic/text/61"}, {"debug", "demo://resource/dynamic/text/62"}} {
			if err := s.SetLoggingLevel(s.ctx, &mcp.SetLoggingLevelParams{Level: at.level}); err != nil {
				t.Fatal(err)
			}
			if err := s.Subscribe(s.ctx, &mcp.SubscribeParams{URI: at.uri}); err != nil {
				t.Fatal(err)
			}
			if err := s.Unsubscribe(s.ctx, &mcp.UnsubscribeParams{URI: at.uri}); err != nil {
				t.Fatal(err)
			}
		}
		for _, p := range hears[*mcp.LoggingMessageParams](t, s, mark, 1) {
			if strings.Contains(fmt.Sprint(p.Data), "text/61") {
				t.Errorf("a message below the level: %v", p.Data)
			}
		}
	},
	"roots": func(t *testing.T, s *sdkSession) {
		s.client.AddRoots(&mcp.Root{URI: "file:///go/two", Name: "root-two"})
		eventually(t, "the server knows the new root", func() error {
			text, err := s.tool("get-roots-list", nil)
			if err == nil && !strings.Contains(text, "root-two") {
				err = fmt.Errorf("it knows %q", text)
			}
			return err
		})
	},
	"sampling": func(t *testing.T, s *sdkSession) {
		mark := s.mark()
		s.says(t, "a sampled answer", "trigger-sampling-request", map[string]any{"prompt": "p", "maxTokens": 23})
		if asked := since[*mcp.CreateMessageParams](s, mark); len(asked) != 1 || asked[0].MaxTokens != 23 {
			t.Errorf("asked: %v", asked)
		}
		s.sampling = func(p *mcp.CreateMessageParams) *mcp.CreateMessageResult {
			return &mcp.CreateMessageResult{Model: "m", Role: "assistant", Content: &mcp.TextContent{Text: "to " + p.Messages[0].Content.(*mcp.TextContent).Text}}
		}
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() {
				prompt := fmt.Sprintf("<%d>", i)
				s.says(t, prompt, "trigger-sampling-request", map[string]any{"prompt": prompt})
			})
		}
		all.Wait()
	},
	"elicitation": func(t *testing.T, s *sdkSession) {
		for part, answer := range map[string]*mcp.ElicitResult{
			"Grace": {Action: "accept", Content: map[string]any{"name": "Grace"}}, "declined": {Action: "decline"}, "cancelled": {Action: "cancel"},
		} {
			s.elicit = func(*mcp.ElicitParams) *mcp.ElicitResult { return answer }
			s.says(t, part, "trigger-elicitation-request", nil)
		}
		s.elicit = func(*mcp.ElicitParams) *mcp.ElicitResult { return &mcp.ElicitResult{Action: "accept"} }
		mark := s.mark()
		s.says(t, "completed", "trigger-url-elicitation", map[string]any{"url": "https://example.com/agree", "elicitationId": "go-1"})
		if asked := since[*mcp.ElicitParams](s, mark); len(asked) != 1 || asked[0].Mode != "url" {
			t.Errorf("asked: %v", asked)
		}
	},
}
