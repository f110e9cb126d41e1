package integration

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
)

// goPackage is what go list says of a package of the module.
type goPackage struct {
	ImportPath   string
	Dir          string
	GoFiles      []string
	Imports      []string // direct, without those of tests
	TestImports  []string
	XTestImports []string
	Deps         []string // direct and indirect
}

// packages lists the packages of the module, for each system that it runs on.
func packages(t *testing.T) []goPackage {
	t.Helper()
	all, err := listPackages()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// listPackages asks the go command, once.
var listPackages = sync.OnceValues(func() (all []goPackage, err error) {
	for _, system := range []string{"linux", "darwin"} {
		cmd := exec.Command("go", "list", "-json=ImportPath,Dir,GoFiles,Imports,TestImports,XTestImports,Deps", "./...")
		cmd.Dir = ".."
		cmd.Env = append(cmd.Environ(), "GOOS="+system, "CGO_ENABLED=0")
		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("listing packages for %s: %w", system, err)
		}
		for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
			var p goPackage
			if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, fmt.Errorf("reading the list of packages for %s: %w", system, err)
			}
			all = append(all, p)
		}
	}
	return all, nil
})

// below reports whether the import path is that of the package or of one below it.
func below(path, pkg string) bool { return path == pkg || strings.HasPrefix(path, pkg+"/") }

// TestLayering holds the directions of dependencies.
func TestLayering(t *testing.T) {
	t.Parallel()
	const mcpgo = "github.com/mark3labs/mcp-go"
	all := packages(t)
	for _, rule := range []struct {
		of        string // packages at or below
		not       []string
		reason    string
		indirect  bool // what others import for it counts too
		exception string
	}{
		{
			of: "interlock/session", not: []string{"interlock/mcpd", "interlock/leases", "interlock/recovery", "interlock/status", "net", "os/exec", "go.uber.org/zap"}, indirect: true,
			reason: "a session is state and order, so that its tests need neither socket nor process",
		},
		{
			of: "interlock/leases", not: []string{"interlock/mcpd", "interlock/session", "interlock/recovery", "interlock/status", "net"}, indirect: true,
			reason: "leases are decided by owners and time alone",
		},
		{
			of: "interlock/recovery", not: []string{"interlock/mcpd", "interlock/session", "interlock/leases", "interlock/status", "net"}, indirect: true,
			reason: "what was recorded must be readable with no daemon and no other part of it",
		},
		{
			of: "interlock/status", not: []string{"interlock/mcpd", "interlock/session", "interlock/leases", "interlock/recovery", "net", "go.uber.org/zap"}, indirect: true,
			reason: "anything may read and show a status, that of another version's daemon too",
		},
		{
			of: "interlock/mcpd", not: []string{"interlock/cmd", "github.com/spf13/cobra", "flag"}, indirect: false,
			reason: "the daemon knows nothing of command lines",
		},
		{
			of: "interlock/cmd", not: []string{"interlock/session", "interlock/leases", "interlock/recovery", "golang.org/x/sync"}, indirect: false,
			reason: "the command turns arguments into one call of mcpd; what is done is there, where tests reach it",
		},
		{
			of: "interlock/mcpd/internal", not: []string{"interlock/session", "interlock/leases", "interlock/recovery", "interlock/status"}, indirect: true,
			reason: "the parts of the daemon know nothing of each other's state: mcpd alone puts them together",
		},
		{
			of: "interlock", not: []string{mcpgo}, indirect: false, exception: "interlock/mcpd/internal/builtin",
			reason: "mcp-go decodes and encodes again, and reads ids as float64: no frame that passes through may meet it",
		},
		{
			of: "interlock", not: []string{"github.com/modelcontextprotocol/go-sdk"}, indirect: false, exception: "interlock/integration",
			reason: "the SDKs are clients and servers that interlock is tested with, not parts of it",
		},
	} {
		for _, p := range all {
			if !below(p.ImportPath, rule.of) || rule.exception != "" && below(p.ImportPath, rule.exception) {
				continue
			}
			imports := p.Imports
			if rule.indirect {
				imports = p.Deps
			}
			for _, path := range imports {
				if slices.ContainsFunc(rule.not, func(not string) bool { return below(path, not) && (strings.Contains(not, "/") || path == not) }) {
					t.Errorf("%s imports %s: %s", p.ImportPath, path, rule.reason)
				}
			}
		}
	}
}

// TestNothingImportsIntegration has the tests of the whole product at the end of
// every path of imports.
func TestNothingImportsIntegration(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		if below(p.ImportPath, "interlock/integration") {
			continue
		}
		for _, path := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			if below(path, "interlock/integration") {
				t.Errorf("%s imports %s", p.ImportPath, path)
			}
		}
	}
}
