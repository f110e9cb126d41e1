package status

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

const schemaDir = "../docs/schema"

// compile returns the schema called name; edit may change any schema first.
func compile(t *testing.T, name string, edit func(schema any)) *jsonschema.Schema {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(schemaDir, "*.json"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no schemas in %s: %v", schemaDir, err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	for _, path := range paths {
		doc := parsed(t, readText(t, path))
		if edit != nil {
			edit(doc)
		}
		if err := c.AddResource(filepath.Base(path), doc); err != nil {
			t.Fatal(err)
		}
	}
	schema, err := c.Compile(name)
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// closed forbids, in every object that a schema describes, members that it
// does not.
func closed(schema any) {
	switch v := schema.(type) {
	case map[string]any:
		if _, ok := v["properties"]; ok && v["type"] == "object" {
			v["additionalProperties"] = false
		}
		for _, e := range v {
			closed(e)
		}
	case []any:
		for _, e := range v {
			closed(e)
		}
	}
}

func readText(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func parsed(t *testing.T, text string) any {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatalf("parsing %s: %v", text, err)
	}
	return v
}

// encoded returns v as WriteJSON writes it.
func encoded(t *testing.T, v any) string {
	t.Helper()
	var b strings.Builder
	if err := WriteJSON(&b, v); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestOutputMatchesSchemas(t *testing.T) {
	empty := Snapshot{
		ProtocolVersion: ProtocolVersion, State: StateStarting, PID: 1, Transport: Transport,
		Socket: "/s", StatusPath: "/d", LogPath: "/l", RecoveryPath: "/r", Identity: Identity{Instance: "i"},
	}
	whole, failing := full(), full().Findings
	unavailable := NewDoctorAnswer(nil, []Finding{DaemonNotRunning.Finding("", "interlock daemon start", began())})
	unavailable.Detail = "no daemon is running in /run/i"
	healthy := NewDoctorAnswer(&whole, nil)
	unhealthy := NewDoctorAnswer(&empty, failing)
	unhealthy.SocketExists, unhealthy.PidAlive = true, true
	unhealthy.Recovery = json.RawMessage(readText(t, "testdata/recovery.json"))
	tests := []struct {
		name, schema string
		value        any
	}{
		{"full status", "status.v1.json", whole},
		{"empty status", "status.v1.json", empty},
		{"healthy", "doctor.v1.json", healthy},
		{"unhealthy", "doctor.v1.json", unhealthy},
		{"unavailable", "doctor.v1.json", unavailable},
		{"log", "logs.v1.json", LogsAnswer{"available", "/l", "line\n", true}},
		{"no log", "logs.v1.json", LogsAnswer{"unavailable", "/l", "", false}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := compile(t, tt.schema, closed).Validate(parsed(t, encoded(t, tt.value))); err != nil {
				t.Errorf("%s: %v", encoded(t, tt.value), err)
			}
		})
	}
}

func TestSchemasRefuse(t *testing.T) {
	tests := []struct{ name, schema, old, new string }{
		{"another version", "status.v1.json", `"protocolVersion": 1`, `"protocolVersion": 2`},
		{"unknown state", "status.v1.json", `"state": "running"`, `"state": "up"`},
		{"null list", "status.v1.json", `"activeRuns": [`, `"activeRuns": null, "x": [`},
		{"local time", "status.v1.json", `"startedAt": "2026-11-30T09:00:00.5Z"`, `"startedAt": "2026-11-30T10:00:00.5+01:00"`},
		{"unknown severity", "status.v1.json", `"severity": "failure"`, `"severity": "fatal"`},
		{"missing pid", "status.v1.json", `"pid": 4242`, `"p": 4242`},
		{"schema of recovery", "recovery.v1.json", `"schemaVersion": 1`, `"schemaVersion": 2`},
		{"outcome of a pending run", "recovery.v1.json", `"outcome": "unknown"`, `"outcome": "ok"`},
		{"healthy without daemon", "doctor.v1.json", `"status": "unavailable"`, `"status": "healthy"`},
	}
	texts := map[string]string{
		"status.v1.json":   encoded(t, full()),
		"recovery.v1.json": readText(t, "testdata/recovery.json"),
		"doctor.v1.json":   encoded(t, DoctorAnswer{Status: Unavailable, Detail: "none"}),
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			text := texts[tt.schema]
			schema := compile(t, tt.schema, nil)
			if err := schema.Validate(parsed(t, text)); err != nil {
				t.Fatalf("before the change: %v", err)
			}
			changed := strings.Replace(text, tt.old, tt.new, 1)
			if changed == text {
				t.Fatalf("%s has no %s", text, tt.old)
			}
			if schema.Validate(parsed(t, changed)) == nil {
				t.Error("accepted")
			}
		})
	}
}

// TestSchemasAcceptNewerWriters holds that fields can be added.
func TestSchemasAcceptNewerWriters(t *testing.T) {
	text := strings.Replace(encoded(t, full()), "{", `{"added": {"in": "1.1"},`, 1)
	if err := compile(t, "status.v1.json", nil).Validate(parsed(t, text)); err != nil {
		t.Error(err)
	}
}

func TestRecoveryExamplesMatchSchemas(t *testing.T) {
	recovery := readText(t, "testdata/recovery.json")
	if err := compile(t, "recovery.v1.json", nil).Validate(parsed(t, recovery)); err != nil {
		t.Error(err)
	}
	answers := map[string]bool{
		`{"status": "reconciliation_required", "path": "/r", "set": "5e7", "recovery": ` + recovery + `}`: true,
		`{"status": "clear", "path": "/r"}`:                                                                                              true,
		`{"status": "clear", "path": "/r", "acknowledged": false}`:                                                                       true,
		`{"status": "acknowledged", "path": "/r", "runs": 2, "reconciledRequestIds": ["a", "b"], "acknowledged": true}`:                  true,
		`{"status": "acknowledged", "path": "/r", "runs": 2, "reconciledRequestIds": ["a", "b"], "acknowledged": true, "note": "newer"}`: true,
		`{"status": "reconciliation_required", "path": "/r"}`:                                                                            false,
		`{"status": "clear", "path": "/r", "acknowledged": true}`:                                                                        false,
		`{"status": "acknowledged", "path": "/r", "runs": 0, "reconciledRequestIds": [], "acknowledged": true}`:                          false,
		`{"status": "acknowledged", "path": "/r"}`:                                                                                       false,
	}
	schema := compile(t, "recovery-answer.v1.json", nil)
	for text, valid := range answers {
		if err := schema.Validate(parsed(t, text)); (err == nil) != valid {
			t.Errorf("%s: %v, want valid %t", text, err, valid)
		}
	}
}
