package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"golang.org/x/sys/unix"
)

// source is a Source of bytes at hand, without a descriptor.
type source struct{ io.Reader }

func (source) SetReadDeadline(time.Time) error { return os.ErrNoDeadline }

// socketPair returns two connected Unix sockets.
func socketPair(t testing.TB) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	conn := func(fd int) *net.UnixConn {
		f := os.NewFile(uintptr(fd), "socket")
		defer f.Close()
		c, err := net.FileConn(f)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c.(*net.UnixConn)
	}
	return conn(fds[0]), conn(fds[1])
}

// next describes what r returns next.
func next(r *Reader) string { return describe(r.Next()) }

func describe(f *Frame, err error) string {
	var discarded *DiscardedError
	switch {
	case errors.As(err, &discarded):
		return fmt.Sprintf("discarded %q %q %v", discarded.Reason, discarded.ID, discarded.HasMethod)
	case err != nil:
		return err.Error()
	case len(f.Bytes()) > 100:
		return fmt.Sprintf("%d bytes %.20s", len(f.Bytes()), f.Bytes())
	}
	return string(f.Bytes())
}

// all describes everything that r returns, up to the end of the stream.
func all(r *Reader) []string {
	var got []string
	for {
		s := next(r)
		got = append(got, s)
		if s == "EOF" {
			return got
		}
	}
}

var inputs = []struct {
	name, input string
	want        []string
}{
	{"lines", "a\nbc\n", []string{"a", "bc", "EOF"}},
	{"empty", "", []string{"EOF"}},
	{"blank lines", "\n\r\n \t\na\n\n\n", []string{"a", "EOF"}},
	{"carriage returns", "a\r\n\rb\r\r\n", []string{"a", "\rb\r", "EOF"}},
	{"byte order mark", "\ufeffa\n\ufeffb\n", []string{"a", "\ufeffb", "EOF"}},
	{"byte order mark and blank line", "\ufeff\na\n", []string{"a", "EOF"}},
	{"half a mark", "\xef\xbb\n", []string{"\xef\xbb", "EOF"}},
	{"unterminated", "a\nb", []string{"a", ErrUnterminated.Error(), "EOF"}},
	{"unterminated blank", "a\n \r", []string{"a", "EOF"}},
	{"unterminated large", strings.Repeat("x", 90000), []string{ErrUnterminated.Error(), "EOF"}},
	{"full chunk", strings.Repeat("x", chunkSize-1) + "\n" + strings.Repeat("y", chunkSize) + "\nz\n",
		[]string{"65535 bytes xxxxxxxxxxxxxxxxxxxx", "65536 bytes yyyyyyyyyyyyyyyyyyyy", "z", "EOF"}},
	{"large", "\ufeff" + strings.Repeat("x", 300000) + "\r\n" + "a\n" + strings.Repeat("y", 100000) + "\n",
		[]string{"300000 bytes xxxxxxxxxxxxxxxxxxxx", "a", "100000 bytes yyyyyyyyyyyyyyyyyyyy", "EOF"}},
	{"largest", strings.Repeat("x", maxTestFrame) + "\n" + strings.Repeat("y", maxTestFrame) + "\r\n",
		[]string{"400000 bytes xxxxxxxxxxxxxxxxxxxx", "400000 bytes yyyyyyyyyyyyyyyyyyyy", "EOF"}},
	{"one too large", strings.Repeat("x", maxTestFrame+1) + "\n" + strings.Repeat("y", maxTestFrame+1) + "\r\na\n",
		[]string{`discarded "too large" "" false`, `discarded "too large" "" false`, "a", "EOF"}},
	{"far too large", "\ufeff" + `{"jsonrpc":"2.0","method":"m","params":{"id":1,"x":"` + strings.Repeat("y", 3*maxTestFrame) + "\\\"\"},\"id\":\"\\u0061\" }\r\na\n",
		[]string{`discarded "too large" "\"\\u0061\"" true`, "a", "EOF"}},
	{"too large response", `{"id":12,"result":"` + strings.Repeat("y", 3*maxTestFrame) + "\"}\na\n",
		[]string{`discarded "too large" "12" false`, "a", "EOF"}},
	{"too large at the end", `{"id":12,"method":"` + strings.Repeat("y", 3*maxTestFrame),
		[]string{`discarded "too large" "12" true`, "EOF"}},
}

const maxTestFrame = 400000

