package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
)

// args is what the tools take; each uses what it needs.
type args struct {
	Bytes  int             `json:"bytes"`
	N      int             `json:"n"`
	MS     int             `json:"ms"`
	Key    string          `json:"key"`
	Kind   string          `json:"kind"`
	Text   string          `json:"text"`
	Names  []string        `json:"names"`
	URI    string          `json:"uri"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
}

func (c *call) args() (a args) {
	json.Unmarshal(c.params.Arguments, &a) // what does not fit stays zero
	return a
}

// behaviours are the tools. Each sends its own answer, or none.
var behaviours = map[string]func(*server, *call){
	"echo":      echo,       // the arguments, byte for byte
	"params":    echoParams, // all of params, byte for byte
	"odd":       odd,        // a result, an error or an envelope of an odd kind
	"big":       big,        // a text of so many bytes
	"noise":     noise,      // lines that are no messages around the answer
	"flood":     flood,      // so many bytes on standard error before the answer
	"drip":      drip,       // the answer a byte at a time
	"chatty":    chatty,     // n log messages around the answer
	"levels":    levels,     // a log message at each level from the set one on
	"progress":  progress,   // n steps and the answer; of kind late, one more step and a log message
	"twice":     twice,      // two answers
	"stray":     stray,      // answers to nobody around the answer
	"late":      late,       // the answer only after the cancellation
	"hold":      hold,       // no answer before release of the same key
	"release":   release,    // lets hold go
	"sleep":     sleep,      // the answer after so many milliseconds
	"crash":     crash,      // the process ends by exit or by a signal
	"mute":      mute,       // standard output closes, the process lives on
	"ask":       ask,        // a request to the client, n times at once; the answers
	"env":       env,        // directory, process id and the named variables
	"count":     count,      // one more than the last time, in this process
	"grow":      grow,       // one more tool, and tools/list_changed
	"touch":     touch,      // an update of the URI, if subscribed; one for each listener
	"need":      need,       // more input first (revision 2026-07-28)
	"aged":      aged,       // the protocol version is refused (revision 2026-07-28)
	"unlistens": unlistens,  // every subscriptions/listen ends
}

// toolList is every tool as it is listed, each with members that nobody knows.
func toolList(grown int) [][]byte {
	var list [][]byte
	add := func(name, hints string) {
		list = append(list, fmt.Appendf(nil, `{"name":%q,"vendor":{"x":1.0},"description":"<%s> & co\u2028","annotations":{%s"vendorHint":null},`+
			`"inputSchema":{"type":"object","$defs":{"a":{"const":9007199254740993}},"properties":{"z":{"$ref":"#/$defs/a"},"a":{"type":["null","string"]}},"if":{},"then":true,"x-order":["z","a"]},`+
			`"outputSchema":{"type":"object","additionalProperties":true}}`, name, name, hints))
	}
	for _, name := range slices.Sorted(maps.Keys(behaviours)) {
		hints := `"readOnlyHint":true,`
		if name == "count" || name == "release" {
			hints = `"readOnlyHint":false,"destructiveHint":false,`
		}
		if name == "env" {
			hints = ""
		}
		add(name, hints)
	}
	for i := range grown {
		add(fmt.Sprintf("grown-%d", i+1), `"readOnlyHint":true,`)
	}
	return list
}

func (s *server) text(c *call, text string) {
	b, _ := json.Marshal(text) // a string always has a form
	s.reply(c.id, `{"content":[{"type":"text","text":`+string(b)+`}]}`)
}

func echo(s *server, c *call) {
	s.reply(c.id, `{"content":[],"structuredContent":`+string(orNull(c.params.Arguments))+`}`)
}

func echoParams(s *server, c *call) {
	s.reply(c.id, `{"content":[],"structuredContent":`+string(c.params.raw)+`}`)
}

func big(s *server, c *call) { s.text(c, strings.Repeat("x", c.args().Bytes)) }

func noise(s *server, c *call) {
	s.print("Loading model... 100%\n{\"level\":\"warn\"}\n\n{\"jsonrpc\":\"2.0\"}\nnull\n{\"truncated\":\n\xff\xfe\n")
	s.text(c, "between noises")
	s.print("done\n")
}

func flood(s *server, c *call) {
	for left := c.args().Bytes; left > 0; {
		n, err := os.Stderr.WriteString(strings.Repeat("e", min(left, 4096)))
		if err != nil {
			break
		}
		left -= n
	}
	s.text(c, "flooded")
}

func drip(s *server, c *call) {
	line := `{"jsonrpc":"2.0","id":` + string(c.id) + `,"result":{"content":[{"type":"text","text":"` + c.args().Text + `é漢🦀"}]}}` + "\n"
	s.writing.Lock()
	defer s.writing.Unlock()
	for i := range len(line) {
		s.out.WriteString(line[i : i+1])
	}
}

func (s *server) logMessage(level, text string) {
	s.notify("notifications/message", fmt.Sprintf(`{"level":%q,"logger":"fake","data":{"text":%q,"n":1.0},"vendor":[]}`, level, text))
}

func chatty(s *server, c *call) {
	n := c.args().N
	for i := range n {
		s.logMessage("info", fmt.Sprintf("before %d", i))
	}
	s.text(c, "in the middle")
	for i := range n {
		s.logMessage("info", fmt.Sprintf("after %d", i))
	}
}

var severities = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

func levels(s *server, c *call) {
	s.mu.Lock()
	from := slices.Index(severities, s.level)
	s.mu.Unlock()
	for _, level := range severities[max(from, 0):] {
		s.logMessage(level, "at "+level)
	}
	s.text(c, "logged")
}

// step sends progress to a call that wants it.
func (s *server) step(c *call, i, n int) {
	if c.params.Meta.Token != nil {
		s.notify("notifications/progress", fmt.Sprintf(`{"progressToken":%s,"progress":%d.0,"total":%d,"message":%q,"vendor":"<&>"}`, c.params.Meta.Token, i, n, c.args().Text))
	}
}

func progress(s *server, c *call) {
	n := c.args().N
	for i := range n {
		s.step(c, i+1, n)
	}
	s.text(c, c.args().Text)
	if c.args().Kind == "late" {
		s.step(c, n+1, n)
		s.logMessage("info", "after the late progress")
	}
}

func twice(s *server, c *call) {
	s.text(c, "first answer")
	s.text(c, "second answer")
	s.logMessage("info", "after the second answer")
}

func stray(s *server, c *call) {
	for _, id := range []string{"0", "99999", `"99999"`, "-1", "null", "1.5", `"srv"`} {
		s.print(`{"jsonrpc":"2.0","id":` + id + `,"result":{"content":[{"type":"text","text":"for nobody"}]}}` + "\n")
	}
	s.text(c, "the right answer")
	s.logMessage("info", "after the stray answers")
}

func late(s *server, c *call) {
	s.step(c, 1, 1)
	select {
	case <-c.cancel:
		s.text(c, "too late")
		s.logMessage("info", "after the late answer")
	case <-s.end:
	}
}

func hold(s *server, c *call) {
	key := c.args().Key
	s.mu.Lock()
	s.held[key] = c
	s.mu.Unlock()
	s.note("hold", key)
	s.step(c, 1, 2)
	select {
	case <-c.free:
		s.text(c, "held "+key)
	case <-c.cancel:
	case <-s.end:
	}
}

func release(s *server, c *call) {
	key := c.args().Key
	s.mu.Lock()
	held := s.held[key]
	delete(s.held, key)
	s.mu.Unlock()
	if held == nil {
		s.text(c, "nothing held")
		return
	}
	close(held.free)
	s.text(c, "released "+key)
}

func sleep(s *server, c *call) {
	s.note("sleep", c.args().Key)
	time.Sleep(time.Duration(c.args().MS) * time.Millisecond)
	s.text(c, "slept")
}

func crash(s *server, c *call) {
	fmt.Fprintln(os.Stderr, "fakeserver: crashing as asked")
	s.note("crash", c.args().Kind)
	if c.args().Kind == "kill" {
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	os.Exit(7)
}

func mute(s *server, c *call) {
	s.note("mute", "")
	s.out.Close()
}

func ask(s *server, c *call) {
	a := c.args()
	answers := make(chan string)
	n := max(a.N, 1)
	for range n {
		go func() { answers <- s.ask(a.Method, string(orNull(a.Params))) }()
	}
	var lines []string
	for range n {
		lines = append(lines, <-answers)
	}
	slices.Sort(lines)
	s.text(c, strings.Join(lines, "\n"))
}

func env(s *server, c *call) {
	cwd, _ := os.Getwd() // an unreadable directory shows as ""
	values := map[string]*string{}
	for _, name := range c.args().Names {
		values[name] = nil
		if v, ok := os.LookupEnv(name); ok {
			values[name] = &v
		}
	}
	b, _ := json.Marshal(map[string]any{"pid": os.Getpid(), "cwd": cwd, "env": values, "args": os.Args[1:]})
	s.reply(c.id, `{"content":[],"structuredContent":`+string(b)+`}`)
}

func count(s *server, c *call) {
	s.mu.Lock()
	s.counter++
	n := s.counter
	s.mu.Unlock()
	s.text(c, fmt.Sprint(n))
}

func grow(s *server, c *call) {
	s.mu.Lock()
	s.tools++
	s.mu.Unlock()
	s.notify("notifications/tools/list_changed", `{"vendor":1.0}`)
	s.text(c, "grown")
}

func touch(s *server, c *call) {
	uri := c.args().URI
	s.mu.Lock()
	subscribed, listening := s.subscribed[uri], slices.Clone(s.listening)
	s.mu.Unlock()
	if subscribed {
		s.notify("notifications/resources/updated", fmt.Sprintf(`{"uri":%q,"vendor":1.0}`, uri))
	}
	for _, id := range listening {
		s.notify("notifications/resources/updated", fmt.Sprintf(`{"uri":%q,"_meta":{%s}}`, uri, subscription(id)))
	}
	s.text(c, "touched")
}

func unlistens(s *server, c *call) {
	s.mu.Lock()
	ids := s.listening
	s.listening = nil
	s.mu.Unlock()
	for _, id := range ids {
		s.reply(id, `{"resultType":"complete","_meta":{`+subscription(id)+`}}`)
	}
	s.text(c, "ended")
}

func need(s *server, c *call) {
	if c.params.State != "" {
		echoParams(s, c)
		return
	}
	s.reply(c.id, `{"resultType":"input_required","requestState":"opaque+/==<&>","inputRequests":{"k":{"method":"elicitation/create","params":{"message":"?","vendor":1.0}}}}`)
}

func aged(s *server, c *call) {
	s.print(`{"jsonrpc":"2.0","id":` + string(c.id) + `,"error":{"code":-32022,"message":"Unsupported protocol version","data":{"supported":["2026-07-28"],"requested":"2099-01-01"}}}` + "\n")
}
