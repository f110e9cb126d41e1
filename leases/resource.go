package leases

import (
	"fmt"
	"net/url"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Resource names something that is changed by one owner at a time: canonical text
// such as server:memory or file:/home/ann/notes.txt.
type Resource string

// Bounds of names, in characters and bytes.
const (
	maxName     = 128  // of an owner, or of a resource that a client names
	maxResource = 4096 // of a derived resource
)

const (
	fileKind = "file:"
	treeKind = "tree:"
)

// File is the resource of one file, whose path must be absolute and clean. The
// error is an [ErrInvalid] if the encoded path is longer than 4,096 bytes.
func File(path string) (Resource, error) { return derive(fileKind, path) }

// Tree is the resource of a directory with all that is below it; see [File].
func Tree(path string) (Resource, error) { return derive(treeKind, path) }

// Server is the resource of the state that all processes of a server share.
func Server(name string) Resource { return Resource("server:" + escape(name)) }

// Session is the resource of the state that belongs to one session alone.
func Session(id string) Resource { return Resource("session:" + escape(id)) }

// Derived is the resource called by text, percent-encoded: a template over the
// arguments of a call with its values put in. Paths are not for it.
func Derived(text string) (Resource, error) { return derive("", text) }

func derive(kind, text string) (Resource, error) {
	r := Resource(kind + escape(text))
	if len(r) > maxResource {
		return "", fmt.Errorf("%w: the resource is longer than %d bytes", ErrInvalid, maxResource)
	}
	return r, nil
}

// Parse checks the name of a resource that came from outside: a path must be as
// [File] and [Tree] write it, or it would not conflict with theirs. The error is an
// [ErrInvalid].
func Parse(text string) (Resource, error) {
	r := Resource(text)
	if encoded, ok := r.path(); ok {
		plain, err := url.PathUnescape(encoded)
		if err != nil || len(r) > maxResource || !path.IsAbs(plain) || path.Clean(plain) != plain || escape(plain) != encoded {
			return "", fmt.Errorf("%w: %s and %s take an absolute, clean, percent-encoded path, and at most %d bytes", ErrInvalid, fileKind, treeKind, maxResource)
		}
		return r, nil
	}
	return r, checkName("a resource", text)
}

// checkName checks a name that came from outside.
func checkName(what, name string) error {
	n := utf8.RuneCountInString(name)
	bad := func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }
	if n == 0 || n > maxName || !utf8.ValidString(name) || strings.ContainsFunc(name, bad) {
		return fmt.Errorf("%w: %s has a name of 1 to %d printable characters without white space", ErrInvalid, what, maxName)
	}
	return nil
}

// path returns the path of a file or tree, still encoded.
func (r Resource) path() (path string, ok bool) {
	for _, kind := range [...]string{fileKind, treeKind} {
		if rest, ok := strings.CutPrefix(string(r), kind); ok {
			return rest, true
		}
	}
	return "", false
}

func (r Resource) isTree() bool { return strings.HasPrefix(string(r), treeKind) }

// Conflicts reports whether r and o cannot be in two hands at the same time.
func (r Resource) Conflicts(o Resource) bool {
	return r == o || r.holds(o) || o.holds(r)
}

// Covers reports whether who has r needs nothing more to change o.
func (r Resource) Covers(o Resource) bool { return r == o || r.holds(o) }

// holds reports whether r is a tree that o is in, or is the top of.
func (r Resource) holds(o Resource) bool {
	if !r.isTree() {
		return false
	}
	path, ok := o.path()
	return ok && within(string(r)[len(treeKind):], path)
}

// within reports whether path is top or below it.
func within(top, path string) bool {
	rest, ok := strings.CutPrefix(path, top)
	return ok && (rest == "" || rest[0] == '/' || strings.HasSuffix(top, "/"))
}

// trees calls f for each tree that r, a path, is in, the innermost first, until f
// returns false.
func (r Resource) trees(f func(Resource) bool) {
	path, ok := r.path()
	if !ok {
		return
	}
	const root = len(treeKind + "/")
	tree := r // of which all that come after are the beginning
	if !r.isTree() {
		tree = Resource(treeKind + path)
	}
	for f(tree) && len(tree) > root {
		tree = tree[:max(strings.LastIndexByte(string(tree), '/'), root)]
	}
}

// escape percent-encodes what a name of one line without white space cannot hold.
func escape(text string) string {
	const hex = "0123456789ABCDEF"
	plain := func(c byte) bool { return ' ' < c && c < 0x7f && c != '%' }
	i := 0
	for i < len(text) && plain(text[i]) {
		i++
	}
	if i == len(text) {
		return text
	}
	var b strings.Builder
	b.WriteString(text[:i])
	for ; i < len(text); i++ {
		if c := text[i]; plain(c) {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', hex[c>>4], hex[c&0xf]})
		}
	}
	return b.String()
}
