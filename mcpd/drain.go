package mcpd

import (
	"context"
	"sync"
)

// drain waits for the calls in flight, as long as they may take, answers for those
// that take longer, and closes every connection.
func (d *Daemon) drain() {
	unhurried, forget := d.unhurried()
	defer forget()
	ctx, cancel := context.WithTimeout(unhurried, d.limits.DrainTimeout)
	defer cancel()
	var waiting sync.WaitGroup
	for _, c := range d.open() {
		waiting.Go(func() { c.drain(ctx) })
	}
	waiting.Wait()
}

// hurryWhen lets the end take no time any more from the moment on that hurry is
// closed, or that ctx ends, unless that is why the daemon ends. The function
// stops it.
func (d *Daemon) hurryWhen(hurry <-chan struct{}, ctx context.Context) (stop func()) {
	asked := ctx.Done()
	if ctx.Err() != nil {
		asked = nil
	}
	over := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-hurry:
		case <-asked:
		case <-over:
			return
		}
		close(d.hurried)
	})
	return func() {
		close(over)
		watching.Wait()
	}
}

// unhurried returns a context for an end that takes its time: it ends when the
// daemon's may take none any more. The function frees it.
func (d *Daemon) unhurried() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() { // ends with ctx
		select {
		case <-d.hurried:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}
