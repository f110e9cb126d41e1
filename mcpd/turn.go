package mcpd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"interlock/leases"
	"interlock/mcpd/internal/config"
	"interlock/mcpd/internal/policy"
	"interlock/mcpd/internal/wire"
	"interlock/recovery"
	"interlock/session"
)

// turn is what a tool call has to do with resources: which ones it is about, and
// its use of the leases on them. A call that certainly only reads, and is not
// watched by a guard, has none.
type turn struct {
	rule      *policy.Tool
	resources []leases.Resource
	handles   []leases.Handle // that the client has shown
	version   leases.Version  // of a read under a guard: what had been written before it
	stale     *leases.Write   // somebody else's newer write that this one goes over, as its client is to be told

	mu      sync.Mutex // guards the fields below, and entering against leaving
	use     leases.Use
	giveUp  context.CancelFunc // ends the wait; set while it lasts
	left    bool               // nothing is entered any more
	lingers bool               // the use outlasts the call, which may still be at work
}

// prepare finds out whose call it is and what it is about, while its frame is at
// hand. It runs on the connection's reader, which nothing has told of the call yet.
func (x *exchange) prepare(rule *policy.Tool, b []byte, env *wire.Envelope) error {
	if env.OwnActor.Present() {
		actor, err := actorOf(env.OwnActor.Of(b))
		if err != nil {
			return err
		}
		x.owner += "/" + actor
	}
	handles, err := handlesOf(env.OwnLease.Of(b))
	if err != nil {
		return err
	}
	templates := len(rule.Templates.Value) > 0
	watched := templates && x.up.policy.Guard.Value != config.GuardOff
	switch x.up.classes.of(rule, x.tool) {
	case classRead:
		if !watched {
			return nil
		}
	case classUnknown:
		if handles == nil && !templates {
			return nil
		}
	}
	t := &turn{rule: rule, handles: handles}
	if t.resources, err = x.resourcesOf(rule.Templates.Value, env.Arguments.Of(b)); err != nil {
		return err
	}
	x.turn = t
	return nil
}

// maxActor bounds the name of an actor, so that an owner has at most 128 characters.
const maxActor = 100

// actorOf reads the name of an actor, who is an owner of its own.
func actorOf(raw []byte) (string, error) {
	name := text(raw)
	bad := func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }
	if n := utf8.RuneCountInString(name); n == 0 || n > maxActor || !utf8.ValidString(name) || strings.ContainsFunc(name, bad) {
		return "", refuse(codeLeaseInvalid, "_meta interlock/actor is not a name of 1 to %d printable characters without white space; nothing was sent", maxActor).notSent()
	}
	return name, nil
}

// maxHandles bounds the handles that a call carries.
const maxHandles = 64

// handlesOf reads the handles that a call carries, one text or a list of texts.
func handlesOf(raw []byte) ([]leases.Handle, error) {
	if raw == nil {
		return nil, nil
	}
	list := make([]leases.Handle, 1)
	if json.Unmarshal(raw, &list[0]) != nil && json.Unmarshal(raw, &list) != nil || len(list) > maxHandles {
		return nil, refuse(codeLeaseInvalid, "_meta interlock/lease is neither a handle nor a list of at most %d handles; nothing was sent", maxHandles).notSent()
	}
	return list, nil
}

