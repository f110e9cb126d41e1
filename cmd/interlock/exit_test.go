package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"interlock/mcpd"
)

func TestExitCodes(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want exitCode
	}{
		"success":      {nil, exitOK},
		"anything":     {errors.New("no idea"), exitFailure},
		"usage":        {&usageError{errors.New("unknown flag")}, exitUsage},
		"no daemon":    {mcpd.ErrNotRunning, exitNotRunning},
		"not verified": {mcpd.ErrNotVerified, exitNotVerified},
		"refused":      {&mcpd.RemoteError{Code: -31006, Message: "no"}, exitRefused},
		"ended":        {mcpd.ErrDaemonEnded, exitDaemonEnded},
		"wrong set":    {&mcpd.SetError{}, exitPending},
		"unhealthy":    {verdict(exitUnhealthy), exitUnhealthy},
		"interrupted":  {context.Canceled, exitInterrupted},
		"out of time":  {context.DeadlineExceeded, exitFailure},
	} {
		t.Run(name, func(t *testing.T) {
			if got := codeOf(c.err); got != c.want {
				t.Errorf("exit code %d, want %d", got, c.want)
			}
			if c.err == nil {
				return
			}
			if got := codeOf(fmt.Errorf("doing this: %w", c.err)); got != c.want {
				t.Errorf("wrapped, exit code %d, want %d", got, c.want)
			}
		})
	}
}

// TestReport has an error said once, on one line, and safe on a terminal.
func TestReport(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"nothing":        {nil, ""},
		"an error":       {mcpd.ErrNotRunning, "interlock: no daemon is running\n"},
		"said already":   {verdict(exitUnhealthy), ""},
		"of the outside": {errors.New("red \x1b[31m"), `interlock: red \x1b[31m` + "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			report(&out, c.err)
			if out.String() != c.want {
				t.Errorf("%q, want %q", out.String(), c.want)
			}
		})
	}
}

// TestExitCodesAreDocumented compares the table in docs/cli.md with the
// constants: code by code, the row has the words of the comment.
func TestExitCodesAreDocumented(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "exit.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || fmt.Sprint(spec.Type) != "exitCode" {
			return true
		}
		meaning := "success"
		if spec.Comment != nil {
			meaning = strings.TrimSpace(spec.Comment.Text())
		}
		rows = append(rows, fmt.Sprintf("| %s | %s |", spec.Values[0].(*ast.BasicLit).Value, meaning))
		return true
	})
	if len(rows) == 0 {
		t.Fatal("exit.go has no exit codes")
	}
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "cli.md"))
	if err != nil {
		t.Fatal(err)
	}
	if table := strings.Join(rows, "\n") + "\n"; !strings.Contains(string(doc), table) {
		t.Errorf("docs/cli.md has not this table:\n%s", table)
	}
}
