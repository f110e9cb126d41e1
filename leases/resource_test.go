package leases_test

import (
	"errors"
	"strings"
	"testing"

	"interlock/leases"
)

func TestConflicts(t *testing.T) {
	for _, c := range []struct {
		a, b              leases.Resource
		conflict, aCovers bool
	}{
		{"server:a", "server:a", true, true},
		{"server:a", "server:b", false, false},
		{"server:a", "session:a", false, false},
		{"file:/a", "file:/a", true, true},
		{"file:/a", "file:/a/b", false, false},
		{"tree:/a", "file:/a", true, true},
		{"tree:/a", "file:/a/b/c", true, true},
		{"tree:/a", "file:/ab", false, false},
		{"tree:/a", "tree:/a/b", true, true},
		{"tree:/a/b", "tree:/a", true, false},
		{"tree:/", "file:/x", true, true},
		{"tree:/", "tree:/", true, true},
		{"tree:/", "server:x", false, false},
		{"tree:/a", "name", false, false},
		{"tree:/a%20b", "file:/a%20b/c", true, true},
		{"tree:/a", "tree:/a%20b", false, false},
	} {
		if got := c.a.Conflicts(c.b); got != c.conflict || c.b.Conflicts(c.a) != got {
			t.Errorf("%s and %s conflict: %t, want %t", c.a, c.b, got, c.conflict)
		}
		if got := c.a.Covers(c.b); got != c.aCovers {
			t.Errorf("%s covers %s: %t, want %t", c.a, c.b, got, c.aCovers)
		}
	}
}

func TestNames(t *testing.T) {
	if r, err := leases.File("/a b/ü%\n"); err != nil || r != "file:/a%20b/%C3%BC%25%0A" {
		t.Errorf("got %q, %v", r, err)
	}
	if r := leases.Server("my server"); r != "server:my%20server" {
		t.Errorf("got %q", r)
	}
	if r := leases.Session("session-1"); r != "session:session-1" {
		t.Errorf("got %q", r)
	}
	if r, err := leases.Derived("repo:a/b c"); err != nil || r != "repo:a/b%20c" {
		t.Errorf("got %q, %v", r, err)
	}
	for _, n := range []int{4096 - len("tree:"), 4096} {
		_, err := leases.Tree("/" + strings.Repeat("x", n-1))
		if fits := n < 4096; fits != (err == nil) || !fits && !errors.Is(err, leases.ErrInvalid) {
			t.Errorf("a path of %d bytes: %v", n, err)
		}
	}
}

func TestParse(t *testing.T) {
	for _, good := range []string{"name", "server:x", "file:/a", "tree:/", "tree:/a/b", "file:/a%20b/%C3%BC%25%0A", strings.Repeat("ü", 128), "file:/" + strings.Repeat("x", 4000)} {
		if r, err := leases.Parse(good); err != nil || string(r) != good {
			t.Errorf("%q: %q, %v", good, r, err)
		}
	}
	for _, bad := range []string{"", "a b", "a\tb", "a\u00a0b", "a\x00", "a\x1b", "\xff", strings.Repeat("x", 129), "file:", "file:a", "tree:a/b", "file:/a/", "tree:/a/",
		"file:/a b", "file:/a\n", "file:/ü", "file:/%c3%bc", "file:/%61", "file:/%2", "file:/a//b", "file:/a/./b", "tree:/a/..", "file:/" + strings.Repeat("x", 4096)} {
		if _, err := leases.Parse(bad); !errors.Is(err, leases.ErrInvalid) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
