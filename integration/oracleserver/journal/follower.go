package journal

import (
	"fmt"
	"os"
)

// Follower knows which calls have a begin record in a journal that grows, and that
// is replaced by a new segment now and then. It is not safe for concurrent use.
type Follower struct {
	path string
	file *os.File // the segment that was read last, nil before the first
	next int64    // where in it the next record will be
	runs map[string]string
}

// Follow returns a follower of the journal at path, which need not be there yet.
func Follow(path string) *Follower { return &Follower{path: path, runs: map[string]string{}} }

// Run returns the id of the run that a client's request began, reading what the
// journal has got since the last time. The request's id is JSON text.
func (f *Follower) Run(clientRequestID string) (id string, found bool, err error) {
	if err := f.read(); err != nil {
		return "", false, err
	}
	id, found = f.runs[clientRequestID]
	return id, found, nil
}

// Close closes the segment.
func (f *Follower) Close() error {
	if f.file == nil {
		return nil
	}
	return f.file.Close()
}

// read takes in what is new.
func (f *Follower) read() error {
	if err := f.reopen(); err != nil {
		return err
	}
	records, next, err := readFrom(f.file, f.next)
	if err != nil {
		return fmt.Errorf("reading journal %q: %w", f.path, err)
	}
	f.next = next
	for _, r := range records {
		if r.Kind == Begin && len(r.IDs) == 1 {
			f.runs[r.ClientRequestID] = r.IDs[0]
		}
	}
	return nil
}

// reopen opens the segment that has the name now, unless it is the one in hand.
func (f *Follower) reopen() error {
	now, err := os.Stat(f.path)
	if err != nil {
		return err
	}
	if f.file != nil {
		if held, err := f.file.Stat(); err == nil && os.SameFile(held, now) {
			return nil
		}
		if err := f.file.Close(); err != nil {
			return err
		}
	}
	f.next = 0
	f.file, err = os.Open(f.path)
	return err
}