func TestReader(t *testing.T) {
	for _, tt := range inputs {
		t.Run(tt.name, func(t *testing.T) {
			budget := NewBudget(1 << 30)
			check := func(how string, src Source) {
				t.Helper()
				r := NewReader(src, budget.Account(1<<30), ReaderOptions{MaxFrame: maxTestFrame})
				if got := all(r); fmt.Sprint(got) != fmt.Sprint(tt.want) {
					t.Errorf("%s: got %q, want %q", how, got, tt.want)
				}
				if budget.InUse() != 0 {
					t.Errorf("%s: %d bytes still reserved", how, budget.InUse())
				}
			}
			check("at once", source{strings.NewReader(tt.input)})
			check("with the error", source{iotest.DataErrReader(strings.NewReader(tt.input))})
			check("in halves", source{iotest.HalfReader(strings.NewReader(tt.input))})
			if len(tt.input) < 500000 {
				check("byte by byte", source{iotest.OneByteReader(strings.NewReader(tt.input))})
			}
			a, b := socketPair(t)
			go func() {
				_, _ = io.Copy(struct{ io.Writer }{b}, strings.NewReader(tt.input))
				b.Close()
			}()
			check("socket", a)
			pr, pw, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer pr.Close()
			go func() {
				_, _ = io.Copy(struct{ io.Writer }{pw}, strings.NewReader(tt.input))
				pw.Close()
			}()
			check("pipe", pr)
		})
	}
}

func TestReaderSmallLimit(t *testing.T) {
	input := "12345678\n123456789\n12345678\r\n123456789012345\na\n"
	for _, src := range []Source{source{strings.NewReader(input)}, source{iotest.OneByteReader(strings.NewReader(input))}} {
		r := NewReader(src, nil, ReaderOptions{MaxFrame: 8})
		want := []string{"12345678", `discarded "too large" "" false`, "12345678", `discarded "too large" "" false`, "a", "EOF"}
		if got := all(r); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got %q", got)
		}
	}
}

