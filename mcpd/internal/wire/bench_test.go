package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

const smallCall = `{"jsonrpc":"2.0","id":17,"method":"tools/call","params":{"name":"read_file","arguments":{"path":"/tmp/a"},"_meta":{"progressToken":3}}}`

// dense is a JSON text of about n bytes with few bytes a token.
func dense(n int) string {
	var b strings.Builder
	b.WriteString(`{"jsonrpc":"2.0","id":1,"result":{"tools":[`)
	for i := 0; b.Len() < n; i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"name":"tool%d","description":"Does\nsomething","n":[1,-2.5,true,null],"annotations":{"readOnlyHint":true}}`, i)
	}
	b.WriteString(`]}}`)
	return b.String()
}

func text1(n int, s string) string {
	return `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"` + strings.Repeat(s, n/len(s)) + `"}]}}`
}

func BenchmarkScan(b *testing.B) {
	for _, bb := range []struct{ name, frame string }{
		{"call", smallCall},
		{"dense16K", dense(16 << 10)},
		{"text16K", text1(16<<10, "abcdefgh ")},
		{"lines16K", text1(16<<10, `the quick brown fox jumps over it\n`)},
		{"text1M", text1(1<<20, "abcdefgh ")},
		{"cjk1M", text1(1<<20, "漢字かな")},
		{"dense1M", dense(1 << 20)},
	} {
		b.Run(bb.name, func(b *testing.B) {
			frame := []byte(bb.frame)
			var env Envelope
			b.SetBytes(int64(len(frame)))
			b.ReportAllocs()
			for b.Loop() {
				if err := Scan(frame, &env); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("json.Valid", func(b *testing.B) {
		frame := []byte(smallCall)
		b.SetBytes(int64(len(frame)))
		for b.Loop() {
			if !json.Valid(frame) {
				b.Fatal("invalid")
			}
		}
	})
}

func BenchmarkSplice(b *testing.B) {
	frame := []byte(smallCall)
	var env Envelope
	if err := Scan(frame, &env); err != nil {
		b.Fatal(err)
	}
	dst := make([]byte, 0, 1024)
	edits := make([]Edit, 2)
	token, id := []byte("12345"), []byte("99")
	b.ReportAllocs()
	for b.Loop() {
		edits[0] = Edit{env.MetaToken, token}
		edits[1] = Edit{env.ID, id}
		dst = Splice(dst[:0], frame, edits)
	}
}

func BenchmarkDiscardID(b *testing.B) {
	frame := []byte(text1(1<<20, `the quick brown fox jumps over it\n`))
	b.SetBytes(int64(len(frame)))
	for b.Loop() {
		var l idLexer
		l.feed(frame)
		if l.ID() == nil {
			b.Fatal("no id")
		}
	}
}

// BenchmarkQueue writes to a socket whose other end is read.
func BenchmarkQueue(b *testing.B) {
	for _, size := range []int{128, 16 << 10, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			dst, src := socketPair(b)
			go func() {
				buf := make([]byte, 256<<10)
				for {
					if _, err := src.Read(buf); err != nil {
						return
					}
				}
			}()
			q := NewQueue(QueueOptions{Bound: 8 << 20})
			q.Attach(dst)
			f := NewFrame(bytes.Repeat([]byte("x"), size))
			edits := make([]Edit, 1)
			id := []byte("42")
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				edits[0] = Edit{Span{3, 4}, id}
				for {
					if _, err := q.Send(f, edits); err == nil {
						break
					}
					if err := q.Flush(b.Context()); err != nil {
						b.Fatal(err)
					}
				}
			}
			q.Close()
			dst.Close()
		})
	}
}

// BenchmarkRoundTrip sends a call through a socket and reads it, in one
// goroutine; the plain one does the same with the connections themselves.
func BenchmarkRoundTrip(b *testing.B) {
	b.Run("wire", func(b *testing.B) {
		dst, src := socketPair(b)
		q := NewQueue(QueueOptions{Bound: 8 << 20})
		q.Attach(dst)
		r := NewReader(src, nil, ReaderOptions{})
		f := NewFrame([]byte(smallCall))
		id := []byte("12345")
		edits := make([]Edit, 1)
		b.ReportAllocs()
		for b.Loop() {
			edits[0] = Edit{Span{21, 23}, id}
			_, _ = q.Send(f, edits)
			if _, err := r.Next(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("plain", func(b *testing.B) {
		dst, src := socketPair(b)
		p := make([]byte, 4096)
		for b.Loop() {
			_, _ = dst.Write(p[:len(smallCall)+1])
			if _, err := src.Read(p); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkReader reads frames that a socket holds.
func BenchmarkReader(b *testing.B) {
	for _, size := range []int{128, 16 << 10, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			src, dst := socketPair(b)
			frame := append(bytes.Repeat([]byte("x"), size), '\n')
			burst := bytes.Repeat(frame, max(1, 64<<10/size))
			go func() {
				for {
					if _, err := dst.Write(burst); err != nil {
						return
					}
				}
			}()
			r := NewReader(src, NewBudget(256<<20).Account(96<<20), ReaderOptions{})
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := r.Next(); err != nil {
					b.Fatal(err)
				}
			}
			src.Close()
			dst.Close()
		})
	}
}
