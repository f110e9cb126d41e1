package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestNeverTorn reads the status and the recovery file without pause while both
// change: each time they are absent or whole. After a kill and a start no half-made
// file is left.
func TestNeverTorn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.servers["oracle"] = r.oracle()
	r.start()
	stop := make(chan struct{})
	var reads, whole atomic.Int64
	var readers sync.WaitGroup
	for _, name := range []string{"daemon.json", "daemon.recovery.json"} {
		for range repeats(1, 4) {
			readers.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					text, err := os.ReadFile(filepath.Join(r.home(), name))
					if reads.Add(1); errors.Is(err, fs.ErrNotExist) {
						continue
					}
					if whole.Add(1); err != nil || !json.Valid(text) {
						t.Errorf("%s reads as %q, %v", name, text, err)
						return
					}
				}
			})
		}
	}
	defer readers.Wait()
	defer close(stop)
	length := time.Duration(repeats(3, 60)) * time.Second
	for n, began := 0, time.Now(); time.Since(began) < length; n++ {
		c := r.open(socket, "oracle").ready()
		id := fmt.Sprintf("call-%d", n)
		c.oracleCall(id, "write", "hang")
		r.awaitSeen(id)
		c.vanish()
		r.awaitPending(id)
		if n%4 == 3 {
			r.kill()
			r.start()
		}
		r.acknowledgeQuickly()
	}
	t.Logf("%d reads, %d of a file that was there", reads.Load(), whole.Load())
	r.onlyKnownFiles()
}

// acknowledgeQuickly acknowledges what is pending by the tool.
func (r *rig) acknowledgeQuickly() {
	r.t.Helper()
	c := r.open(socket, "interlock").ready()
	defer c.close()
	if !acknowledgeByTool(c, nil, runIDs(r.pending())) {
		r.t.Error("acknowledging failed")
	}
}

// onlyKnownFiles fails the test if the daemon's directory has files that are not
// those of a daemon that runs.
func (r *rig) onlyKnownFiles() {
	r.t.Helper()
	known := []string{
		"interlock.sock", "daemon.json", "daemon.journal", "daemon.log", "daemon.lock", "daemon.key", "daemon.history", "daemon.instance", "servers",
	}
	entries, err := os.ReadDir(r.home())
	if err != nil {
		r.t.Fatal(err)
	}
	for _, entry := range entries {
		if !slices.Contains(known, entry.Name()) {
			r.t.Errorf("the daemon's directory has %s", entry.Name())
		}
	}
}
