package wire

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// text renders what an envelope says, for comparison.
func text(frame string, env *Envelope) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d", env.Kind)
	for _, f := range []struct {
		name string
		span Span
	}{
		{"id", env.ID}, {"method", env.Method}, {"params", env.Params}, {"result", env.Result}, {"error", env.Error},
		{"name", env.Name}, {"uri", env.URI}, {"requestId", env.RequestID}, {"progressToken", env.ProgressToken},
		{"arguments", env.Arguments}, {"task", env.Task}, {"protocolVersion", env.ProtocolVersion},
		{"capabilities", env.Capabilities}, {"cursor", env.Cursor}, {"level", env.Level},
		{"nextCursor", env.NextCursor}, {"isError", env.IsError}, {"resultType", env.ResultType},
		{"meta", env.Meta}, {"token", env.MetaToken}, {"version", env.MetaVersion}, {"sub", env.SubscriptionID},
		{"lease", env.OwnLease}, {"actor", env.OwnActor},
	} {
		if f.span.Present() {
			fmt.Fprintf(&b, " %s=%s", f.name, f.span.Of([]byte(frame)))
		}
	}
	for _, s := range env.Own {
		fmt.Fprintf(&b, " own<%s>", s.Of([]byte(frame)))
	}
	return b.String()
}

func TestScan(t *testing.T) {
	for _, tt := range []struct{ frame, want string }{
		{`{"jsonrpc":"2.0","id":1,"method":"ping"}`, `0 id=1 method="ping"`},
		{` { "jsonrpc" : "2.0" , "id" : "a b" , "method" : "ping" , "params" : null } `, `0 id="a b" method="ping" params=null`},
		{`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"x","reason":"r"}}`,
			`1 method="notifications/cancelled" params={"requestId":"x","reason":"r"} requestId="x"`},
		{`{"jsonrpc":"2.0","method":"m","params":{"progressToken":-0,"progress":1.5e+3}}`,
			`1 method="m" params={"progressToken":-0,"progress":1.5e+3} progressToken=-0`},
		{`{"jsonrpc":"2.0","method":"m","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"7","io.modelcontextprotocol/protocolVersion":"v"},"uri":"f:"},"id":9007199254740993}`,
			`0 id=9007199254740993 method="m" params={"_meta":{"io.modelcontextprotocol/subscriptionId":"7","io.modelcontextprotocol/protocolVersion":"v"},"uri":"f:"} uri="f:" meta={"io.modelcontextprotocol/subscriptionId":"7","io.modelcontextprotocol/protocolVersion":"v"} version="v" sub="7"`},
		{`{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":"n","arguments":{"name":"x","NAME":1,"name":2},"task":{},"cursor":"c","level":"info","protocolVersion":"p","capabilities":[]}}`,
			`0 id=1 method="m" params={"name":"n","arguments":{"name":"x","NAME":1,"name":2},"task":{},"cursor":"c","level":"info","protocolVersion":"p","capabilities":[]} name="n" arguments={"name":"x","NAME":1,"name":2} task={} protocolVersion="p" capabilities=[] cursor="c" level="info"`},
		{`{"jsonrpc":"2.0","id":1,"result":{"nextCursor":"z","isError":true,"resultType":"t","_meta":{"progressToken":1}}}`,
			`2 id=1 result={"nextCursor":"z","isError":true,"resultType":"t","_meta":{"progressToken":1}} nextCursor="z" isError=true resultType="t" meta={"progressToken":1} token=1`},
		{`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"\ud800"}}`, `3 id=null error={"code":-32700,"message":"\ud800"}`},
		{`{"jsonrpc":"2.0","id":1.0,"result":null}`, `2 id=1.0 result=null`},
		{`{"jsonrpc":"2.0","x":1,"x":2,"id":1,"result":[{"_meta":{"Progresstoken":1}}]}`, `2 id=1 result=[{"_meta":{"Progresstoken":1}}]`},
		{`{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":null}}`, `0 id=1 method="m" params={"_meta":null}`},
		{`{"jsonrpc":"2.0","id":1,"method":"m","params":[{"name":1,"name":2}]}`, `0 id=1 method="m" params=[{"name":1,"name":2}]`},
	} {
		var env Envelope
		if err := Scan([]byte(tt.frame), &env); err != nil {
			t.Errorf("Scan(%s): %v", tt.frame, err)
		} else if got := text(tt.frame, &env); got != tt.want {
			t.Errorf("Scan(%s)\n got %s\nwant %s", tt.frame, got, tt.want)
		}
	}
}

