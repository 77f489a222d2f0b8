package gateway

import (
	"context"
	"time"

	"github.com/aepb/aepb-gateway/gateway/task/execution"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/rollback"
	"github.com/aepb/aepb-gateway/translators/stream"
)

// lifetime is how long the work goes on: it ends with the caller's connection
// only where that means to stop, and always with the gateway.
func (g *Gateway) lifetime(ctx context.Context, x *request) context.Context {
	if x.in.Call.Detached {
		return g.workers.Detach(ctx)
	}
	return ctx
}

// brief leaves out the history of a task that its caller did not ask for (A2A,
// historyLength).
func (x *request) brief(m *canonical.Message) {
	if x.verbatim() {
		return
	}
	shorten := func(t *canonical.Task) *canonical.Task {
		if t == nil || len(t.History) == 0 {
			return t
		}
		short := *t
		short.History = x.shortened(t.History)
		return &short
	}
	switch body := m.Body.(type) {
	case *canonical.Result:
		if task := shorten(body.Task); task != body.Task {
			short := *body
			short.Task, m.Body = task, &short
		}
	case *canonical.Event:
		if task := shorten(body.Task); task != body.Task {
			short := *body
			short.Task, m.Body = task, &short
		}
	case *canonical.TaskList:
		for i := range body.Tasks {
			body.Tasks[i] = *shorten(&body.Tasks[i])
		}
	}
}

// pose says what a task asks in the way of a caller who is asked in forms.
func (x *request) pose(m *canonical.Message) {
	result, ok := m.Body.(*canonical.Result)
	if !ok || result.Task == nil || x.mode.Relay || x.mode.Asking == translators.AskNone || x.mode.Asking == translators.AskTask {
		return
	}
	state := result.Task.Status.State
	if !stream.Settled(state) || state.Terminal() {
		return
	}
	asks, asking := *result, *result.Task
	asking.Inputs = stream.Forms(stream.Inputs(&asking))
	asks.Task, m.Body = &asking, &asks
}

// undoing puts the form of rollbacks over HTTP in place of a protocol that has
// none of its own, where the agent can be asked that way.
func (g *Gateway) undoing(x *request) {
	if x.message.Op != canonical.OpRollback || x.to.Codec == nil || x.to.Via != nil || g.Network.Rollbacks[x.to.Codec.Info().Binding] == nil {
		return
	}
	x.to.Codec = rollback.Over(x.to.Codec)
	x.to.Features = translators.FeaturesOf(x.to.Codec)
}

// answerWait is how long a question of this exchange may wait for its answer.
func (x *request) answerWait() time.Duration {
	if x.settings.AnswerWait > 0 {
		return x.settings.AnswerWait
	}
	return DefaultAnswerWait
}

// waits is for whose sake an answer is waited for: its caller's, unless what comes of the message
// has to be ended without him.
func (g *Gateway) waits(ctx context.Context, x *request) context.Context {
	if x.names() {
		return g.workers.Context()
	}
	return ctx
}

// begin sends a request whose work may last. What comes of it answers op.
func (g *Gateway) begin(ctx context.Context, x *request, sealed transport.Sealed, op canonical.Op) *execution.Execution {
	return g.executions.Start(ctx, g.work(x), sealed, x.trail.Request(), op)
}
