package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
)

// Kinds of records, as far as the tests tell them apart.
const (
	Opened = 1
	Begin  = 2
	End    = 3
	Ack    = 4
)

// The tags of the fields that are read.
const (
	tagID              = 4
	tagClientRequestID = 7
	tagClass           = 10
	tagOutcome         = 14
)

const (
	headerSize = 64
	frameHead  = 12
	frameTail  = 4
	maxBody    = 8 << 20
)

// Record is one record of a journal. Fields that its kind does not have are empty.
type Record struct {
	Kind            byte
	IDs             []string // of runs: one, or for an acknowledgement any number
	ClientRequestID string   // JSON text
	Class           string
	Outcome         string
}

// errNoFrame means that no intact frame is at a place.
var errNoFrame = errors.New("no intact frame")

// Read returns the records of the segment at path.
func Read(path string) ([]Record, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	records, _, err := readFrom(f, 0)
	return records, err
}

// readFrom reads records from an offset on, 0 for the start of the segment, and
// returns where the next one will be.
func readFrom(f io.ReaderAt, off int64) (records []Record, next int64, err error) {
	if off == 0 {
		var header [headerSize]byte
		if _, err := f.ReadAt(header[:], 0); err != nil {
			return nil, 0, fmt.Errorf("reading the header: %w", err)
		}
		if string(header[:8]) != "ILJOURN\xff" || binary.LittleEndian.Uint32(header[8:]) != 1 ||
			binary.LittleEndian.Uint32(header[60:]) != crc(header[:60]) {
			return nil, 0, errors.New("the header is not that of a journal of version 1")
		}
		off = headerSize
	}
	for {
		r, size, err := recordAt(f, off)
		if errors.Is(err, errNoFrame) {
			return records, off, nil
		}
		if err != nil {
			return records, off, err
		}
		records = append(records, r)
		off += size
	}
}

// recordAt reads the record at an offset and the size of its frame.
func recordAt(f io.ReaderAt, off int64) (r Record, size int64, err error) {
	var head [frameHead]byte
	if _, err := f.ReadAt(head[:], off); err != nil || string(head[:4]) != "\xffILF" {
		return r, 0, errNoFrame
	}
	length := int64(binary.LittleEndian.Uint32(head[4:]))
	if length > maxBody {
		return r, 0, errNoFrame
	}
	size = (frameHead + length + frameTail + 7) / 8 * 8
	frame := make([]byte, size)
	if _, err := f.ReadAt(frame, off); err != nil {
		return r, 0, errNoFrame
	}
	sum := crc32.Update(crc(frame[4:8]), crc32.MakeTable(crc32.Castagnoli), frame[frameHead:frameHead+length])
	if sum != binary.LittleEndian.Uint32(head[8:]) || string(frame[size-frameTail:]) != "FLI\xff" {
		return r, 0, errNoFrame
	}
	r, err = decode(frame[frameHead : frameHead+length])
	if err != nil {
		return r, 0, fmt.Errorf("the record at %d: %w", off, err)
	}
	return r, size, nil
}

func crc(p []byte) uint32 { return crc32.Checksum(p, crc32.MakeTable(crc32.Castagnoli)) }

// decode reads the body of a frame.
func decode(body []byte) (r Record, err error) {
	if len(body) == 0 {
		return r, errors.New("it is empty")
	}
	r.Kind = body[0]
	for rest := body[1:]; len(rest) > 0; {
		n, used := binary.Uvarint(rest[1:])
		if used <= 0 || n > uint64(len(rest)-1-used) {
			return r, fmt.Errorf("field %d is cut short", rest[0])
		}
		tag, value := rest[0], rest[1+used:1+used+int(n)]
		rest = rest[1+used+int(n):]
		switch tag {
		case tagID:
			r.IDs = append(r.IDs, string(value))
		case tagClientRequestID:
			r.ClientRequestID = string(value)
		case tagClass:
			r.Class = string(value)
		case tagOutcome:
			r.Outcome = string(value)
		}
	}
	return r, nil
}
