package builtin

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"unicode/utf8"
)

const (
	// maxTransfer bounds the bytes of one read or write. Escaped in JSON, six bytes for one at worst, they still fit a frame.
	maxTransfer = 8 << 20
	// maxEntries bounds one listing.
	maxEntries = 10_000
)

// filePart is text of a file: its bytes from start to end, of size.
type filePart struct {
	text             string
	start, end, size int64
}

// read returns the text of a regular file from offset on, at most limit bytes; limit 0 is up to the end. A character that the range cuts is left out at either side.
func (d *workdir) read(path string, offset, limit int64) (filePart, error) {
	name, err := d.relative(path)
	if err != nil {
		return filePart{}, err
	}
	f, size, err := d.openRegular(name)
	if err != nil {
		return filePart{}, d.explain("reading", path, err)
	}
	defer f.Close()
	switch {
	case offset > size:
		return filePart{}, fmt.Errorf("reading %q: offset %d is past its end; it has %d bytes", path, offset, size)
	case limit == 0 && size-offset > maxTransfer:
		return filePart{}, fmt.Errorf("reading %q: it has %d bytes; read it in parts with offset and limit, at most %d bytes each", path, size, maxTransfer)
	case limit == 0:
		limit = maxTransfer
	}
	data, err := io.ReadAll(io.NewSectionReader(f, offset, limit))
	if err != nil {
		return filePart{}, d.explain("reading", path, err)
	}
	size = max(size, offset+int64(len(data))) // it may have grown since
	lead, text := wholeRunes(data, offset > 0, offset+int64(len(data)) < size)
	if !utf8.Valid(text) || bytes.IndexByte(text, 0) >= 0 {
		return filePart{}, fmt.Errorf("reading %q: it is not UTF-8 text (%d bytes, type %s); this tool reads only text", path, size, http.DetectContentType(data))
	}
	start := offset + int64(lead)
	return filePart{text: string(text), start: start, end: start + int64(len(text)), size: size}, nil
}

// openRegular opens a regular file for reading and returns its size. It looks before it opens, because opening alone releases a writer that waits at a fifo and can set off a
// device; it looks again afterwards and opens without waiting, because the file may have been exchanged between.
func (d *workdir) openRegular(name string) (*os.File, int64, error) {
	before, err := d.root.Stat(name)
	if err != nil {
		return nil, 0, err
	}
	if err := mustBeRegular(before); err != nil {
		return nil, 0, err
	}
	f, err := d.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, 0, err
	}
	after, err := f.Stat()
	if err == nil {
		err = mustBeRegular(after)
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, after.Size(), nil
}

func mustBeRegular(info fs.FileInfo) error {
	if info.Mode().IsRegular() {
		return nil
	}
	return fmt.Errorf("it is a %s, not a regular file", kind(info.Mode()))
}

// wholeRunes drops the rest of a character at the beginning (if the range began inside the file) and a begun one at the end (if the file goes on), and says how many bytes it
// dropped at the beginning.
func wholeRunes(data []byte, cutBefore, cutAfter bool) (lead int, text []byte) {
	for cutBefore && lead < len(data) && lead < utf8.UTFMax-1 && !utf8.RuneStart(data[lead]) {
		lead++
	}
	end := len(data)
	for back := 1; cutAfter && back < utf8.UTFMax && back <= end-lead; back++ {
		if utf8.RuneStart(data[end-back]) {
			if !utf8.FullRune(data[end-back:]) {
				end -= back
			}
			break
		}
	}
	return lead, data[lead:end]
}

// listing is the structured content of list_directory.
type listing struct {
	Entries   []entry `json:"entries"`
	Truncated bool    `json:"truncated"`
}

type entry struct {
	Name string `json:"name"`
	Type string `json:"type"`
	Size *int64 `json:"size,omitempty"` // of regular files only
}

// list returns the entries of a directory, sorted by name. An empty path is the session's directory.
func (d *workdir) list(path string) (listing, error) {
	path = cmp.Or(path, ".")
	name, err := d.relative(path)
	if err != nil {
		return listing{}, err
	}
	dir, err := d.root.OpenRoot(asDirectory(name))
	if err != nil {
		return listing{}, d.explain("listing", path, err)
	}
	defer dir.Close()
	f, err := dir.Open(".")
	if err != nil {
		return listing{}, d.explain("listing", path, err)
	}
	defer f.Close()
	names, err := f.Readdirnames(maxEntries + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return listing{}, d.explain("listing", path, err)
	}
	l := listing{Entries: make([]entry, 0, len(names)), Truncated: len(names) > maxEntries}
	if l.Truncated {
		names = names[:maxEntries]
	}
	slices.Sort(names)
	for _, name := range names {
		info, err := dir.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it went away meanwhile
		}
		if err != nil {
			return listing{}, d.explain("listing", path, err)
		}
		e := entry{Name: name, Type: kind(info.Mode())}
		if info.Mode().IsRegular() {
			size := info.Size()
			e.Size = &size
		}
		l.Entries = append(l.Entries, e)
	}
	return l, nil
}

