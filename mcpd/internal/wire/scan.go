package wire

import (
	"bytes"
	"unicode/utf8"
)

// A Span is a half-open range of bytes in a frame. The zero value means that
// there is none.
type Span struct{ Start, End int }

// Present reports whether there is a range.
func (s Span) Present() bool { return s.End > 0 }

// Of returns the bytes of the range in frame, nil if there is none. The slice
// aliases frame.
func (s Span) Of(frame []byte) []byte {
	if s.End == 0 {
		return nil
	}
	return frame[s.Start:s.End:s.End]
}

// Kind is what a frame is in JSON-RPC 2.0.
type Kind uint8

// The kinds. Result and Error are the two forms of a response.
const (
	Request Kind = iota
	Notification
	Result
	Error
)

// An Envelope says where in a frame the members are that the daemon routes by.
// Spans cover raw values as written, strings with their quotes.
type Envelope struct {
	Kind Kind

	ID            Span // an integer or a string; "null" only for Kind Error; in a response also another number
	Method        Span // a string without escapes
	Params        Span
	Result, Error Span

	// Members of params.
	Name, URI, RequestID, ProgressToken, Arguments, Task Span
	ProtocolVersion, Capabilities, Cursor, Level         Span

	// Members of result. Unlike all others, these may be duplicated: the last one counts.
	NextCursor, IsError, ResultType Span

	Meta           Span // params._meta or result._meta; absent unless it is an object
	MetaToken      Span // progressToken in it
	MetaVersion    Span // io.modelcontextprotocol/protocolVersion in it
	SubscriptionID Span // io.modelcontextprotocol/subscriptionId in it
	OwnLease       Span // interlock/lease in it
	OwnActor       Span // interlock/actor in it
	MetaKept       bool // Meta has members besides those in Own

	// Own are the members of Meta whose keys begin with "interlock/", in
	// order, each with the one comma that has to go with it: cutting all of
	// them leaves valid JSON. Scan reuses the slice.
	Own []Span
}

// MethodName returns the method's name in frame, without its quotes.
func (e *Envelope) MethodName(frame []byte) []byte {
	if e.Method.End == 0 {
		return nil
	}
	return frame[e.Method.Start+1 : e.Method.End-1]
}

func (e *Envelope) reset() {
	own := e.Own[:0]
	*e = Envelope{}
	e.Own = own
}

// Bounds on what a frame may hold.
const (
	maxID  = 1 << 10 // bytes of an id as written, without quotes
	maxOwn = 32      // members of _meta that are the daemon's own
	maxKey = 128     // bytes of a key that an error repeats
)

// Scan validates frame, a whole JSON-RPC message, and fills env. It allocates
// nothing unless the frame is refused, nested more than 512 deep, or has more
// members of the daemon's own than env.Own had room for.
//
// Errors are *[SyntaxError], *[RequestError] and *[KeyError], in this order of
// precedence. With the latter two, env.ID is present if the sender can be
// answered under it, and env.Kind is Result or Error if the frame looks like a
// response, which must not be answered at all.
func Scan(frame []byte, env *Envelope) error {
	env.reset()
	p := parser{scanner: scanner{data: frame}, env: env}
	i := p.space(0)
	object := p.at(i) == '{'
	batch := p.at(i) == '['
	if object {
		i = p.message(i)
	} else {
		i = p.value(i)
	}
	if err := p.finish(i); err != nil {
		env.reset()
		return err
	}
	switch {
	case batch:
		return &RequestError{Reason: "batches are not supported; send one message a line"}
	case !object:
		return &RequestError{Reason: "the message is not a JSON object"}
	}
	return p.classify()
}

// finish checks what is left after a text's value, which ended at i.
func (s *scanner) finish(i int) error {
	if i >= 0 {
		if i = s.space(i); i < len(s.data) {
			s.fail(i, "more text after the value")
		} else if s.wide&highs != 0 && !utf8.Valid(s.data) {
			s.fail(invalidUTF8(s.data), "invalid UTF-8")
		}
	}
	if s.msg == "" {
		return nil
	}
	return &SyntaxError{Offset: s.bad, Msg: s.msg}
}

