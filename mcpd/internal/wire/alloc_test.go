//go:build !race

package wire

import "testing"

// Under the race detector pools drop what they are given, at random.

func TestScanAllocatesNothing(t *testing.T) {
	frame := []byte(`{"jsonrpc":"2.0","id":17,"method":"tools/call","params":{"name":"a","arguments":{"x":[[1,{}]]},"_meta":{"interlock/lease":1,"progressToken":3,"interlock/actor":"\u0061"}}}`)
	var env Envelope
	if err := Scan(frame, &env); err != nil {
		t.Fatal(err)
	}
	dst := make([]byte, 0, 1000)
	edits := make([]Edit, 4)
	if n := testing.AllocsPerRun(100, func() {
		_ = Scan(frame, &env)
		edits[0] = Edit{Span: env.MetaToken}
		edits[1] = Edit{Span: env.ID, With: frame[:3]}
		edits[2] = Edit{Span: env.Own[1]}
		edits[3] = Edit{Span: env.Own[0]}
		dst = Splice(dst[:0], frame, edits)
		dst = AppendIDKey(dst[:0], env.ID.Of(frame))
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestQueueAndReaderAllocateNothing(t *testing.T) {
	dst, src := socketPair(t)
	q := NewQueue(QueueOptions{Bound: 1 << 20})
	q.Attach(dst)
	r := NewReader(src, nil, ReaderOptions{})
	f := NewFrame([]byte(smallCall))
	id := []byte("12345")
	edits := make([]Edit, 1)
	if n := testing.AllocsPerRun(1000, func() {
		edits[0] = Edit{Span{21, 23}, id}
		if _, err := q.Send(f, edits); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
