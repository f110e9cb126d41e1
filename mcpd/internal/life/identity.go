package life

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
)

// An Identity names one process for ever. The JSON names are those of the
// status file, where the pid stands beside it.
type Identity struct {
	PID          int    `json:"-"`
	StartTicks   uint64 `json:"startTicks"`   // when it started: clock ticks since boot; on Darwin microseconds since 1970
	BootID       string `json:"bootId"`       // of the boot it runs under
	PIDNamespace uint64 `json:"pidNamespace"` // inode of the namespace in which PID is its number; 0 on Darwin
	Instance     string `json:"instance"`     // 128 random bits in hexadecimal, drawn by Self
	UID          uint32 `json:"uid"`          // effective
	Build        string `json:"build"`        // of the program, for messages

	SocketDevice uint64 `json:"socketDevice"` // of the socket's file it listens on; filled in by the daemon
	SocketInode  uint64 `json:"socketInode"`
}

// Self is the identity of this process, under a new random instance name.
func Self(build string) (Identity, error) {
	id := Identity{PID: os.Getpid(), UID: uint32(os.Geteuid()), Build: build}
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails: crypto/rand ends the process instead
	id.Instance = hex.EncodeToString(random[:])
	var err error
	if id.BootID, err = bootID(); err == nil {
		if id.PIDNamespace, err = pidNamespace(); err == nil {
			id.StartTicks, err = ownStart()
		}
	}
	if err != nil {
		return Identity{}, fmt.Errorf("identifying this process: %w", err)
	}
	return id, nil
}
