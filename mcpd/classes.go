package mcpd

import (
	"encoding/json"
	"strings"
	"sync"
	"time"

	"interlock/mcpd/internal/config"
	"interlock/mcpd/internal/policy"
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

// classes knows what the tools of one session's server do: by configuration and
// catalogue, else by the annotations in the lists that have passed, or that the
// daemon has asked for.
type classes struct {
	policy *policy.Policy
	seen   func(map[string]string) // is told what a list says

	mu       sync.Mutex // guards the fields below
	tools    map[string]string
	complete bool        // a whole list has been seen, so that others are unknown
	gaveUp   time.Time   // when the server last did not list its tools for the daemon
	asking   bool        // the daemon has asked for the list
	waiting  []*exchange // calls that wait for it, in order
	resuming bool        // a goroutine is forwarding those that waited
}

func newClasses(p *policy.Policy, seen func(map[string]string)) *classes {
	return &classes{policy: p, seen: seen, tools: make(map[string]string)}
}

// of returns the class of the tool, for which the rule holds, or "" where a list
// must be read first.
func (c *classes) of(rule *policy.Tool, tool string) string {
	if class := rule.Class.Value; class != "" {
		return string(class)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ofLocked(rule, tool)
}

func (c *classes) ofLocked(rule *policy.Tool, tool string) string {
	if class := rule.Class.Value; class != "" {
		return string(class)
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
	if err != nil {
		found = nil // read in two ways: nothing of it can be relied on
	}
	c.seen(found)
	c.mu.Lock()
	defer c.mu.Unlock()
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
	case t.ReadOnly == wire.HintTrue && t.Destructive != wire.HintTrue && c.policy.Annotations.Value != config.AnnotationsIgnore:
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
// waits, and whether the caller is to ask for the list. An error is the session's,
// and the call is then over.
func (c *classes) hold(rule *policy.Tool, x *exchange) (waits, ask bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	class := c.ofLocked(rule, x.tool)
	if class != "" && len(c.waiting) == 0 && !c.resuming {
		x.class = class
		return false, false, nil
	}
	if _, err := x.conn.session.StepAside(&x.Call); err != nil {
		return false, false, err
	}
	c.waiting = append(c.waiting, x)
	ask = class == "" && !c.asking
	c.asking = c.asking || ask
	return true, ask, nil
}

// giveUp records that the server has not listed its tools.
func (c *classes) giveUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gaveUp = time.Now()
}

// resume lets the calls go on that waited, in order: the list has been read, or
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
		if x.class = c.of(c.policy.Tool(x.tool), x.tool); x.class == "" {
			x.class = classUnknown // the list has changed meanwhile
		}
		x.proceed()
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
	limit := listTimeout
	if pid, _ := in.snapshot(); pid == 0 {
		limit += u.d.limits.StartTimeout // it has to start first
	}
	pages := 0
	var page func(cursor []byte)
	page = func(cursor []byte) {
		pages++
		build := func(n int64) []byte { return listRequest(n, cursor, meta) }
		in.ask(build, in.link.sendOwn, limit, func(result []byte) {
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
