package wire

// An Edit replaces a range of a frame: an empty With cuts it out, an empty
// range inserts.
type Edit struct {
	Span
	With []byte
}

// Splice appends frame to dst with edits made, and returns the extended dst.
// Edits must not overlap; their order does not matter, and Splice may change
// it, but those at one place stay in order. It allocates only if dst has too
// little room.
func Splice(dst, frame []byte, edits []Edit) []byte {
	sortEdits(edits)
	at := 0
	for i := range edits {
		e := &edits[i]
		dst = append(dst, frame[at:e.Start]...)
		dst = append(dst, e.With...)
		at = e.End
	}
	return append(dst, frame[at:]...)
}

// splicedLen returns the length that frame will have once edits are made.
func splicedLen(frame []byte, edits []Edit) int {
	n := len(frame)
	for i := range edits {
		n += len(edits[i].With) - (edits[i].End - edits[i].Start)
	}
	return n
}

// sortEdits sorts by insertion: edits are few, stable order matters for
// insertions at one place, and nothing is allocated.
func sortEdits(edits []Edit) {
	for i := 1; i < len(edits); i++ {
		for j := i; j > 0 && edits[j].Start < edits[j-1].Start; j-- {
			edits[j], edits[j-1] = edits[j-1], edits[j]
		}
	}
}
