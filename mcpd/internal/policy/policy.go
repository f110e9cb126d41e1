package policy

import (
	"maps"
	"slices"
	"strings"
	"time"

	"interlock/mcpd/internal/config"
)

// Source is who said something.
type Source string

// The sources, in the order in which they are heard.
const (
	FromConfiguration Source = "configuration"
	FromCatalogue     Source = "catalogue"
	FromAnnotations   Source = "annotations"
	FromDefault       Source = "default"
)

// Said is a value and who said so.
type Said[T any] struct {
	Value T
	From  Source
}

// Policy is what holds for one server. It is not changed after [Catalogue.For]
// returns it.
type Policy struct {
	Server string
	Entry  *Entry // nil if the server is not in the catalogue

	Scope       Said[config.Scope]
	Instances   Said[config.Instances]
	State       Said[config.State]
	Mutations   Said[config.Mutations]
	Annotations Said[config.Annotations]
	Guard       Said[config.Guard]
	MaxRequests Said[int] // 0 is no limit
	LeaseHold   Said[time.Duration]
	PassEpoch   bool

	tools map[string]*Tool
	other *Tool // what holds for tools that are not in tools
}

// Tool is what holds for one tool, as far as it is said before the server lists it.
type Tool struct {
	// Class is empty, and of no source, if the server's annotations decide.
	Class Said[config.Class]
	// Templates name what a call is about; none, of source default, is the
	// server's state.
	Templates Said[[]config.Template]
	LeaseHold Said[time.Duration]
}

// For returns what holds for the server. Defaults are those of l where they are
// configurable.
func (c *Catalogue) For(s config.Server, l config.Limits) *Policy {
	e := c.Find(s)
	known := e
	if known == nil {
		known = new(Entry)
	}
	state, instances := known.State, known.Instances
	if slices.ContainsFunc(known.PrivateWith, func(flag string) bool { return given(s.Args, flag) }) {
		state, instances = config.StatePrivate, config.InstancesMany
	}
	p := &Policy{
		Server: s.Name, Entry: e, PassEpoch: s.PassEpoch,
		Scope:       first(s.Scope, known.Scope, config.ScopeSession),
		Instances:   first(s.Instances, instances, config.InstancesMany),
		State:       first(s.State, state, config.StatePrivate),
		Mutations:   first(s.Mutations, "", config.MutationsAuto),
		Annotations: first(s.Annotations, "", config.AnnotationsTrust),
		Guard:       first(s.Guard, "", config.GuardOff),
		MaxRequests: firstSet(s.MaxRequests, known.MaxRequests, 0),
		LeaseHold:   firstSet(s.LeaseHold, known.LeaseHold.duration(), l.LeaseHold),
		tools:       make(map[string]*Tool),
	}
	p.other = p.tool(config.Tool{}, entryTool{})
	for name := range s.Tools {
		p.tools[name] = p.tool(s.Tools[name], known.Tools[name])
	}
	for name := range known.Tools {
		if _, ok := s.Tools[name]; !ok {
			p.tools[name] = p.tool(config.Tool{}, known.Tools[name])
		}
	}
	return p
}

// given reports whether a flag is among arguments, and not as one that is off.
func given(args []string, flag string) bool {
	return slices.ContainsFunc(args, func(arg string) bool {
		value, ok := strings.CutPrefix(arg, flag+"=")
		return arg == flag || ok && value != "false"
	})
}

// tool merges what configuration and catalogue say of a tool.
func (p *Policy) tool(said config.Tool, known entryTool) *Tool {
	t := &Tool{Class: first(said.Class, known.Class, "")}
	switch {
	case len(said.Resources) > 0:
		t.Templates = Said[[]config.Template]{said.Resources, FromConfiguration}
	case len(known.Resources) > 0:
		t.Templates = Said[[]config.Template]{known.Resources, FromCatalogue}
	default:
		t.Templates.From = FromDefault
	}
	t.LeaseHold = firstSet(said.LeaseHold, known.LeaseHold.duration(), p.LeaseHold.Value)
	if t.LeaseHold.From == FromDefault {
		t.LeaseHold = p.LeaseHold
	}
	return t
}

// Tool returns what is said of the tool, and the defaults where nothing is. It must
// not be changed.
func (p *Policy) Tool(name string) *Tool {
	if t, ok := p.tools[name]; ok {
		return t
	}
	return p.other
}

// Tools names the tools that configuration or catalogue say something of, sorted.
func (p *Policy) Tools() []string { return slices.Sorted(maps.Keys(p.tools)) }

// first returns the first word that is said.
func first[T ~string](configured, known, otherwise T) Said[T] {
	switch {
	case configured != "":
		return Said[T]{configured, FromConfiguration}
	case known != "":
		return Said[T]{known, FromCatalogue}
	}
	return Said[T]{otherwise, FromDefault}
}

// firstSet returns the first value that is set.
func firstSet[T any](configured, known *T, otherwise T) Said[T] {
	switch {
	case configured != nil:
		return Said[T]{*configured, FromConfiguration}
	case known != nil:
		return Said[T]{*known, FromCatalogue}
	}
	return Said[T]{otherwise, FromDefault}
}
