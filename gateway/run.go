package gateway

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/task/execution"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/stream"
)

// run is the work on one request from when it was sealed until it is settled,
// however many messages that takes. It hears the agent; waiting.go and
// telling.go are how its caller hears of it. One goroutine uses it at a time.
type run struct {
	g *Gateway
	x *request

	machine execution.Machine // the state; without meaning where messages are relayed as they came
	reader
	conclusion
	questions
	recorder

	agent canonical.Conversation // the work's ids in the agent's words
	own   canonical.Conversation // in the caller's
	guest bool                   // its caller only asks about the work, which is another message's
	held  bool                   // its caller asks about it here, and answers here what it asks
}

// conclusion is what was heard so far, and what ended it.
type conclusion struct {
	fold    stream.Folder
	over    bool               // verbatim: the agent has ended its stream, and properly
	result  *canonical.Result  // the reply that ended it
	other   *canonical.Message // the reply that ended it, if it was no result
	whole   *translators.Wire  // the reply itself, if it was one message and no stream
	message *canonical.Message // what was said last
	failure *canonical.Message // the error that did
	status  canonical.Status   // the one under way that was given its time here last
	last    canonical.Status   // and the one with which the work ended
	untold  []canonical.Loss   // events that have no place in the one answer to its caller
}

// questions are those of the agent.
type questions struct {
	ask     *canonical.Ask      // what the agent's open stream waits for
	asks    []*canonical.Ask    // and what it asks beside that
	round   int                 // how many questions were answered
	history []canonical.Content // of the task, for a caller who asks for it
}

// recorder keeps the record of the work.
type recorder struct {
	keeping  bool                // its record follows it
	reused   bool                // the agent gave its task the id of one that has ended
	saved    time.Time           // when it was written last
	changed  time.Time           // when the agent's task was last seen to change
	log      store.EventLog      // of what the agent said, for the record
	onLog    int                 // how many of its events are on record
	posted   *canonical.Task     // as those who have changes posted to them know it
	progress *canonical.Progress // the last one that is still to be posted; nil: none is
	mail     *store.ControlQueue // what other requests want of it; nil: no record names it
}

// begin sends a request whose work may last.
func (g *Gateway) begin(ctx context.Context, x *request, sealed transport.Sealed) *run {
	r := g.newRun(x, []ect.ID{x.trail.Request()})
	r.send(ctx, sealed)
	return r
}

// listenTo hears from now on what comes of asking.
func (r *run) listenTo(ctx context.Context, ask func(context.Context) (transport.Reply, error)) {
	r.pump = startPump(context.WithoutCancel(ctx), ask)
}

// expect: what is heard from now on answers op.
func (r *run) expect(op canonical.Op) {
	begun := execution.Sent
	switch r.op = op; op { //nolint:exhaustive // the others are requests
	case canonical.OpTaskSubscribe:
		begun = execution.Subscribed
	case canonical.OpTaskGet:
		begun = execution.Polling
	case canonical.OpTaskResult:
		begun = execution.Fetching
	}
	r.machine = execution.Begin(begun)
}

// reopen forgets the reply that asked something, before the agent is asked again.
func (r *run) reopen() {
	r.pump.stop()
	r.result = nil
	r.fold.Resume()
}

// goOn takes over a request that was answered, but not for good.
func (g *Gateway) goOn(
	ctx context.Context, x *request, reply transport.Reply, message *canonical.Message, parents []ect.ID,
) *run {
	r := g.newRun(x, parents)
	r.listenTo(ctx, func(context.Context) (transport.Reply, error) {
		if reply.Events == nil {
			return transport.Reply{}, errSilent
		}
		return transport.Reply{Events: reply.Events}, nil
	})
	if reply.Events == nil {
		r.hash(reply.Wire)
		_, _ = r.absorb(message) // one message fits
		r.on(r.kind())
	}
	return r
}

