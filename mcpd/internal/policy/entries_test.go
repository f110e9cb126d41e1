package policy_test

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"interlock/mcpd/internal/config"
)

// TestCatalogueIsPlausible finds slips of the pen in the file: what JSON takes and no
// server would have.
func TestCatalogueIsPlausible(t *testing.T) {
	data, err := os.ReadFile("catalogue.json")
	if err != nil {
		t.Fatal(err)
	}
	noDuplicates(t, json.NewDecoder(strings.NewReader(string(data))), "")
	type tool struct {
		Class     string
		LeaseHold *string
		Resource  any
	}
	var file struct {
		Servers []struct {
			Name, Source, Checked, Why, Scope, Instances, State string
			Match                                               map[string]any
			PrivateWith                                         []string
			MaxRequests                                         *int
			LeaseHold                                           *string
			Tools                                               map[string]tool
		}
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	marks, isolated := make(map[string]string), make(map[string]bool)
	for _, s := range file.Servers {
		wrong := func(what string, is any) { t.Errorf("%s: %s is %v", s.Name, what, is) }
		if !regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`).MatchString(s.Name) {
			wrong("name", s.Name)
		}
		if !strings.HasPrefix(s.Source, "https://") && s.Match["builtin"] == nil {
			wrong("source", s.Source)
		}
		if strings.TrimSpace(s.Why) != s.Why || strings.Contains(s.Why, "  ") {
			wrong("why", s.Why)
		}
		for kind, names := range s.Match {
			list, ok := names.([]any)
			if !ok {
				list = []any{names} // of a built-in server
			}
			for _, name := range list {
				key := kind + " " + name.(string)
				if other := marks[key]; other != "" || name == "" || strings.ContainsAny(name.(string), " \t") {
					wrong("mark "+key, "also that of "+other)
				}
				marks[key] = s.Name
			}
		}
		oneOf := func(what, value string, of ...string) {
			if !slices.Contains(of, value) {
				wrong(what, value)
			}
		}
		oneOf("scope", s.Scope, string(config.ScopeSession), string(config.ScopeProject), string(config.ScopeUser))
		oneOf("instances", s.Instances, string(config.InstancesOne), string(config.InstancesMany))
		oneOf("state", s.State, string(config.StateShared), string(config.StatePrivate))
		if s.MaxRequests != nil && *s.MaxRequests < 1 {
			wrong("maxRequests", *s.MaxRequests)
		}
		isolated[s.Name] = slices.Contains(s.PrivateWith, "--isolated")
		for _, arg := range s.PrivateWith {
			if !strings.HasPrefix(arg, "--") {
				wrong("privateWith", arg)
			}
		}
		hold := func(what string, text *string) {
			if text == nil {
				return
			}
			if d, err := time.ParseDuration(*text); err != nil || d < 0 || d > config.Defaults().LeaseHoldMax {
				wrong(what, *text)
			}
		}
		hold("leaseHold", s.LeaseHold)
		mutates := false
		for name, tool := range s.Tools {
			if !regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]{0,63}$`).MatchString(name) {
				wrong("a tool", name)
			}
			mutates = mutates || tool.Class == string(config.ClassMutate)
			hold(name+".leaseHold", tool.LeaseHold)
			resources, ok := tool.Resource.([]any)
			if !ok && tool.Resource != nil {
				resources = []any{tool.Resource}
			}
			for _, text := range resources {
				template, err := config.ParseTemplate(text.(string))
				if err != nil {
					wrong(name+".resource", err)
				}
				for _, part := range template.Parts {
					if part.Argument != "" && !regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]*$`).MatchString(part.Argument) {
						wrong(name+".resource", template.Text)
					}
				}
			}
		}
		if !mutates && (s.LeaseHold != nil || len(s.PrivateWith) > 0) {
			wrong("a tool that changes something", "not there")
		}
	}
	if !isolated["playwright"] || !isolated["chrome-devtools"] {
		t.Errorf("of the browsers, only %v are private with --isolated", isolated)
	}
}

// noDuplicates fails the test if an object of the value that comes next has a key
// twice: the later one would win without a word.
func noDuplicates(t *testing.T, d *json.Decoder, where string) {
	start, err := d.Token()
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := start.(json.Delim); !ok {
		return
	}
	seen := make(map[string]bool)
	for d.More() {
		inside := where
		if start == json.Delim('{') {
			key, err := d.Token()
			if err != nil {
				t.Fatal(err)
			}
			inside += "." + key.(string)
			if seen[key.(string)] {
				t.Errorf("%s is there twice", inside)
			}
			seen[key.(string)] = true
		}
		noDuplicates(t, d, inside)
	}
	if _, err := d.Token(); err != nil {
		t.Fatal(err)
	}
}
