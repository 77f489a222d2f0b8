package gateway

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/gateway/routing"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/rollback"
	"github.com/aepb/aepb-gateway/translators/stream"
)

// grace is how long a caller who asked for a stream, or not to wait, waits all
// the same: what fails at once is refused in words, and what is done at once is
// answered with its result.
const grace = 250 * time.Millisecond

// promptly is how long whoever asked not to wait waits for a result: so little that
// the task is promised within the grace, evidence and record included.
const promptly = 150 * time.Millisecond

// lifetime is how long the work goes on: it ends with the caller's connection
// only where that means to stop, and always with the gateway.
func (g *Gateway) lifetime(ctx context.Context, x *exchange) context.Context {
	if x.in.Call.Detached {
		return g.workers.Detach(ctx)
	}
	return ctx
}

// retasks: both sides speak one protocol, and the agent keeps tasks in another way
// than the caller knows them, or the caller knows of none.
func (x *exchange) retasks() bool {
	tasker := x.in.Features.Tasker
	if tasker == nil || x.in.Call.Agent == "" || x.to.Via != nil || x.route.Description == nil || !x.route.Description.Tasks || !x.relay() {
		return false
	}
	agent := tasker.Tasks(x.route.Endpoint.Version)
	return agent != translators.TaskingNone && agent != tasker.Tasks(x.message.Origin.Version)
}

// tasking: the message becomes a task of the agent's that its caller is told of in
// the way that it knows, or not at all.
func (x *exchange) tasking() bool {
	if x.message.Op != canonical.OpInvoke || !x.retasks() {
		return false
	}
	tasker := x.in.Features.Tasker
	only := tasker.Tasks(x.route.Endpoint.Version) == translators.TaskingApart && x.route.Marks != nil && tasker.TaskOnly(x.route.Marks)
	return x.message.Preferences.TaskOK || x.forced || only
}

// wantsTask: the agent refuses a caller who knows of no tasks, and has done nothing.
func (x *exchange) wantsTask(heard *canonical.Message) bool {
	if heard == nil || x.message.Op != canonical.OpInvoke || x.forced || !x.retasks() || x.tasking() {
		return false
	}
	refused, ok := heard.Body.(*canonical.Error)
	return ok && refused.Code == canonical.CodeCapabilityRequired
}

// insists: the caller is answered with a task, whatever becomes of it (MCP 2025-11-25).
func (x *exchange) insists() bool {
	tasker := x.in.Features.Tasker
	return tasker != nil && x.message.Preferences.TaskOK && tasker.Tasks(x.message.Origin.Version) == translators.TaskingApart
}

// outcomeApart: what came of the agent's task, and what it asks, is heard apart from
// how it stands.
func (x *exchange) outcomeApart() bool {
	tasker := x.to.Features.Tasker
	return tasker != nil && tasker.Tasks(x.agentVersion()) == translators.TaskingApart
}

// lasts: the request asks for more than one answer, or not to wait for it. In a
// relay whoever answers decides about waiting.
func (x *exchange) lasts() bool {
	p := x.message.Preferences
	if x.in.Call.Agent == "" || x.relay() {
		return x.in.Call.Agent != "" && (p.Stream || x.tasking() || x.posts())
	}
	return p.Stream || p.NoWait || p.TaskOK || x.posts()
}

// posts: the message brings a webhook that is told each change, so that the agent is
// heard at work whatever its caller waits for. An agent of the caller's own protocol
// that does not stream shows no more than its answer.
func (x *exchange) posts() bool {
	return x.webhook != nil && x.message.Op == canonical.OpInvoke && (!x.relay() || x.route.Description != nil && x.route.Description.Streams)
}

// agentStreams is how the agent streams, callerStreams how the caller reads that.
func (x *exchange) agentStreams() translators.Streams {
	return translators.StreamsOf(x.to.Codec, x.agentVersion())
}

// agentVersion is the version in which the agent is spoken to; empty: nobody has
// asked it yet, and none is listed.
func (x *exchange) agentVersion() string { return x.sides().AgentVersion(x.route.Endpoint.Version) }

func (x *exchange) callerStreams() translators.Streams {
	return translators.StreamsOf(x.in.Source, x.message.Origin.Version)
}

// streams: the agent is asked for a stream, so that it can be seen at work, and
// stopped.
func (x *exchange) streams() bool {
	switch {
	case x.in.Call.Agent == "":
		return false
	case x.relay():
		return x.message.Preferences.Stream || x.posts()
	default:
		return x.route.Description != nil && x.route.Description.Streams && x.agentStreams() == translators.StreamsTask
	}
}

// final: there is nothing to do with this answer but to pass it on.
func (x *exchange) final(m *canonical.Message) bool {
	result, ok := m.Body.(*canonical.Result)
	switch {
	case !ok || x.verbatim() || x.message.Op != canonical.OpInvoke && x.message.Op != canonical.OpNative:
		return true
	case result.Pending != nil:
		return x.relay() && x.asking() == translators.AskReply
	case result.Task == nil || x.relay():
		return true
	case x.promised(result.Task):
		return false
	case result.Task.Status.State.Terminal():
		return true
	default:
		return stream.Settled(result.Task.Status.State) && (x.asking() == translators.AskNone || x.asking() == translators.AskTask)
	}
}

