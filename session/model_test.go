package session

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// TestModel drives two sessions at random, and after each step compares their
// counters and permits with what the fates of their calls come to.
func TestModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(bubble{t}, func(t *rapid.T) {
			m := newModel()
			t.Repeat(map[string]func(*rapid.T){
				"":        m.check,
				"begin":   m.begin,
				"submit":  m.submit,
				"free":    m.submitFree,
				"abandon": m.abandon,
				"cancel":  m.cancel,
				"settle":  m.settle,
				"answer":  m.answer,
				"wait":    m.wait,
				"close":   m.close,
			})
			m.end(t)
		})
	})
}

// bubble hides the deadline of a test, which cannot be asked for in a bubble.
type bubble struct{ rapid.TB }

// modelCall is a call and what the model knows of it.
type modelCall struct {
	work
	submitted, free, long, endless bool
	cancelled, settled, owed, over bool
}

func (c *modelCall) inFlight() bool { return !c.cancelled && !c.settled && !c.over }

type modelSession struct {
	s      *Session
	calls  []*modelCall
	closed bool
	order  []*modelCall // those that were submitted for a permit
}

type model struct {
	r        *Registry
	sessions []*modelSession
	note     journal
}

func newModel() *model {
	m := &model{r: NewRegistry(Limits{Sessions: 2, Running: 2, Waiting: 2, Global: 3, WaitLimit: 5 * time.Second})}
	for range 2 {
		s, err := m.r.Open(Info{})
		if err != nil {
			panic(err)
		}
		m.sessions = append(m.sessions, &modelSession{s: s})
	}
	return m
}

func (m *model) session(t *rapid.T) *modelSession {
	return rapid.SampledFrom(m.sessions).Draw(t, "session")
}

// pick draws a call that ok accepts, or skips the step.
func (m *model) pick(t *rapid.T, ok func(*modelCall) bool) (*modelSession, *modelCall) {
	s := m.session(t)
	some := slices.DeleteFunc(slices.Clone(s.calls), func(c *modelCall) bool { return !ok(c) })
	if len(some) == 0 {
		t.Skip("no such call")
	}
	return s, rapid.SampledFrom(some).Draw(t, "call")
}

// find returns the call in flight under the key.
func (s *modelSession) find(key string) *modelCall {
	for _, c := range s.calls {
		if c.key == key && c.inFlight() && c.fate() != "refused" && c.fate() != "dropped" {
			return c
		}
	}
	return nil
}

func (m *model) begin(t *rapid.T) {
	s := m.session(t)
	c := &modelCall{work: work{key: fmt.Sprint(rapid.IntRange(0, 9).Draw(t, "key")), note: &m.note}}
	err := s.s.Begin(&c.Call, c, c.key)
	want := error(nil)
	switch {
	case s.closed:
		want = ErrClosed
	case s.find(c.key) != nil:
		want = ErrDuplicate
	}
	if !errors.Is(err, want) {
		t.Fatalf("begin %s: %v, want %v", c.key, err, want)
	}
	if err == nil {
		s.calls = append(s.calls, c)
	}
}

func begunOnly(c *modelCall) bool { return !c.submitted && !c.over }

func (m *model) submit(t *rapid.T) {
	s, c := m.pick(t, begunOnly)
	c.submitted = true
	line := s.s.Snapshot().Waiting
	err := s.s.Submit(&c.Call)
	synctest.Wait()
	switch {
	case s.closed:
		c.over = true
		if !errors.Is(err, ErrClosed) {
			t.Fatalf("submit to a closed session: %v", err)
		}
	case c.cancelled:
		if !errors.Is(err, ErrCancelled) || c.fate() != "waits" {
			t.Fatalf("submit of a cancelled call: %v, %s", err, c.fate())
		}
	case err != nil:
		c.over = true
		if line < 2*burstFactor {
			t.Fatalf("refused with %d in the line: %v", line, err)
		}
	default:
		s.order = append(s.order, c)
	}
}

func (m *model) submitFree(t *rapid.T) {
	s, c := m.pick(t, begunOnly)
	c.submitted = true
	long := rapid.Bool().Draw(t, "long")
	endless := long && rapid.Bool().Draw(t, "endless")
	before := s.count(func(c *modelCall) bool { return c.long && !c.settled })
	var err error
	if long {
		err = s.s.SubmitLong(&c.Call, endless)
	} else {
		err = s.s.Pass(&c.Call)
	}
	switch {
	case s.closed:
		c.over = true
		if !errors.Is(err, ErrClosed) {
			t.Fatalf("to a closed session: %v", err)
		}
	case c.cancelled:
		if !errors.Is(err, ErrCancelled) || c.fate() != "waits" {
			t.Fatalf("a cancelled call: %v, %s", err, c.fate())
		}
	case long && before >= 2:
		c.over = true
		if err == nil {
			t.Fatal("a long request beyond the limit")
		}
	default:
		if err != nil || c.fate() != "forwarded" {
			t.Fatalf("%v, %s", err, c.fate())
		}
		c.free, c.long, c.endless = true, long, endless
	}
}

