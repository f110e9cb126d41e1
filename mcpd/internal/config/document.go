package config

import (
	"bytes"
	"fmt"
	"sort"
	"strings"
	"unicode/utf8"

	"github.com/tailscale/hujson"
)

// position is a place in the file, counted from 1.
type position struct{ line, col int }

// document is the text of a configuration file, without its byte order mark,
// and where its lines begin.
type document struct {
	file  string
	text  []byte
	lines []int // offset of the first byte of each line
}

func newDocument(file string, text []byte) *document {
	d := &document{file: file, text: text, lines: []int{0}}
	for i, c := range text {
		if c == '\n' {
			d.lines = append(d.lines, i+1)
		}
	}
	return d
}

// position returns the line of the byte at offset, and the character in it.
func (d *document) position(offset int) position {
	offset = min(offset, len(d.text))
	line := sort.SearchInts(d.lines, offset+1)
	return position{line, 1 + utf8.RuneCount(d.text[d.lines[line-1]:offset])}
}

// problem returns a problem at offset.
func (d *document) problem(offset int, code Code, message, remedy string) Problem {
	at := d.position(offset)
	return Problem{Code: code, File: d.file, Line: at.line, Col: at.col, Message: message, Remedy: remedy}
}

// maxNesting keeps the parser, which recurses, within its stack.
const maxNesting = 10_000

// parse returns the file's one value, or the problem that keeps it from being
// read.
func (d *document) parse() (hujson.Value, *Problem) {
	if p := d.encodingProblem(); p != nil {
		return hujson.Value{}, p
	}
	// The parser wants a line comment to end in a newline, which the last line
	// of a file may lack.
	value, err := hujson.Parse(append(d.text[:len(d.text):len(d.text)], '\n'))
	if err != nil {
		p := d.syntaxProblem(errorOffset(err, d.lines), strings.Contains(err.Error(), "after object name"))
		return hujson.Value{}, &p
	}
	return value, nil
}

// encodingProblem finds what is wrong with the file before its syntax is.
func (d *document) encodingProblem() *Problem {
	fail := func(offset int, message, remedy string) *Problem {
		p := d.problem(offset, CodeSyntax, message, remedy)
		return &p
	}
	const saveUTF8 = "save the file as UTF-8"
	if bytes.HasPrefix(d.text, []byte{0xFF, 0xFE}) || bytes.HasPrefix(d.text, []byte{0xFE, 0xFF}) {
		return fail(0, "the file is UTF-16", saveUTF8)
	}
	if len(bytes.TrimSpace(d.text)) == 0 {
		return fail(0, "the file is empty", `write {"mcpServers": {}} and add servers, or delete the file`)
	}
	depth := 0
	for i := 0; i < len(d.text); {
		r, size := utf8.DecodeRune(d.text[i:])
		switch r {
		case utf8.RuneError:
			if size == 1 {
				return fail(i, fmt.Sprintf("the byte 0x%02x is not UTF-8", d.text[i]), saveUTF8)
			}
		case 0:
			if i < 2 {
				return fail(i, "the file is UTF-16 or UTF-32", saveUTF8)
			}
			return fail(i, "there is a NUL byte here, as after a crash of the machine while the file was written",
				"delete everything from there on, or restore the file")
		case '{', '[':
			if depth++; depth > maxNesting {
				return fail(i, fmt.Sprintf("brackets nest deeper than %d", maxNesting), "remove them")
			}
		case '}', ']':
			depth = max(0, depth-1)
		}
		i += size
	}
	return nil
}

// errorOffset returns where a parser error lies, which the parser says only in
// its text, or 0 if it says nothing.
func errorOffset(err error, lines []int) int {
	var line, col int
	if _, scanErr := fmt.Sscanf(err.Error(), "hujson: line %d, column %d:", &line, &col); scanErr != nil || line > len(lines)+1 {
		return 0
	}
	if line == len(lines)+1 { // past the newline that parse appends
		return lines[len(lines)-1] + col
	}
	return lines[line-1] + col - 1
}

