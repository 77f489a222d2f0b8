package transport

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// EntryPoint says through which kind of endpoint a call came.
type EntryPoint int

// The two ways in (architecture section 1).
const (
	// Native is an endpoint of a protocol: the sender need not know AEPB.
	Native EntryPoint = iota
	// Translate is the translate endpoint: the sender brings an ECT.
	Translate
	// TranslateCPAT is the translate endpoint under CPAT's names: the same pipeline,
	// but its evidence says cpat:translate (CPAT, Translation ECT Claims).
	TranslateCPAT
)

// Native reports whether the sender need not know AEPB.
func (e EntryPoint) Native() bool { return e == Native }

// Call is one inbound native message and what its server knows about it.
type Call struct {
	EntryPoint EntryPoint
	Agent      string             // directory name, SPIFFE id or capability-document URL; empty: translate only
	Wire       translators.Wire   // as it arrived
	Message    *canonical.Message // what Wire says, where the server has read it already, and as it leaves it; nil: the pipeline reads it
	Target
	Caller    identity.Caller
	Address   string           // remote address without port: the limit key of anonymous callers
	Pass      limit.Pass       // what [Handler.Limit] gave for this very message
	Evidence  []string         // the ECTs submitted, compact
	Parent    string           // jti of the ECT that the message says it came of, beside its own ECT or without one; empty: it says nothing
	Program   Program          // how the caller names itself in its protocol
	Session   string           // the session at the server that the message belongs to; empty: none
	CanAnswer []canonical.Mode // what the caller can be asked in this session, where the message itself does not say; nil: nothing
	Tenanted  bool             // Agent is what the message names as its tenant, which says nothing to the agent
	// Card writes the agent's extended card as the server serves it, where the message
	// asks for that card (A2A 3.1.11); nil: it asks for something else.
	Card     func(*canonical.Description) (json.RawMessage, error)
	Detached bool // the work goes on although the caller's connection is gone (A2A; MCP before 2026-07-28)
}

// Program is how the caller names itself in its protocol.
type Program struct {
	Sender string          // in AINP: its DID
	Client canonical.Party // with what it began Session in MCP; zero: it did not
}

// Target is the protocol that the caller wants its message translated to.
type Target struct {
	To        canonical.Binding // Translate: the binding to translate to; Native: empty
	ToVersion string            // Translate: its version, empty: the newest mutual one
}

// AnswerRetryWindow is how long a server tries to deliver the answer to an input request
// while the state store is unavailable. A client sends its answer once and only logs a
// refusal (MCP before 2026-07-28). The agent need not wait for an answer when the store
// was unavailable for longer.
const AnswerRetryWindow = 20 * time.Second

// Notice is what callers should know of an agent's future (AEPB, Lifecycle
// States). The zero Notice is nothing.
type Notice struct {
	Deprecated time.Time // since when; zero: it is not
	Sunset     time.Time // when it ends; zero: unknown
	Successor  string    // URL of its successor's capability document; empty: none
}

// Announce puts a notice into the fields of a response: Deprecation (RFC 9745),
// Sunset (RFC 8594) and a link to the successor (RFC 5829). It may be announced
// twice.
func (n Notice) Announce(h http.Header) {
	if n.Deprecated.IsZero() {
		return
	}
	h.Set("Deprecation", "@"+strconv.FormatInt(n.Deprecated.Unix(), 10))
	if !n.Sunset.IsZero() {
		h.Set("Sunset", n.Sunset.UTC().Format(http.TimeFormat))
	}
	link := "<" + n.Successor + `>; rel="successor-version"`
	if n.Successor != "" && !slices.Contains(h.Values("Link"), link) {
		h.Add("Link", link)
	}
}

// Event is one message of a stream.
type Event struct {
	Wire     translators.Wire // without a body only in the last one, which may hold nothing but evidence
	Evidence []string         // compact; toward a caller only in the last one, or the last with a body: the ECT that closes the stream
}

// Events is a stream of messages in order. It buffers a bounded number of them: a
// reader that does not read stops the writer.
type Events interface {
	// Next waits for the next message. io.EOF: the one before was the last. Any
	// other error says that the stream broke off; it never ends silently.
	Next(ctx context.Context) (Event, error)
	// Close ends the stream early and gives back what it holds. It may be called
	// at any time and more than once.
	Close() error
}

