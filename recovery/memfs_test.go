package recovery_test

import (
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"interlock/recovery"
)

// sector is the unit in which unsynced data reaches a disk or does not.
const sector = 512

// memFS is a file system in memory that knows what a crash would leave of it.
type memFS struct {
	// hook, if set, is called around each change, with the file system unlocked.
	hook func(point string)

	mu    sync.Mutex // guards the fields below, and all inodes
	names map[string]*inode
	// durable is what the directory would hold after a loss of power at the worst;
	// steps are the changes that may or may not have reached the disk, in order.
	durable map[string]*inode
	steps   []map[string]*inode
	fail    func(op, name string, size int) error
	syncs   int
}

// inode is a file: its data, and of each sector what the disk surely holds.
type inode struct {
	data    []byte
	durable []byte
	dirty   map[int]bool // sectors written since the last sync
}

func newMemFS() *memFS {
	return &memFS{names: map[string]*inode{}, durable: map[string]*inode{}}
}

// afterKill is what another process finds after this one was killed.
func (m *memFS) afterKill() *memFS {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := newMemFS()
	for name, in := range m.names {
		c.names[name] = &inode{data: slices.Clone(in.data), durable: slices.Clone(in.data), dirty: map[int]bool{}}
	}
	c.durable = maps.Clone(c.names)
	return c
}

// afterPowerLoss is what the disk holds if the machine stops now: what was synced,
// and of the rest what chance decides.
func (m *memFS) afterPowerLoss(rng *rand.Rand) *memFS {
	m.mu.Lock()
	defer m.mu.Unlock()
	names := m.durable
	if n := rng.Intn(len(m.steps) + 1); n > 0 {
		names = m.steps[n-1]
	}
	c := newMemFS()
	for name, in := range names {
		data := slices.Clone(in.durable)
		for s := range in.dirty {
			from, to := s*sector, min((s+1)*sector, len(in.data))
			if rng.Intn(2) == 0 || from >= to {
				continue
			}
			if to > len(data) {
				data = append(data, make([]byte, to-len(data))...)
			}
			copy(data[from:to], in.data[from:to])
		}
		c.names[name] = &inode{data: data, durable: slices.Clone(data), dirty: map[int]bool{}}
	}
	c.durable = maps.Clone(c.names)
	return c
}

// point calls the hook.
func (m *memFS) point(when, op, name string) {
	if m.hook != nil {
		m.hook(when + " " + op + " " + filepath.Base(name))
	}
}

// failure asks the test whether an operation fails. The caller holds mu.
func (m *memFS) failure(op, name string, size int) error {
	if m.fail == nil {
		return nil
	}
	if err := m.fail(op, filepath.Base(name), size); err != nil {
		return &fs.PathError{Op: op, Path: name, Err: err}
	}
	return nil
}

// setFail replaces what decides which operations fail.
func (m *memFS) setFail(fail func(op, name string, size int) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fail = fail
}

func (m *memFS) Open(name string, flag int) (recovery.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.failure("open", name, 0); err != nil {
		return nil, err
	}
	in := m.names[name]
	switch {
	case in == nil && flag&os.O_CREATE == 0:
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	case in != nil && flag&os.O_EXCL != 0:
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrExist}
	case in == nil:
		in = &inode{dirty: map[int]bool{}}
		m.names[name] = in
		m.step()
	}
	return &memFile{m, in, name}, nil
}

// step notes a change of the directory.
func (m *memFS) step() { m.steps = append(m.steps, maps.Clone(m.names)) }

func (m *memFS) Rename(from, to string) error {
	m.point("before", "rename", to)
	err := m.change("rename", to, func() error {
		in := m.names[from]
		if in == nil {
			return &fs.PathError{Op: "rename", Path: from, Err: fs.ErrNotExist}
		}
		delete(m.names, from)
		m.names[to] = in
		return nil
	})
	m.point("after", "rename", to)
	return err
}

func (m *memFS) Remove(name string) error {
	m.point("before", "remove", name)
	err := m.change("remove", name, func() error {
		if m.names[name] == nil {
			return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrNotExist}
		}
		delete(m.names, name)
		return nil
	})
	m.point("after", "remove", name)
	return err
}

