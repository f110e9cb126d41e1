package config

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/tailscale/hujson"
)

// decoder reads values of one part of the file, a server's entry or the
// settings, and collects the problems it meets.
type decoder struct {
	doc *document
	// server is the entry that is read, empty for the settings.
	server   string
	problems []Problem
}

// fail records a mistake that costs something.
func (d *decoder) fail(v hujson.Value, code Code, message, remedy string) {
	p := d.doc.problem(v.StartOffset, code, message, remedy)
	p.Server = d.server
	d.problems = append(d.problems, p)
}

// note records a mistake that costs nothing.
func (d *decoder) note(v hujson.Value, code Code, message, remedy string) {
	d.fail(v, code, message, remedy)
	d.problems[len(d.problems)-1].Note = true
}

// failed returns the first problem that is no note, nil if there is none.
func (d *decoder) failed() *Problem {
	for i := range d.problems {
		if !d.problems[i].Note {
			p := d.problems[i]
			return &p
		}
	}
	return nil
}

// member is one name and value of an object.
type member struct {
	name  string
	key   hujson.Value
	value hujson.Value
}

// members yields the members of v in order. A value that is no object, and a
// name that comes twice, are recorded as mistakes; only the first member of a
// name is yielded. An absent or null object has no members.
func (d *decoder) members(v hujson.Value, what string) iter.Seq[member] {
	return func(yield func(member) bool) {
		object, ok := v.Value.(*hujson.Object)
		if !ok {
			if !isNull(v) {
				d.fail(v, CodeType, what+" is "+kindText(v)+", and must be an object", "write it in braces: {…}")
			}
			return
		}
		first := make(map[string]hujson.Value, len(object.Members))
		for _, m := range object.Members {
			name := m.Name.Value.(hujson.Literal).String()
			if earlier, twice := first[name]; twice {
				d.fail(m.Name, CodeDuplicate, fmt.Sprintf("%s has the member %q twice, the first time in line %d", what, name, d.doc.position(earlier.StartOffset).line), "keep one of them")
				continue
			}
			first[name] = m.Name
			if !yield(member{name, m.Name, m.Value}) {
				return
			}
		}
	}
}

// text reads a string. Null counts as absent, and leaves the result empty.
func (d *decoder) text(v hujson.Value, what string) string {
	if isNull(v) {
		return ""
	}
	lit, ok := v.Value.(hujson.Literal)
	if !ok || lit.Kind() != '"' {
		d.fail(v, CodeType, what+" is "+kindText(v)+", and must be a text", "put it in double quotes")
		return ""
	}
	return d.noNUL(v, lit.String(), what)
}

// scalar reads a string, or a number or truth value as the text it is written
// as, which it notes: clients disagree on whether they may stand there.
func (d *decoder) scalar(v hujson.Value, what string) string {
	lit, ok := v.Value.(hujson.Literal)
	switch {
	case !ok:
		d.fail(v, CodeType, what+" is "+kindText(v)+", and must be a text", "write it as one text in double quotes")
		return ""
	case lit.Kind() == 'n':
		d.fail(v, CodeType, what+" is null, and must be a text", `delete it, or write "" for an empty text`)
		return ""
	case lit.Kind() != '"':
		d.note(v, CodeType, what+" is "+kindText(v)+", and is taken as text", "put it in double quotes")
	}
	return d.noNUL(v, lit.String(), what)
}

// noNUL refuses text that no program can be given.
func (d *decoder) noNUL(v hujson.Value, text, what string) string {
	if strings.ContainsRune(text, 0) {
		d.fail(v, CodeType, what+" has a NUL character in it", `delete the \u0000`)
		return ""
	}
	return text
}

// list reads an array, each element by each. Null counts as absent.
func list[T any](d *decoder, v hujson.Value, what string, each func(hujson.Value, string) T) []T {
	if isNull(v) {
		return nil
	}
	array, ok := v.Value.(*hujson.Array)
	if !ok {
		d.fail(v, CodeType, what+" is "+kindText(v)+", and must be a list", `write it in brackets, each element by itself: ["…", "…"]`)
		return nil
	}
	out := make([]T, 0, len(array.Elements))
	for i, e := range array.Elements {
		out = append(out, each(e, fmt.Sprintf("%s[%d]", what, i)))
	}
	return out
}

