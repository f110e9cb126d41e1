package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// server is one process's state. Calls run in goroutines of their own, which
// endOfInput waits for.
type server struct {
	config config
	calls  sync.WaitGroup

	writing sync.Mutex // held for a whole line on out
	out     *os.File

	noting sync.Mutex // held for a whole line on events
	events io.Writer

	mu          sync.Mutex // guards what follows
	running     map[string]*call
	held        map[string]*call // by key, of the tool hold
	asked       map[string]chan string
	questions   int
	initialized int  // initialize requests so far
	ready       bool // notifications/initialized came
	level       string
	subscribed  map[string]bool
	listening   []json.RawMessage // ids of subscriptions/listen requests
	tools       int               // added by the tool grow
	counter     int

	end chan struct{} // closed when the input has ended
}

// call is a tools/call under way.
type call struct {
	id     json.RawMessage
	params params
	cancel chan struct{} // closed by notifications/cancelled
	free   chan struct{} // closed by the tool release
	once   sync.Once     // closes cancel
}

type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
}

type params struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
	Cursor    string          `json:"cursor"`
	Level     string          `json:"level"`
	URI       string          `json:"uri"`
	RequestID json.RawMessage `json:"requestId"`
	Version   string          `json:"protocolVersion"`
	State     string          `json:"requestState"`
	Meta      struct {
		Token json.RawMessage `json:"progressToken"`
	} `json:"_meta"`

	raw json.RawMessage
}

func newServer(c config, out *os.File) *server {
	return &server{
		config: c, out: out, events: io.Discard, level: "debug",
		running: map[string]*call{}, held: map[string]*call{}, asked: map[string]chan string{}, subscribed: map[string]bool{},
		end: make(chan struct{}),
	}
}

// note appends one line to the log.
func (s *server) note(event, detail string) {
	s.noting.Lock()
	defer s.noting.Unlock()
	fmt.Fprintf(s.events, "%d %s %s\n", os.Getpid(), event, detail)
}

// print writes text to standard output as it is, in one piece.
func (s *server) print(text string) {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.out.WriteString(text)
}

func (s *server) reply(id json.RawMessage, result string) {
	s.print(`{"jsonrpc":"2.0","id":` + string(id) + `,"result":` + result + "}\n")
}

func (s *server) refuse(id json.RawMessage, code int, why string) {
	s.print(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%q}}`+"\n", id, code, why))
}

func (s *server) notify(method, params string) {
	s.print(`{"jsonrpc":"2.0","method":"` + method + `","params":` + params + "}\n")
}

// receive handles one line of input. It never blocks on a call.
func (s *server) receive(line string) {
	s.note("in", line)
	var m message
	if err := json.Unmarshal([]byte(line), &m); err != nil {
		s.print(`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}` + "\n")
		return
	}
	p := params{raw: m.Params}
	json.Unmarshal(m.Params, &p) // what does not fit stays zero
	switch {
	case m.Method == "":
		s.answered(m.ID, line)
	case m.ID == nil:
		s.notification(m.Method, p)
	default:
		s.request(m, p)
	}
}

func (s *server) notification(method string, p params) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch method {
	case "notifications/initialized":
		s.ready = true
	case "notifications/cancelled":
		c := s.running[string(p.RequestID)]
		if c == nil {
			s.note("cancel", "of nothing: "+string(p.RequestID))
			return
		}
		s.note("cancel", c.params.Name+" "+string(c.params.Arguments))
		c.once.Do(func() { close(c.cancel) })
	}
}

func (s *server) request(m message, p params) {
	s.mu.Lock()
	early := s.config.strict && !s.ready && m.Method != "initialize" && m.Method != "server/discover"
	s.mu.Unlock()
	if early {
		s.refuse(m.ID, -32602, "request before initialization was complete")
		return
	}
	switch m.Method {
	case "initialize":
		s.initialize(m.ID, p)
	case "server/discover":
		s.discover(m.ID)
	case "ping":
		switch s.config.ping {
		case "answer":
			s.reply(m.ID, "{}")
		case "refuse":
			s.refuse(m.ID, -32601, "Method not found")
		}
	case "tools/list":
		s.listTools(m.ID, p)
	case "tools/call":
		s.startCall(m.ID, p)
	case "logging/setLevel":
		s.mu.Lock()
		s.level = p.Level
		s.mu.Unlock()
		s.reply(m.ID, "{}")
	case "resources/subscribe", "resources/unsubscribe":
		s.mu.Lock()
		s.subscribed[p.URI] = m.Method == "resources/subscribe"
		s.mu.Unlock()
		s.reply(m.ID, "{}")
	case "subscriptions/listen":
		s.mu.Lock()
		s.listening = append(s.listening, m.ID)
		s.mu.Unlock()
		s.notify("notifications/subscriptions/acknowledged", `{"_meta":{`+subscription(m.ID)+`},"notifications":{}}`)
	case "vendor/echo":
		s.reply(m.ID, string(orNull(m.Params)))
	default:
		s.refuse(m.ID, -32601, "Method not found")
	}
}

func subscription(id json.RawMessage) string {
	return `"io.modelcontextprotocol/subscriptionId":` + string(id)
}

func orNull(raw json.RawMessage) json.RawMessage {
	if raw == nil {
		return json.RawMessage("null")
	}
	return raw
}

func (s *server) initialize(id json.RawMessage, p params) {
	s.mu.Lock()
	s.initialized++
	again := s.initialized > 1
	s.mu.Unlock()
	if again && s.config.once {
		fmt.Fprintln(os.Stderr, "fakeserver: initialized already")
		os.Exit(1)
	}
	for s.config.gate != "" {
		if _, err := os.Stat(s.config.gate); err == nil {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	s.reply(id, fmt.Sprintf(`{"vendorFirst":[1.0,9007199254740993],"protocolVersion":%q,"capabilities":%s,`+
		`"serverInfo":{"name":"fake","version":"1.0","vendor":{"deep":"<&>"}},"instructions":"Misbehave.\u2028\ud83d","_meta":{"vendor/x":1e2}}`,
		p.Version, capabilities))
}

const capabilities = `{"tools":{"listChanged":true},"resources":{"subscribe":true,"listChanged":false},"logging":{},"vendor":{"a":-0.0},"experimental":{"x":{"y":1.50}}}`

func (s *server) discover(id json.RawMessage) {
	switch s.config.discover {
	case "serve":
		s.reply(id, `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":`+capabilities+`,`+
			`"serverInfo":{"name":"fake","version":"1.0"},"ttlMs":0,"cacheScope":"private","vendor":1.0}`)
	case "refuse":
		s.refuse(id, -32601, "Method not found")
	case "exit":
		os.Exit(1)
	}
}

