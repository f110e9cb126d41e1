package endpoint

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"interlock/mcpd/internal/endpoint/private"
)

// UnsafeError is why a path of the endpoint may not be used: a stable code,
// the path, what is wrong and what to do about it.
type UnsafeError = private.UnsafeError

// Codes of an [UnsafeError] that only this package gives.
const (
	CodeTooLong    = "socket_path_too_long"  // the socket's path does not fit the kernel's address
	CodeOccupied   = "socket_path_occupied"  // something that is not a socket of ours lies at the socket's path
	CodeActivation = "activation_unsuitable" // the service manager passed a socket that does not fit
)

// Paths are the absolute paths of an endpoint.
type Paths struct {
	Dir      string // the directory; one directory is one daemon
	Socket   string // interlock.sock
	Status   string // daemon.json
	Recovery string // daemon.recovery.json
	Journal  string // daemon.journal
	Log      string // daemon.log
	Lock     string // daemon.lock
	Servers  string // servers, the directory of the servers' logs
}

// Options are what the command line says about where the endpoint is. Empty
// means unsaid.
type Options struct {
	Dir    string // --dir
	Socket string // --socket; without Dir its parent is the directory
	Status string // --status; moves the status file only
}

// Locate works out the paths from the command line, then $INTERLOCK_DIR,
// $XDG_STATE_HOME and $HOME, in this order. Relative paths are relative to the
// working directory, except that a relative $XDG_STATE_HOME is ignored, as the
// XDG Base Directory specification asks. A socket path that the kernel has no
// room for is an [UnsafeError]. Nothing is made or touched.
func Locate(env func(string) string, opt Options) (Paths, error) {
	dir, err := directory(env, opt)
	if err != nil {
		return Paths{}, err
	}
	dir, err = absolute(dir)
	if err != nil {
		return Paths{}, err
	}
	p := Paths{
		Dir:      dir,
		Socket:   filepath.Join(dir, "interlock.sock"),
		Status:   filepath.Join(dir, "daemon.json"),
		Recovery: filepath.Join(dir, "daemon.recovery.json"),
		Journal:  filepath.Join(dir, "daemon.journal"),
		Log:      filepath.Join(dir, "daemon.log"),
		Lock:     filepath.Join(dir, "daemon.lock"),
		Servers:  filepath.Join(dir, "servers"),
	}
	if opt.Socket != "" {
		if p.Socket, err = absolute(opt.Socket); err != nil {
			return Paths{}, err
		}
	}
	if opt.Status != "" {
		if p.Status, err = absolute(opt.Status); err != nil {
			return Paths{}, err
		}
	}
	if n := len(p.Socket); n > maxSocketPath {
		return Paths{}, &UnsafeError{
			Code: CodeTooLong, Path: p.Socket,
			Detail: fmt.Sprintf("is %d bytes long; this system allows %d for a Unix socket", n, maxSocketPath),
			Remedy: "choose a shorter directory with --dir or INTERLOCK_DIR",
		}
	}
	return p, nil
}

func directory(env func(string) string, opt Options) (string, error) {
	switch {
	case opt.Dir != "":
		return opt.Dir, nil
	case opt.Socket != "":
		socket, err := absolute(opt.Socket)
		return filepath.Dir(socket), err
	case env("INTERLOCK_DIR") != "":
		return env("INTERLOCK_DIR"), nil
	case filepath.IsAbs(env("XDG_STATE_HOME")):
		return filepath.Join(env("XDG_STATE_HOME"), "interlock"), nil
	case filepath.IsAbs(env("HOME")):
		return filepath.Join(env("HOME"), ".local", "state", "interlock"), nil
	}
	return "", errors.New("finding the directory: HOME is not set to an absolute path; set it, or name a directory with --dir or INTERLOCK_DIR")
}

func absolute(path string) (string, error) {
	if strings.ContainsRune(path, 0) {
		return "", fmt.Errorf("path %q holds a NUL byte", path)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("making path %q absolute: %w", path, err)
	}
	return abs, nil
}

// maxLogName is how long the encoded part of a log's name may be, in bytes. A
// file name has room for 255.
const maxLogName = 120

// ServerLog is the path of the log of the server of that name. Every name has
// a log of its own: bytes outside [A-Za-z0-9_-] are percent-encoded, and of a
// name that is then too long the end gives way to a hash of the whole.
func (p Paths) ServerLog(name string) string {
	var b strings.Builder
	for i := range len(name) {
		if c := name[i]; isPlain(c) {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	encoded := b.String()
	if len(encoded) > maxLogName {
		sum := sha256.Sum256([]byte(name))
		// A dot never occurs in an encoded name, so none can collide.
		encoded = encoded[:maxLogName] + "." + hex.EncodeToString(sum[:8])
	}
	return filepath.Join(p.Servers, encoded+".log")
}

func isPlain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-'
}
