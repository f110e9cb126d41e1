package leases_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"interlock/leases"
)

func benchTable(b *testing.B) *leases.Table {
	began := time.Now()
	t := leases.New(leases.Options{Clock: func() time.Duration { return time.Since(began) }, Now: time.Now, HoldMax: holdMax})
	b.Cleanup(t.Close)
	b.ReportAllocs()
	return t
}

// BenchmarkCall is a call that need not wait, among so many other leases.
func BenchmarkCall(b *testing.B) {
	for _, c := range []struct {
		name      string
		resources []leases.Resource
		others    int
	}{
		{"server", []leases.Resource{"server:memory"}, 0},
		{"file", []leases.Resource{"file:/home/ann/work/project/src/pkg/sub/file.go"}, 100},
		{"tree", []leases.Resource{"tree:/home/ann/work/project"}, 100},
		{"two", []leases.Resource{"file:/home/ann/a", "file:/home/ann/b"}, 100},
	} {
		b.Run(c.name, func(b *testing.B) {
			t := benchTable(b)
			for i := range c.others {
				_, err := t.Enter(new(leases.Use), leases.Request{Party: party("other"), Resources: []leases.Resource{leases.Resource(fmt.Sprint("file:/other/", i))}})
				if err != nil {
					b.Fatal(err)
				}
			}
			r := leases.Request{Party: party("a"), Resources: c.resources}
			for b.Loop() {
				var u leases.Use
				if granted, err := t.Enter(&u, r); !granted || err != nil {
					b.Fatal(granted, err)
				}
				u.Leave()
			}
		})
	}
}

// BenchmarkGuard is a read and a write after it, among what others have written.
func BenchmarkGuard(b *testing.B) {
	file := func(name string, i int) []leases.Resource {
		return []leases.Resource{leases.Resource(fmt.Sprint("file:/home/ann/work/project/src/pkg/sub/", name, i))}
	}
	for name, resources := range map[string][]leases.Resource{"file": file("x", 0), "tree": {"tree:/home/ann/work"}} {
		b.Run(name, func(b *testing.B) {
			var g leases.Guard
			for i := range 1000 {
				g.Wrote(party("other"), file("y", i), 0, time.Time{})
			}
			p := party("a")
			b.ReportAllocs()
			for b.Loop() {
				g.Read(p.Session, resources, g.Version())
				if w, stale := g.Stale(p.Session, resources); stale {
					b.Fatal(w)
				}
				g.Wrote(p, resources, 1, time.Time{})
			}
		})
	}
}

// BenchmarkHandover is a lease that goes from one waiting owner to the next.
func BenchmarkHandover(b *testing.B) {
	t := benchTable(b)
	var owners sync.WaitGroup
	for n := range 16 {
		owners.Go(func() {
			r := leases.Request{Party: party(fmt.Sprint(n)), Resources: []leases.Resource{"r"}}
			for range b.N/16 + 1 {
				var u leases.Use
				if _, err := t.Enter(&u, r); err != nil {
					b.Error(err)
				}
				if err := u.Wait(context.Background()); err != nil {
					b.Error(err)
				}
				u.Leave()
			}
		})
	}
	owners.Wait()
}
