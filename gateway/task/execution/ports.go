package execution

import (
	"context"
	"encoding/json"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy/quota"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Agent is the agent of one request, as the pipeline reaches it. One execution uses it.
type Agent interface {
	Sealer
	Sender
	Verifier
}

// Sealer makes messages that may be sent to the agent.
type Sealer interface {
	// Seal makes one of a message of ours that goes on with the request.
	Seal(ctx context.Context, m *canonical.Message) (transport.Sealed, error)
	// SealAsTask seals the request once more, for an agent that does it as a task or not at all.
	SealAsTask(ctx context.Context) (transport.Sealed, error)
	// Inquire makes one of a question about the work.
	Inquire(ctx context.Context, op canonical.Op, body canonical.Body) (transport.Sealed, error)
}

// Sender sends to the agent.
type Sender interface {
	// Send carries a sealed message out. The reply may take no longer than limit; zero: as long as
	// its reader waits.
	Send(ctx context.Context, sealed transport.Sealed, limit time.Duration) (transport.Reply, error)
	// Acknowledge sends a sealed message that has one reply, to op, and returns that with what
	// testifies to it. An agent's error is one here.
	Acknowledge(ctx context.Context, op canonical.Op, sealed transport.Sealed) (translators.Wire, *canonical.Message, []ect.ID, error)
	// Notify tells the agent something in the background. What comes of it is logged.
	Notify(op canonical.Op, body canonical.Body)
	// CancelRequest tells the agent in the background that its reply is not waited for, where the
	// end of the connection does not say so.
	CancelRequest()
}

// Verifier reads what the agent says, and what proves that.
type Verifier interface {
	// Prove verifies the ECTs of a reply, and returns what testifies to it.
	Prove(ctx context.Context, reply transport.Reply) ([]ect.ID, error)
	// Verify verifies the ECTs in an event, or those that close a stream.
	Verify(ctx context.Context, tokens []string, check ect.Check) ([]ect.ID, error)
	// Read reads one message in reply to op. Its error is a *[transport.BadReplyError] or, of an
	// event, a *[translators.UnreadableNoticeError]: then wire and tokens are valid.
	Read(ctx context.Context, wire translators.Wire, op canonical.Op) (Incoming, error)
}

// Incoming is a message of the agent's.
type Incoming struct {
	Message *canonical.Message
	Wire    translators.Wire // without the ECTs in its body
	Tokens  []string         // the ECTs that were in the body of an event
}

// Caller is the caller of one request, as the pipeline answers it. One execution uses it.
type Caller interface {
	Recorder
	Replier
	Outlet
}

// Recorder keeps the record of the request's work.
type Recorder interface {
	// Record is the record; one is made, not saved, where there is none yet.
	Record(task *canonical.Task) *store.Record
	// SaveRequest puts the request into the record, because it has to be sent again with what it
	// answers. Its error is a *[translators.TooLongError].
	SaveRequest(rec *store.Record) error
	// Remember makes the request the last one of its dialogue.
	Remember(ctx context.Context, dialogue string)
	// Register registers the webhook of the request, if it has one that is not registered, and posts
	// the task as it stands.
	Register(ctx context.Context, rec *store.Record) error
	// FollowTask has the task of a record followed without a caller who waits for it.
	FollowTask(ctx context.Context, rec *store.Record)
}

// Replier answers the request.
type Replier interface {
	// ReplyWith answers with a message of ours. saved: the work is on record already.
	ReplyWith(ctx context.Context, m *canonical.Message, proof Proof, saved bool) (transport.Answer, error)
	// Relay answers with the agent's own message.
	Relay(ctx context.Context, wire translators.Wire, m *canonical.Message, parents []ect.ID) (transport.Answer, error)
	// DetachWork takes the work off the request, with its share of background work (nil: none was reserved) and its
	// place at the agent, which leave gives back.
	DetachWork() (share *quota.Grant, leave func())
	// Cause tells an error that came of the end of this process, or of the caller's own cancellation,
	// from other errors.
	Cause(err error) error
	// QuestionKey names a question in the caller's session.
	QuestionKey(id string) store.EntryKey
}

// Outlet is where the events of a stream go to a caller.
type Outlet interface {
	Opener
	Closer
}

// Opener opens a stream, and says its events in the caller's words.
type Opener interface {
	// Open signs the ECT that opens the stream.
	Open(ctx context.Context, parents []ect.ID) (transport.Opened, error)
	// Answer is the stream as an answer.
	Answer(opening transport.Opened, events transport.Events) (transport.Answer, error)
	// Event is a message in the caller's words.
	Event(m *canonical.Message) (translators.Wire, []canonical.Loss, error)
	// EncodeRefusal is an error in the caller's words; false: there are none for it.
	EncodeRefusal(cause error) (translators.Wire, bool)
}

// Closer ends a stream.
type Closer interface {
	// Close signs the ECT that closes the stream, which is that of the reply, and returns the ECT.
	Close(ctx context.Context, end attest.End) ([]string, error)
	// Closed makes the reply's ECT the last of its dialogue, and keeps what the stream brought.
	Closed(ctx context.Context, dialogue string)
	// Fail signs that the stream failed, and returns the ECT.
	Fail(ctx context.Context, cause error) []string
	// FinishRequest counts the request, and gives back what it took. Later calls do nothing.
	FinishRequest(ctx context.Context, err error)
	// EmbedsECTs reports whether the caller has ECTs in its messages: the last event waits for the ECT
	// that closes the stream.
	EmbedsECTs() bool
}

// Proof is what proves a reply.
type Proof struct {
	Parents []ect.ID
	Input   string  // the hash of what the agent said
	Ext     ect.Ext // what else the token says about it
}

// Poster posts to the webhooks of a task.
type Poster interface {
	Post(ctx context.Context, rec *store.Record, events []canonical.Event)
}

// Subscriber is a caller who is told notifications in the way of another revision than the
// agent's.
type Subscriber interface {
	// FirstMessage and LastMessage are what the stream begins and ends with; nil: it has no such message.
	FirstMessage() *canonical.Native
	LastMessage() *canonical.Message
	// TranslateEvent says an event in the words of the caller's revision; false: it is not wanted.
	TranslateEvent(e *canonical.Event) bool
}

// Request is what an execution goes by. It does not change.
type Request struct {
	Agent      Agent
	Caller     Caller
	Mode       Mode
	Handling   Handling
	Message    *canonical.Message // as it goes on
	WireID     json.RawMessage    // the caller's id of its request
	AgentName  string             // in the directory
	Origin     canonical.Origin   // of what the agent says
	Limits     Limits
	Holder     string                 // in whose share the work counts
	Size       int                    // of the request, in bytes
	Record     *store.Record          // of the task; nil: there is none yet
	History    []canonical.Content    // of a task that is made here
	Subscriber Subscriber             // nil: the caller's revision is the agent's
	Stopped    context.Context        //nolint:containedctx // ends when the caller cancels its request; nil: it cannot
	Budget     func() transport.Share // opens a share of the caller's bytes in flight; nil: nothing is booked
}

// Handling is how one request is handled, beside its mode.
type Handling struct {
	Verbatim  bool // the bytes of one side go to the other
	Posts     bool // a webhook is told each change, so the agent is heard at work whatever its caller waits for
	Webhook   bool // the request brings one
	OnRecord  bool // the webhook is for work that was on record before the request
	NamesTask bool // the agent makes a task of the request, which goes on when the connection ends
	Streams   bool // the agent says that it streams
	AsTask    bool // the request becomes a task of the agent's that the caller knows in another way, or not at all
	Listens   bool // the caller hears notifications, and may hear none for long
	Session   bool // the caller has a session, in which it can be asked
	Detached  bool // the work goes on when the caller's connection ends
}

// Limits are how long an execution waits.
type Limits struct {
	Timeout   time.Duration // for the agent
	Answers   time.Duration // for the caller's answers
	Unchanged time.Duration // for a change of the agent's task; zero: without a limit
}
