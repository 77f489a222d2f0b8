package session

import (
	"errors"

	"github.com/aepb/aepb-gateway/gateway/transport/slim/internal/frame"
)

// Errors of sessions.
var (
	// ErrClosed: the session or the application was closed here.
	ErrClosed = errors.New("slim session: closed")
	// ErrNoMember: whom a message is for is not in the group, or no longer.
	ErrNoMember = errors.New("slim session: no member of the group has that name")
	errDeps     = errors.New("slim session: incomplete Deps")
	errFull     = errors.New("slim session: too many sessions: close one first")
)

// Fault says what broke a session.
type Fault string

// The faults.
const (
	FaultSilent  Fault = "the other end does not answer"           // or is absent: nodes do not say
	FaultRefused Fault = "the other end refuses"                   // a refusal was received
	FaultLost    Fault = "a message was lost and not sent again"   // ours or theirs
	FaultRemoved Fault = "the moderator removed us from the group" // groups only
)

// BrokenError reports that the session ended otherwise than by a close.
type BrokenError struct{ Fault Fault }

func (e *BrokenError) Error() string { return "slim session: " + string(e.Fault) }

// TooLargeError refuses a message that is larger than a node accepts. Sending it
// would have ended the connection of all sessions.
type TooLargeError = frame.TooLargeError

// MessageError refuses to send a message because of its metadata.
type MessageError = frame.Error
