package mcpd

import (
	"strings"

	"interlock/mcpd/internal/builtin"
	"interlock/mcpd/internal/config"
)

// serverFor returns the server that a session with this hello is.
func (d *Daemon) serverFor(h Hello) (config.Server, error) {
	cfg := d.config.Load()
	if h.Config != "" && h.Config != cfg.Path {
		return config.Server{}, refuse(codeNoServer, "the running daemon uses the configuration %s, and --config names %s; stop it with: %s daemon stop", cfg.Path, h.Config, d.options.Command)
	}
	if cfg.Broken != nil && (len(h.Servers) != 1 || !isBuiltin(h.Servers[0])) {
		return config.Server{}, refuse(codeConfigBroken, "interlock serves no server but the built-in ones, because its configuration cannot be read: %v", cfg.Broken)
	}
	names := h.Servers
	if names == nil {
		names = cfg.Socket.Servers
	}
	if names == nil {
		names = d.served()
	}
	if len(names) != 1 {
		return config.Server{}, d.ambiguous(h.Servers != nil, len(names))
	}
	return d.server(names[0])
}

// isBuiltin reports whether the name is that of a server which every daemon has.
func isBuiltin(name string) bool {
	return name == config.BuiltinLocal || name == config.BuiltinInterlock
}

// ambiguous says that a session is one server and names those there are.
func (d *Daemon) ambiguous(named bool, n int) *refusal {
	served := d.served()
	r := refuse(codeNoServer, "no server is configured in %s", d.config.Load().Path)
	if len(served) > 0 {
		verb := "configured"
		if named {
			verb = "asked for"
		}
		r = refuse(codeNoServer, "a session is one server, and %d are %s. Name one: %s connect NAME, where NAME is one of: %s",
			n, verb, d.options.Command, strings.Join(served, ", "))
	}
	r.data.Servers = served
	return r
}

// served names the servers in service, in the order of the configuration.
func (d *Daemon) served() []string {
	if d.config.Load().Missing {
		return []string{config.BuiltinLocal}
	}
	var names []string
	for _, s := range d.config.Load().Servers {
		if !s.Disabled && s.Problem == nil {
			names = append(names, s.Name)
		}
	}
	return names
}

// server returns the server with the name, if it is in service.
func (d *Daemon) server(name string) (config.Server, error) {
	s, ok := d.config.Load().Server(name)
	switch {
	case ok && s.Problem != nil:
		return s, refuse(codeNoServer, "server %q is out of service: %v", name, s.Problem)
	case ok && s.Disabled:
		return s, refuse(codeNoServer, "server %q is disabled in %s", name, d.config.Load().Path)
	case ok:
		return s, nil
	case isBuiltin(name):
		return config.Server{Name: name, Builtin: name}, nil
	}
	served := d.served()
	r := refuse(codeNoServer, "there is no server %q in %s; there are: %s", name, d.config.Load().Path, strings.Join(served, ", "))
	if d.config.Load().Missing {
		r = refuse(codeNoServer, "there is no server %q: there is no configuration file %s yet; without one there is the built-in server %s", name, d.config.Load().Path, config.BuiltinLocal)
	}
	r.data.Servers = served
	return s, r
}

// builtin returns the built-in server that the entry is, or nil.
func (d *Daemon) builtin(s config.Server) *builtin.Server {
	switch s.Builtin {
	case config.BuiltinLocal:
		return d.local
	case config.BuiltinInterlock:
		return d.own
	default:
		return nil
	}
}
