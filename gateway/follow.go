package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/task/execution"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/worker"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/stream"
)

const (
	maxBroken    = 3 // requests in a row that may break off before the agent counts as lost
	pollInterval = time.Second
	minPoll      = 100 * time.Millisecond
	maxPoll      = time.Minute
	abortWithin  = 5 * time.Second
)

// follow goes on after the agent has ended its answer, or it broke off: an agent
// that has a task of its own can be asked about it.
func (r *run) follow(ctx context.Context, cause error) error {
	r.pump.stop()
	quiet := errors.Is(cause, io.EOF) || errors.Is(cause, errSilent)
	if r.x.verbatim() && quiet && r.complete() {
		r.over = true
		return nil
	}
	if !quiet || r.op == canonical.OpTaskSubscribe {
		r.broken++
	}
	if r.op == canonical.OpTaskSubscribe && r.broken > 1 {
		r.blind = true // its subscriptions lead nowhere
	}
	event := execution.Broke
	if quiet {
		event = execution.Quiet
	}
	r.on(event)
	if r.x.verbatim() || r.machine.State() == execution.Failed {
		if quiet {
			return &transport.BadReplyError{Agent: r.x.to.Agent.Name, Reason: "its stream ended before its last event"}
		}
		return cause
	}
	return r.look(ctx)
}

// subscribes: the agent is asked to tell every change of its task.
func (r *run) subscribes() bool {
	return !r.blind && r.x.route.Description != nil && (r.x.route.Description.Streams || r.x.message.Op == canonical.OpTaskSubscribe) && r.x.mode.AgentStreams == translators.StreamsTask
}

// look asks how the agent's task stands: to be told every change, where it can,
// else again and again; in the end what came of it.
func (r *run) look(ctx context.Context) error {
	op, wait := canonical.OpTaskGet, pollInterval
	if task := r.fold.Task(); task != nil && task.Poll > 0 {
		wait = min(max(task.Poll, minPoll), maxPoll)
	}
	switch r.machine.State() { //nolint:exhaustive // the others ask how the task stands
	case execution.Fetching:
		if op = canonical.OpTaskResult; r.broken == 0 {
			wait = 0
		}
	case execution.Subscribed:
		if wait = minPoll << r.broken; r.op == canonical.OpTaskGet {
			wait = 0 // how the task stands was heard just now: what happens to it next is not to be missed
		}
		op = canonical.OpTaskSubscribe
	}
	sealed, err := r.g.inquire(ctx, r.x, op, &canonical.TaskQuery{ID: r.agent.TaskID})
	if err != nil {
		return err
	}
	r.op, r.began, r.fresh = op, false, op == canonical.OpTaskSubscribe
	r.listenTo(ctx, func(ctx context.Context) (transport.Reply, error) {
		if !worker.Pause(ctx, wait) {
			return transport.Reply{}, ctx.Err()
		}
		return r.g.send(ctx, r.x, sealed, 0)
	})
	return nil
}

// recount hears the agent once more for a caller who gets one answer, where the agent
// was asked for a stream on account of a webhook: the history that the answer has is
// the agent's, and its events do not say all of it. Without that, it is what they said.
func (r *run) recount(ctx context.Context) {
	if !r.x.mode.Relay || !r.x.posts() || r.result != nil || r.failure != nil || r.fold.Task() == nil || r.agent.TaskID == "" {
		return
	}
	x := r.x.again()
	asks := *r.x.message
	asks.Op, x.message = canonical.OpTaskGet, &asks
	x.trail.Follow(r.x.trail.Request())
	sealed, err := r.g.inquire(ctx, x, asks.Op, &canonical.TaskQuery{ID: r.agent.TaskID})
	if err != nil {
		return
	}
	wire, m, parents, err := r.g.acknowledged(ctx, x, sealed)
	if err != nil {
		return
	}
	result, ok := m.Body.(*canonical.Result)
	if !ok || result.Task == nil || result.Task.ID != r.agent.TaskID || !stream.Settled(result.Task.Status.State) {
		return
	}
	if r.rename(result.Task); r.fold.Add(&canonical.Event{Task: result.Task}, r.own) == nil {
		r.follows(parents)
		r.hash(wire)
	}
}

