package mcpd

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"sync"

	"interlock/mcpd/internal/wire"
	"interlock/session"
)

// maxRestored bounds how many subscriptions are restored at a server's restart.
const maxRestored = 1024

// request is a request that can be sent again under another id.
type request struct {
	frame []byte
	id    wire.Span
}

// under returns the request with the id n.
func (r request) under(n int64) []byte {
	return wire.Splice(nil, r.frame, []wire.Edit{{Span: r.id, With: strconv.AppendInt(nil, n, 10)}})
}

// memory is what a session has said to its server that a new process of it must
// hear before anything else: the handshake, the log level and subscriptions.
type memory struct {
	mu            sync.Mutex // guards the fields below
	handshake     request    // initialize, from when the client sends it
	shaken        bool       // the server has answered it with a result
	result        []byte     // that result
	initialized   []byte     // notifications/initialized
	level         request
	subscriptions map[string]request // by the raw URI
}

func (m *memory) rememberHandshake(frame []byte, id wire.Span) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.handshake = request{append([]byte(nil), frame...), id}
	m.shaken = false
}

// shake records the server's answer to the handshake.
func (m *memory) shake(result []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.shaken = true
	m.result = append([]byte(nil), result...)
}

func (m *memory) rememberInitialized(frame []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.initialized = append([]byte(nil), frame...)
}

func (m *memory) rememberLevel(frame []byte, id wire.Span) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.level = request{append([]byte(nil), frame...), id}
}

func (m *memory) subscribe(uri string, frame []byte, id wire.Span) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.subscriptions == nil {
		m.subscriptions = make(map[string]request)
	}
	if len(m.subscriptions) < maxRestored {
		m.subscriptions[uri] = request{append([]byte(nil), frame...), id}
	}
}

func (m *memory) unsubscribe(uri string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.subscriptions, uri)
}

// replay returns the handshake to begin a new process with, or false where the
// client has completed none.
func (m *memory) replay() (request, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.handshake, m.shaken
}

// rest returns what follows the handshake: the notification that ends it, and
// the requests that restore the level and the subscriptions.
func (m *memory) rest() (initialized []byte, restore []request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.level.frame != nil {
		restore = append(restore, m.level)
	}
	for _, uri := range slices.Sorted(maps.Keys(m.subscriptions)) {
		restore = append(restore, m.subscriptions[uri])
	}
	return m.initialized, restore
}

// changed returns the notifications that tell the client to read its lists anew,
// as far as the server has announced them.
func (m *memory) changed() [][]byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	type list struct {
		ListChanged bool `json:"listChanged"`
	}
	var result struct {
		Capabilities struct{ Tools, Resources, Prompts list } `json:"capabilities"`
	}
	if json.Unmarshal(m.result, &result) != nil {
		return nil
	}
	var frames [][]byte
	for name, l := range map[string]list{
		"tools": result.Capabilities.Tools, "resources": result.Capabilities.Resources, "prompts": result.Capabilities.Prompts,
	} {
		if l.ListChanged {
			frames = append(frames, []byte(`{"jsonrpc":"2.0","method":"notifications/`+name+`/list_changed"}`))
		}
	}
	return frames
}

// client returns who the client said it is in its handshake.
func (m *memory) client() session.Client {
	m.mu.Lock()
	frame := m.handshake.frame
	m.mu.Unlock()
	return handshakeClient(frame)
}
