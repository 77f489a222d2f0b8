package frame

import (
	"google.golang.org/protobuf/proto"

	"github.com/aepb/aepb-gateway/gateway/transport/slim/internal/dataplane"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/name"
)

// Bounds of a message. The first is the node's default for a whole message,
// less what nodes add to its header on the way.
const (
	MaxMessage  = 4<<20 - 1<<10
	MaxMetadata = 256 << 10 // keys and values together, bytes
	MaxEntries  = 256
	maxType     = 256 // payload type, bytes
	maxSession  = 1<<32 - 1001
	maxToken    = 64 << 10
	maxMembers  = 1024
)

// Error says why a message cannot be used. It quotes nothing.
type Error struct {
	Reason string
	Err    error // for logs; nil: none
}

func (e *Error) Error() string { return "slim message: " + e.Reason }

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// TooLargeError refuses a message for which a node would end the whole connection.
type TooLargeError struct{ Size, Limit int } // bytes

func (e *TooLargeError) Error() string { return "slim message: larger than a node accepts" }

// Fits checks a message before it is sent, and says its size in bytes. Errors:
// *TooLargeError, *Error.
func Fits(m *dataplane.Message) (size int, err error) {
	if err := metadata(m.GetMetadata()); err != nil {
		return 0, err
	}
	if size = proto.Size(m); size > MaxMessage {
		err = &TooLargeError{Size: size, Limit: MaxMessage}
	}
	return size, err
}

func metadata(entries map[string]string) error {
	if len(entries) > MaxEntries {
		return &Error{Reason: "it has too many metadata entries"}
	}
	size := 0
	for key, value := range entries {
		size += len(key) + len(value)
	}
	if size > MaxMetadata {
		return &Error{Reason: "its metadata is too large"}
	}
	return nil
}

// Payload is what an application sent. Both may be empty.
type Payload struct {
	Type string // free text; "msg" by habit
	Blob []byte
}

// Frame is a message of a session, checked for its form. Its sender is not verified
// before Open.
type Frame struct {
	From             name.Name
	To               name.Key
	Kind             Kind
	Session, Message uint32
	Group            bool
	Failed           bool // it says that something failed, and not what its kind says
	Metadata         map[string]string
	Payload          Payload                   // of data; the zero value in control messages
	Command          *dataplane.CommandPayload // of control messages; nil in data

	wire *dataplane.Message
}

// Control reports whether the message steers the session, and is signed.
func (f Frame) Control() bool { return f.Kind >= DiscoveryRequest }

// Read takes a message apart. Errors: *Error, *name.Error.
func Read(m *dataplane.Message) (Frame, error) {
	publish := m.GetPublish()
	header, session := publish.GetHeader(), publish.GetSession()
	if header == nil || session == nil {
		return Frame{}, &Error{Reason: "a header is missing"}
	}
	if err := metadata(m.GetMetadata()); err != nil {
		return Frame{}, err
	}
	from, err := name.Decode(header.GetSource())
	if err != nil {
		return Frame{}, err
	}
	to, err := name.DecodeKey(header.GetDestination())
	if err != nil {
		return Frame{}, err
	}
	f := Frame{
		From: from, To: to, Kind: session.GetSessionMessageType(), Session: session.GetSessionId(), Message: session.GetMessageId(),
		Group:  session.GetSessionType() == dataplane.SessionType_SESSION_TYPE_MULTICAST,
		Failed: header.GetError(), Metadata: m.GetMetadata(), wire: m,
		Command: publish.GetMsg().GetCommandPayload(),
	}
	if app := publish.GetMsg().GetAppPayload(); app != nil {
		f.Payload = Payload{Type: app.GetPayloadType(), Blob: app.GetBlob()}
	}
	return f, f.check(header, session)
}

func (f Frame) check(header *dataplane.SLIMHeader, session *dataplane.SessionHeader) error {
	switch {
	case len(header.GetIdentity()) > maxToken:
		return &Error{Reason: "its token is too long"}
	case len(f.Payload.Type) > maxType:
		return &Error{Reason: "its payload type is too long"}
	case f.Session >= maxSession:
		return &Error{Reason: "its session id is a reserved one"}
	case session.GetSessionType() != dataplane.SessionType_SESSION_TYPE_POINT_TO_POINT && !f.Group:
		return &Error{Reason: "its session is of an unknown type"}
	case f.Kind < Msg:
		return &Error{Reason: "it is of an unknown kind"}
	case f.Control() && f.Message == 0:
		return &Error{Reason: "its message id is 0"}
	case f.Control() && !f.Failed && kindOf(f.Command) != f.Kind:
		return &Error{Reason: "its command is not of its kind"}
	case len(f.Command.GetGroupWelcome().GetParticipants()) > maxMembers, len(f.Command.GetGroupUpdate().GetParticipants()) > maxMembers:
		return &Error{Reason: "its group has too many members"}
	default:
		return nil
	}
}