func (m *model) abandon(t *rapid.T) {
	s, c := m.pick(t, begunOnly)
	s.s.Abandon(&c.Call)
	c.over = true
}

func (m *model) cancel(t *rapid.T) {
	s := m.session(t)
	key := fmt.Sprint(rapid.IntRange(0, 9).Draw(t, "key"))
	c := s.find(key)
	w, running := s.s.Cancel(key)
	synctest.Wait()
	if c == nil {
		if w != nil {
			t.Fatalf("cancelled %s, which is not in flight", key)
		}
		return
	}
	if w != c || running != (c.fate() == "forwarded") {
		t.Fatalf("cancel %s: %v, %v; it %s", key, w, running, c.fate())
	}
	c.cancelled = true
}

func (m *model) settle(t *rapid.T) {
	s, c := m.pick(t, func(c *modelCall) bool { return c.submitted })
	want := c.fate() == "forwarded" && !c.settled && !c.cancelled && !s.closed
	if got := s.s.Settle(&c.Call); got != want {
		t.Fatalf("settle %s: %v, want %v", c.key, got, want)
	}
	if c.fate() == "forwarded" {
		c.settled = true
	}
	c.owed = c.owed || want
	synctest.Wait()
}

func (m *model) answer(t *rapid.T) {
	s, c := m.pick(t, func(c *modelCall) bool { return c.owed })
	s.s.Answered(&c.Call)
	c.owed = false
}

func (m *model) wait(t *rapid.T) {
	time.Sleep(time.Duration(rapid.IntRange(1, 2000).Draw(t, "ms")) * time.Millisecond)
	synctest.Wait()
}

func (m *model) close(t *rapid.T) {
	if rapid.IntRange(0, 9).Draw(t, "chance") > 0 {
		t.Skip("sessions are long")
	}
	s := m.session(t)
	s.s.Close()
	s.closed = true
	synctest.Wait()
}

func (s *modelSession) count(ok func(*modelCall) bool) int {
	n := 0
	for _, c := range s.calls {
		if ok(c) {
			n++
		}
	}
	return n
}

// check compares the sessions with their calls.
func (m *model) check(t *rapid.T) {
	global := 0
	for _, s := range m.sessions {
		running := s.count(func(c *modelCall) bool { return c.fate() == "forwarded" && !c.free && !c.settled })
		long := s.count(func(c *modelCall) bool { return c.long && !c.settled })
		waiting := s.count(func(c *modelCall) bool { return c.submitted && !c.over && !c.cancelled && c.fate() == "waits" })
		owed := s.count(func(c *modelCall) bool {
			return !c.endless && (c.owed || c.fate() == "forwarded" && !c.settled)
		})
		inFlight := s.count(func(c *modelCall) bool {
			return c.inFlight() && c.fate() != "refused" && c.fate() != "dropped"
		})
		global += running
		for name, v := range map[string][2]int{
			"running": {s.s.running, running}, "long": {s.s.long, long}, "owed": {s.s.owed, owed},
			"in line": {len(s.s.line), waiting}, "in flight": {len(s.s.inFlight), inFlight},
		} {
			if v[0] != v[1] {
				t.Fatalf("%s: %s is %d, want %d", s.s.ID(), name, v[0], v[1])
			}
		}
		if running > 2 || waiting > 2*burstFactor {
			t.Fatalf("%d run and %d wait", running, waiting)
		}
		if s.closed && waiting > 0 {
			t.Fatal("a call waits in a closed session")
		}
	}
	if global > 3 {
		t.Fatalf("%d run in all", global)
	}
	for _, s := range m.sessions {
		if len(s.s.line) > 0 && s.s.running < 2 && global < 3 {
			t.Fatal("a call waits while its permits are free")
		}
	}
	m.checkOrder(t)
}

// checkOrder looks whether a call has been forwarded before one that was
// submitted earlier and still waits.
func (m *model) checkOrder(t *rapid.T) {
	for _, s := range m.sessions {
		waits := false
		for _, c := range s.order {
			switch c.fate() {
			case "waits":
				waits = waits || !c.cancelled
			case "forwarded":
				if waits {
					t.Fatalf("%s went before one that waits", c.key)
				}
			}
		}
	}
}

// end settles everything: no permit may be left.
func (m *model) end(t *rapid.T) {
	for round := true; round; {
		round = false
		for _, s := range m.sessions {
			for _, c := range s.calls {
				if c.fate() == "forwarded" && !c.settled {
					if s.s.Settle(&c.Call) {
						s.s.Answered(&c.Call)
					}
					c.settled, round = true, true
					synctest.Wait()
				}
			}
		}
	}
	for _, s := range m.sessions {
		s.s.Close()
		if !s.s.permits.TryAcquire(2) {
			t.Fatal("permits of a session are held at the end")
		}
	}
	if !m.r.global.TryAcquire(3) {
		t.Fatal("permits of the registry are held at the end")
	}
	if len(m.r.All()) != 0 {
		t.Fatal("sessions are open at the end")
	}
}
