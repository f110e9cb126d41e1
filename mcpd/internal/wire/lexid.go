package wire

import "bytes"

// idLexer finds the top-level id of a message, and whether the message has a
// method, in pieces cut anywhere, in bounded memory. It is exact about
// strings, escapes and nesting, and agrees with Scan on every valid message;
// it does not validate.
type idLexer struct {
	state    lexState
	object   bool // the message is an object
	ended    bool // its closing brace has passed
	depth    int
	inString bool
	escaped  bool // the next byte of the string belongs to an escape
	keyDue   bool // at depth 1: the next string is a key

	token []byte // what is being captured: a key or the id, as written
	key   int    // position in topKeys of the member that has begun, or -1
	seen  uint   // of topKeys, by bits

	id     []byte
	badID  bool
	method bool
}

// lexState tells what the bytes at depth 1 are part of.
type lexState uint8

const (
	lexSkip lexState = iota // nothing that is captured
	lexKey
	lexID
)

// maxLexKey bounds a captured key: longer than "jsonrpc" with every letter escaped.
const maxLexKey = 64

// ID returns the id as written, nil if there is none that can be used.
func (l *idLexer) ID() []byte {
	if l.badID || formOfID(l.id) != idOpaque {
		return nil
	}
	return l.id
}

// feed takes the next bytes of the message.
func (l *idLexer) feed(b []byte) {
	for i := 0; i < len(b); {
		switch {
		case l.inString:
			i = l.stringPart(b, i)
		case l.depth == 0:
			l.outside(b[i])
			i++
		case l.depth > 1:
			i = l.nested(b, i)
		default:
			l.topLevel(b[i])
			i++
		}
	}
}

// outside handles a byte before or after the message.
func (l *idLexer) outside(c byte) {
	if l.ended || isSpace(c) {
		return
	}
	l.object = c == '{'
	l.ended = !l.object
	if l.object {
		l.depth, l.keyDue = 1, true
	}
}

// nested skips what cannot matter, inside a member's value.
func (l *idLexer) nested(b []byte, i int) int {
	for ; i < len(b); i++ {
		switch b[i] {
		case '"':
			l.inString = true
			return i + 1
		case '{', '[':
			l.depth++
		case '}', ']':
			if l.depth--; l.depth == 1 {
				return i + 1
			}
		}
	}
	return i
}

// topLevel handles a byte between the top-level braces, outside of strings.
func (l *idLexer) topLevel(c byte) {
	switch c {
	case '"':
		l.inString = true
		if l.keyDue {
			l.state, l.token = lexKey, l.token[:0]
		}
		l.capture('"')
	case ',':
		l.endValue()
		l.keyDue = true
	case ':':
		l.beginValue()
	case '{', '[':
		l.capture(c)
		l.depth++
	case '}', ']':
		l.endValue()
		l.depth, l.ended = 0, true
	default:
		if !isSpace(c) || len(l.token) > 0 {
			l.capture(c)
		}
	}
}

// stringPart handles bytes of a string, up to its end or that of b.
func (l *idLexer) stringPart(b []byte, i int) int {
	if l.escaped {
		l.escaped = false
		l.capture(b[i])
		return i + 1
	}
	end := i
	for end < len(b) {
		if end, _ = skipPlain(b, end, 0); end < len(b) && b[end] >= ' ' {
			break
		}
		end = min(end+1, len(b))
	}
	if l.state != lexSkip {
		for _, c := range b[i:end] {
			l.capture(c)
		}
	}
	if end == len(b) {
		return end
	}
	c := b[end]
	l.capture(c)
	if c == '\\' {
		l.escaped = true
		return end + 1
	}
	l.inString = false
	if l.state == lexKey {
		l.endKey()
	}
	return end + 1
}

// capture adds a byte to the token, if one is being captured. A token that
// grows too long to matter is cut off one byte past its bound.
func (l *idLexer) capture(c byte) {
	switch l.state {
	case lexKey:
		if len(l.token) <= maxLexKey {
			l.token = append(l.token, c)
		}
	case lexID:
		if len(l.token) <= maxID+2 {
			l.token = append(l.token, c)
		}
	}
}

func (l *idLexer) endKey() {
	l.state, l.keyDue = lexSkip, false
	l.key = -1
	if len(l.token) > maxLexKey {
		return
	}
	i, alike := find(topKeys[:], l.token[1:len(l.token)-1])
	if i < 0 {
		return
	}
	bit := uint(1) << i
	if alike || l.seen&bit != 0 {
		l.badID = l.badID || i == topID
		i = -1
	}
	l.seen |= bit
	l.key = i
}

func (l *idLexer) beginValue() {
	switch l.key {
	case topID:
		l.state, l.token = lexID, l.token[:0]
	case topMethod:
		l.method = true
	}
	l.key = -1
}

func (l *idLexer) endValue() {
	if l.state == lexID {
		l.id = append([]byte(nil), bytes.TrimRight(l.token, " \t\r\n")...)
		// An answer will repeat it, so that it has to be valid by itself.
		s := scanner{data: l.id}
		l.badID = l.badID || s.finish(s.value(0)) != nil
	}
	l.state = lexSkip
}
