package private

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// maxLinks bounds the symbolic links followed in the parents of a path; it is
// the kernel's own bound.
const maxLinks = 40

// MakeDir makes the directory at the absolute path with mode 0700, missing
// parents likewise, and then holds it to [CheckDir]. Parents that exist are
// checked before anything is made.
func MakeDir(path string) error {
	if err := checkParents(path); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("making directory %q: %w", filepath.Dir(path), bare(err))
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("making directory %q: %w", path, bare(err))
	}
	return CheckDir(path)
}

// CheckDir reports why the directory at the absolute path is not private: it
// must be a directory and no symbolic link, owned by our effective user,
// without permissions for group or others, and below directories in which no
// other user can swap it for something else. It changes nothing. A missing
// directory is [fs.ErrNotExist].
func CheckDir(path string) error {
	if err := checkParents(path); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Lstat(filepath.Clean(path), &st); err != nil {
		return fmt.Errorf("examining directory %q: %w", path, err)
	}
	switch {
	case st.Mode&unix.S_IFMT == unix.S_IFLNK:
		return &UnsafeError{CodeLink, path, "is a symbolic link", "name the directory that it points to"}
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return &UnsafeError{CodeNotDirectory, path, "is not a directory", "move it away, or choose another directory with --dir"}
	case int(st.Uid) != os.Geteuid():
		return notOwned(path, st.Uid)
	case st.Mode&0o077 != 0:
		return openToOthers(path, uint32(st.Mode), "700")
	}
	return nil
}

// checkParents walks to the parent of path as the kernel would, links
// included, and refuses a component through which another user could lead us
// elsewhere. It stops without error at the first component that is missing.
func checkParents(path string) error {
	rest := components(filepath.Dir(filepath.Clean(path)))
	current, links := "/", 0
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		if name == ".." { // only the target of a link has these left
			current = filepath.Dir(current)
			continue
		}
		next := filepath.Join(current, name)
		var st unix.Stat_t
		if err := unix.Lstat(next, &st); errors.Is(err, unix.ENOENT) {
			return nil
		} else if err != nil {
			return fmt.Errorf("examining %q: %w", next, err)
		}
		if err := checkParent(next, &st); err != nil {
			return err
		}
		if st.Mode&unix.S_IFMT != unix.S_IFLNK {
			current = next
			continue
		}
		if links++; links > maxLinks {
			return fmt.Errorf("examining %q: %w", path, unix.ELOOP)
		}
		target, err := os.Readlink(next)
		if err != nil {
			return fmt.Errorf("reading link %q: %w", next, bare(err))
		}
		if filepath.IsAbs(target) {
			current = "/"
		}
		rest = append(components(target), rest...)
	}
	return nil
}

func components(path string) []string {
	return strings.FieldsFunc(filepath.Clean(path), func(r rune) bool { return r == '/' })
}

// checkParent judges one directory, or link to one, above a private path. A
// group may write where it is our own: distributions with a group per user
// and umask 002 make every directory like that.
func checkParent(path string, st *unix.Stat_t) error {
	trusted := st.Uid == 0 || int(st.Uid) == os.Geteuid()
	if !trusted {
		// Where root is not mapped into our user namespace, / and the like
		// show the overflow uid, and nobody inside can change their owner.
		overflow, err := ambiguous(st.Uid)
		if err != nil {
			return err
		}
		trusted = overflow
	}
	kind := st.Mode & unix.S_IFMT
	ourGroup := int(st.Gid) == os.Getegid() || st.Gid == 0
	writable := st.Mode&0o002 != 0 || st.Mode&0o020 != 0 && !ourGroup
	switch {
	case !trusted:
		return &UnsafeError{CodeParent, path,
			fmt.Sprintf("belongs to uid %d, who could replace what is below it", st.Uid),
			"choose a directory below your home with --dir"}
	case kind == unix.S_IFLNK:
		return nil
	case kind != unix.S_IFDIR:
		return &UnsafeError{CodeNotDirectory, path, "is not a directory", "choose another directory with --dir"}
	case writable && st.Mode&unix.S_ISVTX == 0:
		return &UnsafeError{CodeParent, path,
			fmt.Sprintf("has mode %04o: other users could replace what is below it", st.Mode&0o7777),
			"run: chmod go-w " + Quote(path)}
	}
	return nil
}
