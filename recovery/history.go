package recovery

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

const (
	// maxHistory bounds each of the two files of the history.
	maxHistory = 1 << 20
	// maxUnwritten bounds the calls that wait to be written; more are dropped.
	maxUnwritten = 4096
)

// Call is one finished call of the history. It holds no arguments and no result.
type Call struct {
	EndedAt    time.Time `json:"endedAt"`
	DurationMS float64   `json:"durationMs"`
	OwnerID    string    `json:"ownerId,omitempty"`
	Client     string    `json:"client,omitempty"`
	Server     string    `json:"server,omitempty"`
	Tool       string    `json:"tool,omitempty"`
	Class      string    `json:"class,omitempty"`
	Resource   string    `json:"resource,omitempty"`
	Outcome    Outcome   `json:"outcome"`
	Reason     string    `json:"reason,omitempty"`
	RequestID  string    `json:"requestId,omitempty"` // of the run, if it was recorded
	Epoch      uint64    `json:"epoch,omitempty"`     // of the lease it ran under
	WaitedMS   float64   `json:"waitedMs,omitempty"`  // for its leases, and
	WaitedFor  string    `json:"waitedFor,omitempty"` // whose they were at first
}

// call is the history's view of a run that ended.
func (r *Run) call(at time.Time, end Record) Call {
	began := r.record()
	return Call{
		EndedAt:    at.UTC(),
		DurationMS: float64(at.Sub(began.StartedAt).Microseconds()) / 1000,
		OwnerID:    began.OwnerID, Client: began.Client, Server: began.Server, Tool: began.Tool,
		Class: began.Class, Resource: began.Resource, Outcome: end.Outcome, Reason: end.Reason,
		RequestID: began.RequestID, Epoch: began.Epoch,
		WaitedMS: float64(r.waited.Microseconds()) / 1000, WaitedFor: r.waitedFor,
	}
}

// history is the bounded list of finished calls: two files of JSON lines, the older
// one replaced when the newer is full. It is for people and no promise: what was not
// written when the process is killed, a second's worth at most, is gone.
type history struct {
	fs   FS
	name string

	mu        sync.Mutex // guards the fields below; not held over I/O
	unwritten []Call
	spare     []Call // what unwritten was before the last flush, to be filled again
	dropped   uint64

	// turn holds a value while somebody uses the files.
	turn chan struct{}
}

func openHistory(o Options) *history {
	return &history{fs: o.FS, name: filepath.Join(o.Dir, "daemon.history"), turn: make(chan struct{}, 1)}
}

// Note adds a finished call to the history. [Run.End] does so by itself; Note is
// for calls that are not recorded as runs. It never waits for the disk.
func (j *Journal) Note(c Call) {
	h := j.history
	h.mu.Lock()
	if len(h.unwritten) >= maxUnwritten {
		h.dropped++
	} else {
		h.unwritten = append(h.unwritten, c)
	}
	first := len(h.unwritten) == 1
	h.mu.Unlock()
	if first {
		j.keeper.nudge()
	}
}

// History returns the last n finished calls, oldest first, and how many were dropped
// because they could not be written in time.
func (j *Journal) History(n int) (calls []Call, dropped uint64, err error) {
	err = j.history.flush()
	calls, rerr := j.history.read(n)
	j.history.mu.Lock()
	defer j.history.mu.Unlock()
	return calls, j.history.dropped, errors.Join(err, rerr)
}

// ReadHistory returns the last n calls that are on disk, oldest first. It needs no
// lock.
func ReadHistory(o Options, n int) ([]Call, error) {
	return openHistory(o.withDefaults()).read(n)
}

// flush writes what waits to be written. What cannot be is dropped.
func (h *history) flush() error {
	h.turn <- struct{}{}
	defer func() { <-h.turn }()
	h.mu.Lock()
	calls := h.unwritten
	h.unwritten, h.spare = h.spare[:0], nil
	h.mu.Unlock()
	defer h.reuse(calls)
	if len(calls) == 0 {
		return nil
	}
	err := h.write(calls)
	if err != nil {
		h.mu.Lock()
		h.dropped += uint64(len(calls))
		h.mu.Unlock()
		return fmt.Errorf("writing history %q: %w", h.name, err)
	}
	return nil
}

// reuse keeps the memory of calls that are written: they come in equal numbers.
func (h *history) reuse(calls []Call) {
	clear(calls)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.spare = calls
}

// write appends calls, beginning a new file when the present one is full. The caller
// has the turn.
func (h *history) write(calls []Call) (err error) {
	var lines bytes.Buffer
	enc := json.NewEncoder(&lines)
	enc.SetEscapeHTML(false)
	for i := range calls {
		if err := enc.Encode(&calls[i]); err != nil {
			return err
		}
	}
	f, err := h.fs.Open(h.name, os.O_WRONLY|os.O_CREATE)
	if err != nil {
		return err
	}
	size, err := f.Size()
	if err == nil && size > 0 && size+int64(lines.Len()) > maxHistory {
		if err = errors.Join(f.Close(), h.fs.Rename(h.name, h.name+".1")); err != nil {
			return err
		}
		if f, err = h.fs.Open(h.name, os.O_WRONLY|os.O_CREATE); err != nil {
			return err
		}
		size = 0
	}
	if err == nil {
		_, err = f.WriteAt(lines.Bytes(), size)
	}
	return errors.Join(err, f.Close())
}

// read returns the last n calls of the files. Lines that are not whole are left out.
func (h *history) read(n int) ([]Call, error) {
	var calls []Call
	for _, name := range []string{h.name + ".1", h.name} {
		data, _, err := readFile(h.fs, name, 2*maxHistory)
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			return nil, fmt.Errorf("reading history: %w", err)
		}
		for line := range bytes.Lines(data) {
			var c Call
			if json.Unmarshal(line, &c) == nil {
				calls = append(calls, c)
			}
		}
	}
	return slices.Clone(calls[max(0, len(calls)-max(n, 0)):]), nil
}
