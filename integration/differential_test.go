package integration

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A conversation is what a client says, step by step, so that a server that
// answers in order gives the same transcript every time.
type conversation struct {
	capabilities string
	steps        []step
	marked       bool // every line bears a member that the protocol does not know
}

const mark = `"vendor":"<1.0>"`

// step sends a line and waits for a message that contains until, which is the
// answer to the line's id when it is empty. When the server asks something on
// the way, reply is what it gets as result.
type step struct {
	send  string
	until string
	reply string
}

// hold has the conversation and gives the transcript.
func (v conversation) hold(c *client) []string {
	c.t.Helper()
	send := func(line string) {
		if v.marked {
			line = strings.Replace(line, `"jsonrpc":"2.0"`, `"jsonrpc":"2.0",`+mark, 1)
		}
		c.send("%s", line)
	}
	c.initialize("2025-06-18", v.capabilities)
	for _, s := range v.steps {
		if s.send != "" {
			send(s.send)
		}
		if s.reply != "" {
			question := c.take("question after "+s.send, func(m *message) bool { return m.Method != "" && m.ID != nil })
			send(`{"jsonrpc":"2.0","id":` + string(question.ID) + `,"result":` + s.reply + `}`)
		}
		if s.until != "" {
			c.take(s.until, func(m *message) bool { return strings.Contains(m.raw, s.until) })
		} else if from, to, ok := member(s.send, "id"); ok {
			c.answer(s.send[from:to])
		}
	}
	return c.transcript()
}

// call is a step that calls a tool with an id of its own.
func toolStep(id, tool, arguments string) step {
	return step{send: `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"` + tool + `","arguments":` + arguments + `}}`}
}

func (s step) waitFor(text string) step { s.until = text; return s }

func (s step) answering(result string) step { s.reply = result; return s }

// isNoise says that a line from a server is no message.
func isNoise(line string) bool {
	_, _, method := member(line, "method")
	_, _, id := member(line, "id")
	return !method && !id
}

// fakeConversation takes the fake server through everything that it does
// without breaking the protocol.
func fakeConversation() conversation {
	call := toolStep
	steps := []step{
		{send: `{"jsonrpc":"2.0","id":"list","method":"tools/list"}`},
		{send: ` {"params" : { } ,"id":  9007199254740993 ,"method":"tools/list","jsonrpc":"2.0"}  `},
		{send: `{"jsonrpc":"2.0","id":-7,"method":"vendor/echo","params":{"a":1.0,"b":[9007199254740993,"<&>\u2028\ud83d"],"":null}}`},
		{send: `{"jsonrpc":"2.0","id":"é\n\u00e9","method":"vendor/unknown"}`},
		{send: `{"jsonrpc":"2.0","id":0,"method":"ping"}`},
		{send: `{"jsonrpc":"2.0","id":11,"method":"prompts/list"}`},
		call("12", "echo", `{"b":1,"a":2,"n":1E+2,"z":-0.0,"big":123456789012345678901234567890,"s":"<b>&amp;\u2028\ud83d\/é🦀"}`),
		call("13", "no such tool", `{}`),
		call("14", "big", `{"bytes":300000}`),
		call("15", "drip", `{"text":"slowly "}`),
		call("16", "noise", `{}`),
		call("17", "flood", `{"bytes":300000}`),
		call("18", "chatty", `{"n":3}`).waitFor("after 2"),
		{send: `{"jsonrpc":"2.0","id":19,"method":"logging/setLevel","params":{"level":"error"}}`},
		call("20", "levels", `{}`),
		{send: `{"jsonrpc":"2.0","id":21,"method":"resources/subscribe","params":{"uri":"x:y"}}`},
		call("22", "touch", `{"uri":"x:y"}`),
		{send: `{"jsonrpc":"2.0","id":23,"method":"resources/unsubscribe","params":{"uri":"x:y"}}`},
		call("24", "touch", `{"uri":"x:y"}`),
		call("25", "grow", `{}`),
		{send: `{"jsonrpc":"2.0","id":26,"method":"tools/list"}`},
		{send: `{"jsonrpc":"2.0","id":27,"method":"tools/call","params":{"_meta":{"vendor/k":1.0,"progressToken":"tök\u0000en"},"name":"progress","arguments":{"n":3,"text":"t"}}}`},
		{send: `{"jsonrpc":"2.0","id":28,"method":"tools/call","params":{"_meta":{"progressToken":9007199254740993},"name":"progress","arguments":{"n":2,"text":"u"}}}`},
		{send: `{"jsonrpc":"2.0","method":"notifications/vendor","params":{"n":1.0}}`},
		call("29", "ask", `{"method":"roots/list"}`).answering(`{"roots":[{"uri":"file:///a","vendor":1.0}],"x":9007199254740993}`),
		call("30", "ask", `{"method":"sampling/createMessage","params":{"maxTokens":1e2,"vendor":"<&>"}}`).answering(`{"role":"assistant","content":{"type":"vendor","n":1.0},"model":"\ud83d"}`),
		call("31", "ask", `{"method":"elicitation/create","params":{"message":"\u2028"}}`).answering(`null`),
		call("32", "count", `{}`),
		call("33", "count", `{}`),
	}
	kinds := []string{"result", "error", "envelope", "failure", "empty", "null", "scalar", "data", "deep"}
	for _, kind := range kinds {
		steps = append(steps, call(`"`+kind+`"`, "odd", `{"kind":"`+kind+`"}`))
	}
	return conversation{capabilities: `{"roots":{},"sampling":{},"elicitation":{}}`, steps: steps, marked: true}
}

