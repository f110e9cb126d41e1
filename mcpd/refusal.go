package mcpd

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"interlock/mcpd/internal/policy"
	"interlock/mcpd/internal/wire"
	"interlock/recovery"
	"interlock/session"
)

// errorCode is the number of an error of the daemon's own. They lie between
// -31000 and -31999: JSON-RPC and MCP 2026-07-28 reserve -32768 to -32000.
// docs/protocol.md lists them.
type errorCode int

const (
	codeBusy          errorCode = -31001 // a limit is reached; try again
	codeDraining      errorCode = -31002 // the daemon is stopping
	codeStartFailed   errorCode = -31003 // the server could not be started
	codeServerLost    errorCode = -31004 // the server ended with the call in flight
	codeTooLarge      errorCode = -31005 // a frame over the limit
	codeSessionLimit  errorCode = -31006 // too many sessions
	codeNoServer      errorCode = -31007 // no such server, or none was named
	codeUnwritable    errorCode = -31008 // the record of the call could not be written
	codePending       errorCode = -31009 // interrupted runs must be acknowledged first
	codeInternal      errorCode = -31010 // a fault of the daemon's
	codeVersion       errorCode = -31011 // the bridge speaks another protocol
	codeStartTimeout  errorCode = -31012 // the server did not answer its handshake
	codePeerRefused   errorCode = -31013 // the peer may not connect
	codeInputEnded    errorCode = -31014 // the client can answer no question any more
	codeConfigBroken  errorCode = -31015 // the configuration serves no server
	codeHomeLost      errorCode = -31016 // the daemon's directory is gone or another's
	codeUnknownMethod errorCode = -31017 // no such control method
	codeDeadline      errorCode = -31018 // the call's deadline has passed
	codeWrongSet      errorCode = -31019 // the runs to acknowledge are not exactly the pending ones
	codeLeaseHeld     errorCode = -31020 // somebody else has the lease, or is before in line
	codeLeaseRequired errorCode = -31021 // the client must hold a lease, and shows none
	codeLeaseExpired  errorCode = -31022 // the lease that the client shows has ended
	codeLeaseNotFound errorCode = -31023 // there is no such lease
	codeLeaseNotOwner errorCode = -31024 // it is somebody else's
	codeLeaseInvalid  errorCode = -31025 // a name, a time or a handle is not one
	codeLeaseBroken   errorCode = -31026 // somebody broke the lease before the call was sent
	codeLeaseLimit    errorCode = -31027 // no more leases are given
	codeStaleWrite    errorCode = -31028 // somebody else changed it since the client read it
)

// isLease reports whether the code is of a call that was refused for want of a lease.
func (c errorCode) isLease() bool { return codeStaleWrite <= c && c <= codeLeaseHeld }

// name is the word for the code in the data of an answer.
func (c errorCode) name() string {
	switch c {
	case codeBusy:
		return "busy"
	case codeDraining:
		return "draining"
	case codeStartFailed:
		return "server_start_failed"
	case codeServerLost:
		return "server_lost"
	case codeTooLarge:
		return "frame_too_large"
	case codeSessionLimit:
		return "session_limit"
	case codeNoServer:
		return "no_server"
	case codeUnwritable:
		return "state_unwritable"
	case codePending:
		return "recovery_pending"
	case codeVersion:
		return "version_skew"
	case codeStartTimeout:
		return "server_start_timeout"
	case codePeerRefused:
		return "peer_refused"
	case codeInputEnded:
		return "input_ended"
	case codeConfigBroken:
		return "config_broken"
	case codeHomeLost:
		return "home_lost"
	case codeDeadline:
		return "call_deadline"
	case codeUnknownMethod:
		return "unknown_method"
	case codeWrongSet:
		return "wrong_set"
	case codeLeaseHeld:
		return "lease_held"
	case codeLeaseRequired:
		return "lease_required"
	case codeLeaseExpired:
		return "lease_expired"
	case codeLeaseNotFound:
		return "lease_not_found"
	case codeLeaseNotOwner:
		return "lease_not_owner"
	case codeLeaseInvalid:
		return "lease_invalid"
	case codeLeaseBroken:
		return "lease_broken"
	case codeLeaseLimit:
		return "lease_limit"
	case codeStaleWrite:
		return "stale_write"
	case rpcInvalidRequest:
		return "invalid_request"
	default:
		return "internal"
	}
}

// Codes of JSON-RPC 2.0.
const (
	rpcParseError     = -32700
	rpcInvalidRequest = -32600
	rpcMethodNotFound = -32601
)

// refusal is an answer of the daemon's own to a request.
type refusal struct {
	code    errorCode
	message string // what is wrong and what to do, one sentence or two
	data    refusalData
	waited  time.Duration // what the request waited for in vain
}

