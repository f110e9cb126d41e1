package session

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// stressCall is settled by a goroutine of its own, as by a server's reader.
type stressCall struct {
	Call
	s       *Session
	busy    *atomic.Int64 // calls that hold permits now
	most    *atomic.Int64
	settled *sync.WaitGroup
	fates   atomic.Int64
}

func (c *stressCall) Forward() {
	if n := c.busy.Add(1); n > c.most.Load() {
		c.most.Store(n)
	}
	go func() {
		c.busy.Add(-1)
		if c.s.Settle(&c.Call) {
			c.s.Answered(&c.Call)
		}
		c.end()
	}()
}

func (c *stressCall) Hold()        {}
func (c *stressCall) Refuse(error) { c.end() }
func (c *stressCall) Drop()        { c.end() }
func (c *stressCall) end()         { c.fates.Add(1); c.settled.Done() }

// TestStress has sessions come and go whose clients send and cancel as fast as
// they can. Every call has one fate, and every permit comes back.
func TestStress(t *testing.T) {
	const clients, rounds, calls = 8, 5, 200
	r := NewRegistry(Limits{Sessions: clients, Running: 4, Waiting: 8, Global: 6, WaitLimit: time.Minute})
	var busy, most atomic.Int64
	client := func(n int) {
		s, err := r.Open(Info{})
		if err != nil {
			t.Error(err)
			return
		}
		var settled sync.WaitGroup
		var sent []*stressCall
		for i := range calls {
			c := &stressCall{s: s, busy: &busy, most: &most, settled: &settled}
			key := fmt.Sprint(i % 40)
			if err := s.Begin(&c.Call, c, key); errors.Is(err, ErrDuplicate) {
				continue
			}
			settled.Add(1)
			if err := s.Submit(&c.Call); err != nil {
				c.end()
			}
			sent = append(sent, c)
			if i%7 == 0 {
				if w, running := s.Cancel(fmt.Sprint((i + n) % 40)); w != nil && !running {
					w.(*stressCall).end()
				}
			}
			s.Snapshot()
		}
		if n%2 == 0 {
			if err := s.WaitIdle(context.Background()); err != nil {
				t.Error(err)
			}
		}
		s.Close()
		settled.Wait()
		for _, c := range sent {
			if c.fates.Load() != 1 {
				t.Errorf("a call had %d fates", c.fates.Load())
			}
		}
	}
	var all sync.WaitGroup
	for n := range clients {
		all.Go(func() {
			for range rounds {
				client(n)
			}
		})
	}
	all.Wait()
	if most.Load() > 6 {
		t.Errorf("%d calls ran at once", most.Load())
	}
	if !r.global.TryAcquire(6) {
		t.Error("permits are held at the end")
	}
}

type benchCall struct {
	Call
}

func (*benchCall) Forward()     {}
func (*benchCall) Hold()        {}
func (*benchCall) Refuse(error) {}
func (*benchCall) Drop()        {}

// BenchmarkCall is the cost of a session's part of a call that need not wait.
func BenchmarkCall(b *testing.B) {
	r := NewRegistry(Limits{Sessions: 1, Running: 16, Waiting: 64, Global: 256, WaitLimit: time.Minute})
	s, err := r.Open(Info{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	b.ReportAllocs()
	for b.Loop() {
		c := new(benchCall)
		if err := s.Begin(&c.Call, c, "n1"); err != nil {
			b.Fatal(err)
		}
		if err := s.Submit(&c.Call); err != nil {
			b.Fatal(err)
		}
		if s.Settle(&c.Call) {
			s.Answered(&c.Call)
		}
	}
}
