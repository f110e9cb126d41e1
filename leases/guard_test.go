package leases_test

import (
	"fmt"
	"testing"
	"time"

	"interlock/leases"
)

// TestGuard plays what sessions do, a letter each, and asks whether the last is
// about to write over what it has not seen.
func TestGuard(t *testing.T) {
	for _, c := range []struct {
		name  string
		steps []string // session, r(ead), w(rite), b(egins to read), e(nds it), f(orgets), and the resource
		ask   string   // session and resource
		stale string   // whose write is newer
	}{
		{"nobody else", []string{"a r file:/x", "a w file:/x"}, "a file:/x", ""},
		{"never read", []string{"b w file:/x"}, "a file:/x", ""},
		{"written since", []string{"a r file:/x", "b w file:/x"}, "a file:/x", "b"},
		{"read again", []string{"a r file:/x", "b w file:/x", "a r file:/x"}, "a file:/x", ""},
		{"another file", []string{"a r file:/x", "b w file:/y"}, "a file:/x", ""},
		{"wrote it itself first", []string{"a w file:/x", "b w file:/x"}, "a file:/x", "b"},
		{"wrote it itself last", []string{"a r file:/x", "b w file:/x", "a w file:/x"}, "a file:/x", ""},
		{"the latest of two", []string{"a r file:/x", "b w file:/x", "c w file:/x"}, "a file:/x", "c"},
		{"while it read", []string{"a b file:/x", "b w file:/x", "a e file:/x"}, "a file:/x", "b"},
		{"a tree around it was written", []string{"a r file:/d/x", "b w tree:/d"}, "a file:/d/x", "b"},
		{"a file in it was written", []string{"a r tree:/d", "b w file:/d/x"}, "a tree:/d", "b"},
		{"a tree around it was read", []string{"a r tree:/d", "b w file:/d/x"}, "a file:/d/x", "b"},
		{"the tree was read after the file", []string{"a r file:/d/x", "b w file:/d/x", "a r tree:/d"}, "a file:/d/x", ""},
		{"a file beside it was written", []string{"a r tree:/d", "b w file:/dx"}, "a tree:/d", ""},
		{"only a part was read", []string{"a r file:/d/x", "b w file:/d/y"}, "a tree:/d", ""},
		{"its own part of a tree", []string{"a r tree:/d", "a w file:/d/x"}, "a tree:/d", ""},
		{"the session is over", []string{"a r file:/x", "b w file:/x", "a f -"}, "a file:/x", ""},
		{"a name", []string{"a r repo:o/n", "b w repo:o/n"}, "a repo:o/n", "b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var g leases.Guard
			begun := make(map[string]leases.Version)
			for i, step := range c.steps {
				var who, what string
				var r leases.Resource
				fmt.Sscan(step, &who, &what, &r)
				list := []leases.Resource{r}
				switch what {
				case "r":
					g.Read("of "+who, list, g.Version())
				case "b":
					begun[who] = g.Version()
				case "e":
					g.Read("of "+who, list, begun[who])
				case "w":
					g.Wrote(party(who), list, uint64(i), time.Unix(int64(i), 0))
				case "f":
					g.Forget("of " + who)
				}
			}
			var who string
			var r leases.Resource
			fmt.Sscan(c.ask, &who, &r)
			w, stale := g.Stale("of "+who, []leases.Resource{"unknown", r})
			if stale != (c.stale != "") || w.Owner != c.stale || stale && (w.At.IsZero() || w.Client != "client of "+c.stale) {
				t.Errorf("stale: %t, %+v; want that of %q", stale, w, c.stale)
			}
		})
	}
}

// TestGuardForgets remembers a bounded number of resources, and warns of no other.
func TestGuardForgets(t *testing.T) {
	var g leases.Guard
	file := func(i int) []leases.Resource { return []leases.Resource{leases.Resource(fmt.Sprint("file:/", i))} }
	stale := func(i int) bool {
		_, ok := g.Stale("of a", file(i))
		return ok
	}
	for i := range 1025 {
		g.Read("of a", file(i), g.Version())
	}
	for i := range 1025 {
		g.Wrote(party("b"), file(i), 0, time.Time{})
	}
	if stale(0) || !stale(1) || !stale(1024) {
		t.Errorf("of what was read: %t, %t, %t", stale(0), stale(1), stale(1024))
	}
	for i := range 8192 - 1024 {
		g.Wrote(party("b"), file(10_000+i), 0, time.Time{})
	}
	if stale(0) || !stale(1) {
		t.Errorf("of what was written: %t, %t", stale(0), stale(1))
	}
	g.Wrote(party("b"), file(99_999), 0, time.Time{})
	if stale(1) || !stale(2) {
		t.Errorf("of what was written: %t, %t", stale(1), stale(2))
	}
}

// TestReadsAside has a read that took long not take back what another has seen.
func TestReadsAside(t *testing.T) {
	var g leases.Guard
	r := []leases.Resource{"file:/x"}
	slow := g.Version()
	g.Wrote(party("b"), r, 0, time.Time{})
	g.Read("of a", r, g.Version())
	g.Read("of a", r, slow)
	if w, stale := g.Stale("of a", r); stale {
		t.Errorf("stale: %+v", w)
	}
}
