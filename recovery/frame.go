package recovery

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"time"
)

// Sizes of the format; doc.go describes it.
const (
	headerSize = 64
	frameHead  = 12
	frameTail  = 4
	frameAlign = 8

	version = 1

	// maxBegin bounds the frame of a begin record, and with it what one call can
	// cost.
	maxBegin = 60 << 10
	// maxBody bounds any body; the longest are acknowledgements.
	maxBody = 8 << 20
	// maxSegment bounds what is read of a segment. A larger file is not one of ours.
	maxSegment = 64 << 20
	// minSegment leaves room for one large begin record beside the reserve.
	minSegment = 2 * reserve
	// reserve is what begin records leave free for ends and acknowledgements.
	reserve = 64 << 10
)

// The marks are fixed; as strings they cannot be changed.
const (
	headerMark = "ILJOURN\xff"
	startMark  = "\xffILF"
	endMark    = "FLI\xff"
)

// checksum is the CRC of headers and frames. MakeTable returns the table that
// package crc32 shares and computes once.
func checksum(p []byte) uint32 { return crc32.Checksum(p, crc32.MakeTable(crc32.Castagnoli)) }

// appendHeader appends the header of a segment of the given size.
func appendHeader(b []byte, size int64) []byte {
	start := len(b)
	b = append(b, headerMark...)
	b = binary.LittleEndian.AppendUint32(b, version)
	b = binary.LittleEndian.AppendUint32(b, 0)
	b = binary.LittleEndian.AppendUint64(b, uint64(size))
	b = append(b, make([]byte, 36)...)
	return binary.LittleEndian.AppendUint32(b, checksum(b[start:]))
}

// header reads the size that a segment was made with and its version.
func header(data []byte) (size int64, ver uint32, ok bool) {
	if len(data) < headerSize || string(data[:8]) != headerMark ||
		binary.LittleEndian.Uint32(data[60:]) != checksum(data[:60]) {
		return 0, 0, false
	}
	return int64(binary.LittleEndian.Uint64(data[16:])), binary.LittleEndian.Uint32(data[8:]), true
}

// appendFrame appends a frame around the body that fill appends.
func appendFrame(b []byte, fill func([]byte) []byte) []byte {
	start := len(b)
	b = append(b, startMark+"\x00\x00\x00\x00\x00\x00\x00\x00"...)
	b = fill(b)
	body := len(b) - start - frameHead
	head := b[start:]
	binary.LittleEndian.PutUint32(head[4:], uint32(body))
	binary.LittleEndian.PutUint32(head[8:], frameSum(head[:frameHead+body]))
	for (len(b)-start+frameTail)%frameAlign != 0 {
		b = append(b, 0)
	}
	return append(b, endMark...)
}

// frameSum is the checksum of a frame that ends with its body.
func frameSum(frame []byte) uint32 {
	return crc32.Update(checksum(frame[4:8]), crc32.MakeTable(crc32.Castagnoli), frame[frameHead:])
}

// frameAt returns the body of the frame at the start of data and the frame's size.
// The end mark is not checked: it only classifies frames that are not intact.
func frameAt(data []byte) (body []byte, size int, ok bool) {
	if len(data) < frameHead || string(data[:4]) != startMark {
		return nil, 0, false
	}
	n := int(binary.LittleEndian.Uint32(data[4:]))
	if n > maxBody || frameHead+n > len(data) {
		return nil, 0, false
	}
	if frameSum(data[:frameHead+n]) != binary.LittleEndian.Uint32(data[8:]) {
		return nil, 0, false
	}
	size = (frameHead + n + frameTail + frameAlign - 1) / frameAlign * frameAlign
	return data[frameHead : frameHead+n], min(size, len(data)), true
}

// kind tells what a record is.
type kind byte

const (
	kindOpened kind = 1 + iota
	kindBegin
	kindEnd
	kindAck
	kindSynced
)

// entry is one journal record, decoded.
type entry struct {
	kind kind
	at   int64    // opened, begin, end, ack: Unix time in nanoseconds
	num  uint64   // opened: number; synced: offset
	boot string   // opened
	ids  []string // ack
	run  Record   // begin: all but the outcome; end: RequestID, Outcome, Reason
}

