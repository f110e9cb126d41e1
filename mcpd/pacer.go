package mcpd

import "time"

// pace is the least time between two log lines about the same kind of event that
// others can bring about at will.
const pace = time.Second

// pacer decides which of many events are worth a log line. It belongs to one
// goroutine.
type pacer struct {
	next    time.Time
	skipped int
}

// due reports whether the event gets a line, and how many since the last line
// got none.
func (p *pacer) due(now time.Time) (skipped int, due bool) {
	if now.Before(p.next) {
		p.skipped++
		return 0, false
	}
	skipped, p.skipped = p.skipped, 0
	p.next = now.Add(pace)
	return skipped, true
}