// resourcesOf returns what a call with these arguments is about: what the templates
// say, and the state of the server where they say nothing or not all.
func (x *exchange) resourcesOf(templates []config.Template, arguments []byte) ([]leases.Resource, error) {
	if len(templates) == 0 {
		return []leases.Resource{x.stateResource()}, nil
	}
	targets, complete, err := x.up.workplace().Targets(templates, arguments)
	if err != nil {
		return nil, err
	}
	all := make([]leases.Resource, 0, len(targets)+1)
	for _, t := range targets {
		r, err := resourceOf(t)
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	if !complete {
		all = append(all, leases.Server(x.up.server.Name))
	}
	return all, nil
}

// stateResource is what a call changes of which nothing closer is known: the
// server's state, shared by all sessions or private to this one.
func (x *exchange) stateResource() leases.Resource {
	if x.up.policy.State.Value == config.StateShared {
		return leases.Server(x.up.server.Name)
	}
	return leases.Session(x.conn.session.ID())
}

// resourceOf is the resource of a target. A path that is too long for one stands
// for the next tree around it that is not.
func resourceOf(t policy.Target) (leases.Resource, error) {
	if t.Kind == config.KindName {
		return leases.Derived(t.Text)
	}
	kind, path := t.Kind, t.Text
	for {
		make := leases.Tree
		if kind == config.KindFile {
			make = leases.File
		}
		r, err := make(path)
		if err == nil || path == "/" {
			return r, err
		}
		kind, path = config.KindTree, filepath.Dir(path)
	}
}

// proceed lets a tool call whose class is known come to its turn: to its leases, if
// it needs any, and then to its permits. Only one that has to wait for a lease
// steps aside. It runs on the connection's reader, or on whatever goroutine has
// found the class.
func (x *exchange) proceed() {
	if err := x.tryProceed(); err != nil {
		x.leave()
		x.conn.session.GiveUp(&x.Call, err)
	}
}

// tryProceed is proceed, but for a call that cannot have its leases, which is still
// to be refused.
func (x *exchange) tryProceed() error {
	granted, err := x.enter()
	if err != nil {
		return err
	}
	if granted {
		x.submit()
		return nil
	}
	deadline, err := x.conn.session.StepAside(&x.Call)
	if err != nil {
		x.turnedAway(err)
		return nil
	}
	x.conn.d.changed()
	x.conn.waiters.start(func() { x.await(deadline) })
	return nil
}

// submit gives the call its place among those that need permits.
func (x *exchange) submit() {
	submit := x.conn.session.Submit
	if x.conn.d.syncsPower && x.class != classRead {
		submit = x.conn.session.SubmitApart // nobody else must wait for the disk
	}
	if err := submit(&x.Call); err != nil {
		x.turnedAway(err)
	}
}

// turnedAway follows an error of the session's, after which the call is over. One
// that the session itself has given up has been dropped.
func (x *exchange) turnedAway(err error) {
	x.leave()
	if !errors.Is(err, session.ErrCancelled) && !errors.Is(err, session.ErrClosed) {
		x.Refuse(err)
	}
}

// enter asks for the call's leases and reports whether it has them.
func (x *exchange) enter() (granted bool, err error) {
	t := x.turn
	if t == nil || x.class == classRead {
		return true, nil
	}
	p := x.up.policy
	r := leases.Request{
		Party:   x.party(),
		Handles: t.handles, Hold: t.rule.LeaseHold.Value,
		MustHold: p.Mutations.Value == config.MutationsExplicit,
	}
	if x.class == classMutate && p.Mutations.Value != config.MutationsOff {
		r.Resources = t.resources
	} else if t.handles == nil {
		return true, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.left {
		return false, session.ErrCancelled
	}
	return x.conn.d.leases.Enter(&t.use, r)
}

// await waits for the leases of a call that stands aside.
func (x *exchange) await(deadline time.Time) {
	defer x.guard()
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	t := x.turn
	t.mu.Lock()
	t.giveUp = cancel
	left := t.left
	t.mu.Unlock()
	if left {
		return
	}
	if err := t.use.Wait(ctx); err != nil {
		x.conn.session.GiveUp(&x.Call, err)
		return
	}
	x.submit()
}

// waiters are the goroutines of one connection's calls that wait for leases.
type waiters struct {
	mu      sync.Mutex // guards over, and starting against the end
	over    bool
	running sync.WaitGroup
}

// start runs f on a goroutine of its own, unless the session is over: the call has
// been dropped then.
func (w *waiters) start(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.over {
		w.running.Go(f)
	}
}

// end waits for all goroutines; none is started any more.
func (w *waiters) end() {
	w.mu.Lock()
	w.over = true
	w.mu.Unlock()
	w.running.Wait()
}

// leave gives back the call's leases, or its place in line for them. It may be
// called at any time and more than once.
func (x *exchange) leave() {
	t := x.turn
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.left = true
	if t.giveUp != nil {
		t.giveUp()
	}
	t.use.Leave()
}

// linger lets the call keep its leases when it settles: its server may still be at
// work on it.
func (x *exchange) linger() {
	if t := x.turn; t != nil {
		t.mu.Lock()
		t.lingers = true
		t.mu.Unlock()
	}
}

// settle ends the call: its leases, unless it lingers, its permits and its id are
// free. It reports whether an answer is due.
func (x *exchange) settle() bool {
	if t := x.turn; t != nil {
		t.mu.Lock()
		lingers := t.lingers
		t.mu.Unlock()
		if !lingers {
			x.leave()
		}
	}
	return x.conn.session.Settle(&x.Call)
}

func (x *exchange) party() leases.Party {
	s := x.conn.session
	return leases.Party{Owner: x.owner, Session: s.ID(), Client: clientName(s)}
}

// maxClientName bounds, in bytes, what is told to others of a client's name.
const maxClientName = 128

func clientName(s *session.Session) string {
	name := s.Client().Name
	if len(name) > maxClientName {
		name = strings.ToValidUTF8(name[:maxClientName], "")
	}
	return name
}

// admit looks a last time, before the call is recorded and sent, whether it may
// still change what it is about.
func (x *exchange) admit() error {
	t := x.turn
	if t == nil {
		return nil
	}
	d := x.conn.d
	guard := x.up.policy.Guard.Value
	if x.class == classRead {
		t.version = d.guard.Version()
		return nil
	}
	if err := t.use.Valid(); err != nil {
		return err
	}
	if x.class != classMutate || guard == config.GuardOff {
		return nil
	}
	w, stale := d.guard.Stale(x.conn.session.ID(), t.resources)
	if !stale {
		return nil
	}
	d.staleWrite(x, w)
	if guard == config.GuardRefuse {
		return staleRefusal(w, time.Now())
	}
	t.stale = &w
	return nil
}

// observe tells the guard what the call has read or may have changed.
func (x *exchange) observe(outcome recovery.Outcome) {
	t, d := x.turn, x.conn.d
	switch {
	case t == nil || outcome == recovery.OutcomeNotSent || !d.guarded.Load():
	case x.class == classMutate:
		d.guard.Wrote(x.party(), t.resources, t.use.Epoch(), time.Now())
	case x.class == classRead && outcome == recovery.OutcomeOK:
		d.guard.Read(x.conn.session.ID(), t.resources, t.version)
	}
}

// staleRefusal says whose newer change a call would go over.
func staleRefusal(w leases.Write, now time.Time) *refusal {
	r := refuse(codeStaleWrite, "%s. Nothing was sent; read it again, and then decide.", changedSince(w, now)).notSent()
	r.data.Resource, r.data.Holder = string(w.Resource), dataOf(w.Party)
	return r
}

// changedSince says that somebody has changed what the client believes to know.
func changedSince(w leases.Write, now time.Time) string {
	return fmt.Sprintf("%s was changed by %s %s ago, after you last read or wrote it", w.Resource, partyText(w.Party), roundedAge(now.Sub(w.At)))
}

// resourceTexts are the resources as the record has them.
func (x *exchange) resourceTexts() []string {
	if x.turn == nil {
		return []string{string(x.stateResource())}
	}
	texts := make([]string, len(x.turn.resources))
	for i, r := range x.turn.resources {
		texts[i] = string(r)
	}
	return slices.Compact(texts)
}
