package endpoint

import "golang.org/x/sys/unix"

// inode names a file for as long as somebody keeps it open; afterwards its
// number may be given to another file.
type inode struct{ device, number uint64 }

func inodeOf(fd int) (inode, error) {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	return inode{uint64(st.Dev), st.Ino}, err
}

func inodeAt(path string) (inode, error) {
	var st unix.Stat_t
	err := unix.Lstat(path, &st)
	return inode{uint64(st.Dev), st.Ino}, err
}
