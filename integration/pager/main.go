package main

import (
	"context"
	"fmt"
	"log"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	items    = 95 // tools, resources and prompts each
	pageSize = 10
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("pager: ")
	server := mcp.NewServer(&mcp.Implementation{Name: "pager", Version: "1.0.0"}, &mcp.ServerOptions{PageSize: pageSize})
	for i := range items {
		addItem(server, fmt.Sprintf("item-%03d", i))
	}
	if err := server.Run(context.Background(), &mcp.StdioTransport{}); err != nil {
		log.Fatal(err)
	}
}

// addItem adds a tool, a resource and a prompt that all answer with the name.
func addItem(server *mcp.Server, name string) {
	text := &mcp.TextContent{Text: name}
	mcp.AddTool(server, &mcp.Tool{Name: name, Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}},
		func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{text}}, nil, nil
		})
	server.AddResource(&mcp.Resource{Name: name, URI: "pager:///" + name},
		func(_ context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: r.Params.URI, Text: name}}}, nil
		})
	server.AddPrompt(&mcp.Prompt{Name: name},
		func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: text}}}, nil
		})
}
