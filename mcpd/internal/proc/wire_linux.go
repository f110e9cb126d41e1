package proc

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// wireVersion is the version of the helper protocol.
const wireVersion = 1

// maxMessage bounds a message: Linux refuses arguments and environments that are longer.
const maxMessage = 8 << 20

// kind is the first byte of a message.
type kind byte

const (
	kindHello kind = iota + 1
	kindSpawn
	kindSignal
	kindRelease
	kindShutdown
	kindSpawned
	kindFailed
	kindExited
)

var errShortMessage = errors.New("a message of the spawn helper is too short")

// message is one message with the descriptors that it owns. Whoever takes it closes them.
type message struct {
	kind kind
	body []byte
	fds  []int
}

// encoder builds the body of a message from its fields.
type encoder []byte

func (e encoder) uint32(v uint32) encoder { return binary.BigEndian.AppendUint32(e, v) }
func (e encoder) uint64(v uint64) encoder { return binary.BigEndian.AppendUint64(e, v) }
func (e encoder) string(s string) encoder { return append(e.uint32(uint32(len(s))), s...) }

func (e encoder) list(list []string) encoder {
	e = e.uint32(uint32(len(list)))
	for _, s := range list {
		e = e.string(s)
	}
	return e
}

// decoder takes the fields of a message in their order. After the first that is missing, all are zero and err is set.
type decoder struct {
	rest []byte
	err  error
}

func (d *decoder) take(n int) []byte {
	if d.err != nil || n > len(d.rest) {
		d.err = errShortMessage
		return make([]byte, min(n, 8))
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) uint32() uint32 { return binary.BigEndian.Uint32(d.take(4)) }
func (d *decoder) uint64() uint64 { return binary.BigEndian.Uint64(d.take(8)) }

func (d *decoder) string() string {
	n := int(d.uint32())
	b := d.take(n)
	if d.err != nil {
		return ""
	}
	return string(b)
}

func (d *decoder) list() []string {
	var list []string
	for range d.uint32() {
		s := d.string()
		if d.err != nil {
			return nil
		}
		list = append(list, s)
	}
	return list
}

const wireHeader = 6 // length, kind, number of descriptors

// writeMessage sends one message; its descriptors stay the caller's. One goroutine at a time writes to a connection.
func writeMessage(conn *net.UnixConn, m message) error {
	buf := binary.BigEndian.AppendUint32(make([]byte, 0, wireHeader+len(m.body)), uint32(len(m.body)))
	buf = append(append(buf, byte(m.kind), byte(len(m.fds))), m.body...)
	if len(m.fds) > 0 {
		n, _, err := conn.WriteMsgUnix(buf, unix.UnixRights(m.fds...), nil)
		if err != nil {
			return err
		}
		buf = buf[n:]
	}
	_, err := conn.Write(buf)
	return err
}

// wireReader reads messages and the descriptors that come with them.
type wireReader struct {
	conn   *net.UnixConn
	perMsg int    // how many descriptors a message that has any carries
	buf    []byte // received, not yet returned
	fds    []int  // received, not yet returned; -1 for one that this process had no room for
}

// next returns the next message.
func (r *wireReader) next() (message, error) {
	if err := r.fill(wireHeader); err != nil {
		return message{}, err
	}
	size := int(binary.BigEndian.Uint32(r.buf))
	if size > maxMessage {
		return message{}, fmt.Errorf("a message of the spawn helper has an impossible length of %d bytes", size)
	}
	if err := r.fill(wireHeader + size); err != nil {
		return message{}, err
	}
	m := message{kind: kind(r.buf[4]), body: bytes.Clone(r.buf[wireHeader : wireHeader+size])}
	n := int(r.buf[5])
	if n > len(r.fds) {
		return message{}, fmt.Errorf("a message of the spawn helper lacks its %d descriptors", n)
	}
	m.fds, r.fds = slices.Clone(r.fds[:n]), r.fds[n:]
	r.buf = append(r.buf[:0], r.buf[wireHeader+size:]...)
	return m, nil
}

// fill receives until there are n bytes. The kernel ends a receive with the write that carried descriptors, so those of one receive
// belong to one message.
func (r *wireReader) fill(n int) error {
	if len(r.buf) >= n {
		return nil
	}
	chunk := make([]byte, 4096)
	oob := make([]byte, unix.CmsgSpace(3*4))
	for len(r.buf) < n {
		got, oobn, flags, _, err := r.conn.ReadMsgUnix(chunk, oob)
		if err != nil {
			return err
		}
		fds, err := parseRights(oob[:oobn])
		if err != nil {
			return err
		}
		for flags&unix.MSG_CTRUNC != 0 && len(fds) < r.perMsg {
			fds = append(fds, -1)
		}
		r.fds = append(r.fds, fds...)
		if got == 0 {
			return io.EOF
		}
		r.buf = append(r.buf, chunk[:got]...)
	}
	return nil
}

// close closes the connection and the descriptors that were not returned.
func (r *wireReader) close() {
	_ = r.conn.Close() // both sides hold no more than what they have read
	closeFDs(r.fds)
}

func parseRights(oob []byte) ([]int, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("reading descriptors: %w", err)
	}
	var all []int
	for _, m := range msgs {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			return nil, fmt.Errorf("reading descriptors: %w", err)
		}
		all = append(all, fds...)
	}
	return all, nil
}

// closeFDs closes descriptors that nothing was written through.
func closeFDs(fds []int) {
	for _, fd := range fds {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

// unixConn makes a connection of a socket, whose file it takes over.
func unixConn(f *os.File) (*net.UnixConn, error) {
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	uc, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, fmt.Errorf("descriptor %q is not a Unix socket", f.Name())
	}
	return uc, nil
}