func (g *Gateway) newRun(x *request, parents []ect.ID) *run {
	r := &run{g: g, x: x, guest: x.message.Op != canonical.OpInvoke, reader: reader{parents: parents}, questions: questions{history: x.history()}}
	r.expect(x.message.Op)
	r.fold.Join, r.changed = !x.mode.SameWords, g.Now()
	switch {
	case x.record != nil:
		r.own, r.agent, r.log, r.onLog = x.record.CallerNames(), x.record.AgentNames(), x.record.Log, x.record.Log.Count
		task := x.record.Task
		r.keeping, r.posted, r.round, r.held = !r.guest, &task, x.record.Round, x.record.Converted && !r.guest
	case x.mode.StreamsHere:
		r.own = canonical.Conversation{TaskID: g.NewID(), ContextID: x.message.Conversation.ContextID}
		if r.own.ContextID == "" {
			r.own.ContextID = g.NewID()
		}
	}
	return r
}

// errSilent: nothing more comes of its own accord.
var errSilent = errors.New("gateway: the answer was no stream")

// send asks the agent. What it says is heard by the next steps.
func (r *run) send(ctx context.Context, sealed transport.Sealed) {
	if r.op, r.began = canonical.OpInvoke, false; r.x.message.Op == canonical.OpNative {
		r.op = canonical.OpNative
	}
	r.listenTo(ctx, func(ctx context.Context) (transport.Reply, error) {
		return r.g.send(ctx, r.x, sealed, 0)
	})
}

// step is what came of one thing that the agent said.
type step struct {
	events []canonical.Event // in the agent's way of streaming, under the caller's ids
	wire   *translators.Wire // the event as it came; nil: it was no event
	losses []canonical.Loss  // of reading it
}

// settled: nothing more comes unless somebody acts.
func (r *run) settled() bool {
	if r.x.verbatim() { // a caller who has the last token inside waits for it no longer than elsewhere
		return r.over || r.complete() && r.x.callerInside()
	}
	return r.ask != nil || r.complete()
}

// complete: what was heard is a whole answer.
func (r *run) complete() bool {
	return r.result != nil || r.other != nil || r.failure != nil || r.fold.Settled()
}

// step waits for the next thing. io.EOF: the work is settled. errPatience:
// nothing came in time, and the agent may be waited for again.
func (r *run) step(ctx context.Context, patience time.Duration) (step, error) {
	for {
		if err := r.again(ctx); err != nil {
			return step{}, err
		}
		if r.g.probe != nil {
			r.g.probe(r)
		}
		if r.settled() {
			if err := r.closes(ctx); err != nil {
				return step{}, err
			}
			return step{}, io.EOF
		}
		h, err := r.next(ctx, patience)
		switch {
		case err == nil: // what was taken is not lost, even if nobody waits any more
		case ctx.Err() != nil: // what is heard of an agent that has said all is no end to one who left
			return step{}, ctx.Err()
		case errors.Is(err, errPatience):
			return step{}, err
		default:
			if err := r.follow(ctx, err); err != nil {
				return step{}, err
			}
			continue
		}
		if s, heard, err := r.hear(ctx, h); heard && !r.x.wantsTask(r.failure) || err != nil {
			return s, err
		}
	}
}

// maxAgain bounds how often an agent may have a call made again for nothing.
const maxAgain = 8

// again makes the call again for an agent that wants no more than that: its
// reply asks nothing, but has a state (MCP, input_required), or it does as a task
// what it was asked for, or not at all.
func (r *run) again(ctx context.Context) error {
	if r.x.wantsTask(r.failure) {
		sealed, err := r.g.asTask(ctx, r.x)
		if err != nil {
			return err
		}
		r.pump.stop()
		r.failure = nil
		r.send(ctx, sealed)
		return nil
	}
	if !r.callsAgain() {
		return nil
	}
	if r.repeats++; r.result.Pending.State == "" || r.repeats > maxAgain {
		return &transport.BadReplyError{Agent: r.x.to.Agent.Name, Reason: "it asks for nothing"}
	}
	return r.give(ctx, nil)
}

