package session

import (
	"fmt"
	"slices"
	"testing"
)

func TestQuestions(t *testing.T) {
	var q Questions[string]
	raw := []byte(`"x"`)
	first, _ := q.Ask("p", "sx", raw)
	second, _ := q.Ask("p", "n1", []byte("1"))
	other, _ := q.Ask("q", "n1", []byte("1"))
	copy(raw, `"y"`) // the id is the reader's, and changes
	if first != 1 || second != 2 || other != 3 {
		t.Errorf("ids %d, %d, %d", first, second, other)
	}
	if origin, id, ok := q.Answer(first); !ok || origin != "p" || string(id) != `"x"` {
		t.Errorf("answer to the first: %q, %s, %v", origin, id, ok)
	}
	if _, _, ok := q.Answer(first); ok {
		t.Error("answered twice")
	}
	if _, ok := q.Withdraw("q", "sx"); ok {
		t.Error("withdrew what was not asked")
	}
	if id, ok := q.Withdraw("q", "n1"); !ok || string(id) != "3" {
		t.Errorf("withdrew %s, %v", id, ok)
	}
	if _, _, ok := q.Answer(other); ok {
		t.Error("a withdrawn question was answered")
	}
	if _, ok := q.Withdraw("q", "n1"); ok {
		t.Error("withdrew twice")
	}
	if _, _, ok := q.Answer(second); !ok {
		t.Error("the other's question was withdrawn")
	}
	if n, ok := q.Ask("p", "sx", raw); !ok || n != 4 {
		t.Errorf("an id was used again: %d", n)
	}
}

func TestQuestionsLapse(t *testing.T) {
	var q Questions[int]
	for i := range 6 {
		q.Ask(i%2, fmt.Sprint(i), []byte("1"))
	}
	lapsed := q.Lapse(1)
	slices.Sort(lapsed)
	if !slices.Equal(lapsed, []int64{2, 4, 6}) {
		t.Errorf("lapsed %d", lapsed)
	}
	if _, _, ok := q.Answer(2); ok {
		t.Error("a lapsed question was answered")
	}
	if _, _, ok := q.Answer(1); !ok {
		t.Error("another's question lapsed")
	}
	if q.Lapse(1) != nil {
		t.Error("lapsed twice")
	}
}

// TestQuestionsBound has the end of a question of any kind make room for one.
func TestQuestionsBound(t *testing.T) {
	var q Questions[int]
	for i := range MaxQuestions {
		if _, ok := q.Ask(i, "k", []byte("1")); !ok {
			t.Fatalf("question %d is refused", i)
		}
	}
	full := func() bool {
		_, ok := q.Ask(-1, "k", []byte("1"))
		return !ok
	}
	if !full() {
		t.Fatal("the bound does not hold")
	}
	q.Answer(1)
	if full() || !full() {
		t.Error("an answer makes no room, or too much")
	}
	q.Withdraw(5, "k")
	if full() || !full() {
		t.Error("a withdrawal makes no room, or too much")
	}
	q.Lapse(6)
	if full() || !full() {
		t.Error("a lapse makes no room, or too much")
	}
}

func TestQuestionsEnd(t *testing.T) {
	var q Questions[string]
	q.Ask("p", "sx", []byte(`"x"`))
	q.Ask("q", "n1", []byte("1"))
	n, _ := q.Ask("q", "n2", []byte("2"))
	q.Answer(n)
	var got []string
	for _, a := range q.End() {
		got = append(got, a.Origin+string(a.ID))
	}
	slices.Sort(got)
	if !slices.Equal(got, []string{`p"x"`, "q1"}) {
		t.Errorf("open at the end: %q", got)
	}
	if _, ok := q.Ask("p", "n3", []byte("3")); ok {
		t.Error("asked after the end")
	}
	if q.End() != nil {
		t.Error("ended twice")
	}
}
