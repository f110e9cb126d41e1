package session

import (
	"strconv"
	"sync"
)

// Questions are the requests of servers that a session's client has not yet
// answered. O tells where an answer goes: a process, comparable, so that all
// that one process asked can lapse with it. The zero value is ready for use.
type Questions[O comparable] struct {
	mu   sync.Mutex // guards the fields below
	over bool       // nothing more may be asked
	last int64
	open map[int64]question[O]
}

type question[O comparable] struct {
	origin O
	key    string
	id     []byte
}

// MaxQuestions bounds how many questions of its servers a client can have open.
const MaxQuestions = 256

// Ask records a question of origin under the server's own id and returns the id
// under which the client is asked: an integer that is unique in the session. It
// returns false when the client has too many open, and after End.
func (q *Questions[O]) Ask(origin O, key string, id []byte) (int64, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.over || len(q.open) >= MaxQuestions {
		return 0, false
	}
	if q.open == nil {
		q.open = make(map[int64]question[O])
	}
	q.last++
	q.open[q.last] = question[O]{origin: origin, key: key, id: append([]byte(nil), id...)}
	return q.last, true
}

// Answer ends the question n and returns who asked it, under which id.
func (q *Questions[O]) Answer(n int64) (origin O, id []byte, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	open, ok := q.open[n]
	delete(q.open, n)
	return open.origin, open.id, ok
}

// Withdraw ends the question that origin asked under key and does not want
// answered any more. It returns the client's id of it.
func (q *Questions[O]) Withdraw(origin O, key string) (id []byte, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for n, open := range q.open {
		if open.origin == origin && open.key == key {
			delete(q.open, n)
			return strconv.AppendInt(nil, n, 10), true
		}
	}
	return nil, false
}

// Lapse ends every question of origin, which is gone, and returns the client's
// ids of them.
func (q *Questions[O]) Lapse(origin O) []int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	var lapsed []int64
	for n, open := range q.open {
		if open.origin == origin {
			lapsed = append(lapsed, n)
			delete(q.open, n)
		}
	}
	return lapsed
}

// Asked is a question as its server knows it.
type Asked[O comparable] struct {
	Origin O
	ID     []byte
}

// End ends every question, and lets none be asked any more: the client, which
// sends nothing more, will answer none. It returns who is still to be told.
func (q *Questions[O]) End() []Asked[O] {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.over = true
	var asked []Asked[O]
	for _, open := range q.open {
		asked = append(asked, Asked[O]{Origin: open.origin, ID: open.id})
	}
	q.open = nil
	return asked
}
