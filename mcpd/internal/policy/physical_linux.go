package policy

import (
	"errors"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// physicalAtOnce lets the kernel resolve a path that exists: a descriptor that is
// good for nothing else (O_PATH, open(2)) is asked for its name. The error is that
// of the path, or errors.ErrUnsupported where the kernel's answer is no help.
func physicalAtOnce(path string) (string, error) {
	// Most paths have no links in them, and that is cheaper to find out (openat2(2)).
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS}
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &how)
	switch err {
	case nil:
		unix.Close(fd)
		return path, nil
	case unix.ENOENT: // a link on the way would have been ELOOP
		return "", err
	}
	fd, err = unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	switch err {
	case nil:
	case unix.ENOENT, unix.ENOTDIR, unix.EACCES, unix.ELOOP, unix.ENAMETOOLONG:
		return "", err
	default:
		return "", errors.ErrUnsupported
	}
	defer unix.Close(fd)
	name, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil || !strings.HasPrefix(name, "/") || strings.HasSuffix(name, " (deleted)") {
		return "", errors.ErrUnsupported
	}
	return name, nil
}
