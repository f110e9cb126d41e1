package wire

import "unicode/utf8"

// The keys that the daemon routes by, level by level: policy keys. The
// constants beside each table are positions in it.
var (
	topKeys    = [...]string{"jsonrpc", "id", "method", "params", "result", "error"}
	paramsKeys = [...]string{"name", "uri", "requestId", "progressToken", "_meta", "arguments", "task", "protocolVersion", "capabilities", "cursor", "level"}
	resultKeys = [...]string{"_meta"}
	metaKeys   = [...]string{
		"progressToken", "interlock/lease", "interlock/actor",
		"io.modelcontextprotocol/subscriptionId", "io.modelcontextprotocol/protocolVersion",
		"io.modelcontextprotocol/clientCapabilities", "io.modelcontextprotocol/clientInfo", "io.modelcontextprotocol/logLevel",
	}
)

const (
	topJSONRPC = iota
	topID
	topMethod
	topParams
	topResult
	topError
)

const (
	paramsName = iota
	paramsURI
	paramsRequestID
	paramsProgressToken
	paramsMeta
	paramsArguments
	paramsTask
	paramsProtocolVersion
	paramsCapabilities
	paramsCursor
	paramsLevel
)

const (
	metaProgressToken = iota
	metaLease
	metaActor
	metaSubscriptionID
	metaProtocolVersion
)

// ownPrefix begins the keys in _meta that are the daemon's own.
const ownPrefix = "interlock/"

// find returns the position of key, as written between its quotes, in names.
// Names have no escapes, so a key that equals one byte for byte is meant by
// every parser to be that. A key that only some parsers take for one of names
// (they fold letter case, or decode escapes first) is found as alike. Without
// either, find returns -1.
func find(names []string, key []byte) (i int, alike bool) {
	for i, name := range names {
		if string(key) == name {
			return i, false
		}
	}
	for i, name := range names {
		if rest, ok := foldPrefix(key, name); ok && len(rest) == 0 {
			return i, true
		}
	}
	return -1, false
}

// lookup finds the member's key in names: -1 for a key of no interest. It is
// not ok if parsers read it differently: it is only alike, or, by the bits of
// seen, a duplicate.
func (s *scanner) lookup(names []string, w *walk, seen *uint) (i int, ok bool) {
	i, alike := find(names, s.data[w.key.Start:w.key.End])
	if i < 0 {
		return i, true
	}
	bit := uint(1) << i
	ok = !alike && *seen&bit == 0
	*seen |= bit
	return i, ok
}

// foldPrefix reports whether key, with escapes decoded and letter case folded,
// begins with name, and returns what of key comes after it.
func foldPrefix(key []byte, name string) (rest []byte, ok bool) {
	for i := range len(name) {
		r, n := foldRune(key)
		if n == 0 || r != rune(lower(name[i])) {
			return nil, false
		}
		key = key[n:]
	}
	return key, true
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c |= 0x20
	}
	return c
}

// foldRune decodes the first character of key, folded, and its length in key.
// Besides A to Z, these fold to an ASCII letter somewhere: the Kelvin sign and
// the long s (Unicode's simple folding), the dotted capital and the dotless
// small i (comparisons by upper or lower case).
func foldRune(key []byte) (r rune, n int) {
	if len(key) == 0 {
		return 0, 0
	}
	switch c := key[0]; {
	case c == '\\':
		r, n = unescape(key)
	case c < utf8.RuneSelf:
		return rune(lower(c)), 1
	default:
		r, n = utf8.DecodeRune(key)
	}
	switch r {
	case '\u212a':
		return 'k', n
	case '\u017f':
		return 's', n
	case '\u0130', '\u0131':
		return 'i', n
	}
	if r < utf8.RuneSelf {
		r = rune(lower(byte(r)))
	}
	return r, n
}

// unescape decodes the escape sequence that b, the inside of a valid string,
// begins with. Surrogates are returned as they are, one at a time.
func unescape(b []byte) (r rune, n int) {
	if len(b) < 2 {
		return utf8.RuneError, len(b)
	}
	switch c := b[1]; c {
	case 'u':
		r, ok := hex4(b[2:])
		if !ok {
			return utf8.RuneError, 2
		}
		return r, 6
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	default:
		return rune(c), 2
	}
}