func TestScanSyntax(t *testing.T) {
	for _, tt := range []struct {
		frame  string
		offset int
	}{
		{``, 0}, {` `, 1}, {`{`, 1}, {`{"a"`, 4}, {`{"a":`, 5}, {`{"a":1`, 6}, {`{"a":1,`, 7}, {`{"a":1,}`, 7}, {`{,}`, 1}, {`{a:1}`, 1}, {`{"a" 1}`, 5},
		{`[1,]`, 3}, {`[1 2]`, 3}, {`[`, 1}, {`[1}`, 2}, {`{"a":[}`, 6}, {`{"a":{"b":1]}`, 11}, {`{} {}`, 3}, {`{}x`, 2},
		{`nul`, 0}, {`True`, 0}, {`01`, 1}, {`-`, 1}, {`1.`, 2}, {`.5`, 0}, {`1e`, 2}, {`1e+`, 3}, {`+1`, 0}, {`NaN`, 0}, {`--1`, 1},
		{`"abc`, 4}, {"\"a\tb\"", 2}, {"\"a\x00b\"", 2}, {`"\x"`, 1}, {`"\u12"`, 1}, {`"\u12g4"`, 1}, {`"\`, 1}, {`"12345678\"`, 11},
		{"\"\xff\"", 1}, {"\"\xc0\x80\"", 1}, {"\"ab\xed\xa0\x80\"", 3}, {"\"\xf4\x90\x80\x80\"", 1}, {"\"\xe4\xbd\"", 1},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"k\xff\":1}", 42}, {"\ufeff{}", 0}, {"\xff", 0}, {"{}\xff", 2}, {"\v{}", 0},
		{strings.Repeat("[", 3000) + strings.Repeat("]", 2999) + "}", 5999},
		{`{"id":1,"id":2,"method":"x"`, 27},
	} {
		var env Envelope
		err := Scan([]byte(tt.frame), &env)
		var syntax *SyntaxError
		if !errors.As(err, &syntax) {
			t.Errorf("Scan(%.50q) = %v, want a syntax error", tt.frame, err)
		} else if syntax.Offset != tt.offset {
			t.Errorf("Scan(%.50q): offset %d (%s), want %d", tt.frame, syntax.Offset, syntax.Msg, tt.offset)
		}
		if env.ID.Present() {
			t.Errorf("Scan(%.50q): an invalid text has an id", tt.frame)
		}
	}
}

func TestScanDepth(t *testing.T) {
	for _, depth := range []int{1, 63, 64, 65, 127, 128, 129, 511, 512, 513, 576, 577, 640, 20000} {
		var open, end strings.Builder
		var closing []string
		for i := range depth {
			if i%3 == 0 {
				open.WriteString(`[`)
				closing = append(closing, `]`)
			} else {
				open.WriteString(`{"k":`)
				closing = append(closing, `}`)
			}
		}
		for i := len(closing) - 1; i >= 0; i-- {
			end.WriteString(closing[i])
		}
		frame := `{"jsonrpc":"2.0","id":1,"method":"m","params":` + open.String() + "1" + end.String() + `}`
		var env Envelope
		if err := Scan([]byte(frame), &env); err != nil {
			t.Errorf("depth %d: %v", depth, err)
		}
		bad := strings.Replace(frame, "1"+end.String()[:1], "1"+map[string]string{"]": "}", "}": "]"}[end.String()[:1]], 1)
		if err := Scan([]byte(bad), &env); err == nil {
			t.Errorf("depth %d: mismatched brackets pass", depth)
		}
	}
}