// hear takes one thing; false: it was not a message.
func (r *run) hear(ctx context.Context, h heard) (step, bool, error) {
	wire, event := h.reply.Wire, false
	switch {
	case h.event == nil:
		parents, err := r.g.replyEvidence(ctx, r.x, h.reply)
		if err != nil {
			return step{}, false, err
		}
		r.follows(parents)
		if r.began, r.stream = true, nil; h.reply.Events != nil {
			r.stream = &ect.StreamHash{}
			r.on(execution.StreamOpened)
			return step{}, false, nil
		}
	case len(h.event.Wire.Body) == 0:
		return step{}, false, r.closed(ctx, h.event.Evidence)
	default:
		wire, event = h.event.Wire, true
	}
	wire.Event = event
	var tokens []string
	var err error
	if event {
		if wire, tokens, err = r.x.heardEvent(wire); err != nil {
			return step{}, false, err
		}
	}
	message, err := r.g.decodeReply(r.x, wire, r.op)
	if unread, ok := errors.AsType[*translators.UnreadableNoticeError](err); ok && event {
		r.hash(wire)
		lost := []canonical.Loss{unread.Lost}
		r.untold = canonical.MergeLosses(r.untold, lost)
		return step{losses: lost}, true, r.vouched(ctx, tokens)
	}
	if !event {
		r.x.judge(ctx, r.g.Breakers, message, err)
	}
	if err != nil {
		return step{}, false, err
	}
	r.g.heed(r.x, message)
	r.hash(wire)
	if !r.fresh && message.Phase != canonical.PhaseError {
		r.broken = 0
	}
	r.fresh = false
	before := r.fold.Task()
	events, err := r.absorb(message)
	if err == nil {
		err = r.unchanged(before)
	}
	if r.x.mode.StreamsHere && !r.guest { // who follows the work later is told of it from its record
		r.log, r.progress = r.log.With(events), lastProgress(r.progress, events)
	}
	if message.Phase != canonical.PhaseEvent || r.complete() {
		r.unask() // who has answered waits for no answer
	}
	r.on(r.kind())
	if unproven := r.vouched(ctx, tokens); unproven != nil {
		return step{}, false, unproven
	}
	s := step{events: events, losses: message.Losses}
	if r.message = message; event {
		s.wire = &wire
	} else {
		r.over, r.whole = true, &wire
	}
	return s, true, err
}

// closes waits a little for the ECT that closes a stream whose last event was
// heard. An agent that keeps the stream open gives none.
func (r *run) closes(ctx context.Context) error {
	if r.stream == nil || r.ask != nil || r.x.verbatim() && r.over {
		return nil
	}
	h, err := r.pump.next(ctx, grace)
	if err != nil || h.event == nil || len(h.event.Wire.Body) > 0 {
		r.stream = nil // it broke off, or goes on: nothing closes what was heard
		r.on(execution.StreamClosed)
		return ctx.Err()
	}
	return r.closed(ctx, h.event.Evidence)
}

// closed judges what an agent says of its stream at the end: a token whose
// out_hash is another stream's, or that is not the agent's, makes all of it
// untrustworthy, as one in front of an answer does. A good one becomes a parent.
func (r *run) closed(ctx context.Context, tokens []string) error {
	if len(tokens) == 0 || r.stream == nil {
		return nil
	}
	whole := r.stream.Sum()
	r.stream = nil
	r.on(execution.StreamClosed)
	parents, err := r.g.attest.Receive(ctx, r.x.trail, r.x.received(tokens, ect.Check{Purpose: ect.Reply, Body: whole}))
	if err == nil {
		r.follows(parents)
	}
	return err
}

// absorb adds up what a message says.
func (r *run) absorb(m *canonical.Message) ([]canonical.Event, error) {
	r.learn(m)
	switch body := m.Body.(type) {
	case *canonical.Event:
		if body.Ask != nil && !r.x.verbatim() {
			if err := r.wonder(body.Ask); err != nil {
				return nil, err
			}
		}
		r.rename(body.Task)
		before := r.fold.Task()
		if err := r.fold.Add(body, r.own); err != nil || body.Task == nil || before == nil {
			return []canonical.Event{*body}, err
		}
		return stream.Diff(before, r.fold.Task()), nil // it has been told how things stood
	case *canonical.Result:
		return r.conclude(body)
	case *canonical.Error:
		r.refused(m, body)
	default:
		r.other = m
	}
	return nil, nil
}

// refused takes an error. One that answers a question of ours about the work is
// not the end of the work itself.
func (r *run) refused(m *canonical.Message, e *canonical.Error) {
	switch {
	case r.op == canonical.OpTaskSubscribe && !r.x.verbatim():
		r.blind = true // then it is asked again and again
		r.on(execution.Refused)
	case (r.op == canonical.OpTaskGet || r.op == canonical.OpTaskResult) && r.op != r.x.message.Op && passing(e.Code) && r.broken < maxBroken:
		r.broken++
	default:
		r.failure = m
	}
}

