package policy_test

import (
	"strings"
	"testing"

	"interlock/mcpd/internal/config"
)

// TestFindThroughOptions has options of launchers and their values in the way.
func TestFindThroughOptions(t *testing.T) {
	find(t, map[string]string{
		"npx --yes --loglevel error --registry https://npm.example.com @playwright/mcp@0.0.83 --isolated":        "playwright",
		"npx -q -y @playwright/mcp@${PLAYWRIGHT_VERSION:-latest}":                                                "playwright",
		"npx -p left-pad -p @playwright/mcp mcp-server-playwright":                                               "playwright",
		"npx --package @playwright/mcp@latest --call mcp-server-playwright":                                      "playwright",
		"npx -y browser@npm:@playwright/mcp@latest":                                                              "playwright",
		"npm --silent --prefix /srv/tools exec -- @playwright/mcp":                                               "playwright",
		"npm x --yes --package=@playwright/mcp -- mcp-server-playwright":                                         "playwright",
		"pnpm --package=@playwright/mcp dlx mcp-server-playwright":                                               "playwright",
		"bunx --bun @playwright/mcp":                                                                             "playwright",
		"bun run ./node_modules/@playwright/mcp/cli.js":                                                          "playwright",
		"deno run --allow-all npm:@playwright/mcp@latest":                                                        "playwright",
		"env -u NODE_OPTIONS -C /srv DEBUG=pw:api BROWSER=x npx @playwright/mcp":                                 "playwright",
		"/usr/bin/env node --import tsx --env-file .env ${HOME}/app/node_modules/@playwright/mcp/cli.js":         "playwright",
		"node /x/node_modules/.pnpm/@playwright+mcp@0.0.83/node_modules/@playwright/mcp/cli.js":                  "playwright",
		`C:\nvm4w\nodejs\node.exe D:\tools\node_modules\@playwright\mcp\cli.js`:                                  "playwright",
		`CMD.EXE /C C:\nodejs\npx.CMD -y @playwright/mcp`:                                                        "playwright",
		"uvx -p 3.12 --with httpx --index-url https://pypi.example.com/simple mcp-server-git[cli]>=2025 -r /srv": "git",
		"uvx --from mcp_server_git==2025.1.14 mcp-server-git":                                                    "git",
		"uvx --from git+https://git.example.com/servers@main#subdirectory=src/git mcp-server-git":                "git",
		"uvx --from ./servers/src/git mcp-server-git":                                                            "git",
		"uv --quiet --directory ${HOME}/servers/run run --frozen --env-file .env mcp-server-git":                 "git",
		"uv run --with mcp --project /srv/x -m mcp_server_git":                                                   "git",
		"uv run /srv/x/.venv/bin/mcp-server-git":                                                                 "git",
		"uv run --python 3.13 python -X utf8 -m mcp_server_git.server":                                           "git",
		"uv tool run --from mcp-server-git mcp-server-git":                                                       "git",
		"pipx run --spec mcp-server-git==1 mcp-server-git":                                                       "git",
		"uvenv run --python 3.13 mcp-server-git":                                                                 "git",
		"/srv/venv/bin/python3 -u -W ignore -m mcp_server_git --repository /srv":                                 "git",
		"py -m mcp_server_git":                                  "git",
		`C:\Users\me\.local\bin\mcp-server-git.exe`:             "git",
		"uvx awslabs.aws-documentation-mcp-server@latest":       "aws-documentation",
		"python -m awslabs.aws_documentation_mcp_server.server": "aws-documentation",
		"docker run -i --rm --init -e A -e B=c -v /a:/b:ro --gpus all --ulimit nofile=9 --network=none mcp/git": "git",
		"docker --context far container run -i mcp/git:1.0":                                                     "git",
		"nerdctl run --name mcp-memory -i docker.io/mcp/git@sha256:0000":                                        "git",
		"podman run -i --mount type=bind,src=${PWD},dst=/w mcp/git:${TAG}":                                      "git",
	})
}

// TestFindNothing has near misses, which must not be taken for what they resemble.
func TestFindNothing(t *testing.T) {
	misses := make(map[string]string)
	for _, command := range []string{
		// Other packages.
		"npx -y @playwright/mcp-extra", "npx -y playwright-mcp2", "npx -y my-@playwright/mcp", "npx -y @my/playwright-mcp", "npx -y playwright",
		"uvx mcp-server-git-plus", "uvx my-mcp-server-git", "uvx awslabs.core-mcp-server@latest", "uvx awslabs", "python -m awslabs.core_mcp_server",
		"npx -y @playwright/mcp@npm:other@1", "uvx --from mcp-server-git-plus mcp-server-git",
		"docker run -i someone/mcp/git", "docker run -i registry.example.com:5000/mcp/git", "docker run -i mcp/git-plus:1",
		// A program of another package.
		"npx -p someone-elses mcp-server-memory", "npx -p someone-elses @playwright/mcp",
		// Names of scripts, folders and options, not of packages.
		"npm run mcp-git", "pnpm run @playwright/mcp", "yarn mcp-git", "npm start", "uv pip install mcp-server-git", "docker pull mcp/git", "docker exec mcp/git",
		"node /srv/my_node_modules/@playwright/mcp/cli.js", "node /srv/playwright-mcp/dist/index.js", "node server.js /srv/node_modules/@playwright/mcp/cli.js",
		"my-indexer /srv/src/mcp-server-git", "tar -xf /srv/mcp-server-git",
		"uv --directory /srv/mcp-server-git run server.py", "python /srv/mcp_server_git/run.py", "python run.py -m mcp_server_git",
		"npx -y proxy --package @playwright/mcp", "npx -y proxy @playwright/mcp", "uvx proxy --from mcp-server-git", "uvx proxy mcp-server-git",
		"docker run -i --name mcp/git --gpus mcp/git some/image mcp/git",
		// What only expansion could tell.
		"${RUNNER} -y @playwright/mcp", "npx -y ${PACKAGE}", "docker run -i ${IMAGE:-mcp/git}",
		// Too little.
		"cmd", "cmd /c", "env A=b", "npm", "npm exec", "bun", "bun run", "deno run", "uv", "uv run", "uv tool", "uv tool run", "uvx --from x/y", "pipx", "python", "python -m",
		"node", "node -r", "docker", "docker run -e", "npx -p", "npx @", "npx --", "-y",
	} {
		misses[command] = ""
	}
	find(t, misses)
}

// find checks which entry each command line, in words, is taken for.
func find(t *testing.T, want map[string]string) {
	t.Helper()
	c := load(t)
	for command, want := range want {
		words, name := strings.Fields(command), ""
		if e := c.Find(config.Server{Command: words[0], Args: words[1:]}); e != nil {
			name = e.Name
		}
		if name != want {
			t.Errorf("%s is taken for %q, want %q", command, name, want)
		}
	}
	if e := c.Find(config.Server{URL: "https://example.com/mcp-server-git"}); e != nil {
		t.Errorf("an HTTP server is taken for %q", e.Name)
	}
}
