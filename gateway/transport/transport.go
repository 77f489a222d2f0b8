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

// EntryPoint is the kind of endpoint that a call came through.
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
	Message    *canonical.Message // Wire, decoded by the server; nil: the pipeline decodes it
	Target
	Caller    identity.Caller
	Address   string           // remote address without port: the limit key of anonymous callers
	Pass      limit.Pass       // the result of [Handler.Limit] for this message
	Evidence  []string         // the ECTs submitted, compact
	Parent    string           // jti of the parent ECT that the message names; empty: it names none
	Program   Program          // how the caller names itself in its protocol
	Session   string           // the session at the server that the message belongs to; empty: none
	CanAnswer []canonical.Mode // input modes of the session, if the message names none; nil: none
	Tenanted  bool             // Agent came as the tenant of the message, which is not sent to the agent
	// Card writes the agent's extended card as the server serves it, if the message
	// asks for that card (A2A 3.1.11); nil: it does not.
	Card     func(*canonical.Description) (json.RawMessage, error)
	Detached bool // the work goes on after the caller's connection has closed (A2A; MCP before 2026-07-28)
}

// Program is how the caller names itself in its protocol.
type Program struct {
	Sender string          // in AINP: its DID
	Client canonical.Party // clientInfo with which it began Session in MCP; zero: it began none
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

// LifecycleNotice tells callers that an agent is deprecated or will end (AEPB, Lifecycle
// States). The zero Notice tells nothing.
type LifecycleNotice struct {
	Deprecated time.Time // since when; zero: it is not
	Sunset     time.Time // when it ends; zero: unknown
	Successor  string    // URL of its successor's capability document; empty: none
}

// Announce puts a notice into the fields of a response: Deprecation (RFC 9745),
// Sunset (RFC 8594) and a link to the successor (RFC 5829). A second call changes
// nothing.
func (n LifecycleNotice) Announce(h http.Header) {
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

// CallInfo describes a request and its caller, independent of the protocol.
type CallInfo struct {
	Agent   string
	Caller  identity.Caller
	Address string
	Binding canonical.Binding // the server that asks
	Form    string            // the wire form that the caller uses there (translators.Wire.Form)
	// CanAnswer lists the caller's input modes, in a protocol whose clients name them: an
	// agent may list more for clients that can answer.
	CanAnswer []canonical.Mode
	Version   string     // of the protocol that the caller uses; empty: not known
	Session   string     // the caller's own, where its protocol has sessions: an agent may list more in the one that mirrors it
	Known     bool       // the last known description of the agent suffices
	Pass      limit.Pass // the result of [Handler.Limit] for this request
}

// PairQuery asks whether a protocol pair can be translated (AEPB, Protocol Negotiation step 3).
type PairQuery struct {
	From, To translators.Side
	Dest     string          // for this agent; empty: for any
	Caller   identity.Caller // an anonymous or zero Caller learns nothing of agents and peer gateways
	Forwards int             // other gateways that may be asked in turn
}

// Handler is the pipeline as a server sees it. Errors are typed; package problem
// says what each becomes on the wire.
type Handler interface {
	// Limit identifies the caller and takes one request from its rate limit
	// (architecture section 5, steps 2 and 3). A server calls it once per request, after the
	// header and before the body. Without its Pass the other methods fail with [limit.ErrNoPass].
	Limit(context.Context, CallInfo) (limit.Pass, error)
	// Admit judges the caller of a request that an endpoint answers itself, such as a ping.
	Admit(context.Context, CallInfo) error
	// Exchange sends one message to the agent and returns its reply. A failure after
	// evidence was recorded comes with an Answer that holds only that evidence.
	Exchange(context.Context, Call) (Answer, error)
	// Describe answers discovery from the directory (R8): no ECT, no forwarding.
	Describe(context.Context, CallInfo) (*canonical.Description, error)
}

// Endpoint is the address of an agent, and how to send messages there.
type Endpoint struct {
	Agent       string            // directory name
	ID          ect.Identity      // the agent's SPIFFE id; empty: judged by its TLS name
	Binding     canonical.Binding // the protocol of the agent
	Version     string            // protocol version; empty: not yet probed
	Form        string            // wire form at URL (translators.Wire.Form); empty: the protocol's first
	URL         string
	GRPC        string           // host:port for gRPC, set by its operator; empty: that of its card
	Signed      bool             // messages bear the signature of the gateway, so none passes unchanged
	Tenant      string           // tenant that the agent's card demands in every request (A2A 1.0); empty: none
	Caller      ect.Identity     // the caller of the request: legacy sessions are keyed (agent, caller) (R8)
	AnswerModes []canonical.Mode // input modes that the agent may use, because this caller can answer them
	CallerSession
	Found
	Expose  []string // what its description shows besides skills (directory.Agent.Expose)
	Timeout time.Duration
	Fresh   time.Duration // how long the agent's description may be cached; zero: it does not say
}

// Found is what an agent's description says about how to send messages to it.
type Found struct {
	// Transport carries messages to URL, where the protocol has several that differ in nothing
	// else; empty: the protocol's first.
	Transport string
	// Why tells operators why URL differs from the listed one, or from the one that the
	// description names; empty: it is the listed one.
	Why string
	// Sessionless: in this version the agent has no session for its input requests.
	Sessionless bool
}

// CallerSession is the caller's session, as far as the agent's own depends on it.
type CallerSession struct {
	Session string          // the caller's session, if its protocol is relayed: one is opened at the agent for it
	Alone   bool            // Session serves one message, and ends with the stream that answers it
	Client  canonical.Party // clientInfo for a session with the agent; zero: the gateway's
	Beside  bool            // the caller has no stream for input requests: the reply carries them
}

// Rewritten reports whether messages to the endpoint need content that the caller's
// message does not have.
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

// Addresser is implemented by a Dialer whose protocol's messages name their sender
// and receiver.
type Addresser interface {
	// Self is how this gateway names itself there.
	Self() string
	// Receiver returns the name that an agent of the directory has there; empty:
	// it is unknown.
	Receiver(agent string) string
}

// WireFormat is implemented by an HTTPServer or Dialer with a form whose bytes on the wire
// are not what its codec reads and writes (A2A over gRPC). Evidence hashes the bytes
// on the wire, so the pipeline frames a message before it hashes it and unframes it
// before it decodes it.
type WireFormat interface {
	// Frame also returns the losses of content that the bytes cannot hold.
	Frame(translators.Wire) (translators.Wire, []canonical.Loss, error)
	// Unframe puts what the codec cannot read of the bytes into Wire.Unreachable.
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
	URL      string // of the callback
	Approval string // id of the approval
	Token    string // compact: hitl:approval_granted or hitl:approval_denied
}

// Callbacks posts decisions to the callbacks that wait for them (AEPB, HITL Callback
// Registration).
type Callbacks interface {
	// Check judges a URL before it is kept: *egress.DeniedError.
	Check(url string) error
	// Tell posts one decision for a caller, several times if need be.
	Tell(context.Context, ect.Identity, Decision) error
}

// Submitted returns the evidence of a message. The token of a signal comes first, and
// once, wherever its sender put it.
func Submitted(m *canonical.Message, evidence []string) []string {
	signal, ok := m.Body.(*canonical.Signal)
	if !ok || m.Phase != canonical.PhaseRequest || signal.Token == "" || slices.Contains(evidence, signal.Token) {
		return evidence
	}
	return append([]string{signal.Token}, evidence...)
}

// FieldParent is the header field with the jti of the parent ECT of a message
// (AEPB, Task Invocation with Parent Reference). In metadata, it is
// the same in lower case.
const FieldParent = "Aepb-Parent-Jti"

// ParentIn returns the parent that a header names (Call.Parent). Several are joined to a
// value that is no jti, which the pipeline refuses.
func ParentIn(h http.Header) string { return strings.Join(h.Values(FieldParent), ",") }

// Describer reads an agent's description (card, server/discover or initialize) and its
// lists of capabilities. It returns an Endpoint with Version and Form; a Version that the
// given one names does not change. With a Session it returns only the capabilities that the
// agent lists in its own session for it; nil: there is no such session yet.
type Describer interface {
	Describe(context.Context, Endpoint) (*canonical.Description, Endpoint, error)
}

// ByCapabilities is implemented by a Describer whose agents adapt their description to the
// input modes of a client (Endpoint.AnswerModes): an MCP server may hide a tool
// that asks for input from clients that cannot answer.
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

// HTTPServer is a server side over HTTP. The agent's name is the request's path value "agent".
type HTTPServer interface {
	Handler(Handler) http.Handler
}

// Listener is a server side that is not HTTP. Serve takes messages in until its context
// ends, waits for those under way, and then returns nil.
type Listener interface {
	Serve(context.Context, Handler) error
}
