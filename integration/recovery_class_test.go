package integration

import (
	"fmt"
	"strconv"
	"testing"
)

// recordedAs calls tools one after the other and checks in the history which class
// each call had and whether it was recorded.
func (r *rig) recordedAs(c *client, want map[string]string) {
	r.t.Helper()
	var tools []string
	for tool := range want {
		tools = append(tools, tool)
		c.oracleCall(fmt.Sprintf("%s-%s", r.t.Name(), tool), tool, "")
	}
	for _, tool := range tools {
		c.answer(strconv.Quote(fmt.Sprintf("%s-%s", r.t.Name(), tool)))
	}
	found := map[string]bool{}
	for _, call := range r.history(len(tools)) {
		found[call.Tool] = true
		if call.Class != want[call.Tool] {
			r.t.Errorf("tool %s is of class %q, want %q", call.Tool, call.Class, want[call.Tool])
		}
		if recorded := call.RequestID != ""; recorded != (want[call.Tool] != "read") {
			r.t.Errorf("tool %s of class %s: recorded %v", call.Tool, call.Class, recorded)
		}
	}
	if len(found) != len(tools) {
		r.t.Errorf("the history has %v, want all of %v", found, tools)
	}
}

// annotated are the oracle's tools as their annotations say.
func annotated() map[string]string {
	return map[string]string{
		"write": "mutate", "read": "read", "plain": "unknown",
		"destroy": "mutate", "contradict": "mutate", "twice": "unknown", "nowhere": "unknown",
	}
}

// TestClasses has tools called whose class the daemon learns in each way there is.
func TestClasses(t *testing.T) {
	t.Parallel()
	ruled := annotated()
	ruled["write"], ruled["read"], ruled["plain"] = "read", "mutate", "read"
	ignoring := annotated()
	ignoring["read"] = "unknown"
	all := map[string]string{}
	for tool := range annotated() {
		all[tool] = "unknown"
	}
	for name, test := range map[string]struct {
		flags       []string
		annotations string
		tools       map[string]toolRule
		lists       bool // the client lists the tools before it calls one
		want        map[string]string
	}{
		"client never lists":          {want: annotated()},
		"client lists":                {lists: true, want: annotated()},
		"list comes late":             {flags: []string{"-listdelay", "300ms"}, want: annotated()},
		"server refuses its list":     {flags: []string{"-list", "refuse"}, want: all},
		"configuration":               {tools: map[string]toolRule{"write": {Class: "read"}, "read": {Class: "mutate"}, "plain": {Class: "read"}}, want: ruled},
		"annotations are not trusted": {annotations: "ignore", want: ignoring},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			s := r.oracle(test.flags...)
			s.Annotations, s.Tools = test.annotations, test.tools
			r.servers["oracle"] = s
			c := r.open(socket, "oracle").ready()
			if test.lists {
				c.send(`{"jsonrpc":"2.0","id":"list","method":"tools/list"}`)
				c.answer(`"list"`)
			}
			r.recordedAs(c, test.want)
			r.clear()
		})
	}
}

// TestClassChanges has the server change what a tool says of itself: calls after its
// notification are of the new class.
func TestClassChanges(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.servers["oracle"] = r.oracle()
	c := r.open(socket, "oracle").ready()
	r.recordedAs(c, map[string]string{"shifty": "read"})
	c.oracleCall("shift", "shift", "")
	c.answer(`"shift"`)
	c.take("notice of the change", isMethod("notifications/tools/list_changed"))
	c.oracleCall("shifted", "shifty", "")
	c.answer(`"shifted"`)
	if call := r.history(1)[0]; call.Tool != "shifty" || call.Class != "mutate" || call.RequestID == "" {
		t.Errorf("after the change the call is %+v, want a recorded one of class mutate", call)
	}
}

// TestOrderKept sends calls while the daemon reads the server's list, to tools whose
// class it knows already and to others: the server gets them in order.
func TestOrderKept(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.oracle("-listdelay", "200ms")
	s.Tools = map[string]toolRule{"plain": {Class: "mutate"}, "twice": {Class: "read"}}
	r.servers["oracle"] = s
	for round := range repeats(3, 30) {
		c := r.open(socket, "oracle").ready()
		var ids []string
		for n := range batch {
			id := fmt.Sprintf("%d.%d", round, n)
			ids = append(ids, id)
			c.oracleCall(id, []string{"write", "plain", "twice", "read"}[n%4], "")
		}
		for _, id := range ids {
			c.answer(strconv.Quote(id))
		}
		sights := r.sights()
		for n, s := range sights[len(sights)-batch:] {
			if s.id != ids[n] {
				t.Fatalf("the server got %s in place %d, where %s was sent", s.id, n, ids[n])
			}
		}
		c.close()
	}
}

// TestListNeverComes has a server that never answers its list: calls go out all the
// same, recorded as of unknown class.
func TestListNeverComes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.servers["oracle"] = r.oracle("-list", "ignore")
	c := r.open(socket, "oracle").ready()
	r.recordedAs(c, map[string]string{"read": "unknown"})
}
