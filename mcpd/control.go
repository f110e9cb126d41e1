package mcpd

import (
	"encoding/json"
	"errors"

	"go.uber.org/zap"

	"interlock/mcpd/internal/wire"
	"interlock/session"
)

// serveControl serves a connection whose first frame is a control request: it
// is no session, so it is served however many sessions there are.
func (c *conn) serveControl(f *wire.Frame) {
	for {
		c.control(f)
		f.Release()
		var err error
		if f, err = c.nextFrame(); err != nil {
			return
		}
		if err := wire.Scan(f.Bytes(), &c.env); err != nil {
			c.answerMalformed(f.Bytes(), err)
			return
		}
	}
}

// control answers one control request, whose envelope has been scanned.
func (c *conn) control(f *wire.Frame) {
	b := f.Bytes()
	if c.env.Kind != wire.Request {
		return
	}
	id, method := c.env.ID.Of(b), string(c.env.MethodName(b))
	result, err := c.d.answer(method, c.env.Params.Of(b))
	c.answerControl(id, result, err)
	if method == methodStop && err == nil {
		c.d.log.Info("asked to stop", zap.Int32("peer", c.peer.PID))
		c.d.Stop()
	}
}

// answer does what a control request asks for and returns its result.
func (d *Daemon) answer(method string, params []byte) (any, error) {
	switch method {
	case methodStatus:
		// Whoever asks may have found the file damaged, or gone.
		d.changed()
		return d.Snapshot(), nil
	case methodStop:
		return struct {
			PID int `json:"pid"`
		}{d.options.Identity.PID}, nil
	case methodRecovery:
		return d.journal.State(), nil
	case methodAck:
		var selection Selection
		if err := decodeParams(params, &selection); err != nil {
			return nil, err
		}
		return d.acknowledge(selection)
	case methodRepair:
		done, err := d.journal.Repair()
		d.changed()
		return done, err
	case methodHistory:
		var asked historyParams
		if err := decodeParams(params, &asked); err != nil {
			return nil, err
		}
		calls, dropped, err := d.journal.History(asked.N)
		return HistoryAnswer{Calls: calls, Dropped: dropped}, err
	case methodLeases:
		return d.leaseList(), nil
	case methodBreak:
		var asked breakParams
		if err := decodeParams(params, &asked); err != nil {
			return nil, err
		}
		return d.breakLease(asked.Resource)
	case methodExplain:
		var asked explainParams
		if err := decodeParams(params, &asked); err != nil {
			return nil, err
		}
		return d.explain(asked.Server)
	default:
		return nil, refuse(codeUnknownMethod, "this daemon (%s) does not know %q; restart it with: %s daemon restart", Version(), method, d.options.Command)
	}
}

func decodeParams(params []byte, into any) error {
	if err := json.Unmarshal(params, into); err != nil {
		return refuse(codeInternal, "reading the request's params: %v", err)
	}
	return nil
}

// answerControl sends the result, or the error if there is one.
func (c *conn) answerControl(id []byte, result any, err error) {
	if err == nil {
		var b []byte
		if b, err = json.Marshal(result); err == nil {
			c.sendOwn(appendResult(nil, id, b))
			return
		}
	}
	r := refusalOf(err)
	var set *SetError
	if errors.As(err, &set) {
		r = refuse(codeWrongSet, "%v", set)
		r.data.Set = set
	}
	c.sendOwn(appendRefusal(nil, id, false, session.EraUnknown, r))
}
