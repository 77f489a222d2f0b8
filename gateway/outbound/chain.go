package outbound

import (
	"context"
	"slices"
	"time"

	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Kind is what is sent, and so by what.
type Kind uint8

// The kinds of calls.
const (
	Message  Kind = iota + 1 // to an agent
	Rollback                 // to an agent that takes signals apart from its endpoint
	Peer                     // to another gateway, which carries it on
	Webhook                  // a change of a task, posted to whom a caller named
	Callback                 // a decision, for whom waits for it
)

// Call is one thing to send.
type Call struct {
	Kind     Kind
	Endpoint transport.Endpoint // of Message, Rollback and Peer; of Webhook its Binding alone
	Sealed   transport.Sealed   // of all but Callback
	Webhook  canonical.PushConfig
	Decision transport.Decision
	Agent    string            // in metrics
	Limit    time.Duration     // how long the answer may take; zero: the sender of the call limits that itself
	From     canonical.Binding // the protocol of the caller on whose behalf it is sent
}

// Sender sends. A Webhook and a Callback have an empty reply. Its errors are those of
// [transport.Dialer], [transport.Pusher] and [transport.Callbacks].
type Sender interface {
	Send(ctx context.Context, call Call) (transport.Reply, error)
}

// SendFunc is a function that is a Sender.
type SendFunc func(ctx context.Context, call Call) (transport.Reply, error)

// Send implements Sender.
func (f SendFunc) Send(ctx context.Context, call Call) (transport.Reply, error) { return f(ctx, call) }

// Stage is what happens around each call.
type Stage func(next Sender) Sender

// NewChain makes a sender of what dials and the stages around it, the first one outermost.
func NewChain(dial Sender, stages ...Stage) Sender {
	for _, stage := range slices.Backward(stages) {
		dial = stage(dial)
	}
	return dial
}
