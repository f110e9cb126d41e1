package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"
)

// BenchmarkRecordedCall measures what recording adds to a call. Each client calls a
// tool that reads and one that changes something in turn, one call at a time; the
// costs are the differences between the two. With 10,000 runs pending or active they
// stay the same.
//
//	go test -run '^$' -bench RecordedCall -benchtime 20000x ./integration
func BenchmarkRecordedCall(b *testing.B) {
	for _, durability := range []string{"crash", "power"} {
		for _, clients := range []int{1, 16} {
			b.Run(fmt.Sprintf("%s/clients=%d", durability, clients), func(b *testing.B) {
				r := newRig(b)
				r.settings.Sync = durability
				benchmarkRecorded(b, r, clients)
			})
		}
	}
	b.Run("crash/clients=1/pending=10000", func(b *testing.B) {
		r := newRig(b)
		r.leavePending(10_000)
		benchmarkRecorded(b, r, 1)
	})
	b.Run("crash/clients=1/active=10000", func(b *testing.B) {
		r := newRig(b)
		r.settings.Limits.ClientCalls, r.settings.Limits.Calls = 4096, 20_000
		r.servers["oracle"] = r.oracle("-delay", "0s")
		for n := range 4 {
			c := r.open(socket, "oracle").ready()
			for i := range 2500 {
				c.oracleCall(fmt.Sprintf("%d.%d", n, i), "write", "hang")
			}
		}
		eventually(b, "all calls are active", func() error {
			if seen := len(r.sights()); seen != 10_000 {
				return fmt.Errorf("%d are", seen)
			}
			return nil
		})
		benchmarkRecorded(b, r, 1)
		r.kill() // a drain would wait for them
	})
}

// leavePending writes a recovery file as an earlier daemon would have left it.
func (r *rig) leavePending(n int) {
	r.t.Helper()
	file := pendingFile{SchemaVersion: 1, State: "reconciliation_required", RecoveredAt: time.Now().UTC()}
	for i := range n {
		file.Runs = append(file.Runs, pendingRun{
			RequestID: fmt.Sprintf("7-%d-0123456789abcdef", i), OwnerID: "client-1", StartedAt: time.Now().UTC(),
			Client: "bench", ClientRequestID: fmt.Sprint(i), Server: "oracle", Tool: "write", Class: "mutate",
			Resource: "server:oracle", Outcome: "unknown", Reason: "server_lost",
		})
	}
	text, err := json.Marshal(file)
	if err == nil {
		err = os.Mkdir(r.home(), 0o700)
	}
	if err == nil {
		err = os.WriteFile(r.pendingPath(), text, 0o600)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// timings are how long calls took.
type timings []time.Duration

// at is the time that a part of the calls did not exceed, in microseconds.
func (t timings) at(part float64) float64 {
	return float64(t[min(len(t)-1, int(part*float64(len(t))))].Nanoseconds()) / 1000
}

func benchmarkRecorded(b *testing.B, r *rig, clients int) {
	if len(r.servers) == 0 {
		r.servers["oracle"] = r.oracle("-delay", "0s")
	}
	r.start()
	var mu sync.Mutex // guards took
	took := map[string]timings{}
	var ready, done sync.WaitGroup
	begin := make(chan struct{})
	for n := range clients {
		ready.Add(1)
		done.Go(func() {
			mine, err := r.measure(fmt.Sprint(n), max(1, b.N/clients/2), &ready, begin)
			if err != nil {
				b.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			for tool, times := range mine {
				took[tool] = append(took[tool], times...)
			}
		})
	}
	ready.Wait()
	b.ResetTimer()
	close(begin)
	done.Wait()
	b.StopTimer()
	if b.Failed() {
		return
	}
	for _, times := range took {
		slices.Sort(times)
	}
	for _, part := range []struct {
		name string
		at   float64
	}{{"p50", 0.5}, {"p99", 0.99}} {
		read, write := took["read"].at(part.at), took["write"].at(part.at)
		b.ReportMetric(read, "µs-read-"+part.name)
		b.ReportMetric(write, "µs-recorded-"+part.name)
		b.ReportMetric(write-read, "µs-cost-"+part.name)
	}
}

// measure makes n calls of each tool once begin is closed, after some that only warm
// up.
func (r *rig) measure(name string, n int, ready *sync.WaitGroup, begin <-chan struct{}) (map[string]timings, error) {
	warm := sync.OnceFunc(ready.Done)
	defer warm()
	c, err := r.quick()
	if err != nil {
		return nil, err
	}
	defer c.conn.Close()
	if err := c.shake(); err != nil {
		return nil, err
	}
	took := map[string]timings{}
	for i := range n + 50 {
		if i == 50 {
			warm()
			<-begin
		}
		for _, tool := range []string{"read", "write"} {
			started := time.Now()
			if err := c.call(fmt.Sprintf("%s.%s.%d", name, tool, i), tool); err != nil {
				return nil, err
			}
			if i >= 50 {
				took[tool] = append(took[tool], time.Since(started))
			}
		}
	}
	return took, nil
}
