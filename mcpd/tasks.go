package mcpd

import (
	"encoding/json"
	"strconv"
	"time"

	"interlock/mcpd/internal/wire"
)

// A call may become a task, which goes on after the answer (MCP 2025-11-25, tasks).
// Its leases last until the task has ended, which the daemon finds out by asking:
// the client need not ask, and the server need not say.
const (
	// taskInterval is how often the daemon asks.
	taskInterval = time.Second
	// taskTimeout is how long the server may take to answer.
	taskTimeout = 5 * time.Second
	// maxTaskMisses is how often in a row it may not say how the task is doing, before
	// the leases are given up.
	maxTaskMisses = 10
)

// taskOf returns the id of the task that a call has become by its answer, as JSON,
// nil if it has not.
func (x *exchange) taskOf(b []byte, env *wire.Envelope) []byte {
	if !x.task || x.turn == nil || env.Kind != wire.Result {
		return nil
	}
	task, err := wire.Member(env.Result.Of(b), "task")
	if err != nil || !task.Present() {
		return nil
	}
	raw := task.Of(env.Result.Of(b))
	id, err := wire.Member(raw, "taskId")
	if err != nil || !id.Present() || taskEnded(raw) {
		return nil
	}
	return append([]byte(nil), id.Of(raw)...)
}

// taskEnded reports whether a task's description says that it has ended.
func taskEnded(task []byte) bool {
	status, err := wire.Member(task, "status")
	if err != nil {
		return false
	}
	switch string(status.Of(task)) {
	case `"completed"`, `"failed"`, `"cancelled"`:
		return true
	}
	return false
}

// followTask keeps the leases of an answered call as long as its task runs.
func (in *instance) followTask(x *exchange, id []byte) {
	misses := 0
	request := func(n int64) []byte {
		b, err := json.Marshal(map[string]json.RawMessage{"taskId": id})
		if err != nil {
			return nil
		}
		return []byte(`{"jsonrpc":"2.0","id":` + strconv.FormatInt(n, 10) + `,"method":"tasks/get","params":` + string(b) + `}`)
	}
	var ask func()
	again := func(task []byte) {
		if task == nil {
			misses++
		} else {
			misses = 0
		}
		if misses == maxTaskMisses || taskEnded(task) {
			in.settleLate(x.number)
			return
		}
		in.mu.Lock()
		defer in.mu.Unlock()
		if in.lingering[x.number] == x {
			x.timer = time.AfterFunc(taskInterval, ask)
		}
	}
	ask = func() {
		defer in.up.conn.guard()
		in.ask(request, in.link.sendOwn, taskTimeout, again)
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.lingerUntilLocked(x, taskInterval, ask)
}
