package recovery

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// segment is the journal file being written. Whoever holds the journal's turn owns
// it.
type segment struct {
	file File
	size int64 // fixed at creation
	off  int64 // where the next frame goes
	// synced is up to where the file is known to be on the disk; told is the last
	// such offset that a record says.
	synced, told int64
	scratch      []byte // reused by append
	// failed is the first error of a write or sync. After it the content is not
	// known, and a failed sync must not be tried again, so the segment is given up.
	failed error
}

// fits says whether n more bytes have room, with the reserve kept free or used.
func (s *segment) fits(n int, useReserve bool) bool {
	limit := s.size
	if !useReserve {
		limit -= reserve
	}
	return s.off+int64(n)+syncedRoom <= limit
}

// syncedRoom is more than the frame of a synced record takes.
const syncedRoom = 64

// usable says that the segment is there and its content known.
func (s *segment) usable() bool { return s != nil && s.failed == nil }

// append writes frames with one write, and syncs if asked to. What is known to be on
// the disk is said with the next frames, never by a write of its own.
func (s *segment) append(frames []byte, sync bool) error {
	if s.synced > s.told {
		s.scratch = appendEntry(s.scratch[:0], &entry{kind: kindSynced, num: uint64(s.synced)})
		s.scratch = append(s.scratch, frames...)
		frames, s.told = s.scratch, s.synced
	}
	if _, err := s.file.WriteAt(frames, s.off); err != nil {
		s.failed = err
		return err
	}
	s.off += int64(len(frames))
	if !sync {
		return nil
	}
	if err := s.file.Datasync(); err != nil {
		s.failed = err
		return err
	}
	s.synced = s.off
	return nil
}

// resumeSegment opens a segment that scanSegment found usable and cuts its torn
// tail by writing zeros over it.
func resumeSegment(fsys FS, name string, found scan) (*segment, error) {
	f, err := fsys.Open(name, os.O_RDWR)
	if err != nil {
		return nil, err
	}
	if found.torn > 0 {
		if _, err = f.WriteAt(make([]byte, found.torn), found.end); err == nil {
			err = f.Sync()
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &segment{file: f, size: found.size, off: found.end}, nil
}

// nextSuffix marks a segment that is being made.
const nextSuffix = ".next"

// makeSegment writes a segment with the given frames beside name, filled with
// zeros to its size and synced. It replaces nothing yet.
func makeSegment(fsys FS, name string, frames []byte, size int64) (*segment, error) {
	next := name + nextSuffix
	if err := remove(fsys, next); err != nil {
		return nil, err
	}
	f, err := fsys.Open(next, os.O_RDWR|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return nil, err
	}
	off := int64(headerSize + len(frames))
	if _, err = f.WriteAt(append(appendHeader(nil, size), frames...), 0); err == nil {
		err = fillZeros(f, off, size)
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		return nil, errors.Join(err, f.Close(), remove(fsys, next))
	}
	return &segment{file: f, size: size, off: off, synced: off}, nil
}

// fillZeros writes zeros from off to size. Written blocks, unlike reserved ones,
// need no change of metadata when a record replaces them, so that a later fdatasync
// writes data only.
func fillZeros(f File, off, size int64) error {
	zeros := make([]byte, 256<<10)
	for off < size {
		n, err := f.WriteAt(zeros[:min(int64(len(zeros)), size-off)], off)
		if err != nil {
			return err
		}
		off += int64(n)
	}
	return nil
}

// publish gives a made segment its name. After an error, replaced says that the
// old segment is gone all the same, and the new one is not known to be durable.
func publish(fsys FS, name string) (replaced bool, err error) {
	if err := fsys.Rename(name+nextSuffix, name); err != nil {
		return false, errors.Join(err, remove(fsys, name+nextSuffix))
	}
	if err := fsys.SyncDir(filepath.Dir(name)); err != nil {
		return true, fmt.Errorf("syncing the directory of %q: %w", name, err)
	}
	return true, nil
}