// CallInfo asks who an agent is, in no protocol's words.
type CallInfo struct {
	Agent   string
	Caller  identity.Caller
	Address string
	Binding canonical.Binding // the server that asks
	Form    string            // the wire form that the caller uses there (translators.Wire.Form)
	// CanAnswer is what the caller can be asked, in a protocol whose clients say so: an
	// agent may have more to show to those that can be asked.
	CanAnswer []canonical.Mode
	Version   string     // of the protocol that the caller uses; empty: not known
	Session   string     // the caller's own, where its protocol has sessions: an agent may list more in the one that mirrors it
	Known     bool       // what is known of the agent will do: the caller does not ask what it can do now
	Pass      limit.Pass // what [Handler.Limit] gave for this very request
}

// Question asks whether a pair is served (AEPB, Protocol Negotiation step 3).
type Question struct {
	From, To translators.Side
	Dest     string          // for this agent; empty: for any
	Caller   identity.Caller // the zero Caller, and an anonymous one, learn nothing of agents and of other gateways
	Forwards int             // other gateways that may be asked in turn
}

// Handler is the pipeline as a server sees it. Errors are typed; package problem
// says what each becomes on the wire.
type Handler interface {
	// Limit settles who the caller is and takes one request from its share
	// (architecture section 5, steps 2 and 3). A server asks once per request, when it has
	// judged the header and before it reads the body; without its Pass the rest is [limit.ErrNoPass].
	Limit(context.Context, CallInfo) (limit.Pass, error)
	// Admit judges the caller of a request that an endpoint answers itself, such as a ping.
	Admit(context.Context, CallInfo) error
	// Exchange carries one message there and its reply back. A failure after
	// evidence was written comes with an Answer that holds only that evidence.
	Exchange(context.Context, Call) (Answer, error)
	// Describe answers discovery from the directory (R8): no ECT, no forwarding.
	Describe(context.Context, CallInfo) (*canonical.Description, error)
}

// Endpoint is where and how an agent is reached.
type Endpoint struct {
	Agent       string            // directory name
	ID          ect.Identity      // the agent's SPIFFE id; empty: judged by its TLS name
	Binding     canonical.Binding // the protocol spoken there
	Version     string            // protocol version; empty: not yet probed
	Form        string            // wire form spoken at URL (translators.Wire.Form); empty: the protocol's first
	URL         string
	GRPC        string           // host:port where its operator wants it reached over gRPC; empty: as its card says
	Signed      bool             // what is sent there bears our signature: nothing goes on as it came
	Tenant      string           // that the agent's card wants named in every request (A2A 1.0); empty: none
	Caller      ect.Identity     // whose work this is: legacy sessions are keyed (agent, caller) (R8)
	AnswerModes []canonical.Mode // what the agent may ask, because this caller can answer it
	CallerSession
	Found
	Expose  []string // what its description shows besides skills: what directory.Agent.Expose says
	Timeout time.Duration
	Fresh   time.Duration // how long what the agent says of itself can be shown without asking again; zero: it does not say
}

// Found is what an agent's description showed of how it is spoken to.
type Found struct {
	// Transport carries messages to URL, where the protocol has several that differ in nothing
	// else; empty: the protocol's first.
	Transport string
	// Why says why URL is called and not the listed one, or why the listed one though the
	// description names another, for operators; empty: the listed one is called.
	Why string
	// Sessionless: the agent keeps no session in this version, on which it could ask.
	Sessionless bool
}

// CallerSession is the caller's session, as far as the agent's own depends on it.
type CallerSession struct {
	Session string          // the caller's own session, where one protocol is relayed: it is mirrored toward the agent
	Alone   bool            // Session is one message's, and ends with the stream that answers it
	Client  canonical.Party // the caller's program, as a session with the agent is told when it begins; zero: ours
	Beside  bool            // the caller has no stream for input requests: the reply carries them
}

// Rewritten reports whether what is sent there must say something that the
// caller's message does not.
func (e Endpoint) Rewritten() bool { return e.Tenant != "" || e.Signed }

// Reply is what an agent answered: one message, or a stream.
type Reply struct {
	Wire     translators.Wire
	Events   Events   // not nil: a stream in place of Wire; the pipeline closes it
	Evidence []string // the agent's own ECTs, compact, unverified
}

