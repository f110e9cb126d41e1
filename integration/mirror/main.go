package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"log"
	"os"
)

type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Version   string `json:"protocolVersion"`
		Name      any    `json:"name"`
		Arguments struct {
			Path any `json:"path"`
		} `json:"arguments"`
	} `json:"params"`
}

func main() {
	lines := bufio.NewReader(os.Stdin)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var m message
		if err := json.Unmarshal(line, &m); err != nil && m.ID == nil {
			continue
		}
		switch {
		case m.Method == "initialize":
			reply(m.ID, fmt.Sprintf(`{"protocolVersion":%q,"capabilities":{"tools":{}},"serverInfo":{"name":"mirror","version":"1"}}`, m.Params.Version))
		case m.Method == "tools/call":
			seen, err := json.Marshal(map[string]any{"name": m.Params.Name, "path": m.Params.Arguments.Path})
			if err != nil {
				log.Fatal(err)
			}
			text, err := json.Marshal(string(seen))
			if err != nil {
				log.Fatal(err)
			}
			reply(m.ID, `{"content":[{"type":"text","text":`+string(text)+`}]}`)
		case m.ID != nil:
			reply(m.ID, "{}")
		}
	}
}

func reply(id json.RawMessage, result string) {
	fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", id, result)
}
