package canonical

import (
	"encoding/json"
	"time"
)

// Binding is a registered protocol binding identifier (AEPB, IANA
// Considerations, "AEPB Protocol Binding Registry").
type Binding string

// Op is what a message is about, whatever the protocol calls it.
type Op string

// The operations that a codec may decode. A method outside this list is
// refused by the codec with an [Error] of code [CodeNoMethod] or [CodeUnsupportedOp].
const (
	OpInvoke       Op = "invoke"       // send a message, call a tool
	OpDescribe     Op = "describe"     // agent card, server/discover, initialize
	OpCapabilities Op = "capabilities" // list tools or skills
	OpPing         Op = "ping"         // is the peer there
	OpNotice       Op = "notice"       // a notification; it has no answer

	OpTaskGet       Op = "task.get"       // how far is a piece of work
	OpTaskList      Op = "task.list"      // which pieces of work are there
	OpTaskCancel    Op = "task.cancel"    // end the work itself
	OpTaskSubscribe Op = "task.subscribe" // tell every change from now on
	OpTaskAnswer    Op = "task.answer"    // answer what a task asks (MCP tasks/update)
	OpTaskResult    Op = "task.result"    // wait for a task's result (MCP 2025-11-25 tasks/result)
	OpPush          Op = "push"           // push notification settings; the verb is in the body
	OpAnswer        Op = "answer"         // the caller's reply to what it was asked within a stream
	OpAbort         Op = "abort"          // stop one request, not the work behind it (MCP notifications/cancelled)
	OpNative        Op = "native"         // a method that only this protocol has; it goes no further than to another version of it
)

// Phase says where in an exchange a message stands.
type Phase string

// An exchange is one request, any number of events, and one response or error.
// A protocol whose last event says that the work is done needs no response.
const (
	PhaseRequest  Phase = "request"
	PhaseEvent    Phase = "event"
	PhaseResponse Phase = "response"
	PhaseError    Phase = "error"
)

// Message is one message in no protocol's words.
type Message struct {
	Op           Op
	Phase        Phase
	Correlation  Correlation
	Conversation Conversation
	From, To     Party
	Preferences  Preferences
	Deadline     time.Time // zero: none
	Trace        Trace
	Callback     string     // of a request: https URI to which a human's decision about it is posted; empty: none
	Body         Body       // nil for a ping and for a notice
	Extensions   Extensions // message-level leftovers of each protocol
	Origin       Origin
	Losses       []Loss // what decoding lost
}

// Correlation pairs requests with replies.
type Correlation struct {
	WireID    json.RawMessage `json:",omitempty"` // JSON-RPC id, raw; nil: a notification or not yet stamped
	MessageID string          // the sender's idempotency id (A2A messageId)
	Progress  json.RawMessage `json:",omitempty"` // MCP progressToken, raw
}

// TextID is the id of a message on the wire that is a text of letters, digits and hyphens.
func TextID(id string) json.RawMessage { return json.RawMessage(`"` + id + `"`) }

// Conversation says which dialogue and which piece of work a message belongs to.
type Conversation struct {
	ContextID      string
	TaskID         string
	ReferenceTasks []string
	Tenant         string
}

// Party is one end of an exchange.
type Party struct {
	ID      string // stable name or principal, protocol-neutral
	Name    string
	Version string
	Skill   string // target capability by its id; empty: the agent as a whole
}

// Preferences are options of the sender; none of them changes what is asked.
type Preferences struct {
	Stream        bool
	NoWait        bool   // answer with a task at once (A2A returnImmediately)
	TaskOK        bool   // a task may come in place of the result (MCP tasks, declared on this request)
	CanAnswer     []Mode // what the sender can be asked while it waits; nil: nothing
	AcceptMedia   []string
	HistoryLength *int
	LogLevel      string
}

// Trace is W3C trace context, verbatim.
type Trace struct{ Parent, State, Baggage string }

// Extensions are members that only one protocol knows: for each binding one
// raw JSON object, kept verbatim. A nil map and an empty one are equal.
type Extensions map[Binding]json.RawMessage

// With adds what one binding has of its own; nil: nothing. It changes the map, and
// makes one where there is none.
func (e Extensions) With(b Binding, own json.RawMessage) Extensions {
	if own == nil {
		return e
	}
	if e == nil {
		e = Extensions{}
	}
	e[b] = own
	return e
}

// Origin says where a message came from.
type Origin struct {
	Binding Binding
	Version string
	// Raw is the verbatim body. A same-protocol, same-version relay may send it
	// unchanged; a translator's Encode never reads it.
	Raw []byte
}
