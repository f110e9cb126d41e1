package status

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// EscapeLine returns text fit for one line of a terminal: whatever could move
// the cursor, change colours, reorder the line or hide in it is written as a
// backslash sequence, line breaks and tabs included. Text that is safe comes
// back as it is.
func EscapeLine(text string) string { return escape(text, "") }

// EscapeText is like [EscapeLine] for text of many lines: line feeds and tabs
// stay.
func EscapeText(text string) string { return escape(text, "\n\t") }

func escape(text, keep string) string {
	safe := func(r rune, size int) bool {
		return !(r == utf8.RuneError && size == 1) && (strings.ContainsRune(keep, r) || !dangerous(r))
	}
	var out strings.Builder
	done := 0 // text before it is in out
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		if !safe(r, size) {
			out.WriteString(text[done:i])
			out.WriteString(sequence(r, text[i:i+size]))
			done = i + size
		}
		i += size
	}
	if done == 0 {
		return text
	}
	out.WriteString(text[done:])
	return out.String()
}

// dangerous reports whether r does something on a terminal other than show:
// the control characters C0, DEL and C1, the format characters, among them all
// that set the direction of text, and the line and paragraph separators.
func dangerous(r rune) bool {
	return unicode.Is(unicode.Cc, r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029'
}

// sequence writes one character, or one byte that is none, with a backslash.
func sequence(r rune, raw string) string {
	switch {
	case r == '\n':
		return `\n`
	case r == '\r':
		return `\r`
	case r == '\t':
		return `\t`
	case r == utf8.RuneError && len(raw) == 1:
		return fmt.Sprintf(`\x%02x`, raw[0])
	case r < 0x100:
		return fmt.Sprintf(`\x%02x`, r)
	case r < 0x10000:
		return fmt.Sprintf(`\u%04x`, r)
	}
	return fmt.Sprintf(`\U%08x`, r)
}