// Tags of fields. They keep their meaning for ever; new ones may be added.
const (
	tagAt byte = 1 + iota
	tagNum
	tagBoot
	tagID
	tagOwner
	tagClient
	tagClientRequestID
	tagServer
	tagTool
	tagClass
	tagResource
	tagEpoch
	tagDigest
	tagOutcome
	tagReason
)

// appendEntry appends an entry as a frame.
func appendEntry(b []byte, e *entry) []byte {
	return appendFrame(b, func(b []byte) []byte {
		b = append(b, byte(e.kind))
		b = appendUint(b, tagAt, uint64(e.at))
		b = appendUint(b, tagNum, e.num)
		b = appendText(b, tagBoot, e.boot)
		for _, id := range e.ids {
			b = appendText(b, tagID, id)
		}
		r := &e.run
		b = appendText(b, tagID, r.RequestID)
		b = appendText(b, tagOwner, r.OwnerID)
		b = appendText(b, tagClient, r.Client)
		b = appendText(b, tagClientRequestID, r.ClientRequestID)
		b = appendText(b, tagServer, r.Server)
		b = appendText(b, tagTool, r.Tool)
		b = appendText(b, tagClass, r.Class)
		if len(r.Resources) == 0 {
			b = appendText(b, tagResource, r.Resource)
		}
		for _, resource := range r.Resources {
			b = appendText(b, tagResource, resource)
		}
		b = appendUint(b, tagEpoch, r.Epoch)
		b = appendText(b, tagDigest, r.ArgumentsDigest)
		b = appendText(b, tagOutcome, string(r.Outcome))
		return appendText(b, tagReason, r.Reason)
	})
}

// appendText appends a text field; an empty one is left out.
func appendText(b []byte, tag byte, s string) []byte {
	if s == "" {
		return b
	}
	b = append(b, tag)
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// appendUint appends a number field; zero is left out.
func appendUint(b []byte, tag byte, v uint64) []byte {
	if v == 0 {
		return b
	}
	var buf [binary.MaxVarintLen64]byte
	n := binary.PutUvarint(buf[:], v)
	b = append(b, tag, byte(n))
	return append(b, buf[:n]...)
}

// decodeEntry reads a body whose checksum was right.
func decodeEntry(body []byte) (*entry, error) {
	if len(body) == 0 || body[0] < byte(kindOpened) || body[0] > byte(kindSynced) {
		return nil, fmt.Errorf("decoding record: unknown kind in % x", body[:min(len(body), 8)])
	}
	e := &entry{kind: kind(body[0])}
	var ids, resources []string
	for rest := body[1:]; len(rest) > 0; {
		tag := rest[0]
		n, used := binary.Uvarint(rest[1:])
		if used <= 0 || n > uint64(len(rest)-1-used) {
			return nil, fmt.Errorf("decoding record: field %d is cut short", tag)
		}
		value := rest[1+used : 1+used+int(n)]
		rest = rest[1+used+int(n):]
		switch tag {
		case tagAt:
			e.at = int64(number(value))
		case tagNum:
			e.num = number(value)
		case tagEpoch:
			e.run.Epoch = number(value)
		case tagID:
			ids = append(ids, string(value))
		case tagResource:
			resources = append(resources, string(value))
		default:
			if field := e.text(tag); field != nil {
				*field = string(value)
			}
		}
	}
	return e, e.settle(ids, resources)
}

// text returns the field that a text tag fills, nil for a tag not known.
func (e *entry) text(tag byte) *string {
	switch tag {
	case tagBoot:
		return &e.boot
	case tagOwner:
		return &e.run.OwnerID
	case tagClient:
		return &e.run.Client
	case tagClientRequestID:
		return &e.run.ClientRequestID
	case tagServer:
		return &e.run.Server
	case tagTool:
		return &e.run.Tool
	case tagClass:
		return &e.run.Class
	case tagDigest:
		return &e.run.ArgumentsDigest
	case tagOutcome:
		return (*string)(&e.run.Outcome)
	case tagReason:
		return &e.run.Reason
	}
	return nil
}

// settle stores the repeated fields and checks that the entry names what it must.
func (e *entry) settle(ids, resources []string) error {
	e.run.setResources(resources)
	switch e.kind {
	case kindAck:
		e.ids = ids
	case kindBegin, kindEnd:
		if len(ids) != 1 {
			return fmt.Errorf("decoding record: %d ids where one is due", len(ids))
		}
		e.run.RequestID = ids[0]
	}
	return nil
}

// number reads a number field; damage cannot reach it, so a bad one is zero.
func number(value []byte) uint64 {
	v, _ := binary.Uvarint(value)
	return v
}

// nanos is a time as a record holds it: 0 for none, which runs that others wrote into
// the recovery file may lack.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// instant is the reverse of nanos.
func instant(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns).UTC()
}