// invalidUTF8 returns the offset of the first invalid sequence in b.
func invalidUTF8(b []byte) int {
	i := 0
	for i < len(b) {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n <= 1 {
			break
		}
		i += n
	}
	return i
}

// parser fills an envelope. After the first violation of JSON-RPC it goes on,
// because the text may turn out not to be JSON at all, and because the id may
// come later.
type parser struct {
	scanner
	env     *Envelope
	err     error // the first violation
	version bool  // jsonrpc is "2.0"
	badID   bool  // parsers disagree about which id the frame has
}

func (p *parser) refuse(reason string) {
	if p.err == nil {
		p.err = &RequestError{Reason: reason}
	}
}

func (p *parser) ambiguous(key []byte) {
	if p.err == nil {
		p.err = keyError(key)
	}
}

// policy is lookup, and notes an ambiguous key as a violation.
func (p *parser) policy(names []string, w *walk, seen *uint) (i int, ok bool) {
	if i, ok = p.lookup(names, w, seen); !ok {
		p.ambiguous(w.key.Of(p.data))
	}
	return i, ok
}

// message scans the top-level object at i.
func (p *parser) message(i int) int {
	env, seen := p.env, uint(0)
	w := walk{end: i + 1}
	for p.next(&w) {
		key, ok := p.policy(topKeys[:], &w, &seen)
		var end int
		switch {
		case key == topParams && p.at(w.value) == '{':
			end = p.params(w.value)
		case key == topResult && p.at(w.value) == '{':
			end = p.result(w.value)
		default:
			end = p.value(w.value)
		}
		w.end = end
		span := Span{w.value, end}
		switch {
		case end < 0 || !ok:
			p.badID = p.badID || key == topID
		case key == topJSONRPC:
			p.version = string(span.Of(p.data)) == `"2.0"`
		case key == topID:
			env.ID = span
		case key == topMethod:
			env.Method = span
		case key == topParams:
			env.Params = span
		case key == topResult:
			env.Result = span
		case key == topError:
			env.Error = span
		}
	}
	return w.end
}

// params scans the params object at i.
func (p *parser) params(i int) int {
	env, seen := p.env, uint(0)
	w := walk{end: i + 1}
	for p.next(&w) {
		key, _ := p.policy(paramsKeys[:], &w, &seen)
		if key == paramsMeta && p.at(w.value) == '{' {
			w.end = p.meta(w.value)
			continue
		}
		w.end = p.value(w.value)
		if key < 0 {
			continue
		}
		span := Span{w.value, w.end}
		switch key {
		case paramsName:
			env.Name = span
		case paramsURI:
			env.URI = span
		case paramsRequestID:
			env.RequestID = span
		case paramsProgressToken:
			env.ProgressToken = span
		case paramsArguments:
			env.Arguments = span
		case paramsTask:
			env.Task = span
		case paramsProtocolVersion:
			env.ProtocolVersion = span
		case paramsCapabilities:
			env.Capabilities = span
		case paramsCursor:
			env.Cursor = span
		case paramsLevel:
			env.Level = span
		}
	}
	return w.end
}

// result scans the result object at i.
func (p *parser) result(i int) int {
	env, seen := p.env, uint(0)
	w := walk{end: i + 1}
	for p.next(&w) {
		if key, _ := p.policy(resultKeys[:], &w, &seen); key == 0 && p.at(w.value) == '{' {
			w.end = p.meta(w.value)
			continue
		}
		w.end = p.value(w.value)
		switch string(w.key.Of(p.data)) {
		case "nextCursor":
			env.NextCursor = Span{w.value, w.end}
		case "isError":
			env.IsError = Span{w.value, w.end}
		case "resultType":
			env.ResultType = Span{w.value, w.end}
		}
	}
	return w.end
}