// Dialer carries a sealed message to an endpoint. An agent's error reply is a
// Reply; only a failure to get one is an error: *UnreachableError,
// *TimeoutError, *BadReplyError or *egress.DeniedError.
type Dialer interface {
	Dial(context.Context, Endpoint, Sealed) (Reply, error)
}

// Stamper is implemented by a Dialer whose protocol's messages say who sends
// them to whom.
type Stamper interface {
	// Self is how this gateway names itself there.
	Self() string
	// Receiver returns the name that an agent of the directory has there; empty:
	// it is unknown.
	Receiver(agent string) string
}

// Framer is implemented by an HTTPServer or Dialer with a form whose bytes on the wire
// are not what its codec reads and writes (A2A over gRPC). Evidence hashes what
// travels, so the pipeline frames a message before it hashes it and unframes it
// before it decodes it.
type Framer interface {
	// Frame says also what the bytes cannot hold.
	Frame(translators.Wire) (translators.Wire, []canonical.Loss, error)
	// Unframe says what of the bytes the codec cannot read in Wire.Unreachable.
	Unframe(translators.Wire) (translators.Wire, error)
}

// Pusher posts the changes of a task to a webhook that a caller named.
type Pusher interface {
	// Form is the wire form in which changes are posted to callers of a version;
	// whole: each post is the whole task, and not the change.
	Form(version string) (form string, whole bool)
	// Check judges a configuration before it is kept. *egress.DeniedError: the URL may
	// not be posted to; *canonical.Error: its credentials fit into no header field.
	Check(canonical.PushConfig) error
	// Push posts one change with its evidence for a caller, several times if need be.
	Push(context.Context, ect.Identity, canonical.PushConfig, Sealed) error
}

// Decision is what a human decided, for the party that waits for it.
type Decision struct {
	URL      string // who waits
	Approval string // what was decided about
	Token    string // compact: hitl:approval_granted or hitl:approval_denied
}

// Callbacks tells decisions to those who wait for them (AEPB, HITL Callback
// Registration).
type Callbacks interface {
	// Check judges a URL before it is kept: *egress.DeniedError.
	Check(url string) error
	// Tell posts one decision for a caller, several times if need be.
	Tell(context.Context, ect.Identity, Decision) error
}

// Submitted is the evidence of a message. The token that a signal is comes
// first, and once, wherever its sender put it.
func Submitted(m *canonical.Message, evidence []string) []string {
	signal, ok := m.Body.(*canonical.Signal)
	if !ok || m.Phase != canonical.PhaseRequest || signal.Token == "" || slices.Contains(evidence, signal.Token) {
		return evidence
	}
	return append([]string{signal.Token}, evidence...)
}

// FieldParent is the field of a header that holds the jti of the ECT that its
// message came of (AEPB, Task Invocation with Parent Reference). In metadata, it is
// the same in lower case.
const FieldParent = "Aepb-Parent-Jti"

// ParentIn is the parent that a header names (Call.Parent). Several are no one's
// name, which the pipeline refuses.
func ParentIn(h http.Header) string { return strings.Join(h.Values(FieldParent), ",") }

// Describer asks an agent who it is: card, server/discover or initialize, and
// the list of what it can do. The Endpoint that it returns has Version and Form filled;
// a Version that the given one names is kept to. With a Session it gives the capabilities
// alone that the agent lists now in the one that mirrors it; nil: that has not been begun.
type Describer interface {
	Describe(context.Context, Endpoint) (*canonical.Description, Endpoint, error)
}

// ByCapabilities is implemented by a Describer whose agents describe themselves to a
// client by what it can be asked (Endpoint.Queried): an MCP server may hide a tool
// that asks for input from clients that cannot give it.
type ByCapabilities interface{ ByCapabilities() }

// ByRevision is implemented by a Describer whose agents may speak several versions of
// their protocol, so that one suits a caller better than the one that was negotiated.
type ByRevision interface {
	// Revisions are the versions that there are.
	Revisions() []string
	// Revision is the version for a caller who uses own, empty where it uses another
	// protocol, and who can be asked so; empty: the one that was negotiated will do.
	Revision(d *canonical.Description, own string, can []canonical.Mode) string
}

// Server is a protocol's HTTP face. The agent's name is the request's path value "agent".
type HTTPServer interface {
	Handler(Handler) http.Handler
}

// Listener is a protocol's face that is not HTTP. Serve takes messages in until
// its context ends, waits for those that it is working on, and then answers nil.
type Listener interface {
	Serve(context.Context, Handler) error
}
