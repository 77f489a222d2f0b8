package translators

import (
	"net/http"
	"time"

	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Translator is one protocol's form. It is pure and total: it never panics,
// reads no clock, mints no id, and is safe for concurrent use.
type Translator interface {
	// Info describes the protocol. It is constant.
	Info() Info
	// Decode reads one native message. Malformed input matches [ErrMalformed];
	// a well-formed message that asks for something the codec does not do, or
	// that breaks the protocol's rules, is a *canonical.Error. What decoding
	// lost is in the message's Losses.
	Decode(Wire) (*canonical.Message, error)
	// Encode writes the message for target. It never changes its argument and
	// returns only the losses that encoding adds. It fails with a
	// *canonical.Error (CodeBadParams, say) when the message cannot be said to
	// that target at all.
	Encode(*canonical.Message, Target) (Wire, []canonical.Loss, error)
}

// Namer is implemented by a translator whose protocol restricts how a
// capability may be called.
type Namer interface {
	// CapabilityNames gives each capability the name it has in this protocol, in
	// the same order: unique, and never the ID of another one.
	CapabilityNames([]canonical.Capability) []string
}

// Asking is how an agent's question reaches a peer of a protocol.
type Asking string

// The ways of asking.
const (
	// AskNone: it cannot be asked.
	AskNone Asking = ""
	// AskTask: a task says that it needs input, and the next message to it is the answer (A2A).
	AskTask Asking = "task"
	// AskReply: the reply is the question, and the call comes again with the answer (MCP 2026-07-28).
	AskReply Asking = "reply"
	// AskStream: the question comes in the middle of a stream that waits for the answer (MCP before).
	AskStream Asking = "stream"
)

// InputStyler is implemented by a translator whose peers can be asked while they
// wait for a result.
type InputStyler interface {
	// Asks says how a peer of that version is asked, in that form of carriage.
	Asks(version, form string) Asking
}

// Tasking is how a peer keeps tasks.
type Tasking string

// The ways of keeping tasks.
const (
	// TaskingNone: the protocol has no tasks.
	TaskingNone Tasking = ""
	// TaskingApart: the caller asks for a task, and reads its result apart from its
	// state; input requests come with the result (MCP 2025-11-25).
	TaskingApart Tasking = "apart"
	// TaskingWhole: the agent decides whether there is a task, and its state includes
	// the result (the tasks extension of MCP 2026-07-28).
	TaskingWhole Tasking = "whole"
)

// TaskStyler is implemented by a translator between whose versions tasks differ.
type TaskStyler interface {
	// Tasks says how a peer of a version keeps them, if it does.
	Tasks(version string) Tasking
	// TaskOnly reports whether a capability can be had only as a task.
	TaskOnly(*canonical.Capability) bool
}

// Tunneled is implemented by a translator whose protocol has no words of its own.
type Tunneled interface {
	// Carries is the protocol whose words a version uses.
	Carries(version string) canonical.Binding
}

// Streamer is implemented by a translator whose protocol streams in another way
// in some versions than Info says.
type Streamer interface {
	// StreamsIn says how peers of a version stream.
	StreamsIn(version string) Streams
}

// StreamsOf is how peers of a protocol's version stream.
func StreamsOf(t Translator, version string) Streams {
	if s, ok := t.(Streamer); ok {
		return s.StreamsIn(version)
	}
	return t.Info().Streams
}

// Hasher is implemented by a translator whose messages hold evidence inside:
// their hash is taken over another form than the bytes on the wire (R5).
type Hasher interface {
	// HashForm names the form, as aepb.hash_form does.
	HashForm() string
	// HashInput is that form of a body. It is the same before evidence is put
	// into the body and after.
	HashInput(body []byte) ([]byte, error)
}

// EvidencePlacer is implemented by a translator whose messages travel with their evidence
// beside them, and have a place for it inside too (package embedded).
type EvidencePlacer interface {
	// Bears lists where a message has it, the first that there is; none: it has none.
	Bears(Wire) []Place
}

// Place is a member for tokens, in an object for extensions.
type Place struct {
	Path   []string // of the object around that for extensions, by names from the top
	With   string   // a member that this object has; else there is no such place. Empty: any
	Object string   // that for extensions
	Key    string
	List   bool // Object is a list: the tokens are in an object of it, whose @type is Key, as its tokens
}

// ParentReader is implemented by a translator whose messages have a place for the name
// of the ECT that they came of (AEPB, Task Invocation with Parent Reference).
type ParentReader interface {
	// Parent is its jti, as it stands there; empty: the message names none. It
	// fails with a *translators.MalformedError.
	Parent(body []byte) (string, error)
}

// Signaler is implemented by a translator whose protocol has a form for signals
// about a workflow.
type Signaler interface {
	// Signals reports whether a peer that speaks this version and form can be
	// told canonical.OpRollback or canonical.OpDecision; with
	// canonical.OpInvoke, whether a request can name a callback
	// (canonical.Message.Callback).
	Signals(op canonical.Op, t Target) bool
}

// HeaderMirror is implemented by a translator whose requests repeat, in fields of
// their header, arguments that a capability's schema marks.
type HeaderMirror interface {
	// Mirror judges the header of a request by its body. What it returns repeats
	// what the body says, and nothing else. Its error is a *canonical.Error with
	// CodeHeaderMismatch.
	Mirror(http.Header, *canonical.Message, *canonical.Capability) (http.Header, error)
}

// ChangeNotifier is implemented by a translator whose peers say without being asked
// that they describe themselves in another way now.
type ChangeNotifier interface {
	// Changes reports whether that is what an event says.
	Changes(*canonical.Native) bool
}

// FormDetector is implemented by a translator whose messages show which of its forms
// they are in.
type FormDetector interface {
	// FormOf names the form of a body (Wire.Form).
	FormOf(body []byte) string
}

// Stamper is implemented by a translator whose senders put a time and a signature into each message anew.
type Stamper interface {
	// Unstamped is what the extensions of a message say beside that.
	Unstamped(message canonical.Extensions) canonical.Extensions
}

// Historian is implemented by a translator whose tasks say when they came to their status,
// and what was said before.
type Historian interface {
	// TellsHistory reports whether those of a version do.
	TellsHistory(version string) bool
}

// HashWithoutECT is the HashForm of protocols whose canonical form is RFC 8785.
const HashWithoutECT = "jcs-without-ect"

// MediaText is the media type of a reply that is no message of its protocol but a text,
// with which the HTTP library of a server has refused the request. A codec that takes it
// makes an error of it; it is not passed on as it came.
const MediaText = "text/plain"

// Wire is one native message.
type Wire struct {
	Binding canonical.Binding
	Version string       // protocol version; on Decode empty means "what header and body show"
	Form    string       // which of a protocol's wire forms Body has, by the name that agents' cards give it ("HTTP+JSON"); empty: the first
	Media   string       // media type of Body
	Header  http.Header  // only the fields that belong to the message (protocol version, method mirror, trace); may be nil
	Body    []byte       // never retained by Encode's caller beyond the call it was made for
	Re      canonical.Op // the operation that a reply answers; empty: this is a request
	Event   bool         // an event of the stream that answers Re; the message that ends it may be an event or a reply
	Status  int          // HTTP status that the protocol wants or had for this message; 0: 200

	// Profile is that of the capability whose reply this is, for a protocol that
	// answers some of them in another form than its calls; empty: it is a call's.
	Profile canonical.Profile

	// Verb and Path say, in a form where the operation is not in the body, what
	// is asked: the HTTP method, and the path below the agent's URL with its query.
	Verb, Path string

	// Unreachable is what the bytes said as they travelled and Body, which was made of them,
	// does not (transport.WireFormat); nil: nothing.
	Losses []canonical.Loss

	Hasher Hasher // of a message with a place for evidence in it, what evidence hashes of it; nil: its bytes
}

// HashInput are what evidence hashes of a message: its body, of one that holds
// evidence inside the form without it, and of an HTTP request without a body its path
// and query (R5). What has no such form has only its body.
func (w Wire) HashInput() []byte {
	if w.Hasher != nil {
		if input, err := w.Hasher.HashInput(w.Body); err == nil {
			return input
		}
		return w.Body
	}
	if len(w.Body) == 0 && w.Verb != "" {
		return []byte(w.Path)
	}
	return w.Body
}

// Hashed returns the message with the bytes to hash, so that they are computed once. Its
// body must not change after that. A message with another body is hashed anew.
func (w Wire) Hashed() Wire {
	if h, ok := w.Hasher.(*hashed); w.Hasher == nil || ok && h.knows(w.Body) {
		return w
	}
	if input, err := w.Hasher.HashInput(w.Body); err == nil {
		w.Hasher = Knowing(w.Hasher, w.Body, input)
	}
	return w
}

// Knowing is a Hasher that has made its form of one body already.
func Knowing(h Hasher, body, input []byte) Hasher { return &hashed{h, body, input} }

type hashed struct {
	Hasher

	body, input []byte
}

// knows reports whether body is the same memory as the hashed body, not merely equal to it.
func (h *hashed) knows(body []byte) bool {
	return len(body) > 0 && len(body) == len(h.body) && &body[0] == &h.body[0]
}

func (h *hashed) HashInput(body []byte) ([]byte, error) {
	if h.knows(body) {
		return h.input, nil
	}
	return h.Hasher.HashInput(body)
}

// HasherOf is what hashes the messages of a protocol; nil: their bytes are.
func HasherOf(t Translator) Hasher {
	h, _ := t.(Hasher)
	return h
}

// Target is what an encoder needs to know beyond the message.
type Target struct {
	Version    string                // the chosen protocol version; empty: the newest
	Form       string                // the chosen wire form (Wire.Form); empty: the first
	Capability *canonical.Capability // the tool or skill that is called, or whose result this is; nil: none chosen
	Stream     bool                  // a request: ask for a stream of events; otherwise: this stands in one
	Stamp      Addressing            // for protocols whose messages say who sends them to whom, and when
	Answers    []canonical.Mode      // what the receiver was told, when its session began, that it can ask the sender; nil: nothing
}

// Addressing is what only the gateway knows about a message that is about to leave. A
// protocol that needs none of it ignores it; one that does refuses a message
// of another protocol without it.
type Addressing struct {
	From  string    // how this gateway names itself in the protocol: an AINP DID
	To    string    // how the protocol names the receiver; empty: it is not said
	At    time.Time // when the message is sent; zero: not stamped
	Token string    // jti of the ECT that will testify to the message; empty: none will
}

// Info describes a protocol. All callers share its lists and must not change
// them.
type Info struct {
	Binding   canonical.Binding
	Name      string   // as its community writes it
	Versions  []string // supported protocol versions, newest first
	Media     []string // media types that Decode takes, preferred first
	BodyLimit int      // largest body in bytes
	Depth     int      // deepest JSON nesting
	Streams   Streams
	RandomIDs bool // messages are named by UUIDs of version 4 alone
}

// Streams is how a protocol streams.
type Streams string

// The ways of streaming.
const (
	// StreamsNone: one request, one reply.
	StreamsNone Streams = ""
	// StreamsTask: a stream is a task, then its changes; the last change ends it (A2A).
	StreamsTask Streams = "task"
	// StreamsReply: events are notifications; a reply ends the stream (MCP).
	StreamsReply Streams = "reply"
)

// Limits of one message (R11). They are the defaults; a constructor's Config
// may lower them.
const (
	DefaultBodyLimit = 16 << 20
	DefaultDepth     = 128
)

// Config bounds what a translator accepts. A zero field takes its default.
type Config struct {
	BodyLimit int // bytes
	Depth     int // levels of JSON nesting
}

// WithDefaults fills the zero fields.
func (c Config) WithDefaults() Config {
	if c.BodyLimit <= 0 {
		c.BodyLimit = DefaultBodyLimit
	}
	if c.Depth <= 0 {
		c.Depth = DefaultDepth
	}
	return c
}
