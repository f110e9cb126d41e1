package wire

import (
	"encoding/binary"
	"math/bits"
)

// scanner validates JSON text. Its methods take the offset at which something
// begins and return the offset after it, or -1 once the text has turned out to
// be invalid; bad and msg then say where and why. Bytes from 0x80 up are
// accepted in strings and only noted in wide: their validity is a property of
// the text as a whole and is checked once at its end.
type scanner struct {
	data []byte
	wide uint64 // OR of the words of all strings
	bad  int
	msg  string
}

func (s *scanner) fail(at int, msg string) int {
	if s.msg == "" {
		s.bad, s.msg = at, msg
	}
	return -1
}

// at returns the byte at i, or 0, which no JSON text contains, after the end.
func (s *scanner) at(i int) byte {
	if uint(i) < uint(len(s.data)) {
		return s.data[i]
	}
	return 0
}

func (s *scanner) space(i int) int {
	if s.at(i) > ' ' {
		return i
	}
	return s.spaces(i)
}

func (s *scanner) spaces(i int) int {
	for i < len(s.data) && isSpace(s.data[i]) {
		i++
	}
	return i
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

// value validates the value that begins at i.
func (s *scanner) value(i int) int {
	switch s.at(i) {
	case '"':
		end, _ := s.str(i)
		return end
	case '{', '[':
		return s.container(i)
	}
	return s.scalar(i)
}

// container validates the object or array that begins at i, to any depth,
// without recursion.
func (s *scanner) container(i int) int {
	var in nest
next:
	for {
		switch s.at(i) {
		case '"':
			i, _ = s.str(i)
		case '{':
			if i = s.space(i + 1); s.at(i) != '}' {
				in.push(1)
				if i = s.key(i); i < 0 {
					return -1
				}
				continue
			}
			i++
		case '[':
			if i = s.space(i + 1); s.at(i) != ']' {
				in.push(0)
				continue
			}
			i++
		default:
			i = s.scalar(i)
		}
		if i < 0 {
			return -1
		}
		for in.depth > 0 {
			i = s.space(i)
			switch c := s.at(i); {
			case c == ',':
				i = s.space(i + 1)
				if in.object() {
					if i = s.key(i); i < 0 {
						return -1
					}
				}
				continue next
			case c == '}' && in.object(), c == ']' && !in.object():
				in.pop()
				i++
			default:
				return s.fail(i, "expected a comma or the end of the array or object")
			}
		}
		return i
	}
}

// key validates a member's key and colon and returns where its value begins.
func (s *scanner) key(i int) int {
	if s.at(i) != '"' {
		return s.fail(i, "expected a key in double quotes")
	}
	if i, _ = s.str(i); i < 0 {
		return -1
	}
	if i = s.space(i); s.at(i) != ':' {
		return s.fail(i, "expected a colon after the key")
	}
	return s.space(i + 1)
}

// str validates the string whose opening quote is at i. Lone surrogate escapes
// are valid, as in the grammar.
func (s *scanner) str(i int) (end int, escaped bool) {
	b, wide := s.data, s.wide
	i++
	if i+8 <= len(b) { // most keys end in the first word
		x := binary.LittleEndian.Uint64(b[i:])
		if marks := special(x); marks != 0 {
			if n := i + bits.TrailingZeros64(marks)>>3; b[n] == '"' {
				s.wide = wide | x
				return n + 1, false
			}
		}
	}
	for {
		i, wide = skipPlain(b, i, wide)
		switch s.at(i) {
		case '"':
			s.wide = wide
			return i + 1, escaped
		case '\\':
			n := escapeLen(b[i:])
			if n == 0 {
				return s.fail(i, "invalid escape in a string"), true
			}
			i, escaped = i+n, true
		default:
			if i >= len(b) {
				return s.fail(i, "string without end"), escaped
			}
			return s.fail(i, "control character in a string"), escaped
		}
	}
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// special marks quotes, backslashes and control characters among the bytes of
// x by their high bits. Only the lowest mark is exact: above it, borrows make
// false ones.
func special(x uint64) uint64 {
	marks := (x - ones*' ') | ((x ^ ones*'"') - ones) | ((x ^ ones*'\\') - ones)
	return marks &^ x & highs
}

// skipPlain returns the offset of the first byte from i on that is a quote, a
// backslash or a control character, or len(b), and ORs the bytes it has seen
// into wide.
func skipPlain(b []byte, i int, wide uint64) (int, uint64) {
	for i+8 <= len(b) {
		x := binary.LittleEndian.Uint64(b[i:])
		wide |= x
		if marks := special(x); marks != 0 {
			return i + bits.TrailingZeros64(marks)>>3, wide
		}
		i += 8
	}
	for i < len(b) && b[i] >= ' ' && b[i] != '"' && b[i] != '\\' {
		wide |= uint64(b[i])
		i++
	}
	return i, wide
}

// escapeLen returns the length of the escape sequence that b begins with, or 0
// if it is not a valid one.
func escapeLen(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if _, ok := hex4(b[2:]); ok {
			return 6
		}
	}
	return 0
}

// hex4 returns the number that b's first four bytes are in hexadecimal.
func hex4(b []byte) (r rune, ok bool) {
	if len(b) < 4 {
		return 0, false
	}
	for _, c := range b[:4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// scalar validates a number or literal.
func (s *scanner) scalar(i int) int {
	switch c := s.at(i); {
	case '0' <= c && c <= '9' || c == '-':
		return s.number(i)
	case c == 't':
		return s.literal(i, "true")
	case c == 'f':
		return s.literal(i, "false")
	case c == 'n':
		return s.literal(i, "null")
	}
	if i >= len(s.data) {
		return s.fail(i, "text ends where a value is due")
	}
	return s.fail(i, "expected a value")
}

func (s *scanner) literal(i int, word string) int {
	if len(s.data)-i < len(word) || string(s.data[i:i+len(word)]) != word {
		return s.fail(i, "invalid literal")
	}
	return i + len(word)
}

func (s *scanner) number(i int) int {
	if s.at(i) == '-' {
		i++
	}
	if s.at(i) == '0' {
		i++
	} else if i = s.digits(i); i < 0 {
		return -1
	}
	if s.at(i) == '.' {
		if i = s.digits(i + 1); i < 0 {
			return -1
		}
	}
	if s.at(i)|0x20 == 'e' {
		i++
		if c := s.at(i); c == '+' || c == '-' {
			i++
		}
		i = s.digits(i)
	}
	return i
}

// digits validates one or more digits.
func (s *scanner) digits(i int) int {
	first := i
	for i < len(s.data) && '0' <= s.data[i] && s.data[i] <= '9' {
		i++
	}
	if i == first {
		return s.fail(i, "expected a digit")
	}
	return i
}

// nest is a stack of bits, one for each open container: 1 for an object, 0 for
// an array. The first 512 levels need no allocation.
type nest struct {
	depth int
	top   uint64 // the innermost levels, up to 64, the last one in bit 0
	words [7]uint64
	more  []uint64
}

func (n *nest) object() bool { return n.top&1 == 1 }

func (n *nest) push(bit uint64) {
	if n.depth&63 == 0 && n.depth > 0 {
		n.spill()
	}
	n.top = n.top<<1 | bit
	n.depth++
}

func (n *nest) pop() {
	n.top >>= 1
	n.depth--
	if n.depth&63 == 0 && n.depth > 0 {
		n.restore()
	}
}

func (n *nest) spill() {
	if w := n.depth>>6 - 1; w < len(n.words) {
		n.words[w] = n.top
	} else {
		n.more = append(n.more, n.top)
	}
}

func (n *nest) restore() {
	if w := n.depth>>6 - 1; w < len(n.words) {
		n.top = n.words[w]
	} else {
		n.top = n.more[len(n.more)-1]
		n.more = n.more[:len(n.more)-1]
	}
}

// walk is a position in an object or array. Its owner sets end to the offset
// after the opening bracket, calls next or elem for each member, and sets end
// to the offset after the member's value. When there are no more members, end
// is the offset after the closing bracket, or -1.
type walk struct {
	end   int
	began bool
	comma int  // before the member; meaningless for the first
	key   Span // of an object's member, without quotes
	value int  // where the member's value begins
}

// next advances to the next member of an object.
func (s *scanner) next(w *walk) bool {
	i := s.advance(w, '}')
	if i < 0 {
		return false
	}
	if s.at(i) != '"' {
		w.end = s.fail(i, "expected a key in double quotes")
		return false
	}
	end, _ := s.str(i)
	if end < 0 {
		w.end = -1
		return false
	}
	w.key = Span{i + 1, end - 1}
	if i = s.space(end); s.at(i) != ':' {
		w.end = s.fail(i, "expected a colon after the key")
		return false
	}
	w.value = s.space(i + 1)
	return true
}

// elem advances to the next element of an array.
func (s *scanner) elem(w *walk) bool {
	w.value = s.advance(w, ']')
	return w.value >= 0
}

// advance returns where the next member begins, or -1 after the last.
func (s *scanner) advance(w *walk, closing byte) int {
	if w.end < 0 {
		return -1
	}
	i := s.space(w.end)
	switch c := s.at(i); {
	case c == closing:
		w.end = i + 1
		return -1
	case !w.began:
		w.began = true
		return i
	case c == ',':
		w.comma = i
		return s.space(i + 1)
	}
	w.end = s.fail(i, "expected a comma or the end of the array or object")
	return -1
}
