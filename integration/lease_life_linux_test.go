package integration

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// TestLeaseStress is A8 with real servers: clients that call, vanish, are stopped and
// take leases by hand never have two servers at one file.
func TestLeaseStress(t *testing.T) {
	t.Parallel()
	const clients = 16
	r := newRig(t)
	r.servers["ledger"] = r.ledger()
	r.start()
	end := time.Now().Add(time.Duration(repeats(5, 300)) * time.Second)
	var calls, acknowledged atomic.Int64
	var running sync.WaitGroup
	for n := range clients {
		running.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(n)))
			for time.Now().Before(end) {
				c := r.run(r.command("connect", "--with-leases", "ledger"))
				c.stress(t, r, random, &calls, &acknowledged)
			}
		})
	}
	running.Wait()
	t.Logf("%d calls, %d acknowledged", calls.Load(), acknowledged.Load())
	needNone(t, map[string]int{"overlaps": r.overlaps()})
	total := 0
	for _, name := range stressFiles() {
		total += r.count(name)
	}
	// A client that vanishes never hears of its last call.
	if lost := int(acknowledged.Load()) - total; lost > 0 || acknowledged.Load() == 0 {
		t.Errorf("%d of %d acknowledged are lost", lost, acknowledged.Load())
	}
	r.wantRisingEpochs(int(calls.Load()) * 2)
	eventually(t, "nobody has a lease", func() error {
		if s := r.leaseState(); len(s.Leases)+len(s.Waiting) > 0 {
			return fmt.Errorf("there is %+v", s)
		}
		return nil
	})
}

func stressFiles() []string { return []string{"a", "b", "c"} }

// stress is the life of one client.
func (c *client) stress(t *testing.T, r *rig, random *rand.Rand, calls, acknowledged *atomic.Int64) {
	c.ready()
	for i := range 5 + random.IntN(20) {
		name := stressFiles()[random.IntN(len(stressFiles()))]
		switch p := random.IntN(20); {
		case p == 0:
			c.vanish()
			return
		case p == 1:
			c.cmd.Process.Signal(syscall.SIGSTOP)
			time.AfterFunc(time.Duration(random.IntN(300))*time.Millisecond, func() { c.cmd.Process.Signal(syscall.SIGCONT) })
		case p == 2:
			args := fmt.Sprintf(`{"resource":"file:%s","ttlMs":%d}`, name, 100+random.IntN(400))
			if _, err := c.try("1"+strconv.Itoa(i), "interlock__lease_acquire", args); err != nil {
				t.Errorf("acquiring: %v", err)
			}
		default:
			calls.Add(1)
			o, err := c.try(strconv.Itoa(i), "add", r.on(name, random.IntN(3)))
			if err != nil {
				t.Errorf("calling: %v", err)
				return
			}
			if !o.failed {
				acknowledged.Add(1)
			} else if o.refused == nil {
				t.Errorf("the server failed: %s", o.text)
			}
		}
	}
	c.cmd.Process.Signal(syscall.SIGCONT)
	c.close()
}

// wantRisingEpochs has the epochs of calls on one file rise from one owner to the
// next, in the order in which the calls ended.
func (r *rig) wantRisingEpochs(n int) {
	r.t.Helper()
	last := make(map[string]finishedCall)
	epochs := make(map[string][]uint64)
	for _, call := range r.history(max(n, 1)) {
		if call.Epoch == 0 || call.Tool != "add" {
			continue
		}
		if was := last[call.Resource]; call.OwnerID != was.OwnerID && call.Outcome == "ok" && call.Epoch <= was.Epoch {
			r.t.Errorf("epoch %d of %s on %s after %d of %s", call.Epoch, call.OwnerID, call.Resource, was.Epoch, was.OwnerID)
		}
		if call.Outcome == "ok" {
			last[call.Resource] = call
		}
		epochs[call.Resource] = append(epochs[call.Resource], call.Epoch)
	}
	if len(epochs) == 0 {
		r.t.Error("the history has no epochs")
	}
}

// TestStoppedHolder gives what a stopped client holds to the next: by hand, when its
// time is over; under a call, when the server has answered.
func TestStoppedHolder(t *testing.T) {
	t.Parallel()
	const ttl = time.Second
	r := newRig(t)
	r.servers["ledger"] = r.ledger()
	a, b := r.openWith("ledger"), r.openWith("ledger")
	stop := func(c *client) { c.cmd.Process.Signal(syscall.SIGSTOP) }
	a.acquire("1", "file:x", fmt.Sprintf(`,"ttlMs":%d`, ttl.Milliseconds()))
	stop(a)
	began := time.Now()
	if o, err := b.try("1", "add", r.on("x", 0)); err != nil || o.failed {
		t.Errorf("%+v, %v", o, err)
	}
	if took := time.Since(began); took < ttl/2 || took > ttl+5*time.Second {
		t.Errorf("the next waited %v", took)
	}
	a.cmd.Process.Signal(syscall.SIGCONT)
	a.sendCall("2", "add", r.on("x", 500))
	r.awaitBegun("add", 2)
	stop(a)
	if o, err := b.try("2", "add", r.on("x", 0)); err != nil || o.text != "3" {
		t.Errorf("%+v, %v", o, err)
	}
	a.cmd.Process.Signal(syscall.SIGCONT)
	if got := textOf(t, a.answer("2")); got != "2" {
		t.Errorf("the stopped client's number is %s", got)
	}
	needNone(t, map[string]int{"overlaps": r.overlaps()})
}

