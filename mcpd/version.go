package mcpd

import (
	"runtime/debug"
	"strings"
)

// Version is the version of this build: the module's where it was installed by
// version, else the commit it was built from.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	var revision, modified string
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			revision = s.Value[:min(12, len(s.Value))]
		case "vcs.modified":
			if s.Value == "true" {
				modified = "+dirty"
			}
		}
	}
	if revision == "" {
		return "devel"
	}
	return strings.Join([]string{"devel-", revision, modified}, "")
}
