package wire

import "fmt"

// A SyntaxError says that a frame is not JSON text (RFC 8259) in UTF-8. It is
// answered with code -32700 and a null id.
type SyntaxError struct {
	Offset int // of the byte at which the text stops being valid
	Msg    string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("invalid JSON at byte %d: %s", e.Offset, e.Msg)
}

// A RequestError says that a frame is JSON but no JSON-RPC 2.0 message that
// can be handled. It is answered with code -32600 unless the frame is a
// response.
type RequestError struct {
	Reason string
	HasID  bool // the envelope's ID can be used in the answer
}

func (e *RequestError) Error() string { return "invalid request: " + e.Reason }

// A KeyError says that parsers disagree about what a frame means: Key, as
// written, is a duplicate, a different letter case or an escaped spelling of a
// key that the message is routed by. It is answered with code -32600; the
// envelope's ID is present if it can be used.
type KeyError struct {
	Key string
}

// keyError copies key, bounded: a key may be as long as a frame.
func keyError(key []byte) *KeyError {
	return &KeyError{Key: string(key[:min(len(key), maxKey)])}
}

func (e *KeyError) Error() string {
	return fmt.Sprintf("invalid request: key \"%s\" is duplicated, or spelled so that parsers read it differently; write it once, in its exact letter case and without escapes", e.Key)
}
