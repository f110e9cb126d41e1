package integration

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"interlock/integration/oracleserver/journal"
)

// ledger is what the test knows of all calls over all lives of a daemon.
type ledger struct {
	mu       sync.Mutex // guards answered
	answered map[string]bool

	runs  map[string]string // client's request, by run
	ended map[string]bool   // runs that have an end record
}

// read takes in the journal as a daemon has left it.
func (l *ledger) read(t *testing.T, path string) {
	t.Helper()
	records, err := journal.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		switch r.Kind {
		case journal.Begin:
			l.add(t, r.IDs[0], r.ClientRequestID)
		case journal.End:
			l.ended[r.IDs[0]] = true
		}
	}
}

// add enters a run. Its id may stand for no other call.
func (l *ledger) add(t *testing.T, run, call string) {
	t.Helper()
	if other, ok := l.runs[run]; ok && other != call {
		t.Errorf("run %s is of call %s and of call %s", run, other, call)
	}
	l.runs[run] = call
}

// TestKilledUnderLoad kills the daemon again and again under clients that change
// something without pause. In the end every call that the server saw and nobody
// answered is pending, or on record as ended; none was sent twice, none is listed
// twice, and none that was answered is listed.
func TestKilledUnderLoad(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.servers["oracle"] = r.oracle()
	l := &ledger{answered: map[string]bool{}, runs: map[string]string{}, ended: map[string]bool{}}
	for round := range repeats(40, 200) {
		l.underLoad(t, r, round)
		l.read(t, r.journalPath())
	}
	r.start() // merges what the last one left
	r.sentOnce()

	listed := map[string]bool{}
	for _, run := range r.pending() {
		l.add(t, run.RequestID, run.ClientRequestID)
		if listed[run.ClientRequestID] {
			t.Errorf("call %s is pending twice", run.ClientRequestID)
		}
		listed[run.ClientRequestID] = true
		if l.answered[run.call(t)] {
			t.Errorf("call %s was answered and is pending", run.ClientRequestID)
		}
	}
	ended := map[string]bool{}
	for run := range l.ended {
		ended[l.runs[run]] = true
	}
	unanswered, lost := 0, 0
	for _, s := range r.sights() {
		if l.answered[s.id] {
			continue
		}
		unanswered++
		if call := fmt.Sprintf("%q", s.id); !listed[call] && !ended[call] {
			lost++
			t.Errorf("call %s was sent, not answered, and is not on record", s.id)
		}
	}
	t.Logf("%d calls sent, %d answered, %d sent and not answered: %d lost; %d pending", len(r.sights()), len(l.answered), unanswered, lost, len(listed))
	if unanswered == 0 || len(l.answered) == 0 {
		t.Error("no call was cut off, or none was answered: the test shows nothing")
	}
	r.acknowledgeAll()
}

// underLoad starts the daemon, lets clients call without pause, and kills it after
// a random time: mostly in the middle of the load, now and then while it gathers.
func (l *ledger) underLoad(t *testing.T, r *rig, round int) {
	t.Helper()
	const clients = 16
	d := r.start()
	var busy atomic.Int32 // clients that have had an answer
	loaded := make(chan struct{})
	var wg sync.WaitGroup
	for n := range clients {
		wg.Go(func() {
			answered := map[string]bool{}
			err := l.load(r, fmt.Sprintf("%d.%d", round, n), func(id string) {
				if answered[id] = true; len(answered) == 1 && busy.Add(1) == clients {
					close(loaded)
				}
			})
			if errors.Is(err, errWrongAnswer) {
				t.Error(err)
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			maps.Copy(l.answered, answered)
		})
	}
	if round%8 != 0 {
		select {
		case <-loaded:
		case <-d.exited:
			t.Error("the daemon ended by itself")
		case <-time.After(patience):
			t.Error("not all clients were served")
		}
	}
	time.Sleep(15*time.Millisecond + rand.N(25*time.Millisecond))
	r.kill()
	wg.Wait()
}

// load calls without pause until the connection ends.
func (l *ledger) load(r *rig, name string, answered func(id string)) error {
	c, err := r.quick()
	if err != nil {
		return err
	}
	defer c.conn.Close()
	if err := c.shake(); err != nil {
		return err
	}
	for n := 0; ; n++ {
		id := fmt.Sprintf("%s.%d", name, n)
		if err := c.call(id, "write"); err != nil {
			return err
		}
		answered(id)
	}
}

// TestNothingIsSentTwice ends the daemon, the server or the connection between a
// call's sending and its answer. The server sees each call once, the caller hears
// which run it was, or that the connection is over, and exactly these calls are
// pending in the end, under every later daemon.
func TestNothingIsSentTwice(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.servers["oracle"] = r.oracle()
	var calls []string
	named := map[string]string{} // call, by the run that its answer named
	for n := range repeats(40, 500) {
		id := fmt.Sprintf("call-%d", n)
		calls = append(calls, id)
		w := socket
		if n%2 == 1 && n%3 != 0 {
			w = bridge
		}
		r.start()
		c := r.open(w, "oracle").ready()
		c.oracleCall(id, "write", "hang")
		pid := r.awaitSeen(id)
		switch n % 3 {
		case 0:
			r.kill()
			c.ended()
		case 1:
			killProcess(t, pid)
			named[cutOff(t, c.answer(fmt.Sprintf("%q", id)), "server_lost")] = id
		case 2:
			c.vanish()
			eventually(t, "the server of the client that left ends", func() error { return alive(fmt.Sprint(pid)) })
		}
		if left := c.leftover(); left != "" && n%3 != 1 {
			t.Errorf("a call that nobody answered got %s", left)
		}
	}
	r.start()
	for _, run := range r.awaitPending(calls...) {
		if call, ok := named[run.RequestID]; ok {
			if call != run.call(t) {
				t.Errorf("the answer to %s named the run of %s", call, run.call(t))
			}
			delete(named, run.RequestID)
		}
		if run.Class != "mutate" || run.Tool != "write" || run.Server != "oracle" || run.Client != "bare" {
			t.Errorf("the record says %+v", run)
		}
	}
	if len(named) > 0 {
		t.Errorf("answers named runs that are not pending: %v", named)
	}
	if seen := len(r.sights()); seen != len(calls) {
		t.Errorf("the oracle saw %d calls of %d", seen, len(calls))
	}
	r.sentOnce()
	r.acknowledgeAll()
}

// TestRecordedBeforeSent has the server look into the journal at the receipt of each
// call: its begin record is there.
func TestRecordedBeforeSent(t *testing.T) {
	t.Parallel()
	for _, durability := range []string{"crash", "power"} {
		t.Run(durability, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.servers["oracle"] = r.oracle("-journal", r.journalPath(), "-delay", "0s")
			r.settings.Sync = durability
			r.start()
			const clients = 5
			each := repeats(250, 5000) / clients
			var wg sync.WaitGroup
			for n := range clients {
				wg.Go(func() {
					c, err := r.quick()
					if err != nil {
						t.Error(err)
						return
					}
					defer c.conn.Close()
					if err := c.shake(); err != nil {
						t.Error(err)
						return
					}
					for i := range each {
						if err := c.call(fmt.Sprintf("%d.%d", n, i), []string{"write", "plain"}[i%2]); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			r.sentOnce()
			if seen := len(r.sights()); seen != clients*each {
				t.Errorf("the oracle saw %d calls of %d", seen, clients*each)
			}
			r.clear()
		})
	}
}
