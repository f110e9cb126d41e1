package mcpd

import (
	"encoding/json"
	"strings"
	"sync"
	"time"

	"interlock/mcpd/internal/config"
	"interlock/mcpd/internal/wire"
	"interlock/recovery"
)

// Classes of calls, by what they do. The empty class is that of a tool nothing
// is known of yet.
const (
	classRead    = "read"
	classMutate  = recovery.ClassMutate
	classUnknown = recovery.ClassUnknown
)

// listTimeout is how long a server may take to list its tools for the daemon
// before its calls count as unknown.
const listTimeout = 5 * time.Second

// listAgain is how long a server that did not list its tools is not asked again.
const listAgain = time.Minute

// maxListPages bounds the pages of a tool list that the daemon asks for.
const maxListPages = 256

// classes knows what the tools of one session's server do: by the configuration,
// else by the annotations in the lists that have passed, or that the daemon has
// asked for.
type classes struct {
	rules       map[string]config.Tool
	annotations config.Annotations

	mu       sync.Mutex // guards the fields below
	tools    map[string]string
	complete bool        // a whole list has been seen, so that others are unknown
	gaveUp   time.Time   // when the server last did not list its tools for the daemon
	asking   bool        // the daemon has asked for the list
	waiting  []*exchange // calls that wait for it, in order
	resuming bool        // a goroutine is forwarding those that waited
}

func newClasses(s config.Server) *classes {
	return &classes{rules: s.Tools, annotations: s.Annotations, tools: make(map[string]string)}
}

// of returns the class of the tool, or "" where a list must be read first.
func (c *classes) of(tool string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ofLocked(tool)
}

func (c *classes) ofLocked(tool string) string {
	if rule, ok := c.rules[tool]; ok && rule.Class != "" {
		return string(rule.Class)
	}
	class, ok := c.tools[tool]
	if !ok && (c.complete || time.Since(c.gaveUp) < listAgain) {
		return classUnknown
	}
	return class
}

// learn takes the tools of one page of a list that passes.
func (c *classes) learn(result []byte, last bool) {
	found := make(map[string]string)
	err := wire.ScanTools(result, func(t wire.Tool) bool {
		if t.Name != nil {
			found[string(t.Name)] = c.classOf(t)
		}
		return true
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		found = nil // read in two ways: nothing of it can be relied on
	}
	for name, class := range found {
		c.tools[name] = class
	}
	c.complete = c.complete || last
}

// classOf is what a tool's annotations say, where they are written out.
func (c *classes) classOf(t wire.Tool) string {
	switch {
	case t.Ambiguous:
		return classUnknown
	case t.ReadOnly == wire.HintTrue && t.Destructive != wire.HintTrue && c.annotations != config.AnnotationsIgnore:
		return classRead
	case t.ReadOnly == wire.HintFalse || t.Destructive == wire.HintTrue:
		return classMutate
	default:
		return classUnknown
	}
}

// forget follows a change of the server's list.
func (c *classes) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.tools)
	c.complete, c.gaveUp = false, time.Time{}
}

// hold makes a call wait for the list if its class is not known, or if others of
// its session wait, so that calls keep their order. It reports whether the call
// waits, and whether the caller is to ask for the list.
func (c *classes) hold(x *exchange) (waits, ask bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	class := c.ofLocked(x.tool)
	if class != "" && len(c.waiting) == 0 && !c.resuming {
		x.class = class
		return false, false
	}
	x.Hold()
	c.waiting = append(c.waiting, x)
	ask = class == "" && !c.asking
	c.asking = c.asking || ask
	return true, ask
}

// giveUp records that the server has not listed its tools.
func (c *classes) giveUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gaveUp = time.Now()
}

// resume forwards the calls that waited, in order: the list has been read, or
// given up, and then what it does not name is unknown.
func (c *classes) resume() {
	c.mu.Lock()
	c.asking = false
	if c.resuming {
		c.mu.Unlock()
		return
	}
	c.resuming = true
	for len(c.waiting) > 0 {
		x := c.waiting[0]
		c.waiting = c.waiting[1:]
		c.mu.Unlock()
		if x.class = c.of(x.tool); x.class == "" {
			x.class = classUnknown // the list has changed meanwhile
		}
		x.forward()
		c.mu.Lock()
	}
	c.resuming = false
	c.mu.Unlock()
}

// listRequest is the daemon's own request for a page of the tool list, with what
// a stateless client's request says of it.
func listRequest(n int64, cursor, meta []byte) []byte {
	params := make(map[string]json.RawMessage)
	if cursor != nil {
		params["cursor"] = cursor
	}
	if len(meta) > 0 {
		params["_meta"] = meta
	}
	b, err := json.Marshal(struct {
		JSONRPC string                     `json:"jsonrpc"`
		ID      int64                      `json:"id"`
		Method  string                     `json:"method"`
		Params  map[string]json.RawMessage `json:"params,omitempty"`
	}{"2.0", n, "tools/list", params})
	if err != nil {
		return nil
	}
	return b
}

// protocolMeta keeps of a request's _meta what MCP itself has put there.
func protocolMeta(meta []byte) []byte {
	var all, kept map[string]json.RawMessage
	if json.Unmarshal(meta, &all) != nil {
		return nil
	}
	for name, value := range all {
		if strings.HasPrefix(name, "io.modelcontextprotocol/") {
			if kept == nil {
				kept = make(map[string]json.RawMessage)
			}
			kept[name] = value
		}
	}
	b, err := json.Marshal(kept)
	if err != nil || kept == nil {
		return nil
	}
	return b
}

// readTools asks the server for its tool list, page by page, and then lets the
// calls go that wait for it.
func (u *upstream) readTools(meta []byte) {
	in, err := u.ensure()
	if err != nil {
		u.classes.resume()
		return
	}
	pages := 0
	var page func(cursor []byte)
	page = func(cursor []byte) {
		pages++
		build := func(n int64) []byte { return listRequest(n, cursor, meta) }
		in.ask(build, in.link.sendOwn, listTimeout, func(result []byte) {
			next, err := wire.Member(result, "nextCursor")
			more := err == nil && next.Present() && result[next.Start] == '"' && pages < maxListPages
			if result != nil {
				u.classes.learn(result, !more)
			} else {
				u.classes.giveUp()
			}
			if more {
				page(append([]byte(nil), next.Of(result)...))
				return
			}
			u.classes.resume()
		})
	}
	page(nil)
}