// meta scans the _meta object at i.
func (p *parser) meta(i int) int {
	env, seen := p.env, uint(0)
	w := walk{end: i + 1}
	kept := false // a member that stays came before
	for p.next(&w) {
		key, _ := p.policy(metaKeys[:], &w, &seen)
		own := p.own(&w)
		if w.end = p.value(w.value); w.end < 0 {
			break
		}
		span := Span{w.value, w.end}
		switch key {
		case metaProgressToken:
			env.MetaToken = span
		case metaSubscriptionID:
			env.SubscriptionID = span
		case metaProtocolVersion:
			env.MetaVersion = span
		case metaLease:
			env.OwnLease = span
		case metaActor:
			env.OwnActor = span
		}
		if own {
			env.Own = append(env.Own, p.cut(&w, kept))
		}
		kept = kept || !own
	}
	env.Meta, env.MetaKept = Span{i, w.end}, kept
	return w.end
}

// own reports whether the member of _meta is the daemon's own.
func (p *parser) own(w *walk) bool {
	key := p.data[w.key.Start:w.key.End]
	if _, ok := foldPrefix(key, ownPrefix); !ok {
		return false
	}
	if !bytes.HasPrefix(key, []byte(ownPrefix)) || bytes.IndexByte(key, '\\') >= 0 {
		p.ambiguous(key)
	}
	if len(p.env.Own) == maxOwn {
		p.refuse("_meta has too many members that begin with " + ownPrefix)
		return false
	}
	for _, other := range p.env.Own {
		member := other.Of(p.data)
		member = member[bytes.IndexByte(member, '"')+1:]
		if bytes.HasPrefix(member, key) && member[len(key)] == '"' {
			p.ambiguous(key)
		}
	}
	return true
}

// cut returns the range that takes the member out of its object along with one
// comma: the one before it if a member that stays came before, else the one
// after it, if there is one.
func (p *parser) cut(w *walk, kept bool) Span {
	if kept {
		return Span{w.comma, w.end}
	}
	end := w.end
	if i := p.space(end); p.at(i) == ',' {
		end = i + 1
	}
	return Span{w.key.Start - 1, end}
}

// classify decides what kind of message a valid JSON object is.
func (p *parser) classify() error {
	env := p.env
	method, response := env.Method.Present(), env.Result.Present() || env.Error.Present()
	id := p.id()
	switch {
	case env.Error.Present() && !method:
		env.Kind = Error
	case env.Result.Present() && !method:
		env.Kind = Result
	case method && id == idAbsent:
		env.Kind = Notification
	}
	switch {
	case p.err != nil: // stays the first
	case !p.version:
		p.refuse(`member "jsonrpc" must be "2.0"`)
	case !method && !response:
		p.refuse("the message has neither a method nor a result or an error")
	case method && response:
		p.refuse("the message has both a method and a result or an error")
	case env.Result.Present() && env.Error.Present():
		p.refuse("the response has both a result and an error")
	case response && env.Params.Present():
		p.refuse("the response has params")
	case method && !p.plainString(env.Method):
		p.refuse("the method is not a string without escapes")
	case id == idBad,
		id == idNumber && method,
		id == idNull && env.Kind != Error,
		id == idAbsent && response:
		p.refuse("the id is not an integer or a string of at most 1024 bytes")
	}
	if p.err == nil {
		return nil
	}
	if id != idOpaque {
		env.ID = Span{}
	}
	if !p.plainString(env.Method) {
		env.Method = Span{}
	}
	if refused, ok := p.err.(*RequestError); ok {
		refused.HasID = env.ID.Present()
	}
	return p.err
}

func (p *parser) plainString(s Span) bool {
	raw := s.Of(p.data)
	return len(raw) > 0 && raw[0] == '"' && bytes.IndexByte(raw, '\\') < 0
}

func (p *parser) id() idForm {
	if p.badID {
		return idBad
	}
	return formOfID(p.env.ID.Of(p.data))
}