// flag reads true or false. The same as text is taken, with a note.
func (d *decoder) flag(v hujson.Value, what string) bool {
	lit, _ := v.Value.(hujson.Literal)
	switch lit.Kind() {
	case 't', 'f':
		return lit.Bool()
	case 'n':
		return false
	case '"':
		if word := strings.ToLower(lit.String()); word == "true" || word == "false" {
			d.note(v, CodeType, fmt.Sprintf("%s is a text, and is taken as %s", what, word), "write "+word+" without quotes")
			return word == "true"
		}
	}
	d.fail(v, CodeType, what+" must be true or false", "write true or false without quotes")
	return false
}

// choice reads one of a few words.
func choice[T ~string](d *decoder, v hujson.Value, what string, words ...T) T {
	word := T(d.text(v, what))
	if isNull(v) || v.Value.Kind() != '"' || slices.Contains(words, word) {
		return word
	}
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = fmt.Sprintf("%q", string(w))
	}
	d.fail(v, CodeType, fmt.Sprintf("%s has a value it does not know", what), "write one of "+strings.Join(quoted, ", "))
	return ""
}

// count reads a whole number.
func (d *decoder) count(v hujson.Value, what string) (int, bool) {
	lit, _ := v.Value.(hujson.Literal)
	n := lit.Int()
	if lit.Kind() != '0' || n == 0 && string(lit) != "0" || n != int64(int32(n)) {
		d.fail(v, CodeType, what+" must be a whole number", "write digits without quotes, such as 16")
		return 0, false
	}
	return int(n), true
}

// duration reads a time such as "25s". A bare number is refused: clients take
// such numbers for seconds or for milliseconds.
func (d *decoder) duration(v hujson.Value, what string) (time.Duration, bool) {
	lit, _ := v.Value.(hujson.Literal)
	if lit.Kind() == '"' {
		if t, err := time.ParseDuration(lit.String()); err == nil {
			return t, true
		}
	}
	d.fail(v, CodeType, what+" must be a time with its unit", `write it as text, such as "250ms", "25s" or "10m"`)
	return 0, false
}

// size reads a number of bytes, or a text such as "64MiB".
func (d *decoder) size(v hujson.Value, what string) (int64, bool) {
	lit, _ := v.Value.(hujson.Literal)
	if kind := lit.Kind(); kind == '0' || kind == '"' {
		if n, err := parseSize(lit.String()); err == nil {
			return n, true
		}
	}
	d.fail(v, CodeType, what+" must be a size", `write a number of bytes, or text such as "64MiB" with KiB, MiB or GiB`)
	return 0, false
}

// unknown notes a member that means nothing here, and names the one of known
// that was probably meant.
func (d *decoder) unknown(m member, what string, known []string) {
	remedy := "delete it, or correct its name"
	if near, ok := nearest(m.name, known); ok {
		remedy = fmt.Sprintf("write %q", near)
	}
	d.note(m.key, CodeUnknownField, fmt.Sprintf("%s has no member %q", what, clip(m.name)), remedy)
}

// isNull reports whether v is absent or null.
func isNull(v hujson.Value) bool { return v.Value == nil || v.Value.Kind() == 'n' }

// kindText names the kind of v in a sentence.
func kindText(v hujson.Value) string {
	switch v.Value.Kind() {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		return "a text"
	case '0':
		return "a number"
	case 't', 'f':
		return "true or false"
	}
	return "null"
}

// clip bounds a name that a message quotes.
func clip(name string) string {
	if r := []rune(name); len(r) > 60 {
		return string(r[:60]) + "…"
	}
	return name
}

// hasControl reports whether text has a control character in it.
func hasControl(text string) bool { return strings.ContainsFunc(text, unicode.IsControl) }

// nearest returns the word of known that name is a slip of: the same but for
// case and separators, or within two letters.
func nearest(name string, known []string) (string, bool) {
	fold := func(s string) string {
		return strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(s))
	}
	name = fold(clip(name))
	best, distance := "", 3
	for _, k := range known {
		if n := edits(name, fold(k)); n < distance && n < len(k)/2 {
			best, distance = k, n
		}
	}
	return best, best != ""
}

// edits returns the Levenshtein distance of a and b.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
