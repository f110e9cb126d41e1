package wire

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// generator writes random JSON-RPC frames, near to valid ones, whose keys are
// often policy keys in some spelling.
type generator struct {
	*rand.Rand
	strings.Builder
}

func pick[T any](g *generator, from ...T) T { return from[g.IntN(len(from))] }

func (g *generator) space() { g.WriteString(pick(g, "", "", "", "", " ", "\t", "\r\n", "  ")) }

// spell writes a key: mostly as it is.
func (g *generator) spell(name string) {
	i := g.IntN(len(name))
	switch g.IntN(40) {
	case 0:
		name = strings.ToUpper(name)
	case 1:
		name = strings.Replace(name, "k", "\u212a", 1)
	case 2:
		name = strings.Replace(name, "s", "\u017f", 1)
	case 3:
		name = fmt.Sprintf(`%s\u%04x%s`, name[:i], name[i], name[i+1:])
	case 4:
		name = name[:i] + name[i+1:]
	case 5:
		name = fmt.Sprintf(`%s\u%04X%s`, name[:i], name[i]^0x20, name[i+1:])
	case 6:
		name = strings.ReplaceAll(name, "/", `\/`)
	}
	g.WriteString(`"` + name + `"`)
}

func (g *generator) value(depth int) {
	switch n := g.IntN(9); {
	case n == 0 && depth < 6:
		g.WriteByte('[')
		for i := range g.IntN(4) {
			if i > 0 {
				g.WriteByte(',')
			}
			g.space()
			g.value(depth + 1)
			g.space()
		}
		g.WriteByte(']')
	case n == 1 && depth < 6:
		g.object(func() { g.value(depth + 1) }, "name", "id", "x")
	case n < 5:
		g.WriteString(pick(g, "0", "-0", "-1", "17", "1.5", "2e3", "9007199254740993", "0.1E-7"))
	case n < 6:
		g.WriteString(pick(g, "true", "false", "null", "{}", "[]"))
	default:
		g.WriteString(pick(g, `""`, `"a"`, `"abcdefg"`, `"abcdefgh"`, `"say \"hi\" and more\\"`, `"\ud800"`, "\"h\u00e9 \u6f22\U0001f600\"", `"\u0041\n"`))
	}
}

// object writes an object of some of the names, mostly once each, in any order.
func (g *generator) object(value func(), names ...string) {
	g.WriteByte('{')
	first := true
	for _, i := range g.Perm(len(names)) {
		for range pick(g, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2) {
			if !first {
				g.WriteByte(',')
			}
			first = false
			g.space()
			g.spell(names[i])
			g.space()
			g.WriteByte(':')
			g.space()
			g.member(names[i], value)
			g.space()
		}
	}
	g.WriteByte('}')
}

func (g *generator) member(name string, value func()) {
	some := func() { g.value(2) }
	switch {
	case g.IntN(15) == 0:
		value()
	case name == "jsonrpc":
		g.WriteString(`"2.0"`)
	case name == "method":
		g.WriteString(pick(g, `"tools/call"`, `"ping"`, `"p\u0069ng"`))
	case name == "params" && g.IntN(4) > 0:
		g.object(some, "name", "uri", "_meta", "progressToken", "arguments", "cursor", "x")
	case name == "result" && g.IntN(4) > 0:
		g.object(some, "_meta", "nextCursor", "isError", "tools")
	case name == "_meta":
		g.object(some, "progressToken", "io.modelcontextprotocol/subscriptionId", "io.modelcontextprotocol/protocolVersion", "io.modelcontextprotocol/else", "k")
	default:
		value()
	}
}

// TestScanGenerated compares Scan with encoding/json on frames that get far.
func TestScanGenerated(t *testing.T) {
	classes := map[string]int{}
	for seed := range uint64(6000) {
		g := &generator{Rand: rand.New(rand.NewPCG(seed, 7))}
		top := pick(g, []string{"jsonrpc", "id", "method", "params"}, []string{"jsonrpc", "id", "result"}, []string{"jsonrpc", "id", "error", "x"}, []string{"jsonrpc", "method", "params"})
		g.space()
		g.object(func() { g.value(1) }, top...)
		frame := []byte(g.String())
		if g.IntN(20) == 0 { // break it, or not
			frame[g.IntN(len(frame))] = pick(g, byte('"'), ',', '}', '\\', 0x1f, 0xff, 'x', '1', ' ')
		}
		classes[checkScan(t, frame)]++
		if t.Failed() {
			t.Fatalf("seed %d: %q", seed, frame)
		}
	}
	for _, class := range []string{"ok", "syntax", "request", "key"} {
		if classes[class] < 100 {
			t.Errorf("too few frames of class %q: %v", class, classes)
		}
	}
}
