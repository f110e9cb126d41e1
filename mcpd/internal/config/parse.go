package config

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/tailscale/hujson"
)

// serversKey is the member that holds the servers.
const serversKey = "mcpServers"

// topKeys are the members of ours beside mcpServers.
func topKeys() []string {
	return []string{"socket", "limits", "peers", "sync", "recovery"}
}

// parse reads the text of the file into c.
func (c *Config) parse(text []byte) {
	doc := newDocument(c.Path, bytes.TrimPrefix(text, []byte("\ufeff")))
	root, problem := doc.parse()
	if problem != nil {
		c.breakWith(*problem)
		return
	}
	object, ok := root.Value.(*hujson.Object)
	if !ok {
		c.breakWith(doc.problem(root.StartOffset, CodeType, "the file holds "+kindText(root)+", and must hold an object", `write {"mcpServers": {…}}`))
		return
	}
	d := &decoder{doc: doc}
	servers, ok := serversOf(d, object)
	c.Problems = append(c.Problems, d.problems...)
	if !ok {
		c.Broken = d.failed()
		return
	}
	for _, v := range servers {
		c.readServers(doc, v)
	}
	c.readSettings(doc, root)
}

// serversOf finds the values that hold servers: every mcpServers, as a merge
// of two files may leave two, or else servers, which is what VS Code calls it.
// It returns false if what it finds cannot hold servers.
func serversOf(d *decoder, object *hujson.Object) (servers []hujson.Value, ok bool) {
	var others []member
	for _, om := range object.Members {
		m := member{om.Name.Value.(hujson.Literal).String(), om.Name, om.Value}
		switch {
		case m.name == serversKey:
			if len(servers) > 0 {
				d.note(m.key, CodeDuplicate, "mcpServers is there twice; the servers of both are taken", "move all servers into one")
			}
			servers = append(servers, m.value)
		case holdsServersElsewhere(m.name):
			others = append(others, m)
		}
	}
	for _, m := range others {
		switch {
		case len(servers) == 0 && m.name == "servers":
			d.note(m.key, CodeWrongKey, "servers is taken for mcpServers, as VS Code calls it", "rename it to mcpServers")
			servers = append(servers, m.value)
		case m.name != "mcp" || len(servers) == 0: // beside mcpServers, mcp holds settings of other clients
			d.note(m.key, CodeWrongKey, clip(m.name)+" is not read for servers", "move its servers into mcpServers")
		}
	}
	if len(servers) == 0 && len(others) == 0 {
		d.note(hujson.Value{}, CodeNoServers, "the file has no mcpServers, so no server is hosted", `add "mcpServers": {…}, or delete the file to get the built-in server local`)
	}
	for _, v := range servers {
		if _, isObject := v.Value.(*hujson.Object); !isObject && !isNull(v) {
			d.fail(v, CodeType, "mcpServers is "+kindText(v)+", and must be an object", `write {"NAME": {"command": …}, …}`)
			return nil, false
		}
	}
	return servers, true
}

// holdsServersElsewhere reports whether name is where another client keeps its
// servers, or a slip for mcpServers.
func holdsServersElsewhere(name string) bool {
	if slices.Contains([]string{"servers", "mcp", "context_servers"}, name) {
		return true
	}
	_, slip := nearest(name, []string{serversKey})
	return slip
}

// readServers adds the entries of one object of servers.
func (c *Config) readServers(doc *document, v hujson.Value) {
	object, ok := v.Value.(*hujson.Object)
	if !ok {
		return
	}
	index := make(map[string]int, len(object.Members))
	for i, s := range c.Servers {
		index[s.Name] = i
	}
	for _, m := range object.Members {
		name := m.Name.Value.(hujson.Literal).String()
		d := &decoder{doc: doc, server: name}
		if i, twice := index[name]; twice {
			d.fail(m.Name, CodeDuplicate, fmt.Sprintf("the name is there twice, the first time in line %d, so neither entry is used", c.Servers[i].Line), "delete or rename one of them")
			if c.Servers[i].Problem == nil {
				c.Servers[i].Problem = d.failed()
			}
		} else {
			index[name] = len(c.Servers)
			c.Servers = append(c.Servers, d.readServer(m.Name, m.Value))
		}
		c.Problems = append(c.Problems, d.problems...)
	}
}

