package integration

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestDrainLeavesRuns stops the daemon under calls of which some end in time: those
// are answered, the others are pending when the daemon is gone.
func TestDrainLeavesRuns(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.servers["oracle"] = r.oracle()
	r.settings.Limits.DrainTimeout = "700ms"
	for round := range repeats(3, 25) {
		a, b := r.open(socket, "oracle").ready(), r.open(bridge, "oracle").ready()
		var hung, short []string
		for n, c := range []*client{a, b, a, b} {
			hung = append(hung, fmt.Sprintf("hung-%d.%d", round, n))
			c.oracleCall(hung[n], "write", "hang")
		}
		for n, c := range []*client{a, b} {
			short = append(short, fmt.Sprintf("short-%d.%d", round, n))
			c.sendCall(strconv.Quote(short[n]), "write", fmt.Sprintf(`{"id":%q,"ms":200}`, short[n]))
		}
		r.awaitSeen(append(short, hung...)...)
		began := time.Now()
		r.stop()
		if took := time.Since(began); took > patience/2 {
			t.Errorf("stopping took %v", took)
		}
		for n, c := range []*client{a, b} {
			if got := textOf(t, c.answer(strconv.Quote(short[n]))); got != "did "+short[n] {
				t.Errorf("a call that ended in time is answered %q", got)
			}
			c.ended()
		}
		for _, run := range r.awaitPending(hung...) {
			if run.Reason != "draining" {
				t.Errorf("the record says %+v, want reason draining", run)
			}
		}
		r.acknowledgeAll() // without a daemon
	}
	r.sentOnce()
}

// TestDirectoryMoved takes the daemon's directory away under calls. The daemon takes
// no more of them that change something, and ends; its calls are on record in the
// directory, wherever that is.
func TestDirectoryMoved(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.servers["oracle"] = r.oracle()
	r.settings.Limits.DrainTimeout = "200ms"
	c := r.open(socket, "oracle").ready()
	var ids []string
	for n := range 8 {
		ids = append(ids, fmt.Sprintf("call-%d", n))
		c.oracleCall(ids[n], "write", "hang")
	}
	r.awaitSeen(ids...)
	daemon := r.daemon
	if err := os.Rename(r.home(), r.home()+"-moved"); err != nil {
		t.Fatal(err)
	}
	n := 0
	eventually(t, "calls are refused", func() error {
		n++
		id := fmt.Sprintf("later-%d", n)
		c.oracleCall(id, "write", "")
		m := c.answer(strconv.Quote(id))
		if strings.Contains(m.raw, "did "+id) {
			return errors.New("they are not")
		}
		notSent(t, m, "home_lost")
		return nil
	})
	c.oracleCall("read", "read", "")
	if got := textOf(t, c.answer(`"read"`)); got != "did read" {
		t.Errorf("a read is answered %q", got)
	}
	sent := len(r.sights())
	c.oracleCall("last", "write", "")
	notSent(t, c.answer(`"last"`), "home_lost")
	if now := len(r.sights()); now != sent {
		t.Errorf("a refused call was sent: %v", r.sights()[sent:])
	}
	select {
	case <-daemon.exited:
	case <-time.After(patience):
		t.Error("the daemon did not end")
	}
	r.gone()
	r.killed = true // its files in the moved directory stay
	if err := os.Rename(r.home()+"-moved", r.home()); err != nil {
		t.Fatal(err)
	}
	r.start()
	r.awaitPending(ids...)
	r.sentOnce()
	r.acknowledgeAll()
}
