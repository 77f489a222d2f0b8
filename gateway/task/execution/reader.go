package execution

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/outbound"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/worker"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/stream"
)

const (
	maxBroken    = 3 // requests in a row that may break off before the agent counts as lost
	maxCalls     = 8 // calls that an agent may have made again for nothing
	pollInterval = time.Second
	minPoll      = 100 * time.Millisecond
	maxPoll      = time.Minute
	maxParents   = 8 // of one token: the first, and the newest
)

// errNoStream: the reply was a single message, so the agent sends no more events.
var errNoStream = errors.New("execution: the reply was no stream")

// reader is the request that is under way, and what proves the replies so far.
type reader struct {
	source    *outbound.Reader
	op        canonical.Op    // what the messages that come answer
	began     bool            // the present request has been answered
	first     bool            // a subscription has not told anything but how things stand
	noStream  bool            // it cannot be subscribed to
	broken    int             // requests that broke off since anything new came
	repeats   int             // of the call, for an agent that asked nothing
	agentHash ect.StreamHash  // of everything that came
	stream    *ect.StreamHash // of that, of the stream that answers the present request; nil: no stream does
	soleHash  string          // in place of agentHash if one message came and no stream
	parents   []ect.ID        // what testifies to it
}

// addParents adds the evidence of a reply to what the work is proven by.
func (r *reader) addParents(parents []ect.ID) {
	for _, id := range parents {
		if !slices.Contains(r.parents, id) {
			r.parents = append(r.parents, id)
		}
	}
	if extra := len(r.parents) - maxParents; extra > 0 {
		r.parents = slices.Delete(slices.Clone(r.parents), 1, 1+extra)
	}
}

// hash adds a message to the hashes.
func (r *reader) hash(wire translators.Wire) {
	if r.stream != nil && wire.Event {
		r.stream.Add(wire.HashInput())
	}
	if r.agentHash.Add(wire.HashInput()); r.agentHash.Count() == 1 && !wire.Event {
		r.soleHash = ect.Hash(wire.HashInput())
	} else {
		r.soleHash = ""
	}
}

// proof is what proves a reply to everything that came.
func (r *reader) proof() Proof {
	p := Proof{Parents: r.parents, Input: r.soleHash}
	if p.Input == "" {
		p.Input, p.Ext = r.agentHash.Sum(), ect.Ext{ect.ExtEvents: attest.Events(r.agentHash.Count(), 1)}
	}
	return p
}

// listen reads from now on what comes of a request.
func (e *Execution) listen(ctx context.Context, send func(context.Context) (transport.Reply, error)) {
	e.source = outbound.StartReader(context.WithoutCancel(ctx), send)
}

// send sends the request, or a further one in its place. What comes is read by later updates.
func (e *Execution) send(ctx context.Context, sealed transport.Sealed) {
	if e.op, e.began = canonical.OpInvoke, false; e.req.Message.Op == canonical.OpNative {
		e.op = canonical.OpNative
	}
	e.sendFor(ctx, sealed)
}

func (e *Execution) sendFor(ctx context.Context, sealed transport.Sealed) {
	e.listen(ctx, func(ctx context.Context) (transport.Reply, error) {
		return e.req.Agent.Send(ctx, sealed, 0)
	})
}

// reopen forgets the reply that asked something, before the agent is asked again.
func (e *Execution) reopen() {
	e.source.Stop()
	e.resultIs(nil)
	e.fold.Resume()
}

// next waits for the next thing that comes. Meanwhile, what came before goes on record, for
// those who are told it from there.
func (e *Execution) next(ctx context.Context, limit time.Duration) (outbound.Incoming, error) {
	due := saveInterval - e.now().Sub(e.saved)
	if !e.recording || e.savedEvents == e.log.Count || due >= limit {
		return e.source.Next(ctx, limit)
	}
	in, err := e.source.Next(ctx, max(due, 0))
	if !errors.Is(err, outbound.ErrNothingYet) {
		return in, err
	}
	e.trySave(ctx)
	return e.source.Next(ctx, limit-max(due, 0))
}