func TestScanRequestErrors(t *testing.T) {
	long := strings.Repeat("x", maxID)
	digits := strings.Repeat("1", maxID)
	for _, tt := range []struct {
		frame string
		id    string
		kind  Kind
	}{
		{`[]`, "", Request},
		{`[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, "", Request},
		{`1`, "", Request}, {`"x"`, "", Request}, {`null`, "", Request}, {`true`, "", Request},
		{`{}`, "", Request},
		{`{"jsonrpc":"2.0","id":4}`, "4", Request},
		{`{"id":6,"method":"ping"}`, "6", Request},
		{`{"jsonrpc":"1.0","id":6,"method":"ping"}`, "6", Request},
		{`{"jsonrpc":2.0,"id":6,"method":"ping"}`, "6", Request},
		{`{"jsonrpc":"2.\u0030","id":6,"method":"ping"}`, "6", Request},
		{`{"jsonrpc":"2.0","id":null,"method":"ping"}`, "", Request},
		{`{"jsonrpc":"2.0","id":1.5,"method":"ping"}`, "", Request},
		{`{"jsonrpc":"2.0","id":1.0,"method":"ping"}`, "", Request},
		{`{"jsonrpc":"2.0","id":1e3,"method":"ping"}`, "", Request},
		{`{"jsonrpc":"2.0","id":1E3,"method":"ping"}`, "", Request},
		{`{"jsonrpc":"2.0","id":{},"method":"ping"}`, "", Request},
		{`{"jsonrpc":"2.0","id":[1],"method":"ping"}`, "", Request},
		{`{"jsonrpc":"2.0","id":true,"method":"ping"}`, "", Request},
		{`{"jsonrpc":"2.0","id":"` + long + `x","method":"ping"}`, "", Request},
		{`{"jsonrpc":"2.0","id":1` + digits + `,"method":"ping"}`, "", Request},
		{`{"id":"` + long + `","method":"ping"}`, `"` + long + `"`, Request},
		{`{"id":` + digits + `,"method":"ping"}`, digits, Request},
		{`{"jsonrpc":"2.0","id":3,"method":7}`, "3", Request},
		{`{"jsonrpc":"2.0","id":3,"method":null}`, "3", Request},
		{`{"jsonrpc":"2.0","id":3,"method":"p\u0069ng"}`, "3", Request},
		{`{"jsonrpc":"2.0","id":3,"method":"m","result":null}`, "3", Request},
		{`{"jsonrpc":"2.0","id":3,"error":{},"result":{}}`, "3", Error},
		{`{"jsonrpc":"2.0","id":3,"result":{},"params":{}}`, "3", Result},
		{`{"jsonrpc":"2.0","id":null,"result":{}}`, "", Result},
		{`{"jsonrpc":"2.0","result":{}}`, "", Result},
		{`{"jsonrpc":"2.0","error":{}}`, "", Error},
		{`{"jsonrpc":"2.0","id":{},"error":{}}`, "", Error},
	} {
		var env Envelope
		err := Scan([]byte(tt.frame), &env)
		var request *RequestError
		if !errors.As(err, &request) {
			t.Errorf("Scan(%.60s) = %v, want a request error", tt.frame, err)
			continue
		}
		if got := string(env.ID.Of([]byte(tt.frame))); got != tt.id || request.HasID != (tt.id != "") {
			t.Errorf("Scan(%.60s): id %.20q, HasID %v, want %.20q", tt.frame, got, request.HasID, tt.id)
		}
		if env.Kind != tt.kind {
			t.Errorf("Scan(%.60s): kind %d, want %d", tt.frame, env.Kind, tt.kind)
		}
	}
}

func TestScanKeyErrors(t *testing.T) {
	request := func(params string) string {
		return `{"jsonrpc":"2.0","method":"tools/call","params":{` + params + `},"id":5}`
	}
	for _, tt := range []struct{ frame, key, id string }{
		{request(`"name":"delete","NAME":"read"`), "NAME", "5"},
		{request(`"name":"delete","name":"read"`), "name", "5"},
		{request(`"name":"delete","na\u006de":"read"`), `na\u006de`, "5"},
		{request(`"na\u006De":"read"`), `na\u006De`, "5"},
		{request(`"N\u0041me":"read"`), `N\u0041me`, "5"},
		{request(`"Name":"read"`), "Name", "5"},
		{request(`"progresstoken":1`), "progresstoken", "5"},
		{request("\"progressTo\u212aen\":1"), "progressTo\u212aen", "5"},
		{request(`"progressTo\u212aen":1`), `progressTo\u212aen`, "5"},
		{request("\"progre\u017f\u017fToken\":1"), "progre\u017f\u017fToken", "5"},
		{request("\"ur\u0131\":1"), "ur\u0131", "5"},
		{request(`"uri":1,"uri":1`), "uri", "5"},
		{request(`"requestid":1`), "requestid", "5"},
		{request(`"Arguments":1`), "Arguments", "5"},
		{request(`"_META":{}`), "_META", "5"},
		{request(`"_meta":{},"_meta":{}`), "_meta", "5"},
		{request(`"cursor":1,"cursor":2`), "cursor", "5"},
		{request(`"LEVEL":1`), "LEVEL", "5"},
		{request(`"task":1,"Task":2`), "Task", "5"},
		{request(`"_meta":{"progressToken":1,"progressToken":2}`), "progressToken", "5"},
		{request(`"_meta":{"interlock/lease":1,"interlock/lease":2}`), "interlock/lease", "5"},
		{request(`"_meta":{"interlock/x":1,"a":2,"interlock/x":2}`), "interlock/x", "5"},
		{request(`"_meta":{"Interlock/lease":1}`), "Interlock/lease", "5"},
		{request(`"_meta":{"interlock/Lease":1}`), "interlock/Lease", "5"},
		{request("\"_meta\":{\"interloc\u212a/x\":1}"), "interloc\u212a/x", "5"},
		{request(`"_meta":{"interlock\/lease":1}`), `interlock\/lease`, "5"},
		{request(`"_meta":{"interlock/\u0061":1}`), `interlock/\u0061`, "5"},
		{request(`"_meta":{"io.modelcontextprotocol/clientinfo":1}`), `io.modelcontextprotocol/clientinfo`, "5"},
		{request(`"_meta":{"io.modelcontextprotocol/logLevel":1,"io.modelcontextprotocol/logLevel":1}`), `io.modelcontextprotocol/logLevel`, "5"},
		{`{"jsonrpc":"2.0","method":"m","METHOD":"n","id":5}`, "METHOD", "5"},
		{`{"jsonrpc":"2.0","method":"m","method":"n","id":5}`, "method", "5"},
		{`{"jsonrpc":"2.0","jsonrpc":"2.0","method":"n","id":5}`, "jsonrpc", "5"},
		{`{"jsonrpc":"2.0","method":"m","id":5,"id":6}`, "id", ""},
		{`{"jsonrpc":"2.0","method":"m","id":5,"Id":6}`, "Id", ""},
		{`{"jsonrpc":"2.0","method":"m","\u0069d":6}`, `\u0069d`, ""},
		{`{"jsonrpc":"2.0","method":"m","params":{},"Params":{},"id":5}`, `Params`, "5"},
		{`{"jsonrpc":"2.0","id":5,"result":{"_meta":{},"_META":{}}}`, `_META`, "5"},
		{`{"jsonrpc":"2.0","id":5,"Result":{}}`, `Result`, "5"},
	} {
		var env Envelope
		err := Scan([]byte(tt.frame), &env)
		var key *KeyError
		if !errors.As(err, &key) {
			t.Errorf("Scan(%s) = %v, want a key error", tt.frame, err)
			continue
		}
		if id := string(env.ID.Of([]byte(tt.frame))); key.Key != tt.key || id != tt.id {
			t.Errorf("Scan(%s): key %q id %q, want %q and %q", tt.frame, key.Key, id, tt.key, tt.id)
		}
	}
}

func TestScanPassesOtherKeys(t *testing.T) {
	for _, params := range []string{
		`"x":1,"x":2,"X":3`, `"names":1,"nam":2,"\u006eam":3`, `"_meta":{"a":1,"a":1,"A":2,"io.modelcontextprotocol/other":1,"io.modelcontextprotocol/OTHER":1,"interloc":1,"interlock":2,"xinterlock/":3}`,
		`"arguments":{"name":1,"Name":2,"name":3}`, `"":1`, `"\ud83d\ude00":1`, `"\ud800":1`, `"n\u0000ame":1`, "\"n\u00e4me\":1",
	} {
		var env Envelope
		if err := Scan([]byte(`{"jsonrpc":"2.0","id":1,"method":"m","params":{`+params+`}}`), &env); err != nil {
			t.Errorf("%s: %v", params, err)
		}
	}
}
