package mcpd

import (
	"encoding/json"
	"sync"

	"interlock/mcpd/internal/config"
	"interlock/session"
)

// eras remembers, for one daemon's life, which servers turned out to be of the
// era before server/discover; a server known as such is not probed again.
type eras struct {
	mu  sync.Mutex // guards era
	era map[string]session.Era
}

func (e *eras) of(s config.Server) session.Era {
	key := eraKey(s)
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.era[key]
}

func (e *eras) set(s config.Server, era session.Era) {
	key := eraKey(s)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.era == nil {
		e.era = make(map[string]session.Era)
	}
	e.era[key] = era
}

// eraKey names a server's configuration: a changed entry is probed anew.
func eraKey(s config.Server) string {
	b, err := json.Marshal([]any{s.Name, s.Command, s.Args, s.Env, s.Dir})
	if err != nil {
		return s.Name
	}
	return string(b)
}