func TestReaderHoldsNothingWhenIdle(t *testing.T) {
	a, b := socketPair(t)
	r := NewReader(a, nil, ReaderOptions{})
	if _, err := b.Write([]byte("one\n")); err != nil {
		t.Fatal(err)
	}
	if got := next(r); got != "one" {
		t.Fatal(got)
	}
	if err := a.SetReadDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Next(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	if r.chunk != nil {
		t.Error("an idle reader holds a chunk")
	}
	if err := a.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Write([]byte("two\n")); err != nil {
		t.Fatal(err)
	}
	if got := next(r); got != "two" {
		t.Error(got)
	}
}

func TestReaderDeadlineKeepsPartialLine(t *testing.T) {
	a, b := socketPair(t)
	r := NewReader(a, nil, ReaderOptions{})
	_, _ = b.Write([]byte("on"))
	_ = a.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if _, err := r.Next(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	_ = a.SetReadDeadline(time.Time{})
	_, _ = b.Write([]byte("e\n"))
	if got := next(r); got != "one" {
		t.Error(got)
	}
}

func TestReaderStall(t *testing.T) {
	big := strings.Repeat("x", 100000)
	for _, tt := range []struct {
		head, tail string
		want       []string
	}{
		{`{"id":1,"method":"m","x":"` + big, `"}` + "\n", []string{`discarded "stopped arriving" "1" true`, "next"}},
		{`{"x":"` + big, `","method":"m","id":1}` + "\n", []string{`discarded "stopped arriving" "" false`, `discarded "stopped arriving" "1" true`, "next"}},
		{`{"id":1,"x":"` + big, `","method":"m"}` + "\n", []string{`discarded "stopped arriving" "1" false`, `discarded "stopped arriving" "1" true`, "next"}},
		{`{"id":1,"x":"` + big, `","result":1}` + "\n", []string{`discarded "stopped arriving" "1" false`, "next"}},
		{`{"id":1,"method":"m","x":"` + strings.Repeat(big, 20), `"}` + "\n", []string{`discarded "too large" "1" true`, "next"}},
	} {
		a, b := socketPair(t)
		budget := NewBudget(1 << 20)
		r := NewReader(a, budget.Account(1<<20), ReaderOptions{MaxFrame: 500000, StallTimeout: 50 * time.Millisecond})
		wrote := make(chan error)
		go func() { _, err := b.Write([]byte(tt.head)); wrote <- err }()
		got := []string{next(r)}
		if budget.InUse() != 0 {
			t.Errorf("%d bytes held for a stalled line", budget.InUse())
		}
		if err := <-wrote; err != nil {
			t.Fatal(err)
		}
		if _, err := b.Write([]byte(tt.tail + "next\n")); err != nil {
			t.Fatal(err)
		}
		for got[len(got)-1] != "next" && len(got) < 4 {
			got = append(got, next(r))
		}
		if fmt.Sprint(got) != fmt.Sprint(tt.want) {
			t.Errorf("%.30s: got %q, want %q", tt.head, got, tt.want)
		}
	}
}

func TestReaderNoRoom(t *testing.T) {
	budget := NewBudget(256 << 10)
	other := budget.Account(256 << 10)
	if err := other.Reserve(128<<10, 0); err != nil {
		t.Fatal(err)
	}
	line := `{"x":"` + strings.Repeat("x", 200000) + `","method":"m","id":7}` + "\n"
	r := NewReader(source{strings.NewReader(line + "a\n" + line)}, budget.Account(1<<20), ReaderOptions{RoomTimeout: 10 * time.Millisecond})
	if got := next(r); got != `discarded "no memory left for it" "7" true` {
		t.Error(got)
	}
	if got := next(r); got != "a" {
		t.Error(got)
	}
	other.Release(128 << 10)
	if got := next(r); got != fmt.Sprintf("%d bytes %.20s", len(line)-1, line) {
		t.Error(got)
	}
	if got := budget.InUse(); got != 192<<10 {
		t.Errorf("%d bytes reserved for a frame of 256 KiB less 64", got)
	}
	if got := next(r); got != "EOF" || budget.InUse() != 0 {
		t.Error(got, budget.InUse())
	}
}

func TestReaderDefaultsFit(t *testing.T) {
	if testing.Short() {
		t.Skip("needs 128 MiB")
	}
	budget := NewBudget(256 << 20)
	line := make([]byte, 64<<20+1)
	for i := range line {
		line[i] = 'x'
	}
	line[len(line)-1] = '\n'
	r := NewReader(source{bytes.NewReader(line)}, budget.Account(96<<20), ReaderOptions{})
	f, err := r.Next()
	if err != nil || len(f.Bytes()) != 64<<20 {
		t.Fatal(err)
	}
}

func TestFrameKeep(t *testing.T) {
	budget := NewBudget(1 << 20)
	big := strings.Repeat("y", 100000)
	r := NewReader(source{strings.NewReader("small\n" + big + "\nlast\n")}, budget.Account(1<<20), ReaderOptions{})
	f, _ := r.Next()
	small := f.Keep()
	again := small.Keep()
	f, _ = r.Next()
	large := f.Keep()
	if &large.Bytes()[0] != &f.Bytes()[0] {
		t.Error("a large frame was copied")
	}
	if got := next(r); got != "last" {
		t.Fatal(got)
	}
	if string(small.Bytes()) != "small" || string(large.Bytes()) != big || budget.InUse() == 0 {
		t.Error("kept frames have changed")
	}
	small.Release()
	small.Release()
	if string(again.Bytes()) != "small" || small.Bytes() != nil {
		t.Error("release of one frame touched the other")
	}
	again.Release()
	large.Release()
	large.Release()
	if budget.InUse() != 0 {
		t.Errorf("%d bytes still reserved", budget.InUse())
	}
}

func TestReaderFailure(t *testing.T) {
	failure := errors.New("wire cut")
	r := NewReader(source{io.MultiReader(strings.NewReader("a\nb"), iotest.ErrReader(failure))}, nil, ReaderOptions{})
	if got := next(r); got != "a" {
		t.Error(got)
	}
	for range 2 {
		if _, err := r.Next(); !errors.Is(err, failure) {
			t.Error(err)
		}
	}
}

func TestReaderClosedSource(t *testing.T) {
	a, _ := socketPair(t)
	r := NewReader(a, nil, ReaderOptions{})
	done := make(chan error)
	go func() { _, err := r.Next(); done <- err }()
	a.Close()
	if err := <-done; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

func TestLexID(t *testing.T) {
	for _, tt := range []struct {
		line, id string
		method   bool
	}{
		{`{"id":1,"method":"m"}`, `1`, true},
		{` { "x" : {"id":2,"method":"n"} , "id" : "a\"\\" } `, `"a\"\\"`, false},
		{`{"method":"id","id":-7}`, `-7`, true},
		{`{"a":"\"id\":3,","b":["id",{"id":4}],"id":5`, ``, false},
		{`{"a":"\"id\":3,","b":["id",{"id":4}],"id":5,`, `5`, false},
		{`{"id":12x,"method":"m"}`, ``, true}, // the answer must be valid
		{"{\"id\":\"\xff\",\"method\":\"m\"}", ``, true},
		{"{\"id\":\"a\tb\",\"method\":\"m\"}", ``, true},
		{`{"id":1 2,"method":"m"}`, ``, true},
		{`{"id":null}`, ``, false}, {`{"id":1.5}`, ``, false}, {`{"id":{"a":1}}`, ``, false}, {`{"id":[1]}`, ``, false}, {`{"id":true}`, ``, false},
		{`{"id":1,"id":1}`, ``, false}, {`{"id":1,"ID":2}`, ``, false}, {`{"\u0069d":1}`, ``, false},
		{`{"i` + strings.Repeat("d", 100) + `":1,"id":2}`, `2`, false},
		{`[{"id":1,"method":"m"}]`, ``, false}, {`"id"`, ``, false}, {`x{"id":1}`, ``, false}, {`{}{"id":1}`, ``, false}, {``, ``, false},
	} {
		var l idLexer
		l.feed([]byte(tt.line))
		if string(l.ID()) != tt.id || l.method != tt.method {
			t.Errorf("%s: id %q, method %v", tt.line, l.ID(), l.method)
		}
	}
}
