package mcpd

import (
	"encoding/json"

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
	switch method {
	case methodStatus:
		c.answerControl(id, c.d.Snapshot(), nil)
	case methodStop:
		c.d.log.Info("asked to stop", zap.Int32("peer", c.peer.PID))
		c.answerControl(id, struct {
			PID int `json:"pid"`
		}{c.d.options.Identity.PID}, nil)
		c.d.Stop()
	default:
		c.answerControl(id, nil, refuse(codeUnknownMethod, "this daemon (%s) does not know %q; restart it with: interlock daemon restart", Version(), method))
	}
}

// answerControl sends the result, or the refusal if there is one.
func (c *conn) answerControl(id []byte, result any, r *refusal) {
	if r == nil {
		b, err := json.Marshal(result)
		if err == nil {
			c.sendOwn(appendResult(nil, id, b))
			return
		}
		r = refuse(codeInternal, "writing the answer: %v", err)
	}
	c.sendOwn(appendRefusal(nil, id, false, session.EraUnknown, r))
}
