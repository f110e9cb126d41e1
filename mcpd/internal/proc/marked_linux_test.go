package proc

import (
	"os"
	"slices"
	"syscall"
	"testing"
)

func TestMarkers(t *testing.T) {
	base := newMarker(t)
	one := start(t, Direct{Marker: base}, sh("echo ready; read x"))
	two := start(t, Direct{Marker: base + "2"}, sh("echo ready; read x"))
	none := start(t, Direct{}, sh("echo ready; read x"))
	for _, c := range []*Child{one, two, none} {
		linesOf(t, c.Stdout()).next()
	}

	found, err := FindMarked(base)
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(found, func(a, b Marked) int { return len(a.Marker) - len(b.Marker) })
	if len(found) != 2 || found[0].PID != one.PID() || found[1].PID != two.PID() {
		t.Fatalf("found %+v, want %d and %d", found, one.PID(), two.PID())
	}
	if m := found[1]; m.Marker != base+"2" || m.Comm != "sh" || m.StartTicks == 0 {
		t.Errorf("found %+v", m)
	}

	keep := func(pid int) bool { return pid == one.PID() }
	if ended, err := EndMarked(t.Context(), base, keep); err != nil || len(ended) != 0 {
		t.Errorf("ended %v, %v, though it was to be kept", ended, err)
	}
	ended, err := EndMarked(t.Context(), base, nil)
	if err != nil || !slices.Equal(ended, []int{one.PID()}) {
		t.Errorf("ended %v, %v, want %d", ended, err, one.PID())
	}
	awaitDone(t, one.Done())
	if got := one.Process().Status(); got != syscall.WaitStatus(syscall.SIGTERM) {
		t.Errorf("status %#x, want that of SIGTERM", got)
	}
	for _, c := range []*Child{two, none} {
		if gone(c.PID()) {
			t.Errorf("process %d with another marker or none was ended", c.PID())
		}
	}
	if _, err := EndMarked(t.Context(), "", nil); err == nil {
		t.Error("an empty marker was taken")
	}
}

func TestEndMarkedOfWhatHeedsNoSignal(t *testing.T) {
	marker := newMarker(t)
	c := start(t, Direct{Marker: marker}, sh("trap '' TERM; (setsid sh -c 'sleep 1000 & echo $!; wait' &); wait; read x"))
	escaped := linesOf(t, c.Stdout()).pid()
	if _, err := EndMarked(t.Context(), marker, nil); err != nil {
		t.Fatal(err)
	}
	awaitDone(t, c.Done())
	awaitGone(t, escaped)
	if got := c.Process().Status(); got != syscall.WaitStatus(syscall.SIGKILL) {
		t.Errorf("status %#x, want that of SIGKILL", got)
	}
}

// A kernel without lists of children gives the same answer, slower.
func TestChildrenByParent(t *testing.T) {
	h := startHelper(t, HelperOptions{})
	for range 3 {
		start(t, h, sh("read x"))
	}
	want, got := childrenOf(h.PID()), childrenByParent(h.PID())
	slices.Sort(want)
	slices.Sort(got)
	if len(got) != 3 || !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestStatOfAwkwardName(t *testing.T) {
	c := start(t, Direct{}, sh(`printf 'a) Z 1 (b' > /proc/$$/comm; echo ready; read x`))
	linesOf(t, c.Stdout()).next()
	s, err := readStat(c.PID())
	if err != nil || s.comm != "a) Z 1 (b" || s.ppid != os.Getpid() || s.state == 'Z' {
		t.Errorf("%+v, %v", s, err)
	}
}
