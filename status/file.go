package status

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// ErrForeign is returned when a status file belongs to another daemon: it names
// another socket, or what was ours names another instance. It is left as it is.
var ErrForeign = errors.New("the status file belongs to another daemon")

// ErrDamaged is returned for a status file that is no status.
var ErrDamaged = errors.New("the status file is damaged")

// VersionError is returned for a status of another major version.
type VersionError struct {
	Path string
	// Version is that of the file; this program reads [ProtocolVersion].
	Version int
}

// Error names both versions and the way out.
func (e *VersionError) Error() string {
	return fmt.Sprintf("status file %q is of version %d, and this program reads version %d: use the program that started the daemon, or restart the daemon with this one", e.Path, e.Version, ProtocolVersion)
}

// maxReadBytes bounds what Read takes in; a newer daemon may write more than
// MaxBytes.
const maxReadBytes = 1 << 20

// Read returns the snapshot in the file at path. A file that is not there is
// an error wrapping [fs.ErrNotExist], one of another major version a
// *[VersionError], and one that still is no status when read a second time an
// error wrapping [ErrDamaged].
func Read(path string) (Snapshot, error) {
	s, err := readOnce(path)
	if errors.Is(err, ErrDamaged) {
		return readOnce(path)
	}
	return s, err
}

func readOnce(path string) (Snapshot, error) {
	data, err := readFile(path)
	if err != nil {
		return Snapshot{}, fmt.Errorf("reading status: %w", err)
	}
	return decode(path, data)
}

// decode returns the snapshot that the file at path holds as data.
func decode(path string, data []byte) (Snapshot, error) {
	var head struct {
		ProtocolVersion int `json:"protocolVersion"`
	}
	if err := json.Unmarshal(data, &head); err != nil || head.ProtocolVersion <= 0 {
		return Snapshot{}, fmt.Errorf("reading status file %q: %w", path, ErrDamaged)
	}
	if head.ProtocolVersion != ProtocolVersion {
		return Snapshot{}, &VersionError{Path: path, Version: head.ProtocolVersion}
	}
	var s Snapshot
	if err := json.Unmarshal(data, &s); err != nil {
		return Snapshot{}, fmt.Errorf("reading status file %q: %w: %w", path, ErrDamaged, err)
	}
	if s.PID <= 0 || s.Socket == "" {
		return Snapshot{}, fmt.Errorf("reading status file %q: %w: it names no process or no socket", path, ErrDamaged)
	}
	return s, nil
}

// readFile reads a regular file of at most maxReadBytes, without following a
// link and without waiting for what is no file.
func readFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%q is not a regular file: %w", path, ErrDamaged)
	}
	return io.ReadAll(io.LimitReader(f, maxReadBytes))
}

// owner is which daemon a status file is of; fields that it does not name are
// empty.
type owner struct {
	socket, instance string
	pid              int
}

// ownerOf returns the owner of the status file at path, whatever its version.
func ownerOf(path string) (owner, error) {
	data, err := readFile(path)
	if err != nil {
		return owner{}, err
	}
	var head struct {
		Socket   string          `json:"socket"`
		PID      json.RawMessage `json:"pid"`
		Identity struct {
			Instance string `json:"instance"`
		} `json:"identity"`
	}
	if json.Unmarshal(data, &head) != nil {
		return owner{}, nil
	}
	pid, _ := strconv.Atoi(string(head.PID)) // in another version it may be anything
	return owner{head.Socket, head.Identity.Instance, pid}, nil
}

// checkOwner returns ErrForeign if the file at path names another socket than own
// does, or another instance that runs; an empty instance takes over any. A file
// that is damaged or absent is nobody's.
func checkOwner(path string, own owner) error {
	found, err := ownerOf(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("checking status file: %w", err)
	case found.socket != "" && found.socket != own.socket:
		return fmt.Errorf("writing status file %q for socket %q: %w: %q", path, own.socket, ErrForeign, found.socket)
	case found.instance != "" && own.instance != "" && found.instance != own.instance && runsElsewhere(found.pid):
		return fmt.Errorf("writing status file %q: %w, which has taken the place of this one", path, ErrForeign)
	}
	return nil
}

// runsElsewhere reports whether there is a process with the pid that is not this
// one. It need not be a daemon: then the file stays until somebody looks.
func runsElsewhere(pid int) bool {
	if pid <= 0 || pid == os.Getpid() {
		return false
	}
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}

// replaceFile puts data in place of the file at path. The temporary file has a
// fixed name, so that one left by a crash is taken away by the next write. It
// is not synced: after a power cut the daemon is gone and its status with it.
func replaceFile(path string, data []byte) error {
	temp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".tmp")
	if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("writing status: %w", err)
	}
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("writing status: %w", err)
	}
	_, err = f.Write(data)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		os.Remove(temp)
		return fmt.Errorf("writing status: %w", err)
	}
	return nil
}
