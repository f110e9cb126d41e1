package proc

import (
	"context"
	"testing"
)

// eachSpawner runs f with every spawner of this system.
func eachSpawner(t *testing.T, f func(t *testing.T, sp Spawner)) {
	t.Run("direct", func(t *testing.T) { f(t, Direct{Marker: newMarker(t)}) })
	t.Run("helper", func(t *testing.T) {
		t.Parallel() // a process built with the race detector takes a second to exit
		f(t, startHelper(t, HelperOptions{}))
	})
}

func startHelper(t testing.TB, opts HelperOptions) *Helper {
	t.Helper()
	opts.Marker = newMarker(t)
	h, err := StartHelper(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return h
}

func cleanUp(t testing.TB, marker string) {
	if _, err := EndMarked(context.Background(), marker, nil); err != nil {
		t.Error(err)
	}
}

func isDead(pid int) bool {
	s, err := readStat(pid)
	return err != nil || s.state == 'Z' || s.state == 'X'
}
