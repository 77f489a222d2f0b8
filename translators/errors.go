package translators

import (
	"errors"
	"fmt"

	"github.com/aepb/aepb-gateway/translators/canonical"
)

// ErrMalformed is matched by every error about input that is not a message of
// the protocol at all: not JSON, a duplicate key, a wrong type, too deep.
var ErrMalformed = errors.New("malformed message")

// ErrTooLarge is matched, besides ErrMalformed, when input exceeds the size limit,
// and by a TooLongError.
var ErrTooLarge = errors.New("message too large")

// TooLongError refuses content that does not fit into a message of the protocol. It
// matches ErrTooLarge, and is a *canonical.Error for code that asks for one.
type TooLongError struct{ Reason string }

func (e *TooLongError) Error() string { return e.Reason }

// Is makes errors.Is(err, ErrTooLarge) hold.
func (e *TooLongError) Is(target error) bool { return target == ErrTooLarge }

// Unwrap is the error as a message.
func (e *TooLongError) Unwrap() error {
	return &canonical.Error{Code: canonical.CodeBadParams, Message: e.Reason}
}

// MalformedError says where input is wrong. Its text never quotes the input.
type MalformedError struct {
	Path   string // JSON Pointer into the input; empty: the whole
	Reason string
	Large  bool // the input exceeds the size limit
	// Syntax: the input is not JSON at all (JSON-RPC -32700 as opposed to -32600).
	Syntax bool
}

func (e *MalformedError) Error() string {
	if e.Path == "" {
		return "malformed message: " + e.Reason
	}
	return fmt.Sprintf("malformed message at %s: %s", e.Path, e.Reason)
}

// Explain says where a message is wrong and what was expected there, for the error about the message
// that names its sender. It quotes no content.
func Explain(err error) string {
	if malformed, ok := errors.AsType[*MalformedError](err); ok && malformed.Path != "" {
		return malformed.Path + ": " + malformed.Reason
	} else if ok {
		return malformed.Reason
	}
	if refusal, ok := errors.AsType[*canonical.Error](err); ok {
		return refusal.Message
	}
	return err.Error()
}

// Is makes errors.Is(err, ErrMalformed) hold, and ErrTooLarge where it applies.
func (e *MalformedError) Is(target error) bool {
	return target == ErrMalformed || (e.Large && target == ErrTooLarge)
}

// UnreadableNoticeError reports that one event of a stream cannot be read. Nothing depends
// on it: a reader goes on without it, and declares the loss.
type UnreadableNoticeError struct {
	Loss canonical.Loss
	Err  error // what is wrong with it
}

func (e *UnreadableNoticeError) Error() string { return e.Err.Error() }

// Unwrap is what is wrong with the event.
func (e *UnreadableNoticeError) Unwrap() error { return e.Err }
