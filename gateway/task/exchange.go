package task

import (
	"context"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/task/execution"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Exchange is one message of a caller about a task, as the pipeline carries it. One goroutine uses it.
type Exchange interface {
	Subject
	Editor
	Carrier
	Starter
}

// Subject is what the message is about.
type Subject interface {
	// Work is the request as it stands: its mode and limits are complete once its route is chosen.
	Work() execution.Request
	// TaskKey names the record of a task of the caller's at the agent.
	TaskKey(id string) store.EntryKey
	// Dialogue is the agent's id of a dialogue that only this caller's messages lead to.
	Dialogue(id string) string
	// Capability is what of the agent is called, under the name that its caller knows; nil: that is not known.
	Capability() *canonical.Capability
	// Turn is the message as it stands in the history of a task that is made here; nil: in none.
	Turn() *canonical.Content
}

// Editor changes the message.
type Editor interface {
	// About makes it one about the work of a record.
	About(rec *store.Record)
	// Say puts another message in its place.
	Say(m *canonical.Message)
	// Answer makes it one that answers what a record asks, and Claim is what it answers; nil: nothing.
	Answer(claim *store.Claim)
	Claim() *store.Claim
	// Derive is another message about the same work.
	Derive(m *canonical.Message) Exchange
}

// Carrier carries the message to the agent.
type Carrier interface {
	// Choose finds the route.
	Choose(ctx context.Context) error
	// AsksByState reports whether the agent, whose route is chosen, may ask by request states.
	AsksByState() bool
	// Seal finds the route, and makes the message one that may be sent; its ECT has this id.
	Seal(ctx context.Context) (transport.Sealed, ect.ID, error)
	// Register registers the webhook of a message about work on record.
	Register(ctx context.Context) error
	// Acknowledge sends the sealed message, which has one reply, and returns what testifies to that.
	Acknowledge(ctx context.Context, sealed transport.Sealed) ([]ect.ID, error)
}

// Starter answers the message.
type Starter interface {
	// Start sends the sealed message as one whose work may last. What comes of it answers op.
	Start(ctx context.Context, sealed transport.Sealed, op canonical.Op) *execution.Execution
	// Converse sends the sealed message and answers with its reply.
	Converse(ctx context.Context, sealed transport.Sealed) (transport.Answer, error)
	// Tell answers with a message of ours, of which nothing is kept.
	Tell(ctx context.Context, m *canonical.Message, proof execution.Proof) (transport.Answer, error)
	// ParentsOf are the ECTs that testify to a record and to the message about it, else to the message
	// alone; of a message about no record, rec is nil.
	ParentsOf(rec *store.Record) []ect.ID
}