// refusalData is what a program can act on, in the data of an error or in
// _meta "interlock/error" of a tool's result.
type refusalData struct {
	Code         string   `json:"code"`
	Run          string   `json:"run,omitempty"`     // id of the recorded run
	Outcome      string   `json:"outcome,omitempty"` // not_sent or unknown
	RetrySafe    *bool    `json:"retrySafe,omitempty"`
	RetryAfterMs int64    `json:"retryAfterMs,omitempty"`
	Limit        string   `json:"limit,omitempty"`
	InFlight     int      `json:"inFlight,omitempty"`
	Waiting      int      `json:"waiting,omitempty"`
	Servers      []string `json:"servers,omitempty"`
	Pending      []string `json:"pending,omitempty"`
	// Of a lease that somebody else has.
	Resource    string     `json:"resource,omitempty"`
	Holder      *partyData `json:"holder,omitempty"`
	AgeMs       int64      `json:"ageMs,omitempty"`
	ExpiresInMs int64      `json:"expiresInMs,omitempty"` // absent while calls use it
	Calls       int        `json:"calls,omitempty"`       // that use it
	WaitsFor    *waitData  `json:"waitsFor,omitempty"`    // what the holder waits for itself
	Deadlock    bool       `json:"deadlock,omitempty"`    // waiting would be in vain
	// Set says what would have been the right set, where a wrong one was named.
	Set *recovery.SetError `json:"set,omitempty"`
}

func refuse(code errorCode, format string, args ...any) *refusal {
	return &refusal{code: code, message: fmt.Sprintf(format, args...), data: refusalData{Code: code.name()}}
}

// notSent adds that nothing was sent, so that the request is safe to repeat.
func (r *refusal) notSent() *refusal {
	safe := true
	r.data.Outcome, r.data.RetrySafe = string(recovery.OutcomeNotSent), &safe
	return r
}

// later adds when to try again.
func (r *refusal) later() *refusal {
	r.data.RetryAfterMs = retryAfter.Milliseconds()
	return r
}

func (r *refusal) Error() string { return r.message }

// retryAfter is what a refused client is told to wait: about the time in which
// permits turn over when servers answer at the pace of people.
const retryAfter = time.Second

// refusalOf says in the daemon's words why a session did not take a call.
func refusalOf(err error) *refusal {
	var own *refusal
	var busy *session.BusyError
	var limit *session.LimitError
	var ambiguous *wire.KeyError
	switch {
	case errors.As(err, &own):
		return own
	case errors.As(err, &busy):
		r := refuse(codeBusy, "interlock is busy: %v. Nothing was sent; try again in a moment.", busy)
		r.data.Limit, r.data.InFlight, r.data.Waiting = busy.Limit, busy.InFlight, busy.Waiting
		return r.notSent().later()
	case errors.As(err, &limit):
		return refuse(codeSessionLimit, "interlock has %d sessions open, its limit. Close a client, or raise limits.sessions in the configuration.", limit.Limit)
	case isLeaseError(err):
		return leaseRefusal(err, " Nothing was sent.").notSent()
	case errors.As(err, &ambiguous), errors.Is(err, policy.ErrUnreadable):
		return refuse(rpcInvalidRequest, "an argument that decides what the call changes could be read in two ways: %v", err).notSent()
	case errors.Is(err, session.ErrDraining):
		return refuse(codeDraining, "interlock is stopping and takes no new calls; nothing was sent. Connect again: a new daemon starts by itself.")
	default:
		return refuse(codeInternal, "interlock: %v", err)
	}
}

// appendRefusal appends the answer to the request with the raw id: for a tool
// call a result that a model can act on, else a JSON-RPC error with the same
// data. A stateless client's results name their type.
func appendRefusal(dst, id []byte, toolCall bool, era session.Era, r *refusal) []byte {
	data, err := json.Marshal(r.data)
	if err != nil {
		data = []byte("{}")
	}
	message := quote(r.message)
	dst = appendAnswerStart(dst, id)
	if !toolCall || r.code == rpcInvalidRequest {
		dst = append(dst, `"error":{"code":`...)
		dst = strconv.AppendInt(dst, int64(r.code), 10)
		dst = append(dst, `,"message":`...)
		dst = append(dst, message...)
		dst = append(dst, `,"data":`...)
		dst = append(dst, data...)
		return append(dst, "}}"...)
	}
	dst = append(dst, `"result":{`...)
	if era == session.Stateless {
		dst = append(dst, `"resultType":"complete",`...)
	}
	dst = append(dst, `"content":[{"type":"text","text":`...)
	dst = append(dst, message...)
	dst = append(dst, `}],"isError":true,"_meta":{"interlock/error":`...)
	dst = append(dst, data...)
	return append(dst, "}}}"...)
}

// appendRPCError appends a plain JSON-RPC error answer. A nil id is null.
func appendRPCError(dst, id []byte, code int, message string) []byte {
	dst = appendAnswerStart(dst, id)
	dst = append(dst, `"error":{"code":`...)
	dst = strconv.AppendInt(dst, int64(code), 10)
	dst = append(dst, `,"message":`...)
	dst = append(dst, quote(message)...)
	return append(dst, "}}"...)
}

// appendResult appends the answer to a request with a result.
func appendResult(dst, id, result []byte) []byte {
	dst = appendAnswerStart(dst, id)
	dst = append(dst, `"result":`...)
	dst = append(dst, result...)
	return append(dst, '}')
}

func appendAnswerStart(dst, id []byte) []byte {
	if len(id) == 0 {
		id = []byte("null")
	}
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	dst = append(dst, id...)
	return append(dst, ',')
}

// quote returns s as a JSON string.
func quote(s string) []byte {
	b, err := json.Marshal(strings.ToValidUTF8(s, "\uFFFD"))
	if err != nil {
		return []byte(`""`)
	}
	return b
}