// TestStoppedDaemon is A37: a daemon that was stopped finds what has run out, and
// what has not.
func TestStoppedDaemon(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.servers["ledger"] = r.ledger()
	a, b := r.openWith("ledger"), r.openWith("ledger")
	short := a.acquire("1", "short", `,"ttlMs":1000`)
	long := a.acquire("2", "long", `,"ttlMs":600000`)
	d := r.start()
	d.cmd.Process.Signal(syscall.SIGSTOP)
	time.Sleep(time.Duration(repeats(2, 60)) * time.Second) // this is what is tested
	d.cmd.Process.Signal(syscall.SIGCONT)
	o, err := a.try("3", "interlock__lease_renew", fmt.Sprintf(`{"handle":%q}`, short.Handle))
	if err != nil || o.refused == nil || o.refused.Code != "lease_expired" {
		t.Errorf("renewing the one that is over: %+v, %v", o, err)
	}
	if o, err = a.try("4", "interlock__lease_renew", fmt.Sprintf(`{"handle":%q}`, long.Handle)); err != nil || o.failed {
		t.Errorf("renewing the other: %+v, %v", o, err)
	}
	if o, err = b.try("1", "interlock__lease_acquire", `{"resource":"short"}`); err != nil || o.failed {
		t.Errorf("acquiring what is over: %+v, %v", o, err)
	}
	if o, err = b.try("2", "interlock__lease_acquire", `{"resource":"long"}`); err != nil || o.refused == nil || o.refused.Code != "lease_held" {
		t.Errorf("acquiring the other: %+v, %v", o, err)
	}
}

// TestGreedyClient is A24: one client with as many calls as it may have leaves the
// others their turn.
func TestGreedyClient(t *testing.T) {
	t.Parallel()
	const modest, pace = 15, time.Second // each calls once a second
	length := time.Duration(repeats(8, 60)) * time.Second
	r := newRig(t)
	r.servers["ledger"] = r.ledger()
	greedy := r.open(socket, "ledger").ready()
	var stop atomic.Bool
	var running sync.WaitGroup
	var served, refused atomic.Int64
	for n := range 64 {
		running.Go(func() {
			for i := 0; !stop.Load(); i++ {
				o, err := greedy.try(fmt.Sprint(n*1_000_000+i), "add", r.on("x", 2))
				switch {
				case err != nil:
					t.Errorf("the greedy one: %v", err)
					return
				case o.refused != nil && o.refused.RetryAfterMs == 0:
					t.Errorf("refused without a time to try again: %+v", o)
				case o.refused != nil:
					refused.Add(1)
				default:
					served.Add(1)
				}
			}
		})
	}
	worst := make([]time.Duration, modest)
	done := make([]int, modest)
	end := time.Now().Add(length)
	for n := range modest {
		c := r.open(socket, "ledger").ready()
		running.Go(func() {
			for i := 0; time.Now().Before(end); i++ {
				next := time.Now().Add(pace)
				began := time.Now()
				o, err := c.try(strconv.Itoa(i), "add", r.on("x", 2))
				if err != nil || o.failed {
					t.Errorf("a modest one: %+v, %v", o, err)
					return
				}
				worst[n] = max(worst[n], time.Since(began))
				done[n]++
				time.Sleep(time.Until(next)) // its pace
			}
			if n == 0 {
				stop.Store(true)
			}
		})
	}
	running.Wait()
	t.Logf("greedy: %d served, %d refused; modest: %v calls each, longest wait %v", served.Load(), refused.Load(), done, slices.Max(worst))
	if wanted := int(length / pace); slices.Min(done)*10 < wanted*8 {
		t.Errorf("of %d calls somebody made %d", wanted, slices.Min(done))
	}
	needNone(t, map[string]int{"overlaps": r.overlaps()})
}

