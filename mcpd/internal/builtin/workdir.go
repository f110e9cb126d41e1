package builtin

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// workdir is the directory of one session, opened once. Concurrent use is safe.
type workdir struct {
	root    *os.Root // nil if there is none
	missing string   // why root is nil, for the model

	path     string      // as the client named it
	resolved string      // the same with links resolved when it was opened
	identity fs.FileInfo // of what was opened
	guarded  bool        // nothing may be written
	umask    fs.FileMode // of the client: what new files and directories are not permitted
}

// openWorkdir opens the directory that a session works in. It always returns one: what cannot be opened is reported by each call.
func openWorkdir(path string, umask fs.FileMode, policy *writePolicy) *workdir {
	if path == "" {
		return &workdir{missing: "this session has no working directory, so the file tools cannot be used; start the client in a project directory and connect again"}
	}
	d, err := openDir(path, umask, policy)
	if err != nil {
		return &workdir{missing: fmt.Sprintf("the session's working directory %q cannot be used: %v; connect again from an existing directory", path, plain(err))}
	}
	return d
}

func openDir(path string, umask fs.FileMode, policy *writePolicy) (*workdir, error) {
	if !filepath.IsAbs(path) {
		return nil, errors.New("it is not an absolute path")
	}
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(asDirectory(resolved))
	if err != nil {
		return nil, err
	}
	identity, err := root.Stat(".")
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return &workdir{root: root, path: filepath.Clean(path), resolved: resolved, identity: identity, guarded: policy.guards(identity), umask: umask}, nil
}

func (d *workdir) close() {
	if d.root != nil {
		_ = d.root.Close() // a directory opened for reading: there is nothing to lose
	}
}

// moved reports whether the name that the session was opened with no longer leads to the directory.
func (d *workdir) moved() bool {
	now, err := os.Stat(d.path)
	return err != nil || !os.SameFile(now, d.identity)
}

// relative turns the path of a call into one for the root. An absolute path is welcome if it lies inside by its name; what the name leads to is for the root to decide.
func (d *workdir) relative(path string) (string, error) {
	if !filepath.IsAbs(path) {
		return path, nil
	}
	if d.moved() {
		return "", fmt.Errorf("%q: the session's directory is no longer at %s; use a path relative to it", path, d.path)
	}
	for _, base := range []string{d.path, d.resolved} {
		if rel, err := filepath.Rel(base, path); err == nil && filepath.IsLocal(rel) {
			return rel, nil
		}
	}
	return "", fmt.Errorf("%q is outside the session's directory %s; use a path inside it", path, d.path)
}

// explain says in one sentence why something failed and what to do.
func (d *workdir) explain(verb, path string, err error) error {
	cause := plain(err)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s %q: it does not exist in the session's directory; list_directory shows what does", verb, path)
	case strings.Contains(cause.Error(), "escapes"):
		// package os does not export this error
		return fmt.Errorf("%s %q: it leads out of the session's directory %s; use a path inside it", verb, path, d.path)
	}
	return fmt.Errorf("%s %q: %w", verb, path, cause)
}

// plain is the cause without the operation and names that package os puts before it: the caller names the path as the client knows it.
func plain(err error) error {
	var path *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &path):
		return path.Err
	case errors.As(err, &link):
		return link.Err
	}
	return err
}

// asDirectory makes opening a path fail at once unless it is a directory. Opening a root opens the last name of its path without O_DIRECTORY, which waits for ever on a fifo.
func asDirectory(path string) string {
	return path + "/."
}

// writePolicy says in which directories nothing is written, because a mistake there reaches everything the user has.
type writePolicy struct {
	home     string
	anywhere bool
}

// guards reports whether the directory is the home directory or contains it, or is /, under whatever name it was reached.
func (p *writePolicy) guards(dir fs.FileInfo) bool {
	if p.anywhere {
		return false
	}
	name := "/"
	if p.home != "" {
		name = filepath.Clean(p.home)
		if resolved, err := filepath.EvalSymlinks(name); err == nil {
			name = resolved
		}
	}
	for ; ; name = filepath.Dir(name) {
		if above, err := os.Stat(name); err == nil && os.SameFile(above, dir) {
			return true
		}
		if name == filepath.Dir(name) {
			return false
		}
	}
}