// inquire seals a message of our own about the work: an evidence of its own,
// behind that of the request.
func (g *Gateway) inquire(ctx context.Context, x *request, op canonical.Op, body canonical.Body) (transport.Sealed, error) {
	m := &canonical.Message{Op: op, Phase: canonical.PhaseRequest, Body: body, Trace: x.message.Trace}
	m.Preferences.CanAnswer = x.route.Endpoint.Asked
	return g.sealOwn(ctx, x, m)
}

// sealOwn seals a message that the caller did not send in these words.
func (g *Gateway) sealOwn(ctx context.Context, x *request, m *canonical.Message) (transport.Sealed, error) {
	tr := attest.Translation{Direction: attest.Request, ID: ect.ID(g.NewID()), Internal: true}
	tr.Codec, tr.Pair = x.to.Codec, x.pair()
	tr.Target = translators.Target{
		Version: x.route.Endpoint.Version, Form: x.route.Endpoint.Form, Capability: x.route.Capable(),
		Stream: m.Op == canonical.OpTaskSubscribe || m.Op == canonical.OpInvoke && x.streams(),
	}
	tr.Lineage.Parents = x.afterRequest()
	tr.Audience, tr.Reader = g.audience(x), x.reader()
	m.Correlation.WireID = quoted(string(tr.ID))
	if x.route.Endpoint.Tenant != "" {
		m.Conversation.Tenant = x.route.Endpoint.Tenant
	}
	tr.Message = x.tasked(m)
	out, err := g.translate(ctx, x, tr)
	if err != nil {
		return transport.Sealed{}, err
	}
	return x.seal(out)
}

// acknowledged sends a message that has one answer, and returns that with what
// testifies to it. An error of the agent is one here.
func (g *Gateway) acknowledged(ctx context.Context, x *request, sealed transport.Sealed) (wire translators.Wire, m *canonical.Message, parents []ect.ID, err error) {
	reply, err := g.send(ctx, x, sealed, x.route.Endpoint.Timeout)
	defer closeReply(reply)
	if err != nil {
		return wire, nil, nil, err
	}
	if m, parents, err = g.hear(ctx, x, reply); err == nil && m == nil {
		err = &transport.BadReplyError{Agent: x.to.Agent.Name, Reason: "it answers with a stream"}
	}
	if err == nil {
		if refused, ok := m.Body.(*canonical.Error); ok {
			err = refused
		}
	}
	return reply.Wire, m, parents, err
}

// confirmed sends what is only acknowledged.
func (x *request) confirmed(ctx context.Context, g *Gateway) error {
	sealed, _, err := g.request(ctx, x)
	if err == nil {
		_, _, _, err = g.acknowledged(ctx, x, sealed)
	}
	return err
}

// abort ends the work at the agent, because nobody wants it any more. It is
// done in the background, and only as well as it can be.
func (r *run) abort() {
	named := r.agent.TaskID != "" || !r.x.names()
	if !r.guest && !r.complete() && !named && r.g.workers.GoFor(r.x.owner(), len(r.x.in.Call.Wire.Body), r.outlive) == nil {
		return
	}
	r.stop()
	switch {
	case r.reused: // under that id the caller has had another task
	case r.guest, r.complete() && !r.asked():
	case r.agent.TaskID != "" && r.x.mode.KeepsTasks:
		r.g.tellAgent(r.x, canonical.OpTaskCancel, &canonical.TaskQuery{ID: r.agent.TaskID})
	case r.x.mode.AgentStreams != translators.StreamsTask:
		r.g.abandon(r.x)
	}
}

// waits is for whose sake an answer is waited for: its caller's, unless what
// comes of the message has to be ended without him.
func (g *Gateway) waits(ctx context.Context, x *request) context.Context {
	if x.names() {
		return g.workers.Context()
	}
	return ctx
}

