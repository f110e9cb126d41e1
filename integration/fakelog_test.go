package integration

import (
	"fmt"
	"os"
	"strings"
)

// event is a line of the fake server's log.
type event struct {
	pid    string
	name   string // start, in, cancel, hold, eof and so on
	detail string
}

// events is what the rig's fake servers have logged so far.
func (r *rig) events(name string) (list []event) {
	text, err := os.ReadFile(r.fakeLog())
	if err != nil && !os.IsNotExist(err) {
		r.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if !strings.HasSuffix(line, "\n") {
			break // being written
		}
		pid, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		event := event{pid: pid}
		event.name, event.detail, _ = strings.Cut(rest, " ")
		if event.name == name {
			list = append(list, event)
		}
	}
	return list
}

// logged waits until n events of that name have a detail that contains part,
// and gives them.
func (r *rig) logged(n int, name, part string) (found []event) {
	r.t.Helper()
	eventually(r.t, fmt.Sprintf("the server logs %d of %s %q", n, name, part), func() error {
		found = nil
		for _, e := range r.events(name) {
			if strings.Contains(e.detail, part) {
				found = append(found, e)
			}
		}
		if len(found) < n {
			return fmt.Errorf("%d so far", len(found))
		}
		return nil
	})
	return found
}
