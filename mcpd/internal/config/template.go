package config

import (
	"errors"
	"strings"
	"unicode"
)

// Kind is what a resource template names.
type Kind string

// The kinds of templates. KindName is any name that is no path.
const (
	KindFile Kind = "file"
	KindTree Kind = "tree"
	KindName Kind = ""
)

// Template names what a call changes, with values of its arguments in braces:
// file:{path}, tree:{repo_path}, repo:{owner}/{repo}.
type Template struct {
	// Text is the template as written.
	Text string
	Kind Kind
	// Parts follow one another; the kind's prefix is not among them.
	Parts []Part
}

// Part is a piece of a template: the value of an argument, or text.
type Part struct {
	Argument string // empty for text
	Text     string
}

// ParseTemplate takes a template apart.
func ParseTemplate(text string) (Template, error) {
	t := Template{Text: text}
	rest := text
	for _, kind := range [...]Kind{KindFile, KindTree} {
		if after, ok := strings.CutPrefix(text, string(kind)+":"); ok {
			t.Kind, rest = kind, after
		}
	}
	switch {
	case rest == "":
		return t, errors.New("it names nothing")
	case strings.ContainsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }):
		return t, errors.New("it has white space or a control character in it")
	case strings.HasPrefix(text, "session:"):
		return t, errors.New("what begins with session: belongs to a session and cannot be named")
	}
	for rest != "" {
		literal, after, found := strings.Cut(rest, "{")
		if strings.Contains(literal, "}") {
			return t, errors.New("it has a } without a {")
		}
		if literal != "" {
			t.Parts = append(t.Parts, Part{Text: literal})
		}
		if !found {
			break
		}
		name, after, closed := strings.Cut(after, "}")
		if !closed || name == "" || strings.Contains(name, "{") || strings.ContainsFunc(name, func(r rune) bool { return r > unicode.MaxASCII }) {
			return t, errors.New("a { in it is not followed by the name of an argument, in ASCII, and a }")
		}
		t.Parts = append(t.Parts, Part{Argument: name})
		rest = after
	}
	if t.Kind != KindName && t.Parts[0].Argument == "" && !strings.HasPrefix(t.Parts[0].Text, "/") {
		return t, errors.New("its path is neither absolute nor an argument")
	}
	return t, nil
}
