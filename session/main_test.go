package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// work is a call of a test, which notes what becomes of it in a journal shared
// by the calls that are compared.
type work struct {
	Call
	key  string
	note *journal

	forwarded, held, refused, dropped int // guarded by note.mu
	refusal                           error
	onForward                         func() // called by Forward, if set
}

// journal is what became of calls, in order.
type journal struct {
	mu        sync.Mutex // guards the fields below, and the counters of the calls
	forwarded []string
}

func (w *work) Forward() {
	w.note.mu.Lock()
	w.forwarded++
	w.note.forwarded = append(w.note.forwarded, w.key)
	w.note.mu.Unlock()
	if w.onForward != nil {
		w.onForward()
	}
}

func (w *work) Hold() { w.count(&w.held) }
func (w *work) Drop() { w.count(&w.dropped) }

func (w *work) Refuse(err error) {
	w.note.mu.Lock()
	defer w.note.mu.Unlock()
	w.refused++
	w.refusal = err
}

func (w *work) count(n *int) {
	w.note.mu.Lock()
	defer w.note.mu.Unlock()
	*n++
}

// fate is what became of the call, in a word.
func (w *work) fate() string {
	w.note.mu.Lock()
	defer w.note.mu.Unlock()
	if n := w.forwarded + w.refused + w.dropped; n > 1 {
		return fmt.Sprintf("%d fates", n)
	}
	switch {
	case w.forwarded > 0:
		return "forwarded"
	case w.refused > 0:
		return "refused"
	case w.dropped > 0:
		return "dropped"
	default:
		return "waits"
	}
}

func (j *journal) order() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.forwarded)
}

func openSession(t testing.TB, r *Registry) *Session {
	t.Helper()
	s, err := r.Open(Info{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// begin registers a call.
func begin(t testing.TB, s *Session, j *journal, key string) *work {
	t.Helper()
	w := &work{key: key, note: j}
	if err := s.Begin(&w.Call, w, key); err != nil {
		t.Fatalf("begin %s: %v", key, err)
	}
	return w
}

// submit registers a call and gives it its turn.
func submit(t testing.TB, s *Session, j *journal, key string) *work {
	t.Helper()
	w := begin(t, s, j, key)
	if err := s.Submit(&w.Call); err != nil {
		t.Fatalf("submit %s: %v", key, err)
	}
	return w
}

// submitAll registers calls with the keys prefix0, prefix1 and so on.
func submitAll(t testing.TB, s *Session, j *journal, prefix string, n int) []*work {
	t.Helper()
	all := make([]*work, n)
	for i := range all {
		all[i] = submit(t, s, j, fmt.Sprintf("%s%d", prefix, i))
	}
	return all
}

// finish settles a call and hands its answer on.
func finish(t testing.TB, s *Session, w *work) {
	t.Helper()
	if !s.Settle(&w.Call) {
		t.Fatalf("settle %s: not wanted", w.key)
	}
	s.Answered(&w.Call)
}

func fates(all []*work) []string {
	got := make([]string, len(all))
	for i, w := range all {
		got[i] = w.fate()
	}
	return got
}

func wantFates(t testing.TB, all []*work, want ...string) {
	t.Helper()
	if got := fates(all); !slices.Equal(got, want) {
		t.Errorf("fates %q, want %q", got, want)
	}
}

func wantOrder(t testing.TB, j *journal, want ...string) {
	t.Helper()
	if got := j.order(); !slices.Equal(got, want) {
		t.Errorf("forwarded %q, want %q", got, want)
	}
}

// wantFree checks that no permit is held: neither of the session nor of the
// registry.
func wantFree(t testing.TB, s *Session) {
	t.Helper()
	l := s.registry.limits
	if !s.permits.TryAcquire(int64(l.Running)) {
		t.Error("permits of the session are held")
	} else {
		s.permits.Release(int64(l.Running))
	}
	if !s.registry.global.TryAcquire(int64(l.Global)) {
		t.Error("permits of the registry are held")
	} else {
		s.registry.global.Release(int64(l.Global))
	}
}

// idle reports whether the session is idle now. The test must be in a bubble.
func idle(s *Session) bool {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.WaitIdle(ctx) }()
	synctest.Wait()
	cancel()
	return <-done == nil
}

func wantBusy(t testing.TB, err error, limit string, waited time.Duration) {
	t.Helper()
	var busy *BusyError
	if !errors.As(err, &busy) {
		t.Fatalf("error %v, want a BusyError", err)
	}
	if busy.Limit != limit || busy.Waited != waited {
		t.Errorf("refused by %q after %v, want %q after %v", busy.Limit, busy.Waited, limit, waited)
	}
}
