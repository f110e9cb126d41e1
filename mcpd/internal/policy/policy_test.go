package policy_test

import (
	"slices"
	"testing"
	"time"

	"interlock/mcpd/internal/config"
	"interlock/mcpd/internal/policy"
)

// TestPrecedence has the configuration speak first, then the catalogue, then the
// default, member by member.
func TestPrecedence(t *testing.T) {
	c := load(t)
	limits := config.Defaults()
	limits.LeaseHold = time.Second
	all := servers(t, `
		"plain": {"command": "x"},
		"git": {"command": "uvx", "args": ["mcp-server-git"]},
		"said": {"command": "uvx", "args": ["mcp-server-git"], "state": "private", "scope": "project", "instances": "one", "mutations": "explicit",
			"annotations": "ignore", "guard": "warn", "maxRequests": 7, "leaseHold": "9s", "passEpoch": true, "tools": {
				"git_add": {"class": "read"}, "git_commit": {"resource": "x"}, "git_log": {"leaseHold": "4s"}, "new": {"class": "unknown"}}},
		"memory": {"command": "npx", "args": ["@modelcontextprotocol/server-memory"]},
		"browser": {"command": "npx", "args": ["@playwright/mcp"]},
		"isolated": {"command": "npx", "args": ["@playwright/mcp", "--isolated"]},
		"isolated=true": {"command": "npx", "args": ["@playwright/mcp", "--isolated=true"]},
		"isolated=false": {"command": "npx", "args": ["@playwright/mcp", "--isolated=false"]}`)
	of := func(name string) *policy.Policy { return c.For(all[name], limits) }

	type said[T any] = policy.Said[T]
	check(t, "plain", of("plain").State, said[config.State]{config.StatePrivate, policy.FromDefault})
	check(t, "plain", of("plain").Scope, said[config.Scope]{config.ScopeSession, policy.FromDefault})
	check(t, "plain", of("plain").Mutations, said[config.Mutations]{config.MutationsAuto, policy.FromDefault})
	check(t, "plain", of("plain").Guard, said[config.Guard]{config.GuardOff, policy.FromDefault})
	check(t, "plain", of("plain").LeaseHold, said[time.Duration]{time.Second, policy.FromDefault})
	check(t, "plain", of("plain").MaxRequests, said[int]{0, policy.FromDefault})
	check(t, "plain", of("plain").Tool("x").LeaseHold, said[time.Duration]{time.Second, policy.FromDefault})
	check(t, "plain", of("plain").Tool("x").Class, said[config.Class]{"", policy.FromDefault})

	git := of("git")
	check(t, "git", git.State, said[config.State]{config.StateShared, policy.FromCatalogue})
	check(t, "git", git.LeaseHold, said[time.Duration]{3 * time.Second, policy.FromCatalogue})
	check(t, "git", git.Tool("git_add").Class, said[config.Class]{config.ClassMutate, policy.FromCatalogue})
	check(t, "git", git.Tool("git_add").LeaseHold, said[time.Duration]{3 * time.Second, policy.FromCatalogue})
	check(t, "git", git.Tool("git_commit").LeaseHold, said[time.Duration]{0, policy.FromCatalogue})
	if got := git.Tool("git_add").Templates; len(got.Value) != 1 || got.Value[0].Text != "tree:{repo_path}" || got.From != policy.FromCatalogue {
		t.Errorf("git_add is about %+v", got)
	}
	check(t, "memory", of("memory").MaxRequests, said[int]{1, policy.FromCatalogue})

	p := of("said")
	check(t, "said", p.State, said[config.State]{config.StatePrivate, policy.FromConfiguration})
	check(t, "said", p.Scope, said[config.Scope]{config.ScopeProject, policy.FromConfiguration})
	check(t, "said", p.Instances, said[config.Instances]{config.InstancesOne, policy.FromConfiguration})
	check(t, "said", p.Mutations, said[config.Mutations]{config.MutationsExplicit, policy.FromConfiguration})
	check(t, "said", p.Annotations, said[config.Annotations]{config.AnnotationsIgnore, policy.FromConfiguration})
	check(t, "said", p.Guard, said[config.Guard]{config.GuardWarn, policy.FromConfiguration})
	check(t, "said", p.MaxRequests, said[int]{7, policy.FromConfiguration})
	check(t, "said", p.LeaseHold, said[time.Duration]{9 * time.Second, policy.FromConfiguration})
	check(t, "said", p.PassEpoch, true)
	check(t, "said", p.Tool("git_add").Class, said[config.Class]{config.ClassRead, policy.FromConfiguration})
	check(t, "said", p.Tool("git_add").Templates.From, policy.FromCatalogue)
	check(t, "said", p.Tool("git_add").LeaseHold, said[time.Duration]{9 * time.Second, policy.FromConfiguration})
	check(t, "said", p.Tool("git_commit").Class, said[config.Class]{config.ClassMutate, policy.FromCatalogue})
	check(t, "said", p.Tool("git_commit").Templates.Value[0].Text, "x")
	check(t, "said", p.Tool("git_commit").Templates.From, policy.FromConfiguration)
	check(t, "said", p.Tool("git_log").LeaseHold, said[time.Duration]{4 * time.Second, policy.FromConfiguration})
	check(t, "said", p.Tool("new").Class, said[config.Class]{config.ClassUnknown, policy.FromConfiguration})
	if names := p.Tools(); !slices.IsSorted(names) || !slices.Contains(names, "new") || !slices.Contains(names, "git_status") {
		t.Errorf("the tools are %v", names)
	}

	check(t, "browser", of("browser").State, said[config.State]{config.StateShared, policy.FromCatalogue})
	check(t, "isolated", of("isolated").State, said[config.State]{config.StatePrivate, policy.FromCatalogue})
	check(t, "isolated=true", of("isolated=true").State, said[config.State]{config.StatePrivate, policy.FromCatalogue})
	check(t, "isolated=false", of("isolated=false").State, said[config.State]{config.StateShared, policy.FromCatalogue})
	check(t, "isolated", of("isolated").Instances, said[config.Instances]{config.InstancesMany, policy.FromCatalogue})
}

func check[T comparable](t *testing.T, server string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %+v, want %+v", server, got, want)
	}
}