// TestLeaseCommands are what a person sees and does.
func TestLeaseCommands(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.servers["ledger"] = r.ledger()
	r.config()
	if text, code := r.output("daemon", "leases"); code != 3 {
		t.Errorf("without a daemon: %d, %s", code, text)
	}
	a, b := r.openWith("ledger"), r.open(bridge, "ledger").ready()
	if text, code := r.output("daemon", "leases"); code != 0 || text != "Nobody has a lease.\n" {
		t.Errorf("without leases: %d, %s", code, text)
	}
	handle := a.acquire("1", "file:x", `,"ttlMs":600000`).Handle
	b.sendCall("1", "add", r.on("x", 0))
	r.awaitWaiting(1)
	s := r.leaseState()
	if l := s.Leases; len(l) != 1 || l[0].OwnerID != "client-1" || l[0].Resource != "file:"+r.file("x") || !l[0].ByHand || s.Waiting[0].BlockedBy.OwnerID != "client-1" {
		t.Errorf("the state is %+v", s)
	}
	text, code := r.output("daemon", "leases")
	if code != 0 || !strings.Contains(text, "file:"+r.file("x")) || !strings.Contains(text, "by hand") || !strings.Contains(text, "client-1 bare") || strings.Contains(text, handle) {
		t.Errorf("shown is %d, %s", code, text)
	}
	for _, command := range [][]string{{"daemon", "leases", "break"}, {"daemon", "leases", "more"}, {"servers", "one", "two"}} {
		if text, code := r.output(command...); code != 2 {
			t.Errorf("%v: %d, %s", command, code, text)
		}
	}
	if text, code := r.output("daemon", "leases", "break", "nothing"); code != 5 {
		t.Errorf("breaking nothing: %d, %s", code, text)
	}
	if text, code := r.output("daemon", "leases", "break", "file:"+r.file("x")); code != 0 || !strings.Contains(text, "no longer held by client-1") {
		t.Errorf("breaking it: %d, %s", code, text)
	}
	if got := textOf(t, b.answer("1")); got != "1" {
		t.Errorf("the next got %s", got)
	}
	broken := slices.IndexFunc(r.history(10), func(c finishedCall) bool { return c.Reason == "broken by hand" })
	waited := slices.IndexFunc(r.history(10), func(c finishedCall) bool { return c.Tool == "add" && c.WaitedFor == "client-1" })
	if broken < 0 || waited < 0 {
		t.Errorf("the history has %+v", r.history(10))
	}
	var explained struct {
		Tools []struct {
			Name      string
			Class     struct{ Value, From string }
			Resources []string
			Leased    bool
		}
		Listed bool
	}
	text, code = r.output("daemon", "leases", "--explain", "ledger", "--json")
	if err := json.Unmarshal([]byte(text), &explained); err != nil || code != 0 || len(explained.Tools) != 8 {
		t.Fatalf("explained: %d, %v, %s", code, err, text)
	}
	for _, tool := range explained.Tools {
		if want := tool.Name != "peek"; tool.Leased != want || want && (tool.Class.Value != "mutate" || tool.Class.From != "configuration" || tool.Resources[0] != "file:{path}") {
			t.Errorf("explained: %+v", tool)
		}
	}
}

func (r *rig) write(name, content string) {
	r.t.Helper()
	if err := os.WriteFile(r.file(name), []byte(content), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// TestKnownServers loses nothing of what two clients write to servers that are
// recognised by their command, with nothing configured.
func TestKnownServers(t *testing.T) {
	t.Parallel()
	writes := repeats(50, 200)
	for name, call := range map[string]func(r *rig, n, i int) (tool, arguments string){
		"memory": func(_ *rig, n, i int) (string, string) {
			return "create_entities", fmt.Sprintf(`{"entities":[{"name":"%d-%d","entityType":"note","observations":["x"]}]}`, n, i)
		},
		"filesystem": func(r *rig, n, i int) (string, string) {
			return "edit_file", fmt.Sprintf(`{"path":%q,"edits":[{"oldText":"<%d-%d>","newText":"done %d-%d;"}]}`, r.file("shared.txt"), n, i, n, i)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			var text strings.Builder
			for n := range 2 {
				for i := range writes {
					fmt.Fprintf(&text, "<%d-%d>\n", n, i)
				}
			}
			r.write("shared.txt", text.String())
			s := reference(t, name, r.dir)
			s.Env = map[string]string{"MEMORY_FILE_PATH": r.file("memory.jsonl")}
			r.servers[name] = s
			var running sync.WaitGroup
			for n := range 2 {
				c := r.open(bridge, name).ready()
				running.Go(func() {
					for i := range writes {
						tool, arguments := call(r, n, i)
						if o, err := c.try(strconv.Itoa(i), tool, arguments); err != nil || o.failed {
							t.Errorf("client %d, call %d: %+v, %v", n, i, o, err)
							return
						}
					}
				})
			}
			running.Wait()
			content := r.read(map[string]string{"memory": "memory.jsonl", "filesystem": "shared.txt"}[name])
			lost := 0
			for n := range 2 {
				for i := range writes {
					if !strings.Contains(content, fmt.Sprintf("%q", fmt.Sprintf("%d-%d", n, i))) && !strings.Contains(content, fmt.Sprintf("done %d-%d;", n, i)) {
						lost++
					}
				}
			}
			needNone(t, map[string]int{"lost": lost})
		})
	}
}