// passing: what is refused for such a reason may be granted later.
func passing(code canonical.Code) bool {
	return slices.Contains([]canonical.Code{
		canonical.CodeRateLimited, canonical.CodeUnavailable, canonical.CodeTimeout, canonical.CodeInternal, canonical.CodeBadUpstream,
	}, code)
}

// learn keeps the agent's names for the work.
func (r *run) learn(m *canonical.Message) {
	at := m.Conversation
	switch body := m.Body.(type) {
	case *canonical.Event:
		if body.Task != nil {
			at.TaskID, at.ContextID = body.Task.ID, body.Task.ContextID
		}
	case *canonical.Result:
		if body.Task != nil {
			at.TaskID, at.ContextID = body.Task.ID, body.Task.ContextID
		}
	}
	if at.TaskID != "" {
		r.agent.TaskID = at.TaskID
	}
	if at.ContextID != "" {
		r.agent.ContextID = at.ContextID
	}
	if r.own.TaskID == "" {
		r.own.TaskID = r.agent.TaskID
	}
	if r.own.ContextID == "" {
		r.own.ContextID = r.agent.ContextID
	}
	if r.own.ContextID == "" && !r.x.mode.Relay { // agents that know no dialogues answer in their caller's
		r.own.ContextID = r.x.message.Conversation.ContextID
	}
	if r.own.TaskID == "" && r.needsTask(m) {
		r.own.TaskID = r.g.NewID()
		if r.own.ContextID == "" {
			r.own.ContextID = r.g.NewID()
		}
	}
	m.Conversation.TaskID, m.Conversation.ContextID = r.own.TaskID, r.own.ContextID
}

func (r *run) rename(t *canonical.Task) {
	if t != nil {
		t.ID, t.ContextID = r.own.TaskID, r.own.ContextID
	}
}

// conclude takes a reply. One with a task that is still at work is not the end.
func (r *run) conclude(result *canonical.Result) ([]canonical.Event, error) {
	if result.Task == nil || r.x.mode.Relay && r.op == canonical.OpInvoke && !r.x.tasking() {
		r.result = result
		return nil, nil
	}
	if r.op == canonical.OpTaskGet && r.x.mode.OutcomeApart && result.Task.Status.State != canonical.StateCanceled && stream.Settled(result.Task.Status.State) && r.op != r.x.message.Op {
		r.on(execution.ResultApart)
		return nil, nil
	}
	if t := result.Task; t.Status.State.Terminal() && r.x.tasking() && !r.x.message.Preferences.TaskOK {
		r.untask(t)
		return nil, nil
	}
	if result.Task.Output != nil && !r.x.mode.Relay { // within one protocol it stays where it is
		result = &canonical.Result{Task: stream.Settle(result.Task)}
	}
	if r.op == canonical.OpInvoke && r.x.promised(result.Task) {
		begun := *result.Task
		begun.Status = canonical.Status{State: canonical.StateWorking, At: begun.Status.At}
		result = &canonical.Result{Task: &begun}
	}
	r.rename(result.Task)
	event := canonical.Event{Task: result.Task}
	before := r.fold.Task()
	if err := r.fold.Add(&event, r.own); err != nil {
		return nil, err
	}
	if before == nil {
		return []canonical.Event{event}, nil
	}
	return stream.Diff(before, r.fold.Task()), nil
}

// errWithdrawn: nobody here wanted that.
var errWithdrawn = &canonical.Error{Code: canonical.CodeInternal, Message: "the agent has canceled what it did"}

// untask is the end of a task that its caller knows nothing of: the answer to his call.
func (r *run) untask(t *canonical.Task) {
	switch {
	case t.Output != nil:
		r.result = &canonical.Result{Output: t.Output}
	case t.Failure != nil:
		r.failure = &canonical.Message{Op: r.x.message.Op, Phase: canonical.PhaseError, Body: t.Failure}
	case t.Status.State == canonical.StateCanceled:
		r.failure = &canonical.Message{Op: r.x.message.Op, Phase: canonical.PhaseError, Body: errWithdrawn}
	default:
		r.result = &canonical.Result{Task: t}
	}
}

// stop ends the run: it neither hears anybody any more nor is heard.
func (r *run) stop() {
	r.pump.stop()
	r.mail.Close()
}