// receive takes one thing that came; false: it was no message.
func (e *Execution) receive(ctx context.Context, in outbound.Incoming) (update, bool, error) {
	wire := in.Reply.Wire
	switch {
	case in.Event == nil:
		parents, err := e.req.Agent.Prove(ctx, in.Reply)
		if err != nil {
			return update{}, false, err
		}
		e.addParents(parents)
		if e.began, e.stream = true, nil; in.Reply.Events != nil {
			e.stream = &ect.StreamHash{}
			e.on(StreamOpened)
			return update{}, false, nil
		}
	case len(in.Event.Wire.Body) == 0:
		return update{}, false, e.closeStream(ctx, in.Event.Evidence)
	default:
		wire = in.Event.Wire
	}
	wire.Event = in.Event != nil
	got, err := e.req.Agent.Read(ctx, wire, e.op)
	if unread, ok := errors.AsType[*translators.UnreadableNoticeError](err); ok && wire.Event {
		e.hash(got.Wire)
		losses := []canonical.Loss{unread.Loss}
		e.losses = canonical.MergeLosses(e.losses, losses)
		return update{losses: losses}, true, e.verifyEvent(ctx, got.Tokens)
	}
	if err != nil {
		return update{}, false, err
	}
	return e.take(ctx, got)
}

// take takes a message.
func (e *Execution) take(ctx context.Context, got Incoming) (update, bool, error) {
	message := got.Message
	e.hash(got.Wire)
	if !e.first && message.Phase != canonical.PhaseError {
		e.broken = 0
	}
	e.first = false
	before := e.fold.Task()
	events, err := e.accumulate(message)
	if err == nil {
		err = e.checkUnchanged(before)
	}
	if err == nil {
		var dropped []canonical.Loss
		dropped, err = e.budget.Follow(ctx, &e.fold, e.req.AgentName, e.req.Message.Preferences.Stream && e.req.Mode.CallerStreams == translators.StreamsTask)
		e.losses = canonical.MergeLosses(e.losses, dropped)
	}
	for i := range events { // a record has each status in its task and in its log, and both say the same
		e.complement(&events[i])
	}
	if e.req.Mode.StreamsHere && !e.observer { // who follows the work later is told of it from its record
		e.log, e.progress = e.log.With(events), lastProgress(e.progress, events)
	}
	if message.Phase != canonical.PhaseEvent || e.complete() {
		e.dropInputs() // an agent that has replied waits for no answer
	}
	e.on(e.kind())
	if unproven := e.verifyEvent(ctx, got.Tokens); unproven != nil {
		return update{}, false, unproven
	}
	if e.message = message; !got.Wire.Event {
		e.over, e.replyWire = true, &got.Wire
	}
	return update{events: events, wire: &got.Wire, losses: message.Losses}, true, err
}

// closingWait is how long the ECT that closes a stream is waited for after its last event.
const closingWait = FirstEventWait

// waitClosingECT waits a little for the ECT that closes a stream whose last event came. An agent
// that keeps the stream open gives none.
func (e *Execution) waitClosingECT(ctx context.Context) error {
	if e.stream == nil || e.ask != nil || e.req.Handling.Verbatim && e.over {
		return nil
	}
	in, err := e.source.Next(ctx, closingWait)
	if err != nil || in.Event == nil || len(in.Event.Wire.Body) > 0 {
		e.stream = nil // it broke off, or goes on: nothing closes what came
		e.on(StreamClosed)
		return ctx.Err()
	}
	return e.closeStream(ctx, in.Event.Evidence)
}

// closeStream judges what an agent says of its stream at the end: a token whose out_hash is
// another stream's, or that is not the agent's, makes all of it untrustworthy, as one in front of
// a reply does. A good one becomes a parent.
func (e *Execution) closeStream(ctx context.Context, tokens []string) error {
	if len(tokens) == 0 || e.stream == nil {
		return nil
	}
	whole := e.stream.Sum()
	e.stream = nil
	e.on(StreamClosed)
	return e.verify(ctx, tokens, ect.Check{Purpose: ect.Reply, Body: whole})
}

// verifyEvent verifies the tokens in an event, like those of the stream's trailer where nothing
// follows the event, else like those of its header.
func (e *Execution) verifyEvent(ctx context.Context, tokens []string) error {
	if len(tokens) == 0 {
		return nil
	}
	if e.stream != nil && e.complete() {
		return e.closeStream(ctx, tokens)
	}
	return e.verify(ctx, tokens, ect.Check{Purpose: ect.Parent})
}

