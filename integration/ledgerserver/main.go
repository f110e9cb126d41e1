package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("ledgerserver: ")
	logFile := flag.String("log", "", "append each call to this `file`")
	flag.Parse()
	s := &server{cancelled: make(map[string]chan struct{}), asked: make(map[string]chan struct{})}
	if *logFile != "" {
		f, err := os.OpenFile(*logFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			log.Fatal(err)
		}
		s.log = f
	}
	if err := s.serve(os.Stdin); !errors.Is(err, io.EOF) {
		log.Fatal(err)
	}
}

// server is the state of the process. Calls run in goroutines of their own, and end
// with the process.
type server struct {
	log     *os.File   // nil without -log
	writing sync.Mutex // held for a whole line of output

	mu        sync.Mutex // guards the fields below
	cancelled map[string]chan struct{}
	asked     map[string]chan struct{}
	questions int
}

type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Version   string          `json:"protocolVersion"`
		Name      string          `json:"name"`
		Arguments arguments       `json:"arguments"`
		RequestID json.RawMessage `json:"requestId"`
	} `json:"params"`
}

type arguments struct {
	Path string `json:"path"`
	MS   int    `json:"ms"`
}

// serve reads messages until that fails, which is io.EOF at the end of the input.
func (s *server) serve(input io.Reader) error {
	lines := bufio.NewReader(input)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return err
		}
		var m message
		if err := json.Unmarshal(line, &m); err != nil {
			return fmt.Errorf("reading %q: %w", line, err)
		}
		s.receive(&m)
	}
}

func (s *server) receive(m *message) {
	switch m.Method {
	case "initialize":
		s.reply(m.ID, fmt.Sprintf(`{"protocolVersion":%q,"capabilities":{"tools":{}},"serverInfo":{"name":"ledger","version":"1"}}`, m.Params.Version))
	case "tools/list":
		var tools []string
		for _, name := range []string{"add", "begin", "put", "commit", "hang", "late", "ask"} {
			tools = append(tools, fmt.Sprintf(`{"name":%q,"inputSchema":{"type":"object"},"annotations":{"readOnlyHint":false}}`, name))
		}
		tools = append(tools, `{"name":"peek","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}`)
		s.reply(m.ID, `{"tools":[`+strings.Join(tools, ",")+`]}`)
	case "ping":
		s.reply(m.ID, "{}")
	case "tools/call":
		cancelled := make(chan struct{})
		s.mu.Lock()
		s.cancelled[string(m.ID)] = cancelled
		s.mu.Unlock()
		go s.call(m, cancelled)
	case "notifications/cancelled":
		s.signal(s.cancelled, string(m.Params.RequestID))
	case "":
		s.signal(s.asked, string(m.ID))
	}
}

// signal closes the channel under the key, if there is one.
func (s *server) signal(channels map[string]chan struct{}, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := channels[key]; c != nil {
		delete(channels, key)
		close(c)
	}
}

// call does what the tool does and answers.
func (s *server) call(m *message, cancelled <-chan struct{}) {
	name, a := m.Params.Name, m.Params.Arguments
	if name == "peek" {
		n, err := number(a.Path)
		s.answer(m.ID, strconv.Itoa(n), err)
		return
	}
	s.note("begin", name, a.Path)
	text, err := s.change(name, a, cancelled)
	s.note("end", name, a.Path)
	s.answer(m.ID, text, err)
}

func (s *server) change(name string, a arguments, cancelled <-chan struct{}) (string, error) {
	switch name {
	case "hang":
		select {}
	case "late":
		<-cancelled
	case "ask":
		<-s.ask()
	case "begin":
		return "begun", a.open()
	case "commit":
		return "committed", os.Remove(a.lock())
	case "put":
		if err := a.mayPut(); err != nil {
			return "", err
		}
		return a.add()
	case "add":
		return a.add()
	default:
		return "", errors.New("no such tool")
	}
	return "done", nil
}

// add reads, waits, and writes one more.
func (a arguments) add() (string, error) {
	n, err := number(a.Path)
	if err != nil {
		return "", err
	}
	time.Sleep(time.Duration(a.MS) * time.Millisecond)
	text := strconv.Itoa(n + 1)
	return text, os.WriteFile(a.Path, []byte(text), 0o600)
}

// number is the number in a file, 0 if there is none.
func number(path string) (int, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(text) == 0 {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(text))
}

// lock is the file that is there while a transaction is open; it names the process.
func (a arguments) lock() string { return a.Path + ".lock" }

var errBusy = errors.New("BUSY: another process has a transaction open")

func (a arguments) open() error {
	f, err := os.OpenFile(a.lock(), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return errBusy
	}
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = fmt.Fprint(f, os.Getpid())
	return err
}

func (a arguments) mayPut() error {
	owner, err := os.ReadFile(a.lock())
	if err == nil && string(owner) != strconv.Itoa(os.Getpid()) {
		return errBusy
	}
	return nil
}

// ask asks the client, and returns what is closed when it answers.
func (s *server) ask() <-chan struct{} {
	answered := make(chan struct{})
	s.mu.Lock()
	s.questions++
	id := strconv.Itoa(s.questions)
	s.asked[id] = answered
	s.mu.Unlock()
	s.print(`{"jsonrpc":"2.0","id":` + id + `,"method":"elicitation/create","params":{"message":"Go on?","requestedSchema":{"type":"object","properties":{}}}}`)
	return answered
}

// note appends a line to the log, in one write.
func (s *server) note(what, tool, path string) {
	if s.log == nil {
		return
	}
	if _, err := fmt.Fprintf(s.log, "%d %s %s %s\n", os.Getpid(), what, tool, path); err != nil {
		log.Fatal(err)
	}
}

// answer answers with the result of a tool.
func (s *server) answer(id json.RawMessage, text string, err error) {
	if err != nil {
		text = err.Error()
	}
	quoted, marshalErr := json.Marshal(text)
	if marshalErr != nil {
		log.Fatal(marshalErr)
	}
	s.reply(id, fmt.Sprintf(`{"isError":%v,"content":[{"type":"text","text":%s}]}`, err != nil, quoted))
}

func (s *server) reply(id json.RawMessage, result string) {
	s.print(`{"jsonrpc":"2.0","id":` + string(id) + `,"result":` + result + `}`)
}

// print writes one line. A reader that has gone is noticed by the end of the input.
func (s *server) print(line string) {
	s.writing.Lock()
	defer s.writing.Unlock()
	_, _ = os.Stdout.WriteString(line + "\n")
}