// outlive hears an agent that nobody waits for until it has named its task, or
// ended it, and no longer than an answer may take; then the task is canceled.
func (r *run) outlive(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, r.x.route.Endpoint.Timeout)
	defer cancel()
	for r.agent.TaskID == "" && !r.complete() {
		if _, err := r.step(ctx, r.x.route.Endpoint.Timeout); err != nil {
			break
		}
	}
	r.stop()
	if r.agent.TaskID != "" && (!r.complete() || r.asked()) {
		r.g.tellAgent(r.x, canonical.OpTaskCancel, &canonical.TaskQuery{ID: r.agent.TaskID})
	}
}

// disown deals with an answer whose caller has left meanwhile.
func (g *Gateway) disown(ctx context.Context, x *request, reply transport.Reply) {
	message, parents, err := g.hear(ctx, x, reply)
	if err != nil {
		closeReply(reply)
		return
	}
	g.goOn(ctx, x, reply, message, parents).abort()
}

// abandon tells an agent that nobody waits for its answer any more, where the
// end of the connection does not say so (MCP before 2026-07-28).
func (g *Gateway) abandon(x *request) {
	asker := x.to.Features.Asker
	if asker == nil || x.mode.AgentStreams != translators.StreamsReply || asker.Asks(x.route.Endpoint.Version, x.route.Endpoint.Form) == translators.AskReply {
		return
	}
	id := quoted(string(x.trail.Request()))
	if x.verbatim() {
		id = x.in.WireID
	}
	g.tellAgent(x, canonical.OpAbort, &canonical.Abort{Request: id})
}

// tellAgent sends a message of our own in the background, about the work as it stands now: its run may
// go on with its record.
func (g *Gateway) tellAgent(of *request, op canonical.Op, body canonical.Body) {
	x := of.apart()
	_ = g.workers.Go(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, abortWithin)
		defer cancel()
		sealed, err := g.inquire(ctx, x, op, body)
		if err == nil {
			var reply transport.Reply
			reply, err = g.send(ctx, x, sealed, 0)
			closeReply(reply)
		}
		if err != nil {
			g.Logger.WarnContext(ctx, "the agent could not be told to stop", slog.String("agent", x.to.Agent.Name), slog.Any("error", err))
		}
	})
}

// lastProgress is the last progress among events, else the one before them.
func lastProgress(before *canonical.Progress, events []canonical.Event) *canonical.Progress {
	for i := range events {
		if p := events[i].Progress; p != nil {
			before = &canonical.Progress{Value: p.Value, Total: p.Total, Message: p.Message}
		}
	}
	return before
}

// next waits for the next thing that the agent says. Meanwhile, what it has said goes
// on record, for those who are told it from there.
func (r *run) next(ctx context.Context, patience time.Duration) (heard, error) {
	due := saveEvery - r.g.Now().Sub(r.saved)
	if !r.keeping || r.onLog == r.log.Count || due >= patience {
		return r.pump.next(ctx, patience)
	}
	h, err := r.pump.next(ctx, max(due, 0))
	if !errors.Is(err, errPatience) {
		return h, err
	}
	r.keepUp(ctx)
	return r.pump.next(ctx, patience-max(due, 0))
}

// unchangedError ends the asking about an agent's task that has not changed for as long
// as the operator allows (Settings.TaskUnchanged). It does not say that the task
// has failed: that is not known.
type unchangedError struct{ after time.Duration }

// Error says what was seen, and what the caller can do.
func (e *unchangedError) Error() string {
	return fmt.Sprintf("the agent's task has not changed for %v, and the agent is not asked about it any more; "+
		"whether it will finish is not known: ask about the task again, or cancel it", e.after)
}

// Unwrap is the error in the words of a native door.
func (e *unchangedError) Unwrap() error {
	return &canonical.Error{Code: canonical.CodeTimeout, Message: e.Error()}
}

func isUnchanged(err error) bool {
	_, yes := errors.AsType[*unchangedError](err)
	return yes
}