// TestSameBytes holds one conversation in every way, and compares what the
// client saw and what the server saw. Noise is what a client need not see. A
// second run of the direct way shows that a difference is not the server's.
func TestSameBytes(t *testing.T) {
	t.Parallel()
	type view struct{ client, server []string }
	hold := func(t *testing.T, w way) (v view) {
		r := newRig(t)
		r.servers["fake"] = r.fake("-banner")
		for _, line := range fakeConversation().hold(r.open(w, "fake")) {
			if !isNoise(line) {
				v.client = append(v.client, asSeenByClient(line))
			}
		}
		for _, e := range r.events("in") {
			if strings.Contains(e.detail, mark) {
				v.server = append(v.server, asSeenByServer(e.detail))
			}
		}
		return v
	}
	want := hold(t, direct)
	eachWay(t, func(t *testing.T, w way) {
		got := hold(t, w)
		compare(t, "the client sees", got.client, want.client)
		compare(t, "the server sees", got.server, want.server)
	})
}

// compare reports the first line in which two transcripts differ.
func compare(t *testing.T, what string, got, want []string) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		g, w := "nothing", "nothing"
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w {
			at := 0
			for at < min(len(g), len(w)) && g[at] == w[at] {
				at++
			}
			from := max(0, at-80)
			t.Errorf("%s as message %d of %d, from byte %d\n got %.400s\nwant %.400s", what, i+1, len(want), from, g[from:], w[from:])
			return
		}
	}
}