// nextFrame returns the first offset from off on at which an intact frame starts,
// or -1.
func nextFrame(data []byte, off int) int {
	for off < len(data) {
		i := bytes.Index(data[off:], []byte(startMark))
		if i < 0 {
			return -1
		}
		off += i
		if off%frameAlign == 0 {
			if _, _, ok := frameAt(data[off:]); ok {
				return off
			}
		}
		off++
	}
	return -1
}

// scan is what reading a segment found.
type scan struct {
	size int64 // what the header says
	end  int64 // where the next frame goes: behind the last intact one
	torn int64 // bytes from end on that a cut-short write left; 0 for none
	// holes says that intact frames follow a place that never reached the disk: end
	// cannot be written to.
	holes   bool
	damage  string // what is wrong beyond that; empty for nothing
	foreign bool   // written by another version; nothing else was read
}

// scanSegment hands every intact record of a segment to take, and judges the rest.
// boot is the present boot of the machine.
func scanSegment(data []byte, boot string, take func(*entry)) scan {
	var s scan
	if len(data) == 0 {
		s.damage = "it is empty"
		return s
	}
	var ver uint32
	var ok bool
	s.size, ver, ok = header(data)
	switch {
	case !ok:
		s.damage = "its header is damaged"
	case ver != version:
		s.foreign = true
		return s
	case int64(len(data)) < s.size:
		s.damage = fmt.Sprintf("it was cut from %d to %d bytes", s.size, len(data))
	}
	var gaps []gap
	lastBoot := ""
	synced := int64(0)
	off := headerSize
	s.end = headerSize
	for off < len(data) {
		body, n, ok := frameAt(data[off:])
		if !ok {
			next := nextFrame(data, off+frameAlign)
			if next < 0 {
				break
			}
			gaps = append(gaps, gap{int64(off), lastBoot})
			off = next
			continue
		}
		if e, err := decodeEntry(body); err != nil {
			s.damage = err.Error()
		} else {
			take(e)
			switch e.kind {
			case kindOpened:
				lastBoot = e.boot
			case kindSynced:
				synced = max(synced, int64(e.num))
			}
		}
		off += n
		s.end = int64(off)
	}
	rest := trimZeros(data[min(off, len(data)):])
	s.torn = int64(len(rest))
	if bytes.HasSuffix(rest, []byte(endMark)) {
		gaps = append(gaps, gap{s.end, lastBoot})
	}
	for _, g := range gaps {
		s.holes = s.holes || g.off < s.end
		if s.damage == "" && !g.unsynced(boot, synced) {
			s.damage = fmt.Sprintf("the record at byte %d is damaged", g.off)
		}
	}
	return s
}

// trimZeros cuts the zeros at the end, which are most of a segment, page by page.
func trimZeros(b []byte) []byte {
	var page [4096]byte
	for len(b) >= len(page) && bytes.Equal(b[len(b)-len(page):], page[:]) {
		b = b[:len(b)-len(page)]
	}
	return bytes.TrimRight(b, "\x00")
}

// gap is a place without an intact frame where one was written.
type gap struct {
	off  int64
	boot string // of the daemon that wrote before it
}

// unsynced says that the machine may have stopped before the place reached the
// disk: it was restarted since, and nothing vouches for the place.
func (g gap) unsynced(boot string, synced int64) bool {
	return g.boot != "" && boot != "" && g.boot != boot && g.off >= synced
}
