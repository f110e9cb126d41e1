package policy_test

import (
	"os"
	"path/filepath"
	"testing"

	"interlock/mcpd/internal/config"
	"interlock/mcpd/internal/policy"
)

// BenchmarkTargets is what it costs to find out which file a call is about: one that
// exists, below six folders, and one that does not.
func BenchmarkTargets(b *testing.B) {
	dir := filepath.Join(b.TempDir(), "a", "b", "c", "d", "e")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "f"), nil, 0o600); err != nil {
		b.Fatal(err)
	}
	template, err := config.ParseTemplate("file:{path}")
	if err != nil {
		b.Fatal(err)
	}
	for _, name := range []string{"f", "new"} {
		arguments := []byte(`{"path":"` + filepath.Join(dir, name) + `","content":"text"}`)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if targets, complete, err := (policy.Place{}).Targets([]config.Template{template}, arguments); len(targets) != 1 || !complete || err != nil {
					b.Fatal(targets, complete, err)
				}
			}
		})
	}
}
