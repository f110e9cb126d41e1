//go:build !linux

package recovery

import "os"

// datasync is a full sync where the system has nothing lighter that reaches the
// disk; on macOS package os asks for F_FULLFSYNC.
func datasync(f *os.File) error { return f.Sync() }
