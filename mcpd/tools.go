package mcpd

import (
	"context"
	"encoding/json"

	"interlock/recovery"
)

// tools is what the built-in server interlock asks of the daemon.
type tools struct{ d *Daemon }

// Status implements builtin.Daemon.
func (t tools) Status(context.Context) (json.RawMessage, error) { return json.Marshal(t.d.Snapshot()) }

// RecoveryList implements builtin.Daemon. A session of the server interlock sees
// the runs of all servers: it is the user's own view of the daemon.
func (t tools) RecoveryList(context.Context, string) (json.RawMessage, error) {
	return json.Marshal(t.d.journal.State())
}

// RecoveryAck implements builtin.Daemon.
func (t tools) RecoveryAck(_ context.Context, _ string, ids []string) (json.RawMessage, error) {
	ack, err := t.d.acknowledge(recovery.Selection{IDs: ids})
	if err != nil {
		return nil, err
	}
	return json.Marshal(ack)
}

// acknowledge acknowledges pending runs and brings status up to date.
func (d *Daemon) acknowledge(s recovery.Selection) (recovery.Ack, error) {
	ack, err := d.journal.Acknowledge(s)
	if err == nil {
		d.changed()
	}
	return ack, err
}
