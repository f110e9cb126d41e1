package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"
)

// BenchmarkLeasedCall is what leases cost a call that need not wait: the same server
// under the same daemon, recorded without leases, leased as a whole, and leased by a
// path of six folders that exists. Calls of all kinds take turns on one connection
// each.
//
//	go test -run '^$' -bench LeasedCall -benchtime 20000x ./integration
func BenchmarkLeasedCall(b *testing.B) {
	r := newRig(b)
	file := filepath.Join(r.dir, "a", "b", "c", "d", "e", "f")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		b.Fatal(err)
	}
	for _, name := range []string{"recorded", "leased", "path"} {
		s := r.oracle("-delay", "0s")
		s.State = "shared"
		switch name {
		case "recorded":
			s.Mutations = "off"
		case "path":
			s.Tools = map[string]toolRule{"write": {Class: "mutate", Resource: "file:{path}"}}
		}
		r.servers[name] = s
	}
	clients := make(map[string]*client)
	for name := range r.servers {
		clients[name] = r.open(socket, name).ready()
	}
	kinds := []struct{ name, server, tool string }{
		{"read", "leased", "read"}, {"path", "path", "write"}, {"leased", "leased", "write"}, {"recorded", "recorded", "write"},
	}
	took := make(map[string]timings)
	call := func(i int, measure bool) {
		for _, k := range kinds {
			id := strconv.Itoa(i)
			began := time.Now()
			o, err := clients[k.server].try(id, k.tool, fmt.Sprintf(`{"id":"%d","ms":0,"path":%q}`, i, file))
			if err != nil || o.failed {
				b.Fatalf("%s: %+v, %v", k.name, o, err)
			}
			if measure {
				took[k.name] = append(took[k.name], time.Since(began))
			}
			clients[k.server].forget()
		}
	}
	for i := range 200 {
		call(i, false)
	}
	b.ResetTimer()
	for i := range b.N {
		call(1000+i, true)
	}
	b.StopTimer()
	for _, times := range took {
		slices.Sort(times)
	}
	for _, part := range []struct {
		name string
		at   float64
	}{{"p50", 0.5}, {"p99", 0.99}} {
		for _, k := range kinds {
			b.ReportMetric(took[k.name].at(part.at), "µs-"+k.name+"-"+part.name)
		}
		b.ReportMetric(took["leased"].at(part.at)-took["recorded"].at(part.at), "µs-cost-"+part.name)
		b.ReportMetric(took["path"].at(part.at)-took["recorded"].at(part.at), "µs-cost-path-"+part.name)
	}
}

// forget drops what has been taken, so that a long run does not search it.
func (c *client) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.received = slices.DeleteFunc(c.received, func(m *message) bool { return m.taken })
}
