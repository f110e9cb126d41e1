package main

import "strings"

// oddities are answers that a careless hop changes: members it does not know,
// numbers that a float64 does not hold, characters that encoders escape, kinds
// of content it has never seen, duplicate and empty keys. ID stands for the id.
var oddities = map[string]string{
	"result": `{"jsonrpc":"2.0","id":ID,"result":{"vendorFirst":{"a":[{"b":1.0}]},"content":[` +
		`{"type":"text","text":"<b>&amp;'\u2028\u2029\u00e9é\ud83e\udd80🦀\u007f\/\ud83d lone","annotations":{"audience":["user","vendor"],"priority":1.0,"x":null},"_meta":{"v/x":1},"extra":0},` +
		`{"type":"image","data":"iVBORw0=","mimeType":"image/png","vendor":1},` +
		`{"type":"audio","data":"","mimeType":"audio/wav"},` +
		`{"type":"resource_link","uri":"file:///a%20b","name":"n","size":1e2,"icons":[{"src":"x"}]},` +
		`{"type":"resource","resource":{"uri":"x:y","blob":"AA==","vendor":{}}},` +
		`{"type":"vendor/hologram","depth":1.50,"payload":{"type":"text"}}],` +
		`"structuredContent":{"big":9007199254740993,"min":-9223372036854775808,"max":18446744073709551615,"huge":123456789012345678901234567890,` +
		`"e":1E+2,"z":-0,"f":0.1000000000000000055511151231257827,"":"empty","__proto__":{"x":1},"id":99,"method":"m","jsonrpc":"1.0","error":{"code":1},"result":0,"a":1,"a":2,"A":3},` +
		`"isError":false,"resultType":"vendor","_meta":{"progressToken":5,"v/n":9007199254740993},"vendorLast":[]}}`,
	"error":    `{"jsonrpc":"2.0","id":ID,"error":{"data":{"n":9007199254740993,"list":[1.0,null,{"b":1,"a":2}],"s":"<&>\ud800"},"code":-32042,"message":"refused \u2028 <&>","vendor":true}}`,
	"envelope": `{ "vendor" : {"x":1.0}, "result" : {"content":[ ],  "spaced" :	true} , "id" : ID , "jsonrpc" : "2.0", "more":null }`,
	"failure":  `{"jsonrpc":"2.0","id":ID,"result":{"isError":true,"content":[{"type":"text","text":"it failed"}],"structuredContent":[1.0,"not an object"]}}`,
	"empty":    `{"jsonrpc":"2.0","id":ID,"result":{}}`,
	"null":     `{"jsonrpc":"2.0","id":ID,"result":null}`,
	"scalar":   `{"jsonrpc":"2.0","id":ID,"result":1.0}`,
	"data":     `{"jsonrpc":"2.0","id":ID,"error":{"code":-1,"message":"","data":null}}`,
	"crlf":     `{"jsonrpc":"2.0","id":ID,"result":{"content":[]}}` + "\r",
	"deep":     `{"jsonrpc":"2.0","id":ID,"result":{"content":[],"structuredContent":{"d":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + `}}}`,
}

func odd(s *server, c *call) {
	answer, ok := oddities[c.args().Kind]
	if !ok {
		s.refuse(c.id, -32602, "no such oddity")
		return
	}
	s.print(strings.Replace(answer, "ID", string(c.id), 1) + "\n")
}