// change changes the directory.
func (m *memFS) change(op, name string, act func() error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.failure(op, name, 0); err != nil {
		return err
	}
	if err := act(); err != nil {
		return err
	}
	m.step()
	return nil
}

func (m *memFS) Names(dir string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []string
	for name := range m.names {
		if filepath.Dir(name) == dir {
			names = append(names, filepath.Base(name))
		}
	}
	return names, nil
}

func (m *memFS) SyncDir(dir string) error {
	m.point("before", "syncdir", dir)
	m.mu.Lock()
	err := m.failure("syncdir", dir, 0)
	if err == nil {
		m.durable, m.steps = maps.Clone(m.names), nil
	}
	m.mu.Unlock()
	m.point("after", "syncdir", dir)
	return err
}

// content returns a file's bytes; put sets them, in a file system of which no loss of
// power is asked.
func (m *memFS) content(name string) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	if in := m.names[name]; in != nil {
		return slices.Clone(in.data)
	}
	return nil
}

func (m *memFS) put(name string, data []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	data = slices.Clone(data)
	m.names[name] = &inode{data: data, durable: data, dirty: map[int]bool{}}
	m.durable[name] = m.names[name]
}

// list names the files, sorted.
func (m *memFS) list() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []string
	for name := range m.names {
		names = append(names, filepath.Base(name))
	}
	slices.Sort(names)
	return names
}

// memFile is an open inode.
type memFile struct {
	fs   *memFS
	in   *inode
	name string
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.fs.failure("read", f.name, len(p)); err != nil {
		return 0, err
	}
	if off >= int64(len(f.in.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.in.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// WriteAt writes in two parts with a point between them.
func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	f.fs.point("before", "write", f.name)
	half := len(p) / 2
	n, err := f.write(p[:half], off)
	if err == nil {
		f.fs.point("within", "write", f.name)
		var rest int
		rest, err = f.write(p[half:], off+int64(half))
		n += rest
	}
	f.fs.point("after", "write", f.name)
	return n, err
}

func (f *memFile) write(p []byte, off int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	end := int(off) + len(p)
	if err := f.fs.failure("write", f.name, max(0, end-len(f.in.data))); err != nil {
		return 0, err
	}
	if end > len(f.in.data) {
		f.in.data = append(f.in.data, make([]byte, end-len(f.in.data))...)
	}
	copy(f.in.data[off:], p)
	for s := int(off) / sector; s*sector < end; s++ {
		f.in.dirty[s] = true
	}
	return len(p), nil
}

func (f *memFile) Close() error { return nil }

func (f *memFile) Size() (int64, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	return int64(len(f.in.data)), nil
}

func (f *memFile) Sync() error {
	f.fs.point("before", "sync", f.name)
	f.fs.mu.Lock()
	f.fs.syncs++
	err := f.fs.failure("sync", f.name, 0)
	if err == nil {
		// Only what was written since can differ from what is durable.
		f.in.durable = append(f.in.durable, f.in.data[len(f.in.durable):]...)
		for s := range f.in.dirty {
			copy(f.in.durable[s*sector:], f.in.data[s*sector:min((s+1)*sector, len(f.in.data))])
		}
		f.in.dirty = map[int]bool{}
	}
	f.fs.mu.Unlock()
	f.fs.point("after", "sync", f.name)
	return err
}

func (f *memFile) Datasync() error { return f.Sync() }

// fullDisk fails whatever needs a new block.
func fullDisk(op, name string, size int) error {
	if op == "write" && size > 0 {
		return syscall.ENOSPC
	}
	return nil
}

// readOnly fails whatever changes anything.
func readOnly(op, name string, size int) error {
	if op == "read" || op == "open" {
		return nil
	}
	return syscall.EROFS
}

// failing fails one kind of operation on files of one name.
func failing(op, name string, err error) func(string, string, int) error {
	return func(o, n string, size int) error {
		if o == op && n == name {
			return fmt.Errorf("injected: %w", err)
		}
		return nil
	}
}
