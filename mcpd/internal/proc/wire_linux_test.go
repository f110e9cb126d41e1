package proc

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func connPair(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	fa, fb, err := socketPair()
	if err != nil {
		t.Fatal(err)
	}
	a, aerr := unixConn(fa)
	b, berr := unixConn(fb)
	if err := errors.Join(aerr, berr); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

// Messages arrive as they were sent, each with the descriptors that it was sent with.
func TestMessagesKeepTheirDescriptors(t *testing.T) {
	a, b := connPair(t)
	bodies := []string{"", "small", strings.Repeat("large", 100_000)}
	files := make([]*os.File, 0, 6)
	var want []string
	for range cap(files) {
		f, err := os.CreateTemp(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files = append(files, f)
		want = append(want, f.Name())
	}
	sent := make(chan error, 1)
	go func() {
		var err error
		for round := range 2 {
			for _, body := range bodies {
				err = errors.Join(err, writeMessage(a, message{kind: kindRelease, body: []byte(body)}))
			}
			err = errors.Join(err, withFDs(files[3*round:3*round+3], func(fds []int) error {
				return writeMessage(a, message{kind: kindSpawn, body: []byte("with"), fds: fds})
			}))
		}
		sent <- errors.Join(err, a.CloseWrite())
	}()
	r := &wireReader{conn: b, perMsg: 3}
	var got []string
	for range 2 {
		for _, body := range bodies {
			m, err := r.next()
			if err != nil || m.kind != kindRelease || string(m.body) != body || len(m.fds) != 0 {
				t.Fatalf("%v: kind %d, %d bytes, %d descriptors", err, m.kind, len(m.body), len(m.fds))
			}
		}
		m, err := r.next()
		if err != nil || m.kind != kindSpawn || len(m.fds) != 3 {
			t.Fatalf("%v: kind %d, %d descriptors", err, m.kind, len(m.fds))
		}
		for _, fd := range m.fds {
			f := os.NewFile(uintptr(fd), "")
			name, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
			if err != nil {
				t.Fatal(err)
			}
			if flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
				t.Errorf("descriptor %d would be inherited: flags %#x, %v", fd, flags, err)
			}
			got = append(got, name)
			f.Close()
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("files %q, want %q", got, want)
	}
	if _, err := r.next(); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

// A message that is cut short anywhere, or is none, is an error and nothing worse.
func TestDecoderRefusesWhatIsCutShort(t *testing.T) {
	whole := encoder(nil).uint64(7).uint32(8).string("path").list([]string{"a", "", "b"})
	decode := func(b []byte) (id uint64, n uint32, s string, l []string, err error) {
		d := &decoder{rest: b}
		return d.uint64(), d.uint32(), d.string(), d.list(), d.err
	}
	id, n, s, l, err := decode(whole)
	if err != nil || id != 7 || n != 8 || s != "path" || !slices.Equal(l, []string{"a", "", "b"}) {
		t.Errorf("%d %d %q %q %v", id, n, s, l, err)
	}
	for i := range whole {
		if _, _, _, _, err := decode(whole[:i]); err == nil {
			t.Errorf("the first %d bytes of %d were taken for the whole", i, len(whole))
		}
	}
	huge := encoder(nil).uint64(7).uint32(8).uint32(1 << 31)
	if _, _, _, _, err := decode(huge); err == nil {
		t.Error("a string longer than its message was taken")
	}
}

func TestReaderRefusesImpossibleLength(t *testing.T) {
	a, b := connPair(t)
	if _, err := a.Write(bytes.Repeat([]byte{0xff}, wireHeader)); err != nil {
		t.Fatal(err)
	}
	if m, err := (&wireReader{conn: b, perMsg: 3}).next(); err == nil {
		t.Errorf("got a message of %d bytes", len(m.body))
	}
}
