package private

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Open opens the file at path with the flags of [os.OpenFile], creating it
// with mode 0600 if os.O_CREATE is among them. The file must be regular, ours,
// with a single name and without permissions for group or others; anything
// else is an [UnsafeError]. A missing file is [fs.ErrNotExist]. os.O_TRUNC
// takes effect only after the checks. The descriptor is closed on exec.
func Open(path string, flag int) (*os.File, error) {
	f, err := os.OpenFile(path, flag&^os.O_TRUNC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, openError(path, err)
	}
	if err := checkFile(f, path); err != nil {
		f.Close()
		return nil, err
	}
	if flag&os.O_TRUNC != 0 {
		if err := f.Truncate(0); err != nil {
			f.Close()
			return nil, fmt.Errorf("truncating %q: %w", path, err)
		}
	}
	return f, nil
}

// openError turns the ways in which the kernel refuses what we would refuse
// ourselves into the same UnsafeError.
func openError(path string, err error) error {
	switch {
	case errors.Is(err, unix.ELOOP):
		return &UnsafeError{CodeLink, path, "is a symbolic link", "move it away: the file itself must be here"}
	case errors.Is(err, unix.EISDIR), errors.Is(err, unix.ENXIO), errors.Is(err, unix.EOPNOTSUPP):
		return notRegular(path)
	}
	return fmt.Errorf("opening %q: %w", path, bare(err))
}

// bare strips the operation and path of a *fs.PathError, which the caller's
// own wrapping names.
func bare(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err
	}
	return err
}

func notRegular(path string) error {
	return &UnsafeError{CodeNotRegular, path, "is not a regular file", "move it away"}
}

// checkFile judges the opened file, not its path, which may change meanwhile.
func checkFile(f *os.File, path string) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return fmt.Errorf("examining %q: %w", path, err)
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return notRegular(path)
	case int(st.Uid) != os.Geteuid():
		return notOwned(path, st.Uid)
	case st.Nlink > 1:
		return &UnsafeError{CodeHardLinked, path, "has another name elsewhere (hard link)", "move it away"}
	case st.Mode&0o077 != 0:
		return openToOthers(path, uint32(st.Mode), "600")
	}
	return nil
}

func notOwned(path string, uid uint32) error {
	return &UnsafeError{CodeNotOwned, path,
		fmt.Sprintf("belongs to uid %d, not to uid %d that runs this process", uid, os.Geteuid()),
		"choose another directory with --dir, or give it back to its user"}
}

func openToOthers(path string, mode uint32, want string) error {
	return &UnsafeError{CodeOpen, path,
		fmt.Sprintf("has mode %04o, which lets other users in", mode&0o7777),
		"run: chmod " + want + " " + Quote(path)}
}
