package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestDefaultsAreValid(t *testing.T) {
	if err := Defaults().Validate(); err != nil {
		t.Error(err)
	}
}

// TestEveryLimitHasASetting finds a field that no member of the file sets.
func TestEveryLimitHasASetting(t *testing.T) {
	var l Limits
	for _, s := range l.settings() {
		s.put(7)
	}
	v := reflect.ValueOf(l)
	for i := range v.NumField() {
		if v.Field(i).Int() != 7 {
			t.Errorf("no setting sets %s", v.Type().Field(i).Name)
		}
	}
}

func TestLimits(t *testing.T) {
	tests := []struct {
		name, text string
		change     func(*Limits) // of the defaults
		want       string
	}{
		{"none", `{}`, func(*Limits) {}, ""},
		{"null", `null`, func(*Limits) {}, ""},
		{"count", `{"sessions": 8}`, func(l *Limits) { l.Sessions = 8 }, ""},
		{"time", `{"waitLimit": "1m30s"}`, func(l *Limits) { l.WaitLimit = 90 * time.Second }, ""},
		{"no wait", `{"waitLimit": "0s"}`, func(l *Limits) { l.WaitLimit = 0 }, ""},
		{"size in bytes", `{"frame": 1048576}`, func(l *Limits) { l.Frame = 1 << 20 }, ""},
		{"size with unit", `{"frame": "32MiB", "budget": "1 GiB"}`, func(l *Limits) { l.Frame, l.Budget = 32<<20, 1<<30 }, ""},
		{"count as text", `{"sessions": "8"}`, func(*Limits) {}, "config_type"},
		{"time as number", `{"waitLimit": 25}`, func(*Limits) {}, "config_type"},
		{"decimal unit", `{"frame": "32MB"}`, func(*Limits) {}, "config_type"},
		{"negative size", `{"frame": -1}`, func(*Limits) {}, "config_type"},
		{"size beyond all", `{"frame": "9999999999999GiB"}`, func(*Limits) {}, "config_type"},
		{"null limit", `{"sessions": null}`, func(*Limits) {}, "config_type"},
		{"too few", `{"sessions": 0, "calls": 9}`, func(l *Limits) { l.Calls = 9 }, "config_range"},
		{"too short", `{"leaseTTL": "99ms"}`, func(*Limits) {}, "config_range"},
		{"too long", `{"leaseTTL": "16m"}`, func(*Limits) {}, "config_range"},
		{"negative time", `{"lockDelay": "-1s"}`, func(*Limits) {}, "config_range"},
		{"against each other", `{"leaseHold": "20s", "sessions": 3}`, func(*Limits) {}, "config_range"},
		{"frame over session budget", `{"frame": "128MiB"}`, func(*Limits) {}, "config_range"},
		{"frame with session budget", `{"frame": "128MiB", "sessionBudget": "160MiB"}`, func(l *Limits) { l.Frame, l.SessionBudget = 128<<20, 160<<20 }, ""},
		{"unknown", `{"session": 3}`, func(*Limits) {}, "config_unknown_field?"},
		{"twice", `{"sessions": 3, "sessions": 4}`, func(l *Limits) { l.Sessions = 3 }, "config_duplicate"},
		{"list", `[]`, func(*Limits) {}, "config_type"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := load(t, fmt.Sprintf(`{"mcpServers": {"a": {"command": "x"}}, "limits": %s}`, tt.text))
			want := Defaults()
			tt.change(&want)
			if cfg.Limits != want || codes(cfg.Problems) != tt.want {
				t.Errorf("limits %+v\nproblems %q, want %q", cfg.Limits, codes(cfg.Problems), tt.want)
			}
			if cfg.Broken != nil || len(cfg.Servers) != 1 || cfg.Servers[0].Problem != nil {
				t.Error("a limit took a server down")
			}
		})
	}
}

func TestRangeMessage(t *testing.T) {
	cfg := load(t, "{\"mcpServers\": {},\n \"limits\": {\"leaseTTL\": \"1h\"}}")
	if len(cfg.Problems) != 1 {
		t.Fatalf("problems %q", codes(cfg.Problems))
	}
	p := cfg.Problems[0]
	if want := "limits.leaseTTL is 1h0m0s, and must be from 100ms to 15m0s"; p.Message != want || p.Line != 2 || p.Col != 25 {
		t.Errorf("got %v, want %q at 2:25", p.Error(), want)
	}
}

func TestSettings(t *testing.T) {
	cfg := load(t, `{"mcpServers": {"a": {"command": "x"}},
		"socket": {"servers": ["a", "local", "b"]}, "peers": {"sandboxed": "allow"}, "sync": "power", "recovery": {"pending": "block"}}`)
	if !slices.Equal(cfg.Socket.Servers, []string{"a", "local", "b"}) || cfg.Peers.Sandboxed != Allow || cfg.Sync != SyncPower || cfg.RecoveryPending != PendingBlock {
		t.Errorf("settings %+v", cfg)
	}
	if codes(cfg.Problems) != "config_unknown_server?" {
		t.Errorf("problems %q", codes(cfg.Problems))
	}
	if cfg := load(t, `{"mcpServers": {}, "socket": {"servers": []}}`); cfg.Socket.Servers == nil {
		t.Error("an empty list of servers means all")
	}
	if cfg := load(t, `{"mcpServers": {}, "socket": {}}`); cfg.Socket.Servers != nil {
		t.Error("no list of servers does not mean all")
	}
}

func TestSettingsThatAreWrong(t *testing.T) {
	for text, want := range map[string]string{
		`"sync": "always"`:                  "config_type",
		`"sync": true`:                      "config_type",
		`"sync": "power", "sync": "crash"`:  "config_duplicate",
		`"peers": {"sandboxed": "maybe"}`:   "config_type",
		`"peers": "allow"`:                  "config_type",
		`"recovery": {"pending": ["off"]}`:  "config_type",
		`"recovery": {"panding": "off"}`:    "config_unknown_field?",
		`"socket": {"servers": "a"}`:        "config_type",
		`"limit": {}`:                       "config_unknown_field?",
		`"theme": "dark", "theme": "light"`: "",
	} {
		cfg := load(t, `{"mcpServers": {}, `+text+`}`)
		if codes(cfg.Problems) != want {
			t.Errorf("%s: problems %q, want %q", text, codes(cfg.Problems), want)
		}
		if cfg.Peers.Sandboxed != Refuse || cfg.RecoveryPending != PendingWarn || cfg.Broken != nil {
			t.Errorf("%s: not the defaults: %+v", text, cfg)
		}
	}
}

func TestValidate(t *testing.T) {
	l := Defaults()
	l.Sessions, l.WaitLimit, l.Frame = 0, -time.Second, 1<<40
	err := l.Validate()
	for _, name := range []string{"sessions is 0", "waitLimit is -1s", "frame is 1024GiB"} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("Validate = %v, want one about %q", err, name)
		}
	}
}