// listTools gives all tools, or with -pages one each time, under cursors that
// are hard to carry; the last page points at itself.
func (s *server) listTools(id json.RawMessage, p params) {
	s.mu.Lock()
	grown := s.tools
	s.mu.Unlock()
	all := toolList(grown)
	if !s.config.pages {
		s.reply(id, `{"tools":[`+string(bytes.Join(all, []byte(",")))+`],"vendor":{"n":12345678901234567890}}`)
		return
	}
	at := 0
	if p.Cursor != "" {
		if _, err := fmt.Sscanf(p.Cursor, "<\u2028&\"at %d", &at); err != nil || at >= len(all) {
			s.refuse(id, -32602, "unknown cursor")
			return
		}
	}
	cursor, _ := json.Marshal(fmt.Sprintf("<\u2028&\"at %d", min(at+1, len(all)-1)))
	s.reply(id, `{"nextCursor":`+string(cursor)+`,"tools":[`+string(all[at])+`]}`)
}

func (s *server) startCall(id json.RawMessage, p params) {
	behave, ok := behaviours[p.Name]
	if !ok {
		s.refuse(id, -32602, "Unknown tool: "+p.Name)
		return
	}
	c := &call{id: id, params: p, cancel: make(chan struct{}), free: make(chan struct{})}
	s.mu.Lock()
	s.running[string(id)] = c
	s.mu.Unlock()
	s.calls.Go(func() {
		behave(s, c)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.running[string(id)] == c {
			delete(s.running, string(id))
		}
	})
}

// ask sends a request to the client and gives back the line that answers it,
// or "" when the input ends first.
func (s *server) ask(method, params string) string {
	s.mu.Lock()
	s.questions++
	id := fmt.Sprintf(`"q-%d"`, s.questions)
	if s.questions%2 == 0 {
		id = fmt.Sprint(s.questions)
	}
	answer := make(chan string, 1)
	s.asked[id] = answer
	s.mu.Unlock()
	s.print(`{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":` + params + "}\n")
	select {
	case line := <-answer:
		return line
	case <-s.end:
		return ""
	}
}

func (s *server) answered(id json.RawMessage, line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, ok := s.asked[string(id)]; ok {
		delete(s.asked, string(id))
		c <- line
		return
	}
	s.note("stray", line)
}

// endOfInput lets go of whatever waits for a message and waits for the calls.
func (s *server) endOfInput() {
	close(s.end)
	s.calls.Wait()
}