// kind is the word for a file's type, as in the schema of list_directory.
func kind(mode fs.FileMode) string {
	switch mode.Type() {
	case 0:
		return "file"
	case fs.ModeDir:
		return "directory"
	case fs.ModeSymlink:
		return "symlink"
	case fs.ModeNamedPipe:
		return "fifo"
	case fs.ModeSocket:
		return "socket"
	case fs.ModeDevice, fs.ModeDevice | fs.ModeCharDevice:
		return "device"
	}
	return "other"
}

// write replaces or creates a regular file, with the directories it needs, and reports whether it created it. All steps after the first work in the parent directory as
// it was opened once, so exchanging directories meanwhile cannot lead the rename elsewhere.
func (d *workdir) write(path, content string) (created bool, err error) {
	if d.guarded {
		return false, fmt.Errorf("writing %q: the session's directory %s is the home directory or contains it, where nothing is written; start the client in a project directory",
			path, d.path)
	}
	if len(content) > maxTransfer {
		return false, fmt.Errorf("writing %q: the content has %d bytes, more than the %d that one call may write", path, len(content), maxTransfer)
	}
	name, err := d.relative(path)
	if err != nil {
		return false, err
	}
	dir, base := filepath.Split(name)
	if base == "" || base == "." || base == ".." {
		return false, fmt.Errorf("writing %q: it names a directory, not a file", path)
	}
	dir = cmp.Or(dir, ".")
	err = d.makeDirectories(dir)
	if errors.Is(err, fs.ErrExist) {
		err = errors.New("a name on the way to it is a file, not a directory")
	}
	if err != nil {
		return false, d.explain("writing", path, err)
	}
	parent, err := d.root.OpenRoot(asDirectory(dir))
	if err != nil {
		return false, d.explain("writing", path, err)
	}
	defer parent.Close()
	mode, exists, err := replaceable(parent, base)
	if !exists {
		mode = 0o666 &^ d.umask
	}
	if err == nil {
		err = replace(parent, base, content, mode)
	}
	if err != nil {
		return false, d.explain("writing", path, err)
	}
	return !exists, nil
}

// makeDirectories creates the directories of a path that are missing. Their permission bits are what the client's umask leaves; the daemon's own is for its own files.
func (d *workdir) makeDirectories(path string) error {
	mode := 0o777 &^ d.umask
	for end, c := range path + "/" {
		if c != '/' {
			continue
		}
		if _, name := filepath.Split(path[:end]); name == "" || name == "." || name == ".." {
			continue // nothing to create
		}
		err := d.root.Mkdir(path[:end], mode)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			break // MkdirAll meets it too, and says what it is
		}
		if err := d.permit(path[:end], mode); err != nil {
			return err
		}
	}
	return d.root.MkdirAll(path, mode)
}

// permit gives a new directory its permission bits. It keeps the group that the directory above hands down.
func (d *workdir) permit(dir string, mode fs.FileMode) error {
	info, err := d.root.Lstat(dir)
	if err != nil || info.Mode().Perm() == mode {
		return err
	}
	return d.root.Chmod(dir, mode|info.Mode()&fs.ModeSetgid)
}

// replaceable checks what the name is now and returns its permission bits. A target that changes after this check is replaced whole, never written through.
func replaceable(parent *os.Root, base string) (mode fs.FileMode, exists bool, err error) {
	info, err := parent.Lstat(base)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	if err := mustBeRegular(info); err != nil {
		return 0, true, err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || stat.Nlink > 1 {
		return 0, true, errors.New("it has other names (hard links), which writing here would cut off; write a new file instead")
	}
	if info.Mode().Perm()&0o200 == 0 {
		return 0, true, errors.New("it is read-only")
	}
	return info.Mode().Perm(), true, nil
}

// replace writes a file with the permission bits beside the target and renames it into place. From the first byte on nobody reads it who may not read the target.
func replace(parent *os.Root, base, content string, mode fs.FileMode) (err error) {
	temp := ".interlock-" + rand.Text() + ".tmp"
	f, err := parent.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, parent.Remove(temp))
		}
	}()
	_, err = io.WriteString(f, content)
	if err == nil {
		err = f.Chmod(mode) // whatever the daemon's own umask has left of it
	}
	if err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	return parent.Rename(temp, base)
}