// readSettings reads the members that are about the daemon, not one server.
func (c *Config) readSettings(doc *document, root hujson.Value) {
	// A settings file of another client is full of members that are none of
	// our business; only a slip of the pen is.
	ours := topKeys()
	object := *root.Value.(*hujson.Object)
	object.Members = slices.DeleteFunc(slices.Clone(object.Members), func(m hujson.ObjectMember) bool {
		_, near := nearest(m.Name.Value.(hujson.Literal).String(), ours)
		return !near
	})
	root.Value = &object

	d := &decoder{doc: doc}
	for m := range d.members(root, "the file") {
		switch m.name {
		case "socket":
			c.readSocket(d, m.value)
		case "limits":
			d.readLimits(m.value, &c.Limits)
		case "peers":
			c.Peers.Sandboxed = single(d, m.value, "peers", "sandboxed", Refuse, Allow)
		case "sync":
			c.Sync = fallback(choice(d, m.value, "sync", SyncCrash, SyncPower), SyncCrash)
		case "recovery":
			c.RecoveryPending = single(d, m.value, "recovery", "pending", PendingWarn, PendingBlock, PendingOff)
		default:
			d.unknown(m, "the file", ours)
		}
	}
	c.Problems = append(c.Problems, d.problems...)
}

// readSocket reads the member socket.
func (c *Config) readSocket(d *decoder, v hujson.Value) {
	for m := range d.members(v, "socket") {
		if m.name != "servers" {
			d.unknown(m, "socket", []string{"servers"})
			continue
		}
		c.Socket.Servers = list(d, m.value, "socket.servers", func(e hujson.Value, what string) string {
			name := d.text(e, what)
			if _, ok := c.Server(name); !ok && name != BuiltinLocal && name != BuiltinInterlock {
				d.note(e, CodeUnknownServer, fmt.Sprintf("%s is %q, and no server is called so", what, clip(name)), "correct the name, or add the server")
			}
			return name
		})
	}
}

// readLimits reads the member limits. A limit that is wrong, or that does not
// go with the others, stays as it was.
func (d *decoder) readLimits(v hujson.Value, limits *Limits) {
	before := *limits
	var known []string
	settings := make(map[string]setting)
	for _, s := range limits.settings() {
		known = append(known, s.name)
		settings[s.name] = s
	}
	for m := range d.members(v, "limits") {
		s, ok := settings[m.name]
		if !ok {
			d.unknown(m, "limits", known)
			continue
		}
		previous := s.value()
		if !d.set(s, m.value) {
			continue
		}
		if err := s.check(); err != nil {
			d.fail(m.value, CodeRange, "limits."+err.Error(), "correct it; until then the default holds")
			s.put(previous)
		}
	}
	if err := limits.consistent(); err != nil {
		d.fail(v, CodeRange, "in limits, "+err.Error(), "correct one of them; until then the defaults of all limits hold")
		*limits = before
	}
}

// set reads v into the field of s, unless it is of the wrong type.
func (d *decoder) set(s setting, v hujson.Value) (ok bool) {
	what := "limits." + s.name
	switch {
	case s.count != nil:
		if n, ok := d.count(v, what); ok {
			s.put(int64(n))
			return true
		}
	case s.time != nil:
		if t, ok := d.duration(v, what); ok {
			s.put(int64(t))
			return true
		}
	default:
		if n, ok := d.size(v, what); ok {
			s.put(n)
			return true
		}
	}
	return false
}

// single reads an object with one member, which is one of words, the first
// being the default.
func single[T ~string](d *decoder, v hujson.Value, what, name string, words ...T) T {
	word := words[0]
	for m := range d.members(v, what) {
		if m.name != name {
			d.unknown(m, what, []string{name})
			continue
		}
		word = fallback(choice(d, m.value, what+"."+name, words...), words[0])
	}
	return word
}

// fallback returns word, or other if word is empty.
func fallback[T ~string](word, other T) T {
	if word == "" {
		return other
	}
	return word
}
