package proc

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// defaultPath is what execvp searches when the environment has no PATH.
const defaultPath = "/bin:/usr/bin"

// NotFoundError reports a command that Resolve did not find.
type NotFoundError struct {
	Command string
	PATH    string // what was searched; empty when Command has a slash
	Denied  string // a file of that name that may not be executed, if there was one
}

// Error names the command, what was searched, and what to do.
func (e *NotFoundError) Error() string {
	switch {
	case e.Denied != "":
		return fmt.Sprintf("command %q: %q is not an executable file (PATH is %q); make it executable or name another", e.Command, e.Denied, e.PATH)
	case strings.Contains(e.Command, "/"):
		return fmt.Sprintf("command %q: there is no such file; give its absolute path", e.Command)
	}
	return fmt.Sprintf("command %q was not found in PATH %q; install it or give its absolute path", e.Command, e.PATH)
}

// Resolve finds the file that execvp(3) would run for command in a process with the environment env and the working directory dir:
// a name with a slash is taken as it is, relative to dir; any other is searched in the PATH of env, whose empty and relative
// entries are relative to dir too. The error is a *NotFoundError.
func Resolve(command string, env []string, dir string) (string, error) {
	notFound := &NotFoundError{Command: command}
	try := func(path string) (string, bool) {
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		fi, err := os.Stat(path)
		if err != nil {
			return "", false
		}
		if fi.IsDir() || unix.Access(path, unix.X_OK) != nil {
			if notFound.Denied == "" {
				notFound.Denied = path
			}
			return "", false
		}
		return path, true
	}
	if strings.Contains(command, "/") {
		if path, ok := try(command); ok {
			return path, nil
		}
		return "", notFound
	}
	notFound.PATH = pathOf(env)
	if command == "" {
		return "", notFound
	}
	for _, entry := range filepath.SplitList(notFound.PATH) {
		if path, ok := try(filepath.Join(entry, command)); ok {
			return path, nil
		}
	}
	return "", notFound
}

// pathOf returns the first PATH of env, which is the one that getenv(3) sees.
func pathOf(env []string) string {
	for _, kv := range env {
		if path, ok := strings.CutPrefix(kv, "PATH="); ok {
			return path
		}
	}
	return defaultPath
}
