package wire

import "sync"

// Memory for what passes through comes from pools of three sizes. A chunk of
// the largest size holds every frame that is not charged to a budget.
const (
	tinyChunk  = 1 << 10
	smallChunk = 8 << 10
	chunkSize  = 64 << 10
)

var (
	tinyChunks  = sync.Pool{New: func() any { return new([tinyChunk]byte) }}
	smallChunks = sync.Pool{New: func() any { return new([smallChunk]byte) }}
	largeChunks = sync.Pool{New: func() any { return new([chunkSize]byte) }}
)

// getChunk returns a chunk of at least n bytes, n at most chunkSize.
func getChunk(n int) []byte {
	switch {
	case n <= tinyChunk:
		return tinyChunks.Get().(*[tinyChunk]byte)[:]
	case n <= smallChunk:
		return smallChunks.Get().(*[smallChunk]byte)[:]
	}
	return largeChunks.Get().(*[chunkSize]byte)[:]
}

// putChunk takes back a chunk, of whatever length it is now; the caller must
// not use it again. Nil, and memory that is no chunk, is left to the collector.
func putChunk(c []byte) {
	switch cap(c) {
	case tinyChunk:
		tinyChunks.Put((*[tinyChunk]byte)(c[:tinyChunk]))
	case smallChunk:
		smallChunks.Put((*[smallChunk]byte)(c[:smallChunk]))
	case chunkSize:
		largeChunks.Put((*[chunkSize]byte)(c[:chunkSize]))
	}
}
