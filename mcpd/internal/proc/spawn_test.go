package proc

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func TestSpawnErrors(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	eachSpawner(t, func(t *testing.T, sp Spawner) {
		for name, tt := range map[string]struct {
			path, dir string
			err       error
			says      string
		}{
			"no such file":       {filepath.Join(dir, "missing"), "/", syscall.ENOENT, "missing"},
			"not executable":     {file("data", "x", 0o600), "/", syscall.EACCES, "permission denied"},
			"no interpreter":     {file("script", "#!/no/such/interpreter\n", 0o700), "/", syscall.ENOENT, "interpreter"},
			"no format":          {file("text", "echo\n", 0o700), "/", syscall.ENOEXEC, "#!/bin/sh"},
			"no directory":       {"/bin/sh", filepath.Join(dir, "gone"), syscall.ENOENT, "working directory"},
			"file for directory": {"/bin/sh", file("plain", "", 0o600), syscall.ENOTDIR, "is not a directory"},
		} {
			t.Run(name, func(t *testing.T) {
				_, err := Start(t.Context(), sp, Spec{Name: "files", Path: tt.path, Args: []string{"x"}, Dir: tt.dir}, io.Discard)
				var failed *SpawnError
				if !errors.As(err, &failed) || !errors.Is(err, tt.err) {
					t.Fatalf("got %v, want a SpawnError of %v", err, tt.err)
				}
				if msg := err.Error(); !strings.Contains(msg, tt.says) || !strings.Contains(msg, `"files"`) {
					t.Errorf("%q does not say %q and the server", msg, tt.says)
				}
			})
		}
	})
}

func TestSpawnWithEndedContext(t *testing.T) {
	eachSpawner(t, func(t *testing.T, sp Spawner) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := Start(ctx, sp, sh("exit 0"), io.Discard)
		if failed := (*SpawnError)(nil); !errors.As(err, &failed) || !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}

func TestProcessOutlivesTheContextOfItsStart(t *testing.T) {
	eachSpawner(t, func(t *testing.T, sp Spawner) {
		ctx, cancel := context.WithCancel(t.Context())
		c, err := Start(ctx, sp, sh("cat"), io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Stdout().Close()
		cancel()
		if _, err := io.WriteString(c.Stdin(), "still here\n"); err != nil {
			t.Fatal(err)
		}
		if got := linesOf(t, c.Stdout()).next(); got != "still here" {
			t.Errorf("got %q", got)
		}
		if err := c.Stop(t.Context(), DefaultGraces()); err != nil {
			t.Error(err)
		}
	})
}

// The environment is what the Spec says, but for the marker, which a Spec cannot forge.
func TestEnvironmentIsExact(t *testing.T) {
	eachSpawner(t, func(t *testing.T, sp Spawner) {
		s := Spec{Name: "env", Path: "/usr/bin/env", Args: []string{"env"}, Env: []string{"B=2", MarkerEnv + "=forged", "A="}}
		c := start(t, sp, s)
		out, err := io.ReadAll(c.Stdout())
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Fields(string(out))
		if len(got) != 3 || !slices.Equal(got[:2], []string{"B=2", "A="}) || !strings.HasPrefix(got[2], MarkerEnv+"=test-") {
			t.Errorf("got %q", got)
		}
		if s.Env[1] != MarkerEnv+"=forged" {
			t.Error("the caller's environment was changed")
		}
	})
}

func TestResolve(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"a/tool": 0o700, "b/tool": 0o700, "a/plain": 0o600, "b/plain": 0o700, "here": 0o700, "data": 0o600} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	for name, tt := range map[string]struct {
		command string
		path    string
		want    string // relative to dir
		says    []string
	}{
		"first of the path":      {"tool", "PATH=" + a + ":" + b, "a/tool", nil},
		"order":                  {"tool", "PATH=" + b + ":" + a, "b/tool", nil},
		"passes what it may not": {"plain", "PATH=" + a + ":" + b, "b/plain", nil},
		"relative entry":         {"tool", "PATH=b", "b/tool", nil},
		"empty entry":            {"here", "PATH=/nowhere:", "here", nil},
		"slash":                  {"./here", "PATH=/nowhere", "here", nil},
		"absolute":               {filepath.Join(a, "tool"), "PATH=", "a/tool", nil},
		"directory":              {"a", "PATH=" + dir, "", []string{`"a"`, "not an executable file"}},
		"may not":                {"data", "PATH=" + dir, "", []string{`"data"`, "not an executable file", dir}},
		"missing":                {"nothing", "PATH=" + a, "", []string{`"nothing"`, a}},
		"missing with a slash":   {"./nothing", "PATH=" + a, "", []string{`"./nothing"`, "absolute path"}},
		"empty":                  {"", "PATH=" + a, "", []string{`""`}},
		"no PATH":                {"nothing", "HOME=/", "", []string{defaultPath}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Resolve(tt.command, []string{"X=1", tt.path, "PATH=/later"}, dir)
			if tt.want != "" {
				if err != nil || got != filepath.Join(dir, tt.want) {
					t.Errorf("got %q, %v, want %q", got, err, tt.want)
				}
				return
			}
			if tt.path == "HOME=/" {
				_, err = Resolve(tt.command, []string{tt.path}, dir)
			}
			var missing *NotFoundError
			if !errors.As(err, &missing) {
				t.Fatalf("got %q, %v", got, err)
			}
			for _, s := range tt.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("%q does not say %q", err, s)
				}
			}
		})
	}
}