func (e *Execution) verify(ctx context.Context, tokens []string, check ect.Check) error {
	parents, err := e.req.Agent.Verify(ctx, tokens, check)
	if err == nil {
		e.addParents(parents)
	}
	return err
}

// follow goes on after the agent has ended its reply, or it broke off: an agent that has a task
// of its own can be asked about it.
func (e *Execution) follow(ctx context.Context, cause error) error {
	e.source.Stop()
	quiet := errors.Is(cause, io.EOF) || errors.Is(cause, errNoStream)
	if e.req.Handling.Verbatim && quiet && e.complete() {
		e.over = true
		return nil
	}
	if !quiet || e.op == canonical.OpTaskSubscribe {
		e.broken++
	}
	if e.op == canonical.OpTaskSubscribe && e.broken > 1 {
		e.noStream = true // its subscriptions lead nowhere
	}
	event := Broke
	if quiet {
		event = Quiet
	}
	e.on(event)
	if e.req.Handling.Verbatim || e.machine.State() == Failed {
		if quiet {
			return e.badReply("its stream ended before its last event")
		}
		return cause
	}
	return e.pollOrSubscribe(ctx)
}

func (e *Execution) badReply(reason string) error {
	return &transport.BadReplyError{Agent: e.req.AgentName, Reason: reason}
}

// canSubscribe reports whether the agent can send every change of its task.
func (e *Execution) canSubscribe() bool {
	return !e.noStream && (e.req.Handling.Streams || e.req.Message.Op == canonical.OpTaskSubscribe) && e.req.Mode.AgentStreams == translators.StreamsTask
}

// pollOrSubscribe asks how the agent's task stands: to be told every change, where the agent can
// do that, else again and again; in the end what came of it.
func (e *Execution) pollOrSubscribe(ctx context.Context) error {
	op, wait := canonical.OpTaskGet, pollInterval
	if task := e.fold.Task(); task != nil && task.Poll > 0 {
		wait = min(max(task.Poll, minPoll), maxPoll)
	}
	switch e.machine.State() { //nolint:exhaustive // the others ask how the task stands
	case Fetching:
		if op = canonical.OpTaskResult; e.broken == 0 {
			wait = 0
		}
	case Subscribed:
		if wait = minPoll << e.broken; e.op == canonical.OpTaskGet {
			wait = 0 // how the task stands came just now: what happens to it next is not to be missed
		}
		op = canonical.OpTaskSubscribe
	}
	sealed, err := e.req.Agent.Inquire(ctx, op, &canonical.TaskQuery{ID: e.agentNames.TaskID})
	if err != nil {
		return err
	}
	e.op, e.began, e.first = op, false, op == canonical.OpTaskSubscribe
	e.listen(ctx, func(ctx context.Context) (transport.Reply, error) {
		if !worker.Pause(ctx, wait) {
			return transport.Reply{}, ctx.Err()
		}
		return e.req.Agent.Send(ctx, sealed, 0)
	})
	return nil
}

// inquire tells the agent something about its task, and waits for its one reply.
func (e *Execution) inquire(ctx context.Context, op canonical.Op, answers []canonical.Answer) (translators.Wire, *canonical.Message, []ect.ID, error) {
	sealed, err := e.req.Agent.Inquire(ctx, op, &canonical.TaskQuery{ID: e.agentNames.TaskID, Answers: answers})
	if err != nil {
		return translators.Wire{}, nil, nil, err
	}
	return e.req.Agent.Acknowledge(ctx, op, sealed)
}

// recount asks the agent once more for a caller who gets one answer, where the agent was asked
// for a stream on account of a webhook: the history that the answer has is the agent's, and its
// events do not say all of it. Without that, it is what they said.
func (e *Execution) recount(ctx context.Context) {
	if !e.req.Mode.Relay || !e.req.Handling.Posts || e.result != nil || e.failure != nil || e.fold.Task() == nil || e.agentNames.TaskID == "" {
		return
	}
	wire, m, parents, err := e.inquire(ctx, canonical.OpTaskGet, nil)
	if err != nil {
		return
	}
	result, ok := m.Body.(*canonical.Result)
	if !ok || result.Task == nil || result.Task.ID != e.agentNames.TaskID || !stream.Settled(result.Task.Status.State) {
		return
	}
	if e.rename(result.Task); e.fold.Add(&canonical.Event{Task: result.Task}, e.callerNames) == nil {
		e.addParents(parents)
		e.hash(wire)
	}
}
