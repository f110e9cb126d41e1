package integration

import (
	"encoding/json"
	"strings"
	"testing"
)

// member finds a member of a JSON object, and gives where its value begins and
// ends. The last of several of the same name counts.
func member(object, name string) (from, to int, found bool) {
	dec := json.NewDecoder(strings.NewReader(object))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return 0, 0, false
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return 0, 0, false
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return 0, 0, false
		}
		if key == name {
			to, found = int(dec.InputOffset()), true
			from = to - len(value)
		}
	}
	return from, to, found
}

// blank replaces the value at a path of members by "*", and leaves every other
// byte as it is. What is not there stays not there.
func blank(object string, path ...string) string {
	from, to, found := member(object, path[0])
	if !found {
		return object
	}
	value := `"*"`
	if len(path) > 1 {
		value = blank(object[from:to], path[1:]...)
	}
	return object[:from] + value + object[to:]
}

// asSeenByClient takes from a line that a server sent what may differ from one
// way to another: the id of a question of the server's own.
func asSeenByClient(line string) string {
	if _, _, question := member(line, "method"); question {
		return blank(line, "id")
	}
	return line
}

// asSeenByServer takes from a line that a client sent what may differ: the
// names by which either side means a call.
func asSeenByServer(line string) string {
	for _, path := range [][]string{{"id"}, {"params", "_meta", "progressToken"}, {"params", "requestId"}} {
		line = blank(line, path...)
	}
	return line
}

func TestBlank(t *testing.T) {
	for _, test := range []struct{ in, want string }{
		{`{ "a" : [1.0] , "id" : "x" ,"z":{"id":1}}`, `{ "a" : [1.0] , "id" : "*" ,"z":{"id":1}}`},
		{`{"params":{"_meta":{"progressToken":7,"k":1.0}}}`, `{"params":{"_meta":{"progressToken":"*","k":1.0}}}`},
		{`{"s":"\ud83d","params":[]}`, `{"s":"\ud83d","params":[]}`},
		{`not json`, `not json`},
	} {
		if got := asSeenByServer(test.in); got != test.want {
			t.Errorf("asSeenByServer(%s) = %s, want %s", test.in, got, test.want)
		}
	}
}