// syntaxProblem explains what stands at offset and does not belong there;
// afterName says that a colon should.
func (d *document) syntaxProblem(offset int, afterName bool) Problem {
	if mark, ok := d.conflictMarker(); ok {
		return d.problem(mark, CodeSyntax, "there is a merge conflict marker here", "resolve the conflict and delete the markers")
	}
	if hasValue(append(d.text[:len(d.text):len(d.text)], "\nnull"...)) {
		return d.problem(0, CodeSyntax, "the file holds nothing but comments", `write {"mcpServers": {…}}, or delete the file`)
	}
	rest := d.text[min(offset, len(d.text)):]
	if len(bytes.TrimSpace(rest)) == 0 {
		return d.problem(len(bytes.TrimRight(d.text, " \t\r\n")), CodeSyntax, "the file ends too early", "close what is open: a brace, a bracket, a quote or a comment")
	}
	if bytes.HasPrefix(rest, []byte("/*")) {
		return d.problem(offset, CodeSyntax, "a comment here is not closed", "end it with */, or begin it with // if it is one line")
	}
	before := bytes.TrimRight(d.text[:offset], " \t\r\n")
	afterValue := endsInValue(before)
	if afterValue && hasValue(d.text[:offset]) {
		return d.problem(offset, CodeSyntax, "the value of the file ended before this", "delete what follows it, or the closing brace that is one too many")
	}
	message, remedy := describe(rest, afterValue)
	if afterName {
		message, remedy = "a colon is missing before this", "write a colon between a name and its value"
	}
	return d.problem(offset, CodeSyntax, message, remedy)
}

// hasValue reports whether text is a whole value.
func hasValue(text []byte) bool {
	_, err := hujson.Parse(text)
	return err == nil
}

// endsInValue reports whether text ends as a value does.
func endsInValue(text []byte) bool {
	if len(text) == 0 {
		return false
	}
	c := text[len(text)-1]
	return strings.IndexByte(`"}].`, c) >= 0 || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// describe says what is wrong with text that does not belong where it begins:
// after a value, or where a name or a value should begin. It quotes one
// character at most, since what follows may be a secret.
func describe(text []byte, afterValue bool) (message, remedy string) {
	r, _ := utf8.DecodeRune(text)
	switch {
	case r == '#':
		return "# does not begin a comment", "begin comments with //"
	case r == '\'' || r == '`' || r == '“' || r == '”' || r == '‘' || r == '’':
		return fmt.Sprintf("text is not written in %c", r), `use the straight double quote "`
	case afterValue && r != '}' && r != ']':
		return "a comma is missing before this", "add a comma after the value before it"
	case r == '}' || r == ']':
		return fmt.Sprintf("%c closes nothing here, or a value is missing before it", r), "give every name a value, and close brackets in the order in which they were opened"
	case r == ',':
		return "there is no value before this comma", "delete the comma or add the value"
	case r == '"':
		return describeString(text)
	case r == '+' || r == '-' || r == '.' || '0' <= r && r <= '9':
		return "this is not a number that JSON knows", "write it in plain decimal notation, or in double quotes if it is text"
	case 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || r == '_' || r == '$':
		return "a bare word stands here", "put names and text in double quotes; only true, false, null and numbers go without"
	}
	return fmt.Sprintf("the character %q does not belong here", r), "delete it, or put the text in double quotes"
}

// describeString says why a literal that begins with a double quote is not a
// string.
func describeString(text []byte) (message, remedy string) {
	line, _, _ := bytes.Cut(text[1:], []byte("\n"))
	escaped, closed := false, false
	for _, c := range line {
		if !escaped && c == '"' {
			closed = true
			break
		}
		escaped = !escaped && c == '\\'
	}
	if !closed {
		return "a text is not closed on its line", `end it with a double quote; write a line break in it as \n`
	}
	return "a text has a character or a backslash sequence that JSON does not allow", `write a backslash as \\, as in "C:\\Tools", and a tab as \t`
}

// conflictMarker finds a line that a merge tool left behind.
func (d *document) conflictMarker() (offset int, ok bool) {
	for _, start := range d.lines {
		line := string(d.text[start:min(start+8, len(d.text))])
		for _, mark := range []string{"<<<<<<< ", ">>>>>>> ", "||||||| "} {
			if strings.HasPrefix(line, mark) {
				return start, true
			}
		}
	}
	return 0, false
}
