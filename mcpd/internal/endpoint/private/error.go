package private

import "strings"

// Codes of an [UnsafeError]. They are stable: diagnostics print them.
const (
	CodeLink         = "path_is_link"        // a symbolic link where the thing itself must be
	CodeNotDirectory = "path_not_directory"  // something else where a directory must be
	CodeNotRegular   = "path_not_regular"    // a FIFO, device, socket or directory where a file must be
	CodeNotOwned     = "path_not_owned"      // belongs to another user
	CodeOpen         = "path_open_to_others" // group or others have permissions on it
	CodeHardLinked   = "path_hard_linked"    // the file has a second name
	CodeParent       = "parent_unsafe"       // a directory above lets another user swap what is below
	CodeIdentity     = "identity_unsafe"     // the process runs as a user that cannot be told from strangers
	CodeSudo         = "started_with_sudo"   // root on behalf of another user
)

// An UnsafeError says why a path may not be used. Nothing was changed.
type UnsafeError struct {
	Code   string // one of the Code constants
	Path   string // the offending path, which may be a parent of the one asked for
	Detail string // what is wrong with it
	Remedy string // what the user can do, often a command; may be empty
}

func (e *UnsafeError) Error() string {
	s := Quote(e.Path) + " " + e.Detail
	if e.Remedy != "" {
		s += "; " + e.Remedy
	}
	return s
}

// Quote returns s as one word of a POSIX shell, so that a printed command can
// be pasted.
func Quote(s string) string {
	plain := s != "" && strings.IndexFunc(s, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=:,./@%", r)
	}) < 0
	if plain {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
