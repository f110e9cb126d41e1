package status

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"
)

// retryDelay is how long a Writer waits after a write that failed.
const retryDelay = time.Second

// Writer keeps a status file up to date. Changes that come close together are
// written together, at most once in an interval; the last one is always
// written. Its methods may be called by any goroutine; after Close they do nothing.
type Writer struct {
	path     string
	interval time.Duration

	// dirty has room for one signal: there is something to write.
	dirty chan struct{}
	flush chan chan<- error
	// stop is closed by Close; done is closed by the goroutine run, which
	// NewWriter starts and Close waits for.
	stop, done chan struct{}

	// own is what the file names, empty before the first write. The goroutine run
	// has it, and Close once run has ended.
	own owner

	mu     sync.Mutex // guards source and err
	source func() Snapshot
	err    error // of the last write
}

// NewWriter returns a writer of the file at path that writes at most once in
// interval. The file is first written upon the first Update.
func NewWriter(path string, interval time.Duration) *Writer {
	w := &Writer{
		path:     path,
		interval: interval,
		dirty:    make(chan struct{}, 1),
		flush:    make(chan chan<- error),
		stop:     make(chan struct{}),
		done:     make(chan struct{}),
	}
	go w.run()
	return w
}

// Update says that the status has changed. The snapshot is taken from source
// when it is written, on the writer's goroutine and with no lock of the writer
// held; if Update is called again before that, only the later source is asked.
// Update does not wait.
func (w *Writer) Update(source func() Snapshot) {
	w.mu.Lock()
	w.source = source
	w.mu.Unlock()
	w.mark()
}

// Flush writes now what the last Update announced, and returns the error of
// that write: [ErrForeign] if the file belongs to another daemon. Without an
// Update before it, it does nothing.
func (w *Writer) Flush() error {
	answer := make(chan error, 1)
	select {
	case w.flush <- answer:
		return <-answer
	case <-w.done:
		return fmt.Errorf("writing status: %w", os.ErrClosed)
	}
}

// Err returns the error of the last write, nil if that went well. A failed
// write is tried again, so that the error goes away with its cause.
func (w *Writer) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Close ends the writer and waits for it; it is called once. If clean is true
// the file is removed, which says to every reader that the daemon stopped on
// purpose; a file that is no longer this daemon's stays.
func (w *Writer) Close(clean bool) error {
	close(w.stop)
	<-w.done
	if !clean || w.own.socket == "" {
		return nil
	}
	if err := checkOwner(w.path, w.own); err != nil {
		return err
	}
	if err := os.Remove(w.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing status file: %w", err)
	}
	return nil
}

// run writes when there is something to write, and then rests.
func (w *Writer) run() {
	defer close(w.done)
	dirty := w.dirty // nil while resting
	var rested <-chan time.Time
	for {
		select {
		case <-w.stop:
			return
		case answer := <-w.flush:
			select {
			case <-w.dirty: // what it announced is about to be written
			default:
			}
			answer <- w.write()
		case <-rested:
			dirty = w.dirty
		case <-dirty:
			pause := w.interval
			if w.write() != nil {
				pause = max(pause, retryDelay)
				w.mark()
			}
			dirty, rested = nil, time.After(pause)
		}
	}
}

// mark says that there is something to write. One signal is enough for any
// number of changes.
func (w *Writer) mark() {
	select {
	case w.dirty <- struct{}{}:
	default:
	}
}

// write takes a snapshot and puts it into the file. Only run calls it.
func (w *Writer) write() error {
	w.mu.Lock()
	source := w.source
	w.mu.Unlock()
	if source == nil {
		return nil
	}
	err := w.put(source())
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
	return err
}

// put writes one snapshot. The first takes over the file of a daemon that has
// crashed at the same socket. Later ones do not: whoever's file is found then has
// taken this daemon's place.
func (w *Writer) put(s Snapshot) error {
	if err := checkOwner(w.path, owner{socket: s.Socket, instance: w.own.instance}); err != nil {
		return err
	}
	data, err := encode(s, MaxBytes)
	if err != nil {
		return err
	}
	if err := replaceFile(w.path, data); err != nil {
		return err
	}
	w.own = owner{socket: s.Socket, instance: s.Identity.Instance}
	return nil
}
