package recovery

import "time"

// keepEvery is how long the keeper lets work gather, and how soon it tries again
// what failed.
const keepEvery = time.Second

// keeper is the journal's one goroutine: it writes the history and tries again what
// could not be written. Close stops it and waits for it.
type keeper struct {
	wake chan struct{} // capacity 1: there is something to do
	quit chan struct{} // closed by stop
	done chan struct{} // closed by the goroutine
}

func newKeeper() keeper {
	return keeper{wake: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{})}
}

// nudge says that there is something to do. It never blocks.
func (k *keeper) nudge() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// run is the goroutine.
func (k *keeper) run(j *Journal) {
	defer close(k.done)
	for {
		select {
		case <-k.wake:
		case <-k.quit:
			return
		}
		timer := time.NewTimer(keepEvery)
		select {
		case <-timer.C:
		case <-k.quit:
			timer.Stop()
			return
		}
		if !j.keep() {
			k.nudge()
		}
	}
}

// stop ends the goroutine and waits for it.
func (k *keeper) stop() {
	close(k.quit)
	<-k.done
}

// keep does what is to be done and says whether nothing is left.
func (j *Journal) keep() bool {
	// The history is no promise: what cannot be written is dropped and counted.
	_ = j.history.flush()
	j.mu.Lock()
	stale := j.stale != nil
	j.mu.Unlock()
	if stale {
		_ = j.saveRecovery()
	}
	j.heal()
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.frozen || j.stale == nil && j.unwritable == nil
}