// promised: the task stands in place of a result. Whatever its state, what it
// asks and what came of it the agent says when it is asked about it (MCP,
// CreateTaskResult).
func (x *exchange) promised(t *canonical.Task) bool {
	return x.agentStreams() == translators.StreamsReply && t.Output == nil && t.Failure == nil && len(t.Inputs) == 0 &&
		len(t.Artifacts) == 0 && t.Status.State != canonical.StateCanceled
}

// asksAlike: the agent's protocol is the caller's, which asks by results.
func (x *exchange) asksAlike() bool { return x.kin() && x.sides().Way() == translators.AskReply }

// asking is how this caller can be asked.
func (x *exchange) asking() translators.Asking { return x.sides().Asking(x.agentVersion()) }

// answerable is what of that which a caller says it answers this agent may ask: nothing
// where the caller cannot be asked.
func (x *exchange) answerable(modes []canonical.Mode) []canonical.Mode {
	return x.sides().Answerable(modes, x.agentVersion())
}

// brief leaves out the history of a task that its caller did not ask for (A2A,
// historyLength).
func (x *exchange) brief(m *canonical.Message) {
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
func (x *exchange) pose(m *canonical.Message) {
	result, ok := m.Body.(*canonical.Result)
	if !ok || result.Task == nil || x.relay() || x.asking() == translators.AskNone || x.asking() == translators.AskTask {
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

// stepLong is step with an agent's patience. Who listens for news may hear nothing
// for longer; the listener keeps such a connection alive.
func (r *run) stepLong(ctx context.Context) (step, error) {
	for silent := time.Duration(0); ; silent += r.x.route.Endpoint.Timeout {
		s, err := r.step(ctx, r.x.route.Endpoint.Timeout)
		if !errors.Is(err, errPatience) || !r.began || !r.x.hears() || silent >= longestSilence {
			return s, err
		}
	}
}

// heard is one thing that came from an agent.
type heard struct {
	reply transport.Reply  // of the first; its Wire is set if it was no stream
	event *transport.Event // of a stream, one after the other
	err   error            // the end of it; nil: something was said
}

// pump asks an agent and hands on what it says, one thing at a time: it reads
// the next only when the last was taken.
type pump struct {
	out    chan heard
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// startPump begins to ask. The request lives until the pump is stopped, also when its
// caller waits no longer.
func startPump(ctx context.Context, ask func(context.Context) (transport.Reply, error)) *pump {
	ctx, cancel := context.WithCancel(ctx)
	p := &pump{out: make(chan heard), cancel: cancel}
	p.done.Go(func() { p.work(ctx, ask) })
	return p
}

func (p *pump) work(ctx context.Context, ask func(context.Context) (transport.Reply, error)) {
	defer close(p.out)
	reply, err := ask(ctx)
	if err != nil {
		p.put(ctx, heard{err: err})
		return
	}
	if reply.Events != nil {
		defer func() { _ = reply.Events.Close() }()
	}
	for ok := p.put(ctx, heard{reply: reply}); ok && reply.Events != nil; {
		event, err := reply.Events.Next(ctx)
		if errors.Is(err, io.EOF) {
			return
		}
		ok = p.put(ctx, heard{event: &event, err: err}) && err == nil
	}
}

func (p *pump) put(ctx context.Context, h heard) bool {
	select {
	case p.out <- h:
		return true
	case <-ctx.Done():
		return false
	}
}

// errPatience: nothing was said for as long as one waits.
var errPatience = errors.New("gateway: nothing was said in time")

// next waits for the next thing, but no longer than patience. io.EOF: there is
// no more.
func (p *pump) next(ctx context.Context, patience time.Duration) (heard, error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case h, ok := <-p.out:
		if !ok {
			return heard{}, io.EOF
		}
		return h, h.err
	case <-timer.C:
		return heard{}, errPatience
	case <-ctx.Done():
		return heard{}, ctx.Err()
	}
}

// stop ends the asking and waits until it has ended.
func (p *pump) stop() {
	if p == nil {
		return
	}
	p.cancel()
	p.done.Wait()
}

// choose finds the route of the message: where the agent is, and what is called there.
func (g *Gateway) choose(ctx context.Context, x *exchange) error {
	q := routing.Query{
		Sides: x.sides(), Body: x.asked, Header: x.in.Call.Wire.Header, Version: x.route.Endpoint.Version, Alone: x.alone, Timeout: x.settings.Timeout,
	}
	if x.record != nil {
		q.Skill = x.record.Skill
	}
	route, err := routing.Router{Directory: g.Directory}.Resolve(ctx, q)
	x.route, x.message, x.in.Call.Wire.Header = route, route.Message, route.Header
	x.renamedCall = x.renamedCall || route.Renamed
	return err
}

// sides are the caller and the agent.
func (x *exchange) sides() routing.Sides {
	return routing.Sides{In: &x.in, To: &x.to, Message: x.message}
}

// kin: both sides use the words of one protocol, whoever carries them.
func (x *exchange) kin() bool { return x.sides().Kin(x.agentVersion()) }

// undoing puts the form of rollbacks over HTTP in place of a protocol that has
// none of its own, where the agent can be asked that way.
func (g *Gateway) undoing(x *exchange) {
	if x.message.Op != canonical.OpRollback || x.to.Codec == nil || x.to.Via != nil || g.Network.Rollbacks[x.to.Codec.Info().Binding] == nil {
		return
	}
	x.to.Codec = rollback.Over(x.to.Codec)
	x.to.Features = translators.FeaturesOf(x.to.Codec)
}
