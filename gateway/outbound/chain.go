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
	Message     Kind = iota + 1 // to an agent
	Rollback                    // to an agent that takes signals apart from its endpoint
	Peer                        // to another gateway, which carries it on
	Webhook                     // a change of a task, posted to whom a caller named
	Callback                    // a decision, for whom waits for it
	Description                 // a question to an agent: who it is and what it can do
)

// Call is one thing to send.
type Call struct {
	Kind     Kind
	Endpoint transport.Endpoint // of Webhook its Binding and Caller alone, of Callback its Caller
	Sealed   transport.Sealed   // of all but Callback and Description
	Webhook  canonical.PushConfig
	Decision transport.Decision
	Beyond   bool              // of Description: the agent is behind another gateway, which is asked
	Agent    string            // its name in metrics; of Description its own, which is in none
	Limit    time.Duration     // how long the answer may take; zero: the sender of the call limits that itself
	From     canonical.Binding // the protocol of the caller on whose behalf it is sent
}

// Reply is what a call came back with: of a Webhook and a Callback nothing.
type Reply struct {
	transport.Reply // of Message, Rollback and Peer

	Description *canonical.Description // of Description
	Endpoint    *transport.Endpoint    // of Description: as the agent is to be called
}

// Sender sends. Its errors are those of [transport.Dialer], [transport.Pusher],
// [transport.Callbacks] and [transport.Describer]. A call is not changed by what sends it: it is
// passed as a pointer because it is large, and each stage would copy it.
type Sender interface {
	Send(ctx context.Context, call *Call) (Reply, error)
}

// SendFunc is a function that is a Sender.
type SendFunc func(ctx context.Context, call *Call) (Reply, error)

// Send implements Sender.
func (f SendFunc) Send(ctx context.Context, call *Call) (Reply, error) { return f(ctx, call) }

// Stage is what happens around each call.
type Stage func(next Sender) Sender

// NewChain makes a sender of what dials and the stages around it, the first one outermost.
func NewChain(dial Sender, stages ...Stage) Sender {
	for _, stage := range slices.Backward(stages) {
		dial = stage(dial)
	}
	return dial
}
