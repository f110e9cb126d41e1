package mcpd

import (
	"errors"
	"io/fs"
	"strconv"

	"interlock/mcpd/internal/config"
	"interlock/mcpd/internal/policy"
)

// Setting is a value, and who says so: configuration, catalogue, annotations or
// default.
type Setting struct {
	Value string `json:"value"`
	From  string `json:"from"`
}

// ServerPolicy is what holds for a server, and why.
type ServerPolicy struct {
	Name string `json:"name"`
	// Problem is why the server is out of service, empty if it is not.
	Problem  string `json:"problem,omitempty"`
	Disabled bool   `json:"disabled,omitempty"`
	// Known is the entry of the catalogue, nil if the server is not in it.
	Known       *KnownServer `json:"known,omitempty"`
	Scope       Setting      `json:"scope"`
	Instances   Setting      `json:"instances"`
	State       Setting      `json:"state"`
	Mutations   Setting      `json:"mutations"`
	Annotations Setting      `json:"annotations"`
	Guard       Setting      `json:"guard"`
	MaxRequests Setting      `json:"maxRequests"` // 0 is no limit
	LeaseHold   Setting      `json:"leaseHold"`
}

// KnownServer is where the catalogue has what it says from.
type KnownServer struct {
	Name    string `json:"name"`
	Source  string `json:"source"`
	Checked string `json:"checked"` // the package and version it was checked with
	Why     string `json:"why"`
}

// ToolPolicy is what holds for a tool, and why.
type ToolPolicy struct {
	Name string `json:"name"`
	// Class is "" if the server's annotations are to decide and it has not listed the
	// tool yet.
	Class Setting `json:"class"`
	// Resources are what a call changes, or reads: templates over its arguments, or
	// the server's state.
	Resources     []string `json:"resources"`
	ResourcesFrom string   `json:"resourcesFrom"`
	LeaseHold     Setting  `json:"leaseHold"`
	// Leased is true if calls run under leases on the resources.
	Leased bool `json:"leased"`
}

func said[T ~string](s policy.Said[T]) Setting { return Setting{string(s.Value), string(s.From)} }

func serverPolicy(s config.Server, p *policy.Policy) ServerPolicy {
	out := ServerPolicy{
		Name: s.Name, Disabled: s.Disabled,
		Scope: said(p.Scope), Instances: said(p.Instances), State: said(p.State), Mutations: said(p.Mutations),
		Annotations: said(p.Annotations), Guard: said(p.Guard),
		MaxRequests: Setting{strconv.Itoa(p.MaxRequests.Value), string(p.MaxRequests.From)},
		LeaseHold:   Setting{p.LeaseHold.Value.String(), string(p.LeaseHold.From)},
	}
	if s.Problem != nil {
		out.Problem = s.Problem.Error()
	}
	if e := p.Entry; e != nil {
		out.Known = &KnownServer{Name: e.Name, Source: e.Source, Checked: e.Checked, Why: e.Why}
	}
	return out
}

// toolPolicy is what holds for a tool whose server lists it with the class, "" if
// it has not.
func toolPolicy(p *policy.Policy, name, listed string) ToolPolicy {
	tool := p.Tool(name)
	out := ToolPolicy{Name: name, Class: said(tool.Class), ResourcesFrom: string(tool.Templates.From),
		LeaseHold: Setting{tool.LeaseHold.Value.String(), string(tool.LeaseHold.From)}}
	if tool.Class.Value == "" {
		out.Class = Setting{listed, string(policy.FromAnnotations)}
	}
	for _, t := range tool.Templates.Value {
		out.Resources = append(out.Resources, t.Text)
	}
	if out.Resources == nil {
		out.Resources, out.ResourcesFrom = []string{"session:<id>"}, string(p.State.From)
		if p.State.Value == config.StateShared {
			out.Resources = []string{"server:" + p.Server}
		}
	}
	out.Leased = out.Class.Value == classMutate && p.Mutations.Value != config.MutationsOff
	return out
}

// withPolicy is a server of a configuration and what holds for it.
type withPolicy struct {
	server config.Server
	policy *policy.Policy
}

// loadPolicies reads the configuration of the place, as a daemon would, and says
// what holds for each of its servers.
func loadPolicies(place Place) ([]withPolicy, error) {
	cfg, err := config.Load(place.configPath(), place.Config != "")
	if err != nil {
		return nil, err
	}
	if cfg.Broken != nil {
		return nil, cfg.Broken
	}
	catalogue, err := policy.Load()
	if err != nil {
		return nil, err
	}
	servers := cfg.Servers
	if cfg.Missing {
		servers = []config.Server{{Name: config.BuiltinLocal, Builtin: config.BuiltinLocal}}
	}
	list := make([]withPolicy, len(servers))
	for i, s := range servers {
		list[i] = withPolicy{s, catalogue.For(s, cfg.Limits)}
	}
	return list, nil
}

// ServersAnswer is what holds for the configured servers.
type ServersAnswer struct {
	ConfigPath string         `json:"configPath"`
	Servers    []ServerPolicy `json:"servers"`
}

// Servers returns what holds for each server of the configuration of the place. It
// needs no daemon.
func Servers(place Place) (ServersAnswer, error) {
	answer := ServersAnswer{ConfigPath: place.configPath(), Servers: []ServerPolicy{}}
	list, err := loadPolicies(place)
	if errors.Is(err, fs.ErrNotExist) {
		return answer, err
	}
	for _, s := range list {
		answer.Servers = append(answer.Servers, serverPolicy(s.server, s.policy))
	}
	return answer, err
}