// realConversations are for the reference servers. The texts DIR stand for the
// directory of the test.
func realConversations() map[string]conversation {
	call := toolStep
	list := func(id, method string) step {
		return step{send: `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `"}`}
	}
	return map[string]conversation{
		"everything": {capabilities: `{"sampling":{},"elicitation":{"form":{},"url":{}},"roots":{"listChanged":true}}`, steps: []step{
			{reply: `{"roots":[{"uri":"file:///a","name":"a"}]}`, until: "Roots updated"},
			list("1", "tools/list"), list("2", "resources/list"), list("3", "resources/templates/list"), list("4", "prompts/list"),
			call("5", "echo", `{"message":"<b>&amp;\u2028\u0000\ud83d🦀"}`), call("6", "get-sum", `{"a":1.5,"b":1e2}`),
			call("7", "get-tiny-image", `{}`), call("8", "get-structured-content", `{"location":"Chicago"}`),
			call("9", "get-annotated-message", `{"messageType":"error","includeImage":true}`), call("10", "get-resource-links", `{"count":3}`),
			call("11", "echo", `{}`), call("12", "nothing", `{}`),
			{send: `{"jsonrpc":"2.0","id":13,"method":"tools/call","params":{"name":"trigger-long-running-operation","arguments":{"duration":0.2,"steps":2},"_meta":{"progressToken":"p"}}}`},
			call("14", "trigger-sampling-request", `{"prompt":"p"}`).answering(`{"role":"assistant","model":"m","content":{"type":"text","text":"s"}}`),
			call("15", "trigger-elicitation-request", `{}`).answering(`{"action":"accept","content":{"name":"n"}}`),
			{send: `{"jsonrpc":"2.0","id":16,"method":"resources/read","params":{"uri":"demo://resource/static/document/features.md"}}`},
			{send: `{"jsonrpc":"2.0","id":17,"method":"prompts/get","params":{"name":"args-prompt","arguments":{"city":"Lyon"}}}`},
			{send: `{"jsonrpc":"2.0","id":18,"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"completable-prompt"},"argument":{"name":"department","value":""}}}`},
			{send: `{"jsonrpc":"2.0","id":19,"method":"resources/subscribe","params":{"uri":"demo://resource/dynamic/text/1"}}`},
			{send: `{"jsonrpc":"2.0","id":20,"method":"nothing/here"}`},
		}},
		"filesystem": {capabilities: `{}`, steps: []step{
			list("1", "tools/list"),
			call("2", "write_file", `{"path":"DIR/files/a.txt","content":"one <&> \u2028\n"}`),
			call("3", "edit_file", `{"path":"DIR/files/a.txt","edits":[{"oldText":"one","newText":"two"}]}`),
			call("4", "read_text_file", `{"path":"DIR/files/a.txt"}`), call("5", "list_directory", `{"path":"DIR/files"}`),
			call("6", "read_text_file", `{"path":"/etc/passwd"}`), call("7", "list_allowed_directories", `{}`),
		}},
		"memory": {capabilities: `{}`, steps: []step{
			list("1", "tools/list"),
			call("2", "create_entities", `{"entities":[{"name":"n","entityType":"t","observations":["<&>\u2028"]}]}`),
			call("3", "read_graph", `{}`), call("4", "search_nodes", `{"query":"<"}`), call("5", "open_nodes", `{"names":[]}`),
		}},
		"sequential-thinking": {capabilities: `{}`, steps: []step{
			list("1", "tools/list"),
			call("2", "sequentialthinking", `{"thought":"t","nextThoughtNeeded":true,"thoughtNumber":1,"totalThoughts":2}`),
			call("3", "sequentialthinking", `{"thought":"","nextThoughtNeeded":"no"}`),
		}},
	}
}

// TestSameBytesReal does the same with the reference servers. What they send
// of their own accord comes when it comes, so it is compared apart.
func TestSameBytesReal(t *testing.T) {
	t.Parallel()
	for name, conversation := range realConversations() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hold := func(t *testing.T, w way) (answers, others []string) {
				r := newRig(t)
				if err := os.Mkdir(filepath.Join(r.dir, "files"), 0o700); err != nil {
					t.Fatal(err)
				}
				s := reference(t, name)
				switch name {
				case "filesystem":
					s.Args = append(s.Args, filepath.Join(r.dir, "files"))
				case "memory":
					s.Env = map[string]string{"MEMORY_FILE_PATH": filepath.Join(r.dir, "memory.jsonl")}
				}
				r.servers[name] = s
				held := conversation
				held.steps = slices.Clone(held.steps)
				for i := range held.steps {
					held.steps[i].send = strings.ReplaceAll(held.steps[i].send, "DIR", r.dir)
				}
				for _, line := range held.hold(r.open(w, name)) {
					line = strings.ReplaceAll(asSeenByClient(line), r.dir, "DIR")
					if _, _, method := member(line, "method"); method {
						others = append(others, line)
					} else {
						answers = append(answers, line)
					}
				}
				slices.Sort(others)
				return answers, others
			}
			answers, others := hold(t, direct)
			eachWay(t, func(t *testing.T, w way) {
				gotAnswers, gotOthers := hold(t, w)
				compare(t, "answers", gotAnswers, answers)
				compare(t, "requests and notifications", gotOthers, others)
			})
		})
	}
}
