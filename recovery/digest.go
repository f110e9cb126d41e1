package recovery

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"path/filepath"
	"sync"
)

const digestPrefix = "hmac-sha256:"

// digester makes keyed digests: they tell equal arguments from different ones, and
// to somebody without the key nothing else.
type digester struct {
	hashes sync.Pool // of hash.Hash
}

// openDigester reads the key of the directory or makes one. A key that cannot be
// kept serves this process: digests are for comparing, and no run depends on them.
func openDigester(o Options, write bool) *digester {
	name := filepath.Join(o.Dir, "daemon.key")
	key, size, err := readFile(o.FS, name, sha256.Size)
	if err != nil || size != sha256.Size || len(key) != sha256.Size {
		key = make([]byte, sha256.Size)
		// Since Go 1.24 it cannot fail.
		_, _ = rand.Read(key)
		if write {
			_ = writeFile(o.FS, name, key)
		}
	}
	return &digester{sync.Pool{New: func() any { return hmac.New(sha256.New, key) }}}
}

// digest returns the digest of arguments, empty for none.
func (d *digester) digest(arguments []byte) string {
	if len(arguments) == 0 {
		return ""
	}
	h := d.hashes.Get().(hash.Hash)
	defer d.hashes.Put(h)
	h.Reset()
	h.Write(arguments)
	var sum [sha256.Size]byte
	text := make([]byte, 0, len(digestPrefix)+2*sha256.Size)
	return string(hex.AppendEncode(append(text, digestPrefix...), h.Sum(sum[:0])))
}
