package policy_test

import (
	"os"
	"path/filepath"
	"testing"

	"interlock/mcpd/internal/config"
	"interlock/mcpd/internal/policy"
)

func load(t testing.TB) *policy.Catalogue {
	t.Helper()
	c, err := policy.Load()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// servers reads the entries of a configuration.
func servers(t testing.TB, entries string) map[string]config.Server {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(path, []byte(`{"mcpServers": {`+entries+`}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(path, true)
	if err != nil || cfg.Broken != nil {
		t.Fatalf("reading %s: %v, %v", entries, err, cfg.Broken)
	}
	all := make(map[string]config.Server)
	for _, s := range cfg.Servers {
		all[s.Name] = s
	}
	return all
}
