package gateway

import (
	"context"
	"time"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/stream"
)

// grace is how long a caller who asked for a stream, or not to wait, waits all
// the same: what fails at once is refused in words, and what is done at once is
// answered with its result.
const grace = 250 * time.Millisecond

// patience is the context in which an agent is asked: it ends with the agent's
// time limit.
func (x *exchange) patience(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, x.endpoint.Timeout)
}

// lifetime is how long the work goes on: it ends with the caller's connection
// only where that means to stop.
func (x *exchange) lifetime(ctx context.Context) context.Context {
	if x.call.Detached {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

// lasts: the request asks for more than one answer, or not to wait for it. In a
// relay whoever answers decides about waiting.
func (x *exchange) lasts() bool {
	p := x.message.Preferences
	if x.call.Agent == "" || x.relay() {
		return p.Stream && x.call.Agent != ""
	}
	return p.Stream || p.NoWait || p.TaskOK
}

// streams: the agent is asked for a stream, so that it can be seen at work, and
// stopped.
func (x *exchange) streams() bool {
	switch {
	case x.call.Agent == "":
		return false
	case x.relay():
		return x.message.Preferences.Stream
	default:
		return x.described != nil && x.described.Streams && x.dest.Info().Streams == translators.StreamsTask
	}
}

// final: there is nothing to do with this answer but to pass it on.
func (x *exchange) final(m *canonical.Message) bool {
	result, ok := m.Body.(*canonical.Result)
	switch {
	case !ok || x.verbatim():
		return true
	case result.Pending != nil:
		return x.relay() && x.asking() == translators.AskReply
	case result.Task == nil || x.relay():
		return true
	case result.Task.Status.State.Terminal():
		return true
	default:
		return stream.Settled(result.Task.Status.State) && (x.asking() == translators.AskNone || x.asking() == translators.AskTask)
	}
}

// asking is how this caller can be asked.
func (x *exchange) asking() translators.Asking {
	asker, ok := x.source.(translators.Asker)
	if !ok {
		return translators.AskNone
	}
	way := asker.Asks(x.message.Origin.Version)
	if way != translators.AskTask && len(x.message.Preferences.CanAnswer) == 0 {
		return translators.AskNone
	}
	return way
}

// askable is what the agent may ask, because this caller can answer it.
func (x *exchange) askable() []canonical.Mode {
	switch x.asking() {
	case translators.AskNone:
		return nil
	case translators.AskTask:
		return []canonical.Mode{canonical.ModeForm, canonical.ModeURL}
	default:
		return x.message.Preferences.CanAnswer
	}
}
