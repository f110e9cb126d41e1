package policy_test

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"interlock/mcpd/internal/config"
	"interlock/mcpd/internal/policy"
)

// TestCatalogue holds every entry to what an entry is.
func TestCatalogue(t *testing.T) {
	names := make(map[string]bool)
	entries, err := load(t).Entries()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name == "" || names[e.Name] || e.Source == "" || e.Checked == "" || !strings.HasSuffix(e.Why, ".") {
			t.Errorf("entry %q: source %q, checked %q, why %q", e.Name, e.Source, e.Checked, e.Why)
		}
		names[e.Name] = true
		m := e.Match
		if len(m.NPM)+len(m.Python)+len(m.Programs)+len(m.Images) == 0 && m.Builtin == "" {
			t.Errorf("%s is found by nothing", e.Name)
		}
		if e.Scope == "" || e.Instances == "" || e.State == "" {
			t.Errorf("%s: scope %q, instances %q, state %q", e.Name, e.Scope, e.Instances, e.State)
		}
		if len(e.Tools) == 0 {
			t.Errorf("%s has no tools", e.Name)
		}
		for name, tool := range e.Tools {
			switch tool.Class {
			case config.ClassRead, config.ClassMutate, config.ClassUnknown:
			default:
				t.Errorf("%s, %s: class %q", e.Name, name, tool.Class)
			}
		}
	}
	for _, name := range []string{
		"local", "filesystem", "memory", "sequential-thinking", "everything", "git", "sqlite", "sqlite-npx", "playwright", "chrome-devtools", "github", "fetch", "context7",
	} {
		if !names[name] {
			t.Errorf("there is no entry %s", name)
		}
	}
}

// TestCatalogueIsStrict finds members that are misspelt: they would have no effect.
func TestCatalogueIsStrict(t *testing.T) {
	data, err := os.ReadFile("catalogue.json")
	if err != nil {
		t.Fatal(err)
	}
	type tool struct {
		Class, LeaseHold string
		Resource         any
	}
	var file struct {
		Servers []struct {
			Name, Source, Checked, Why, Scope, Instances, State, LeaseHold string
			Match                                                          policy.Matches
			PrivateWith                                                    []string
			MaxRequests                                                    int
			Tools                                                          map[string]tool
		}
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&file); err != nil {
		t.Error(err)
	}
}

// TestFind looks through the launchers that people use.
func TestFind(t *testing.T) {
	c := load(t)
	for _, test := range []struct {
		command string // words
		want    string
	}{
		{"npx -y @modelcontextprotocol/server-memory", "memory"},
		{"npx -y @modelcontextprotocol/server-memory@2025.8.4", "memory"},
		{"npx --yes --package=@modelcontextprotocol/server-memory mcp-server-memory", "memory"},
		{"npx -p @modelcontextprotocol/server-memory@latest -- mcp-server-memory", "memory"},
		{"npm exec -y @modelcontextprotocol/server-memory", "memory"},
		{"pnpm dlx @modelcontextprotocol/server-filesystem /tmp", "filesystem"},
		{"yarn dlx @modelcontextprotocol/server-filesystem .", "filesystem"},
		{"bunx @upstash/context7-mcp", "context7"},
		{"bun x @upstash/context7-mcp@1.0.0 --api-key ${KEY}", "context7"},
		{"/opt/node/bin/npx.cmd @playwright/mcp@latest", "playwright"},
		{"env A=b -u C npx -y @modelcontextprotocol/server-memory", "memory"},
		{"uvx mcp-server-git --repository .", "git"},
		{"uvx mcp-server-git==2025.1.14", "git"},
		{"uvx --from git+https://example.com/x mcp-server-git", "git"},
		{"uvx --python 3.12 mcp_server_fetch", "fetch"},
		{"uv tool run mcp-server-fetch", "fetch"},
		{"uv --directory /srv/x run mcp-server-sqlite --db-path x.db", "sqlite"},
		{"uv run python -m mcp_server_git", "git"},
		{"pipx run mcp-server-fetch", "fetch"},
		{"python3.12 -m mcp_server_git --repository .", "git"},
		{"docker run -i --rm -e A=b --env-file x -v /a:/b mcp/memory:latest", "memory"},
		{"docker run --rm -i ghcr.io/github/github-mcp-server@sha256:00", "github"},
		{"podman run -i --mount type=bind,src=/a,dst=/b docker.io/mcp/filesystem /b", "filesystem"},
		{"node ${HOME}/lib/node_modules/@modelcontextprotocol/server-memory/dist/index.js", "memory"},
		{"node --max-old-space-size=100 ./node_modules/@modelcontextprotocol/server-memory/dist/index.js", "memory"},
		{`node C:\x\node_modules\@modelcontextprotocol\server-memory\dist\index.js`, "memory"},
		{"./node_modules/.bin/mcp-server-memory", "memory"},
		{"/usr/local/bin/mcp-server-git --repository .", "git"},
		{"mcp-server-git.exe", "git"},
		{"npx -y @modelcontextprotocol/server-memory-plus", ""},
		{"npx -y @someone/server-memory", ""},
		{"npx -y mcp-server-git", ""}, // the program of another package
		{"docker run -i --rm someone/memory", ""},
		{"docker run -i -e mcp/memory someone/else", ""},
		{"node dist/index.js", ""},
		{"echo @modelcontextprotocol/server-memory", ""},
		{"env", ""},
		{"npx", ""},
		{"cmd /c npx -y @upstash/context7-mcp@latest", "context7"},
		{`cmd.exe /c npx.cmd -y @upstash/context7-mcp`, "context7"},
		{"docker run", ""},
		{"sh -c npx", ""},
	} {
		words := strings.Fields(test.command)
		name := ""
		if e := c.Find(config.Server{Command: words[0], Args: words[1:]}); e != nil {
			name = e.Name
		}
		if name != test.want {
			t.Errorf("%s is taken for %q, want %q", test.command, name, test.want)
		}
	}
	if e := c.Find(config.Server{Builtin: "local"}); e == nil || e.Name != "local" {
		t.Errorf("the built-in server is %+v", e)
	}
	if e := c.Find(config.Server{Builtin: "interlock"}); e != nil {
		t.Errorf("the daemon's own tools are %+v", e)
	}
}
