package builtin

import (
	"context"
	"encoding/json"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/mark3labs/mcp-go/mcp"
)

const (
	// notesBuffered bounds the notifications of one session that wait for notify; mcp-go drops what does not fit.
	notesBuffered = 64
	// maxID is the largest integer that survives mcp-go's float64.
	maxID = 1<<53 - 1
)

// Session is one client's view of a [Server]. Its methods may be called concurrently.
type Session struct {
	server *Server
	peer   *peer

	mu     sync.Mutex                    // guards closed, calls and next, and orders inFlight.Add before Wait
	closed bool                          // no more frames are taken
	calls  map[uint64]context.CancelFunc // the frames in work
	next   uint64

	inFlight sync.WaitGroup

	flush   chan chan struct{} // asks the notifier to send what is queued and then to close the inner channel
	stop    chan struct{}      // closed by Close, once
	stopped chan struct{}      // closed by the notifier when it has ended
}

func newSession(s *Server, p *peer, notify func([]byte)) *Session {
	c := &Session{
		server:  s,
		peer:    p,
		calls:   make(map[uint64]context.CancelFunc),
		flush:   make(chan chan struct{}),
		stop:    make(chan struct{}),
		stopped: make(chan struct{}),
	}
	if notify == nil {
		notify = func([]byte) {}
	}
	go c.notifyAll(notify)
	return c
}

// Handle serves one request or notification and returns the answer, or nil where none is due: to a notification, and to an answer, since these servers ask nothing.
// A request's id must be an integer from 0 to 2^53-1 that no other frame in work has. Handle returns early when ctx ends, as far as the tool can; notifications/cancelled naming
// an id in work does the same, but is lost on a request that Handle has not yet reached, so a caller that knows the request cancels its ctx. Notifications that a request
// caused have been given to notify when its answer is returned. It never panics.
func (c *Session) Handle(ctx context.Context, frame []byte) []byte {
	var head struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	if err := json.Unmarshal(frame, &head); err != nil {
		return errorFrame(json.RawMessage("null"), mcp.PARSE_ERROR, "not a JSON-RPC message")
	}
	if head.Method == "" {
		return nil
	}
	if head.ID != nil && !smallInteger(head.ID) {
		return errorFrame(json.RawMessage("null"), mcp.INVALID_REQUEST, "the id must be an integer from 0 to 2^53-1")
	}
	ctx, done, ok := c.begin(ctx)
	if !ok {
		return errorFrame(head.ID, mcp.INVALID_REQUEST, "the session is closed")
	}
	defer done()
	answer := c.server.answer(ctx, c.peer, head.ID, frame)
	if head.ID != nil {
		c.flushNotes()
	}
	return answer
}

// Close cancels what is in work, waits for it, and releases the directory. Calling it again is harmless.
func (c *Session) Close() {
	c.mu.Lock()
	again := c.closed
	c.closed = true
	for _, cancel := range c.calls {
		cancel()
	}
	c.mu.Unlock()
	if again {
		<-c.stopped
		return
	}
	c.inFlight.Wait()
	c.server.mcp.UnregisterSession(context.Background(), c.peer.id)
	close(c.stop)
	<-c.stopped
	if c.peer.dir != nil {
		c.peer.dir.close()
	}
}

// begin enters a frame as in work, so that Close can cancel it and wait for it. It reports false once the session is closed.
func (c *Session) begin(ctx context.Context) (context.Context, func(), bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, nil, false
	}
	ctx, cancel := context.WithCancel(ctx)
	c.next++
	call := c.next
	c.calls[call] = cancel
	c.inFlight.Add(1)
	return ctx, func() {
		cancel()
		c.mu.Lock()
		delete(c.calls, call)
		c.mu.Unlock()
		c.inFlight.Done()
	}, true
}

// notifyAll is the session's one notifier: it alone calls notify, and ends when Close says so.
func (c *Session) notifyAll(notify func([]byte)) {
	defer close(c.stopped)
	send := func(n mcp.JSONRPCNotification) {
		if frame, err := json.Marshal(n); err == nil {
			notify(frame)
		}
	}
	for {
		select {
		case n := <-c.peer.notes:
			send(n)
		case flushed := <-c.flush:
			for len(c.peer.notes) > 0 {
				send(<-c.peer.notes)
			}
			close(flushed)
		case <-c.stop:
			return
		}
	}
}

// flushNotes returns when everything queued so far has been given to notify. The notifier is alive meanwhile: Close waits for the frame in work first.
func (c *Session) flushNotes() {
	flushed := make(chan struct{})
	c.flush <- flushed
	<-flushed
}

func smallInteger(id json.RawMessage) bool {
	n, err := strconv.ParseUint(string(id), 10, 64)
	return err == nil && n <= maxID
}

// peer is what mcp-go knows of a session. It must not be the session of another server, and it finds the tools their directory.
type peer struct {
	id    string
	ready atomic.Bool
	notes chan mcp.JSONRPCNotification // never closed: mcp-go may still send when the session has ended
	dir   *workdir                     // nil on a server without file tools
}

func (p *peer) Initialize()                                         { p.ready.Store(true) }
func (p *peer) Initialized() bool                                   { return p.ready.Load() }
func (p *peer) NotificationChannel() chan<- mcp.JSONRPCNotification { return p.notes }
func (p *peer) SessionID() string                                   { return p.id }
