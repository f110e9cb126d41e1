package recovery_test

import (
	"fmt"
	"sync"
	"testing"

	"interlock/recovery"
)

// BenchmarkRun measures Begin and End together.
func BenchmarkRun(b *testing.B) {
	for name, sync := range map[string]recovery.Sync{"crash": recovery.SyncCrash, "power": recovery.SyncPower} {
		for _, callers := range []int{1, 16} {
			b.Run(fmt.Sprintf("%s/%d", name, callers), func(b *testing.B) {
				benchmarkRun(b, recovery.Options{Dir: b.TempDir(), Sync: sync}, callers)
			})
		}
	}
}

// BenchmarkRunWithPending shows that pending runs cost the others nothing.
func BenchmarkRunWithPending(b *testing.B) {
	o := recovery.Options{Dir: b.TempDir()}
	j, _, err := recovery.Open(o)
	if err != nil {
		b.Fatal(err)
	}
	for range 2000 {
		begin(b, j, intent(1))
	}
	if err := j.Close(); err != nil {
		b.Fatal(err)
	}
	benchmarkRun(b, o, 1)
}

func benchmarkRun(b *testing.B, o recovery.Options, callers int) {
	j, _, err := recovery.Open(o)
	if err != nil {
		b.Fatal(err)
	}
	defer j.Close()
	in := intent(1)
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for c := range callers {
		n := b.N / callers
		if c == 0 {
			n += b.N % callers
		}
		wg.Go(func() {
			for range n {
				r, err := j.Begin(in)
				if err != nil {
					b.Error(err)
					return
				}
				if err := r.End(recovery.OutcomeOK, ""); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}
