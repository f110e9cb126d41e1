package recovery

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// FS is what the package needs of a file system. Paths are those of [Options].
// An implementation must be safe for concurrent use.
type FS interface {
	// Open opens a regular file with flags of package os; a new one gets mode 0600.
	// It follows no link and does not block on a FIFO.
	Open(name string, flag int) (File, error)
	Rename(from, to string) error
	Remove(name string) error
	// Names lists a directory.
	Names(dir string) ([]string, error)
	// SyncDir makes renames and removals in dir durable.
	SyncDir(dir string) error
}

// File is an open file of an [FS].
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Size() (int64, error)
	Sync() error     // data and metadata to the disk
	Datasync() error // data, and what is needed to read it back
}

// errIrregular means that a path holds something that is not a regular file.
var errIrregular = errors.New("not a regular file")

// osFS is the real file system.
type osFS struct{}

func (osFS) Open(name string, flag int) (File, error) {
	fp("before open", name)
	f, err := os.OpenFile(name, flag|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EISDIR) {
			err = fmt.Errorf("opening %q: %w", name, errIrregular)
		}
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("opening %q: %w", name, errIrregular)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return osFile{f, name}, nil
}

func (osFS) Rename(from, to string) error {
	fp("before rename", to)
	err := os.Rename(from, to)
	fp("after rename", to)
	return err
}

func (osFS) Remove(name string) error {
	fp("before remove", name)
	err := os.Remove(name)
	fp("after remove", name)
	return err
}

func (osFS) Names(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Readdirnames(-1)
}

func (osFS) SyncDir(dir string) error {
	fp("before syncdir", dir)
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	err = d.Sync()
	fp("after syncdir", dir)
	return err
}

// osFile is a file of osFS. It keeps its first name for failpoints.
type osFile struct {
	*os.File
	name string
}

func (f osFile) WriteAt(p []byte, off int64) (int, error) {
	fp("before write", f.name)
	n, err := f.File.WriteAt(p, off)
	fp("after write", f.name)
	return n, err
}

func (f osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (f osFile) Sync() error {
	fp("before sync", f.name)
	err := f.File.Sync()
	fp("after sync", f.name)
	return err
}

func (f osFile) Datasync() error {
	fp("before sync", f.name)
	err := datasync(f.File)
	fp("after sync", f.name)
	return err
}

// readFile returns the first limit bytes of a file and its size, which may be
// more. It reads at offsets only, so a file that grows meanwhile is no error.
func readFile(fsys FS, name string, limit int64) (data []byte, size int64, err error) {
	f, err := fsys.Open(name, os.O_RDONLY)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	if size, err = f.Size(); err != nil {
		return nil, 0, err
	}
	data = make([]byte, min(size, limit))
	n, err := f.ReadAt(data, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, size, fmt.Errorf("reading %q: %w", name, err)
	}
	return data[:n], size, nil
}

// tmpSuffix marks a file that is being written.
const tmpSuffix = ".tmp"

// writeFile replaces name by data so that a reader, and a later start after a
// crash at any point, finds the old content or the new, durable once it returned.
func writeFile(fsys FS, name string, data []byte) error {
	tmp := name + tmpSuffix
	if err := writeNew(fsys, tmp, data); err != nil {
		return err
	}
	if err := fsys.Rename(tmp, name); err != nil {
		return errors.Join(err, remove(fsys, tmp))
	}
	return fsys.SyncDir(filepath.Dir(name))
}

// writeNew writes a file that nobody else relies on yet and syncs it; a leftover
// of that name goes first. On an error nothing of it stays.
func writeNew(fsys FS, name string, data []byte) error {
	if err := remove(fsys, name); err != nil {
		return err
	}
	f, err := fsys.Open(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, 0)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, remove(fsys, name))
	}
	return nil
}

// remove deletes a file; one that is not there is no error.
func remove(fsys FS, name string) error {
	if err := fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// removeDurably deletes a file, if it is there, so that it stays deleted.
func removeDurably(fsys FS, name string) error {
	if err := remove(fsys, name); err != nil {
		return err
	}
	return fsys.SyncDir(filepath.Dir(name))
}
