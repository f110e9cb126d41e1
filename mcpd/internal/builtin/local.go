package builtin

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

// LocalOptions are the settings of [NewLocal].
type LocalOptions struct {
	// Name and Version are told to clients. An empty Name is "local".
	Name, Version string
	// Home is the user's home directory, absolute. The file tools write neither in it nor in a directory above it. If it is empty, only / is so protected.
	Home string
	// AllowAnywhere lifts that protection.
	AllowAnywhere bool
	// OnPanic, if set, is given the text and stack of a panic in a tool. It may be called concurrently.
	OnPanic func(string)
}

// NewLocal returns the server of the file tools: read_file, list_directory and write_file.
func NewLocal(o LocalOptions) (*Server, error) {
	if o.Home != "" && !filepath.IsAbs(o.Home) {
		return nil, fmt.Errorf("making the local server: the home directory %q is not an absolute path", o.Home)
	}
	if o.Name == "" {
		o.Name = "local"
	}
	list := tool("list_directory", "List a directory",
		"Lists a directory inside the session's working directory: the name, type and, for files, size in bytes of each entry. Links are shown, not followed.",
		listArguments, reads(), fileTool(listDirectory))
	list.Tool.RawOutputSchema = json.RawMessage(listResult)
	s := newServer(o.Name, o.Version, o.OnPanic,
		tool("read_file", "Read a text file",
			"Reads a UTF-8 text file inside the session's working directory, at most 8 MiB a call. Larger files are read in parts with offset and limit.",
			readArguments, reads(), fileTool(readFile)),
		list,
		tool("write_file", "Write a text file",
			"Writes a text file inside the session's working directory, replacing all of its content at once or creating it with any missing directories. At most 8 MiB.",
			writeArguments, replaces(), fileTool(writeFile)),
	)
	s.files = &writePolicy{home: o.Home, anywhere: o.AllowAnywhere}
	return s, nil
}

// The limits in these schemas are maxTransfer; the least limit is one character of UTF-8, so that reading on always makes progress.
const (
	readArguments = `{
		"type": "object",
		"properties": {
			"path": {"type": "string", "minLength": 1, "description": "The file, relative to the session's working directory."},
			"offset": {"type": "integer", "minimum": 0, "description": "The byte to begin at. Default 0."},
			"limit": {"type": "integer", "minimum": 4, "maximum": 8388608, "description": "How many bytes to read at most. Default: up to the end."}
		},
		"required": ["path"],
		"additionalProperties": false
	}`

	listArguments = `{
		"type": "object",
		"properties": {
			"path": {"type": "string", "minLength": 1, "description": "The directory, relative to the session's working directory. Default: that directory itself."}
		},
		"additionalProperties": false
	}`

	listResult = `{
		"type": "object",
		"properties": {
			"entries": {
				"type": "array",
				"items": {
					"type": "object",
					"properties": {
						"name": {"type": "string"},
						"type": {"type": "string", "enum": ["file", "directory", "symlink", "fifo", "socket", "device", "other"]},
						"size": {"type": "integer", "minimum": 0}
					},
					"required": ["name", "type"]
				}
			},
			"truncated": {"type": "boolean", "description": "The directory has more entries than one answer holds."}
		},
		"required": ["entries", "truncated"]
	}`

	writeArguments = `{
		"type": "object",
		"properties": {
			"path": {"type": "string", "minLength": 1, "description": "The file, relative to the session's working directory."},
			"content": {"type": "string", "description": "The whole new content."}
		},
		"required": ["path", "content"],
		"additionalProperties": false
	}`
)

// fileTool wraps a function on the session's directory as a tool. Errors become tool results, so that the model sees them, and every answer says when the directory is no longer
// where the client believes it to be.
func fileTool[A any](run func(*workdir, A) (*mcp.CallToolResult, error)) server.ToolHandlerFunc {
	return func(ctx context.Context, request mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		var args A
		if err := request.BindArguments(&args); err != nil {
			return mcp.NewToolResultError(err.Error()), nil
		}
		dir := server.ClientSessionFromContext(ctx).(*peer).dir
		if dir.root == nil {
			return mcp.NewToolResultError(dir.missing), nil
		}
		if err := ctx.Err(); err != nil {
			return mcp.NewToolResultError("the call was cancelled before it began"), nil
		}
		result, err := run(dir, args)
		if err != nil {
			result = mcp.NewToolResultError(err.Error())
		}
		if dir.moved() {
			result.Content = append(result.Content, mcp.NewTextContent(fmt.Sprintf(
				"Note: the session's directory is no longer at %s; this call worked in the directory that was opened there, wherever it is now.", dir.path)))
		}
		return result, nil
	}
}

type readArgs struct {
	Path   string `json:"path"`
	Offset int64  `json:"offset"`
	Limit  int64  `json:"limit"` // 0: up to the end
}

func readFile(dir *workdir, args readArgs) (*mcp.CallToolResult, error) {
	part, err := dir.read(args.Path, args.Offset, args.Limit)
	if err != nil {
		return nil, err
	}
	result := mcp.NewToolResultText(part.text)
	if part.start > 0 || part.end < part.size {
		note := fmt.Sprintf("Bytes %d to %d of %d.", part.start, part.end, part.size)
		if part.end < part.size {
			note += fmt.Sprintf(" Continue with offset %d.", part.end)
		}
		result.Content = append(result.Content, mcp.NewTextContent(note))
	}
	return result, nil
}

type listArgs struct {
	Path string `json:"path"` // empty: the session's directory
}

func listDirectory(dir *workdir, args listArgs) (*mcp.CallToolResult, error) {
	l, err := dir.list(args.Path)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(l)
	if err != nil {
		return nil, fmt.Errorf("listing %q: %w", args.Path, err)
	}
	return document(text, nil), nil
}

type writeArgs struct {
	Path    string `json:"path"`
	Content string `json:"content"`
}

func writeFile(dir *workdir, args writeArgs) (*mcp.CallToolResult, error) {
	created, err := dir.write(args.Path, args.Content)
	if err != nil {
		return nil, err
	}
	verb := "Replaced"
	if created {
		verb = "Created"
	}
	return mcp.NewToolResultText(fmt.Sprintf("%s %s (%d bytes).", verb, args.Path, len(args.Content))), nil
}
