package wire

import "bytes"

// A Hint is what an annotation of a tool says.
type Hint uint8

// The values of a hint. HintNone: nothing, or nothing that is true or false.
const (
	HintNone Hint = iota
	HintTrue
	HintFalse
)

// A Tool is an item of a tools/list result, as far as the daemon decides by it.
type Tool struct {
	Item     Span   // the whole object, in the result
	RawName  Span   // its name as written, in the result; absent unless a string
	Name     []byte // its name; nil if there is none
	ReadOnly Hint   // annotations.readOnlyHint
	// Destructive is annotations.destructiveHint.
	Destructive Hint
	// Ambiguous: a key that the above is read from is duplicated, or spelled
	// so that parsers read it differently. Nothing of the above can be relied on.
	Ambiguous bool
}

var (
	listKeys       = [...]string{"tools"}
	toolKeys       = [...]string{"name", "annotations"}
	annotationKeys = [...]string{"readOnlyHint", "destructiveHint"}
)

// ScanTools calls fn for each tool of result, the result of tools/list, until
// fn returns false. A Tool's Name aliases result where it can.
//
// If the key of the list itself is ambiguous, the error is a *[KeyError], and
// no tool that fn was given can be relied on; a *[SyntaxError] if result is
// not valid JSON up to the point that was needed.
func ScanTools(result []byte, fn func(Tool) bool) error {
	s := scanner{data: result}
	i := s.space(0)
	if s.at(i) != '{' {
		return s.finish(s.value(i))
	}
	w := walk{end: i + 1}
	seen := uint(0)
	for s.next(&w) {
		key, ok := s.lookup(listKeys[:], &w, &seen)
		if !ok {
			return keyError(w.key.Of(result))
		}
		if key < 0 || s.at(w.value) != '[' {
			w.end = s.value(w.value)
			continue
		}
		list := walk{end: w.value + 1}
		for s.elem(&list) {
			tool, end := s.tool(list.value)
			if list.end = end; end >= 0 && !fn(tool) {
				return nil
			}
		}
		w.end = list.end
	}
	return s.finish(w.end)
}

// tool reads the item of a list of tools at i.
func (s *scanner) tool(i int) (t Tool, end int) {
	if s.at(i) != '{' {
		end = s.value(i)
		return Tool{Item: Span{i, end}}, end
	}
	w := walk{end: i + 1}
	seen := uint(0)
	for s.next(&w) {
		key, ok := s.lookup(toolKeys[:], &w, &seen)
		t.Ambiguous = t.Ambiguous || !ok
		if key == 1 && s.at(w.value) == '{' {
			w.end = s.annotations(w.value, &t)
			continue
		}
		if w.end = s.value(w.value); key == 0 && s.at(w.value) == '"' && w.end > 0 {
			t.RawName = Span{w.value, w.end}
		}
	}
	t.Item = Span{i, w.end}
	if raw := t.RawName.Of(s.data); raw != nil {
		t.Name = raw[1 : len(raw)-1]
		if bytes.IndexByte(t.Name, '\\') >= 0 {
			t.Name = AppendText(nil, raw)
		}
	}
	return t, w.end
}

func (s *scanner) annotations(i int, t *Tool) int {
	w := walk{end: i + 1}
	seen := uint(0)
	for s.next(&w) {
		key, ok := s.lookup(annotationKeys[:], &w, &seen)
		t.Ambiguous = t.Ambiguous || !ok
		hint := HintNone
		switch s.at(w.value) {
		case 't':
			hint = HintTrue
		case 'f':
			hint = HintFalse
		}
		switch key {
		case 0:
			t.ReadOnly = hint
		case 1:
			t.Destructive = hint
		}
		w.end = s.value(w.value)
	}
	return w.end
}

// Member returns where in object, valid JSON, the value of the member called
// name, which is ASCII, is: absent if there is none or object is not a JSON object. The error
// is a *[KeyError] if parsers would disagree about which member that is.
func Member(object []byte, name string) (Span, error) {
	s := scanner{data: object}
	i := s.space(0)
	if s.at(i) != '{' {
		return Span{}, nil
	}
	var value Span
	w := walk{end: i + 1}
	seen := uint(0)
	names := [...]string{name}
	for s.next(&w) {
		key, ok := s.lookup(names[:], &w, &seen)
		if !ok {
			return Span{}, keyError(w.key.Of(object))
		}
		if w.end = s.value(w.value); key == 0 {
			value = Span{w.value, w.end}
		}
	}
	if err := s.finish(w.end); err != nil {
		return Span{}, err
	}
	return value, nil
}

// Elements calls fn with each element of array, valid JSON, until fn returns false.
// What is no array has none.
func Elements(array []byte, fn func(raw []byte) bool) {
	s := scanner{data: array}
	i := s.space(0)
	if s.at(i) != '[' {
		return
	}
	list := walk{end: i + 1}
	for s.elem(&list) {
		end := s.value(list.value)
		if list.end = end; end < 0 || !fn(array[list.value:end]) {
			return
		}
	}
}
