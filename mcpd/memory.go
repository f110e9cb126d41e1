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

// maxRestoredSize bounds each of these, and what else is restored; it is no bound
// on what passes.
const maxRestoredSize = 64 << 10

// request is a request that can be sent again under another id.
type request struct {
	frame  []byte
	places places
}

func newRequest(frame []byte, p places) request {
	return request{append([]byte(nil), frame...), p}
}

// under returns the request with the number n.
func (r request) under(n int64) []byte {
	return wire.Splice(nil, r.frame, r.places.appendEdits(nil, strconv.AppendInt(nil, n, 10)))
}

// memory is what a session has said to its server that a new process of it must
// hear before anything else: the handshake, the log level and subscriptions.
type memory struct {
	mu            sync.Mutex // guards the fields below
	offered       request    // the last initialize that the client has sent
	handshake     request    // the last one that the server has answered with a result
	lists         []string   // whose changes it then said that it announces
	initialized   []byte     // notifications/initialized
	level         request
	subscriptions map[string]request // by the raw URI
}

func (m *memory) rememberHandshake(frame []byte, p places) {
	if len(frame) > maxRestoredSize {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.offered = newRequest(frame, p)
}

// shake records that the server has answered the handshake with the result. One
// that is refused changes nothing.
func (m *memory) shake(result []byte) {
	lists := announced(result)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.handshake, m.lists = m.offered, lists
}

func (m *memory) rememberInitialized(frame []byte, cuts []wire.Edit) {
	if len(frame) > maxRestoredSize {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.initialized = wire.Splice(nil, frame, cuts)
}

func (m *memory) rememberLevel(frame []byte, p places) {
	if len(frame) > maxRestoredSize {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.level = newRequest(frame, p)
}

func (m *memory) subscribe(uri string, frame []byte, p places) {
	if len(frame) > maxRestoredSize {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.subscriptions == nil {
		m.subscriptions = make(map[string]request)
	}
	if _, again := m.subscriptions[uri]; again || len(m.subscriptions) < maxRestored {
		m.subscriptions[uri] = newRequest(frame, p)
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
	return m.handshake, m.handshake.frame != nil
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

// announced returns the lists whose changes the server announces, by the result
// of its handshake.
func announced(result []byte) []string {
	type list struct {
		ListChanged bool `json:"listChanged"`
	}
	var r struct {
		Capabilities struct{ Tools, Resources, Prompts list } `json:"capabilities"`
	}
	if json.Unmarshal(result, &r) != nil {
		return nil
	}
	var lists []string
	for _, l := range []struct {
		name string
		list
	}{{"tools", r.Capabilities.Tools}, {"resources", r.Capabilities.Resources}, {"prompts", r.Capabilities.Prompts}} {
		if l.ListChanged {
			lists = append(lists, l.name)
		}
	}
	return lists
}

// changed returns the notifications that tell the client to read its lists anew,
// as far as the server has announced them.
func (m *memory) changed() [][]byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	var frames [][]byte
	for _, name := range m.lists {
		frames = append(frames, []byte(`{"jsonrpc":"2.0","method":"notifications/`+name+`/list_changed"}`))
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