// unchanged judges the agent's answer to a question how its task stands: an
// *unchangedError if nothing has changed for too long. Anything else that the
// agent says is a change.
func (r *run) unchanged(before *canonical.Task) error {
	after, now := r.fold.Task(), r.g.Now()
	asks := r.op == canonical.OpTaskGet && r.op != r.x.message.Op
	if !asks || before == nil || after == nil || r.machine.State() == execution.Fetching || r.complete() || !sameWork(before, after) {
		r.changed = now
		return nil
	}
	if limit := r.x.settings.TaskUnchanged; limit > 0 && now.Sub(r.changed) >= limit {
		return &unchangedError{limit}
	}
	return nil
}

// sameWork: nothing has changed but when the agent said so, and under which id.
func sameWork(before, after *canonical.Task) bool {
	then := *before
	then.Status.At = after.Status.At
	if then.Status.Message != nil && after.Status.Message != nil {
		said := *then.Status.Message
		said.ID = after.Status.Message.ID
		then.Status.Message = &said
	}
	return len(stream.Diff(&then, after)) == 0
}

// release writes that the work is not followed any more, because it has not changed for
// too long. Its state stays what the agent said last; the words say the rest. Who
// asks about it has it followed again.
func (r *run) release(ctx context.Context, why *unchangedError) {
	r.on(execution.Unchanged)
	rec := r.x.record
	if rec == nil {
		return
	}
	rec.Release()
	rec.Log, rec.Released = r.log, why.after
	rec.Task.Status.At = r.g.Now()
	rec.Task.Status.Message = stream.Failed(r.own, &canonical.Error{Message: why.Error()}).Status.Message
	r.saveLast(ctx)
}

// released is why the record's work is not followed any more; nil: it is, or has ended.
func released(rec *store.Record) error {
	if rec.Released == 0 {
		return nil
	}
	return &unchangedError{rec.Released}
}

// vouched judges the tokens in an event that was heard, like those of the stream's
// trailer where nothing follows the event, else like those of its header.
func (r *run) vouched(ctx context.Context, tokens []string) error {
	if len(tokens) == 0 {
		return nil
	}
	if r.stream != nil && r.complete() {
		return r.closed(ctx, tokens)
	}
	parents, err := r.g.attest.Receive(ctx, r.x.trail, r.x.received(tokens, ect.Check{Purpose: ect.Parent}))
	if err == nil {
		r.follows(parents)
	}
	return err
}

// on takes note of what has happened to the work.
func (r *run) on(e execution.Event) {
	if r.x.verbatim() {
		r.machine.End(e, r.facts())
		return
	}
	r.machine.On(e, r.facts())
}

// facts are what the next state depends on.
func (r *run) facts() execution.Facts {
	var all execution.Facts
	is := func(holds bool, fact execution.Facts) {
		if holds {
			all |= fact
		}
	}
	is(r.agent.TaskID != "", execution.AgentTask)
	is(r.subscribes(), execution.CanSubscribe)
	is(r.stream != nil, execution.StreamOpen)
	is(r.asked(), execution.Asking)
	is(r.broken > maxBroken, execution.Stubborn)
	is(r.op == canonical.OpTaskResult, execution.Fetches)
	return all
}

// kind is what the agent has just said.
func (r *run) kind() execution.Event {
	switch {
	case r.x.wantsTask(r.failure):
		return execution.TaskDemanded
	case r.callsAgain():
		return execution.CallAgain
	case r.failure == nil && r.other == nil && r.asked():
		return execution.AgentAsks
	case r.complete():
		return execution.Outcome
	default:
		return execution.Update
	}
}

// callsAgain: the agent wants the call again, and asks nothing.
func (r *run) callsAgain() bool {
	return r.result != nil && r.result.Pending != nil && len(r.result.Pending.Inputs) == 0 && !r.x.mode.Relay
}

// asked: the work waits for an answer.
func (r *run) asked() bool {
	if r.x.verbatim() {
		return false
	}
	if r.ask != nil || r.result != nil && r.result.Pending != nil {
		return true
	}
	task := r.fold.Task()
	if r.result != nil {
		task = r.result.Task
	}
	return task != nil && stream.Settled(task.Status.State) && !task.Status.State.Terminal()
}
