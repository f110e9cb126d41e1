package policy

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf8"

	"interlock/mcpd/internal/config"
	"interlock/mcpd/internal/wire"
)

// Target is one thing that a call is about.
type Target struct {
	Kind config.Kind
	// Text is an absolute path without links for a file or tree, else a name.
	Text string
}

// Place is where a server runs: what its relative paths start from.
type Place struct {
	Dir  string // absolute; empty if it is not known
	Home string // of the user, absolute
}

// ErrUnreadable means that an argument that decides cannot be read in one way only.
var ErrUnreadable = errors.New("an argument has an escaped half of a character in it, which programs read differently")

// Targets returns what a call with these arguments, a JSON object or nothing, is
// about: each template with each of its values put in. Complete is false if a
// template names an argument that the call does not have, or not as text: the call
// may then be about anything of the server's. The error is a [*wire.KeyError] or
// [ErrUnreadable] if daemon and server could read an argument differently.
func (p Place) Targets(templates []config.Template, arguments []byte) (targets []Target, complete bool, err error) {
	complete = true
	for _, t := range templates {
		texts, err := expand(t, arguments)
		if err != nil {
			return nil, false, err
		}
		if len(texts) == 0 {
			complete = false
		}
		for _, text := range texts {
			if t.Kind == config.KindName {
				targets = append(targets, Target{Text: text})
				continue
			}
			path, ok := p.absolute(text)
			if !ok {
				complete = false
				continue
			}
			name := resolve(path)
			targets = append(targets, Target{Kind: t.Kind, Text: name})
			if other := resolveStepwise(path); other != name {
				targets = append(targets, Target{Kind: t.Kind, Text: other})
			}
		}
	}
	return targets, complete, nil
}

// expand returns the template's text for each combination of its arguments'
// values, none if one has no value.
func expand(t config.Template, arguments []byte) ([]string, error) {
	texts := []string{""}
	for _, part := range t.Parts {
		values := []string{part.Text}
		if part.Argument != "" {
			var err error
			var given bool
			if values, given, err = valuesOf(arguments, part.Argument); err != nil {
				return nil, err
			}
			if !given && t.Kind == config.KindTree && len(t.Parts) == 1 {
				values = []string{"."} // where no directory is given, servers take their own
			}
		}
		if len(texts)*len(values) > maxValues {
			return nil, nil
		}
		next := make([]string, 0, len(texts)*len(values))
		for _, text := range texts {
			for _, value := range values {
				next = append(next, text+value)
			}
		}
		texts = next
	}
	return texts, nil
}

// maxValues bounds how many things a template stands for in one call; with more the
// call counts as one about anything.
const maxValues = 256

// valuesOf returns what an argument says, as text: nothing if it is not given, or
// is given and cannot be read as text.
func valuesOf(arguments []byte, name string) (values []string, given bool, err error) {
	span, err := wire.Member(arguments, name)
	if err != nil {
		return nil, false, err
	}
	raw := span.Of(arguments)
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return nil, false, nil
	case raw[0] != '[':
		value, ok, err := valueOfJSON(raw)
		if !ok || err != nil {
			return nil, true, err
		}
		return []string{value}, true, nil
	}
	good := true
	wire.Elements(raw, func(raw []byte) bool {
		var value string
		value, good, err = valueOfJSON(raw)
		values = append(values, value)
		good = good && len(values) <= maxValues
		return good && err == nil
	})
	if err != nil || !good {
		return nil, true, err
	}
	return values, true, nil
}

// valueOfJSON returns the text of a string or a number; numbers that are equal
// have equal texts.
func valueOfJSON(raw []byte) (text string, ok bool, err error) {
	switch c := raw[0]; {
	case c == '"':
		text = string(wire.AppendText(nil, raw))
		if !utf8.ValidString(text) {
			return "", false, ErrUnreadable
		}
		return text, true, nil
	case c == '-' || '0' <= c && c <= '9':
		n, err := strconv.ParseFloat(string(raw), 64)
		if err != nil {
			return "", false, nil
		}
		if n == 0 {
			n = 0 // and not -0
		}
		return strconv.FormatFloat(n, 'f', -1, 64), true, nil
	}
	return "", false, nil
}

// Resolve returns the path as programs find it: absolute, clean, and without links
// as far as it exists.
func (p Place) Resolve(path string) (string, bool) {
	path, ok := p.absolute(path)
	if !ok {
		return "", false
	}
	return resolve(path), true
}

// absolute returns the path from the root, not cleaned.
func (p Place) absolute(path string) (string, bool) {
	if p.Home != "" && (path == "~" || strings.HasPrefix(path, "~/")) {
		path = p.Home + path[1:]
	}
	if !filepath.IsAbs(path) {
		if p.Dir == "" {
			return "", false
		}
		path = p.Dir + "/" + path
	}
	return path, !strings.ContainsRune(path, 0)
}

// maxPath is the length of a path, in bytes, from which on no system takes it
// (PATH_MAX in limits.h). It leads to nothing, and is only cleaned.
const maxPath = 4096

// resolve resolves an absolute path that is cleaned first, as most programs do
// before they open a file: link/.. is where the link is.
func resolve(path string) string {
	clean := filepath.Clean(path)
	if len(clean) >= maxPath {
		return clean
	}
	return physical(clean, maxLinks)
}

// resolveStepwise resolves an absolute path that is not cleaned first, as the kernel
// does: link/.. is above what the link leads to.
func resolveStepwise(path string) string {
	if len(path) >= maxPath || !strings.Contains(path, "..") {
		return resolve(path)
	}
	at := "/"
	for name := range strings.SplitSeq(path, "/") {
		if name == ".." {
			at = filepath.Dir(physical(at, maxLinks))
		} else {
			at = filepath.Join(at, name)
		}
	}
	return physical(at, maxLinks)
}

// maxLinks bounds the links followed on the way to a file that does not exist, as
// the kernel does (path_resolution(7)).
const maxLinks = 40

// physical resolves the links in a clean absolute path. Of a path that does not
// exist yet, it resolves the part that does, and a link that leads nowhere yet.
func physical(path string, links int) string {
	name, err := physicalAtOnce(path)
	if errors.Is(err, errors.ErrUnsupported) {
		name, err = filepath.EvalSymlinks(path)
	}
	if err == nil {
		return name
	}
	folder := filepath.Dir(path)
	if folder == path {
		return path
	}
	folder = physical(folder, links)
	path = filepath.Join(folder, filepath.Base(path))
	target, linkErr := os.Readlink(path)
	if linkErr != nil || links == 0 || !errors.Is(err, fs.ErrNotExist) {
		return path
	}
	if !filepath.IsAbs(target) {
		target = filepath.Join(folder, target)
	}
	return physical(filepath.Clean(target), links-1)
}
