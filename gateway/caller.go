package gateway

import (
	"cmp"
	"context"
	"errors"
	"log/slog"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/conversation"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/routing"
	"github.com/aepb/aepb-gateway/gateway/task/execution"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/workflow"
	"github.com/aepb/aepb-gateway/policy/quota"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/stream"
)

// caller is the caller of a request: what it is told, and what is kept for it.
type caller struct {
	g *Gateway
	x *request
}

var _ execution.Caller = caller{}

func (g *Gateway) caller(x *request) caller { return caller{g, x} }

// work is what an execution goes by.
func (g *Gateway) work(x *request) execution.Request {
	req := execution.Request{
		Agent: g.agent(x), Caller: g.caller(x), Mode: x.mode, Message: x.message, WireID: x.in.WireID, AgentName: x.to.Agent.Name, Origin: x.from(),
		Handling: execution.Handling{
			Verbatim: x.verbatim(), Posts: x.hasWebhook(), Webhook: x.webhook != nil, OnRecord: x.webhook != nil && x.webhook.known, NamesTask: x.createsTask(),
			Streams: x.route.Description != nil && x.route.Description.Streams, AsTask: x.tasking(), Listens: x.hears(), Detached: x.in.Call.Detached,
			Session: x.in.Call.Session != "",
		},
		Limits: execution.Limits{Timeout: x.timeout(), Answers: x.answerWait(), Unchanged: x.settings.TaskUnchanged},
		Holder: x.owner(), Size: len(x.in.Call.Wire.Body), Record: x.record, History: x.history(), Stopped: x.scope.stopped,
	}
	if g.Budget != nil {
		req.Budget = func() transport.Share { return g.Budget(x.in.Call.Caller, x.in.Call.Address) }
	}
	if x.hearer != nil {
		req.Subscriber = subscriber{x}
	}
	return req
}

// Record implements [execution.Caller].
func (c caller) Record(task *canonical.Task) *store.Record { return c.x.recordFor(task) }

// SaveRequest implements [execution.Caller]. What the request said first stays.
func (c caller) SaveRequest(rec *store.Record) error {
	if rec.Call != nil {
		return nil
	}
	wire := c.x.in.Call.Wire
	if len(wire.Body) > execution.MaxRequest {
		return &translators.TooLongError{Reason: "there is a question about the request, which would have to be kept until the answer: send a request of at most 65536 bytes"}
	}
	rec.Call = store.SaveMessage(c.x.message.Origin.Version, wire.Form, wire)
	rec.Call.Tenanted = c.x.in.Call.Tenanted
	return nil
}

// Remember implements [execution.Caller].
func (c caller) Remember(ctx context.Context, dialogue string) {
	c.g.Conversations.Remember(ctx, c.x.dialogueKey(dialogue), c.x.lineage.Workflow, c.x.trail.Request())
}

// remember makes the reply's ECT the last of the dialogue that it belongs to (R3).
func (c caller) remember(ctx context.Context, dialogue string) {
	c.g.Conversations.Remember(ctx, c.x.dialogueKey(dialogue), c.x.lineage.Workflow, c.x.trail.Reply())
}

// rememberQuestion does so where the reply told a question of the work on record: its answer follows it.
func (c caller) rememberQuestion(ctx context.Context) {
	if rec := c.x.record; rec != nil && rec.Resume != store.ResumeNone && rec.Workflow == c.x.lineage.Workflow {
		c.remember(ctx, rec.Task.ContextID)
	}
}

// ReplyWith implements [execution.Caller].
func (c caller) ReplyWith(ctx context.Context, m *canonical.Message, proof execution.Proof, saved bool) (transport.Answer, error) {
	tr := c.translation(m, proof.Parents)
	tr.Input, tr.Ext = proof.Input, proof.Ext
	c.stamp(m)
	return c.reply(ctx, tr, !saved)
}

// Relay implements [execution.Caller]: where both sides speak alike, the bytes of the agent.
func (c caller) Relay(ctx context.Context, wire translators.Wire, m *canonical.Message, parents []ect.ID) (transport.Answer, error) {
	tr := c.translation(m, parents)
	tr.Input = ect.Hash(wire.HashInput())
	if c.x.verbatim() && wire.Media != translators.MediaText {
		tr.Verbatim = &wire
	} else {
		c.stamp(m)
	}
	return c.reply(ctx, tr, true)
}

// reply makes a translation the answer, and keeps it.
func (c caller) reply(ctx context.Context, tr attest.Translation, save bool) (transport.Answer, error) {
	m := tr.Message
	dialogue := m.Conversation.ContextID
	out, err := c.g.translate(ctx, c.x, tr)
	if err != nil {
		return transport.Answer{}, c.unsaid(ctx, m, err)
	}
	c.remember(ctx, dialogue)
	if invoke, ok := c.x.original.(*canonical.Invoke); ok && c.x.mode.Relay && invoke.Call != nil {
		if result, ok := m.Body.(*canonical.Result); ok && result.Pending != nil {
			c.remember(ctx, conversation.OfCall(result.Pending.State, invoke.Call.Name, invoke.Call.Args))
		}
	}
	c.x.made.hears(m)
	c.g.ended(ctx, c.x)
	c.reported(ctx, canonical.FailureOf(m))
	if save {
		if err := c.keepReply(ctx, m, out.Wire(), tr.Input); err != nil {
			return transport.Answer{}, err
		}
	}
	return c.x.answer(out), nil
}

// Tell answers with a message of ours, of which nothing is kept.
func (c caller) Tell(ctx context.Context, m *canonical.Message, proof execution.Proof) (transport.Answer, error) {
	tr := c.translation(m, proof.Parents)
	tr.Input = proof.Input
	out, err := c.g.translate(ctx, c.x, tr)
	if err == nil {
		c.rememberQuestion(ctx)
	}
	return c.x.answer(out), c.unsaid(ctx, m, err)
}

// translation is a translation of a reply.
func (c caller) translation(m *canonical.Message, parents []ect.ID) attest.Translation {
	x := c.x
	x.brief(m)
	x.pose(m)
	x.label(m)
	m.Preferences.TaskOK = x.message.Preferences.TaskOK // says in which form a task is understood
	return attest.Translation{
		Direction: attest.Reply, ID: attest.NewID(x.in.Source), Message: m, Codec: x.in.Source,
		Target:  translators.Target{Version: x.message.Origin.Version, Form: x.in.Call.Wire.Form, Capability: x.route.Capability},
		Pair:    x.pairBack(),
		Lineage: attest.Lineage{Parents: parents}, Audience: []string{string(x.in.Call.Caller.ID)}, Reader: x.in.Call.Caller.ID, Ext: unfinished(m),
	}
}

// unfinished marks the token of a reply, or of a post, that is a task which has not ended: the step of its workflow is not done (R26).
func unfinished(m *canonical.Message) ect.Ext {
	if m.Over() {
		return nil
	}
	return ect.Ext{ect.ExtUnfinished: []byte("true")}
}

// stamp gives a reply the id of the caller's own request, and ids to results that came without: an
// A2A task must have both.
func (c caller) stamp(m *canonical.Message) {
	x := c.x
	m.Correlation.WireID = x.in.WireID
	if x.mode.Relay {
		return
	}
	if x.record != nil { // the work has names already
		m.Conversation = x.record.CallerNames()
		if result, ok := m.Body.(*canonical.Result); ok && result.Task != nil {
			result.Task.ID, result.Task.ContextID = m.Conversation.TaskID, m.Conversation.ContextID
		}
	}
	if m.Conversation.ContextID == "" {
		m.Conversation.ContextID = x.message.Conversation.ContextID
	}
	if result, ok := m.Body.(*canonical.Result); ok && result.Output != nil {
		if m.Conversation.ContextID == "" {
			m.Conversation.ContextID = c.g.NewID()
		}
		if m.Conversation.TaskID == "" {
			m.Conversation.TaskID = c.g.NewID()
		}
	}
	c.g.completeTask(x, m)
}

// Register implements [execution.Caller]: nothing was posted of the task before.
func (c caller) Register(ctx context.Context, rec *store.Record) error {
	if c.x.webhook == nil || c.x.webhook.saved {
		return nil
	}
	if err := c.g.registerPush(ctx, c.x, rec); err != nil {
		return err
	}
	return c.g.tasks.PostWhole(ctx, rec)
}

// FollowTask implements [execution.Caller].
func (c caller) FollowTask(ctx context.Context, rec *store.Record) { c.g.attend(ctx, c.x, rec) }

// DetachWork implements [execution.Caller].
func (c caller) DetachWork() (share *quota.Grant, leave func()) {
	c.x.scope.stopped = nil
	return c.x.scope.takeWorker(), c.x.scope.takePlace()
}

// Cause implements [execution.Caller].
func (c caller) Cause(err error) error {
	switch {
	case !errors.Is(err, context.Canceled):
		return err
	case c.g.workers.Context().Err() != nil:
		return execution.ErrStopped
	case c.x.scope.isCanceled():
		return execution.ErrCanceled
	}
	return err
}

// QuestionKey implements [execution.Caller].
func (c caller) QuestionKey(id string) store.EntryKey {
	return store.QuestionKey(c.x.in.Call.Session, id, c.x.owner())
}

// Open implements [execution.Outlet].
func (c caller) Open(ctx context.Context, parents []ect.ID) (transport.Opened, error) {
	return c.g.attest.OpenStream(ctx, c.x.trail, c.x.stream(), parents)
}

// Answer implements [execution.Outlet].
func (c caller) Answer(opening transport.Opened, events transport.Events) (transport.Answer, error) {
	a, err := opening.Answer(events)
	a.Evidence, a.Losses, a.Notice = c.x.trail.Tokens(), c.x.trail.Losses(), routing.NoticeOf(c.x.to.Agent.Lifecycle)
	return a, err
}

// Event implements [execution.Outlet].
func (c caller) Event(m *canonical.Message) (translators.Wire, []canonical.Loss, error) {
	c.x.failure = cmp.Or(canonical.FailureOf(m), c.x.failure)
	c.x.made.hears(m)
	tr := c.translation(m, nil)
	tr.Target.Stream = true
	wire, losses, err := c.g.attest.Event(c.g.prepared(c.x, tr))
	if errors.Is(err, translators.ErrTooLarge) {
		err = &problem.AnswerTooLargeError{Err: err}
	}
	return wire, losses, err
}

// EncodeRefusal implements [execution.Outlet].
func (c caller) EncodeRefusal(cause error) (translators.Wire, bool) {
	x := c.x
	m := &canonical.Message{
		Op: x.message.Op, Phase: canonical.PhaseError, Body: problem.Native(cause),
		Correlation: canonical.Correlation{WireID: x.in.WireID},
	}
	tr := c.translation(m, nil)
	tr.Target.Stream, tr.Target.Stamp = true, c.g.stamp(x, &tr)
	wire, _, err := tr.Codec.Encode(m, tr.Target)
	if framer := c.g.Network.Framer(tr.Pair.To); framer != nil && err == nil {
		wire, _, err = framer.Frame(wire)
	}
	return wire, err == nil
}

// Close implements [execution.Outlet].
func (c caller) Close(ctx context.Context, end attest.End) ([]string, error) {
	before := c.x.trail.Count()
	id, err := c.g.attest.CloseStream(ctx, c.x.trail, c.x.stream(), end)
	if err == nil {
		c.x.trail.Replied(id)
		c.rememberQuestion(ctx)
		c.g.ended(ctx, c.x)
		c.reported(ctx, c.x.failure)
	}
	return c.x.trail.Tokens()[before:], err
}

// reported signs the error of a step that the agent itself says has failed; empty: it says no such thing.
func (c caller) reported(ctx context.Context, why string) {
	if why != "" && c.x.started && !c.x.unseen {
		c.g.parts.Workflows.Fail(ctx, c.x.failed(c.x.lineage.Workflow, workflow.Failure{Description: why}))
	}
}

// Closed implements [execution.Outlet].
func (c caller) Closed(ctx context.Context, dialogue string) {
	c.remember(ctx, dialogue)
	c.g.saveArtifacts(ctx, c.x)
}

// Fail implements [execution.Outlet].
func (c caller) Fail(ctx context.Context, cause error) []string {
	before := c.x.trail.Count()
	evidence := c.g.fail(ctx, c.x, transport.Answer{}, cause).Evidence
	return evidence[min(before, len(evidence)):]
}

// FinishRequest implements [execution.Outlet].
func (c caller) FinishRequest(ctx context.Context, err error) { c.g.finish(ctx, c.x, err) }

// EmbedsECTs implements [execution.Outlet].
func (c caller) EmbedsECTs() bool { return c.x.callerInside() }

// keepReply keeps what was answered, if its caller may ask for it again. Most tasks end with the
// answer to the message that began them: they are kept like answers, which costs next to nothing.
// One that goes on is put on record, before its caller hears of it: else it could never be asked
// about. input is the hash of what the agent said.
func (c caller) keepReply(ctx context.Context, m *canonical.Message, wire translators.Wire, input string) error {
	g, x := c.g, c.x
	result, ok := m.Body.(*canonical.Result)
	if !ok || x.in.Call.Agent == "" {
		return nil
	}
	task := taskOfReply(x, m, result)
	if task == nil || len(task.ID) > store.MaxTaskID || x.record.IsReply() {
		return nil
	}
	rec := x.recordOf(task)
	rec.Last, rec.Input, rec.Writer = x.trail.Reply(), input, g.instance
	if x.mode.CallerStreams == translators.StreamsTask && rec.Source == x.in.Source.Info().Binding { // else it was begun at another endpoint
		rec.Saved, rec.Re = store.SaveMessage(x.message.Origin.Version, x.in.Call.Wire.Form, wire), x.message.Op
	} else {
		rec.Task, rec.Saved = *inFull(task, result), nil
	}
	if rec.Saved != nil && x.record == nil && task.Status.State.Terminal() && x.webhook == nil {
		return g.tasks.SaveEnded(ctx, rec)
	}
	if rec.Resume = store.ResumeNone; result.Task != nil && stream.Settled(task.Status.State) && !task.Status.State.Terminal() {
		rec.Resume, rec.Task.Inputs = store.ResumeTask, result.Task.Inputs // by which its answers are understood
	}
	if x.record == nil {
		old, err := g.tasks.Load(ctx, rec.Key)
		switch {
		case err != nil || old == nil:
		case old.Task.Status.State.Terminal() && !task.Status.State.Terminal():
			return &transport.BadReplyError{Agent: x.to.Agent.Name, Reason: execution.ReusedID}
		default:
			rec.Revision = old.Revision
		}
	}
	saved, err := c.saveReply(ctx, rec, task.Status.State.Terminal())
	if err != nil {
		return err
	}
	if !saved && x.webhook != nil && !x.webhook.saved {
		return store.Conflict()
	}
	if err := c.Register(ctx, rec); err != nil {
		return err
	}
	if saved && rec.Pushes {
		g.attend(ctx, x, rec)
	}
	return nil
}

// saveReply saves the record of a reply, and posts the change if no execution does. ended: the work
// has, so what cannot be saved now is saved later.
func (c caller) saveReply(ctx context.Context, rec *store.Record, ended bool) (saved bool, err error) {
	g, x := c.g, c.x
	if x.claim.Holds() { // the result of an answer is told once, and only here
		saved, err = g.tasks.SaveIfCurrent(ctx, rec, rec.Round)
	} else {
		saved, err = g.tasks.Save(ctx, rec)
	}
	switch {
	case err != nil && x.record != nil && ended:
		g.executions.SaveUntilDone(ctx, *rec, &x.record.Task)
	case err == nil && saved && x.record != nil && rec.Follower == "" && !x.record.Task.Status.State.Terminal():
		g.tasks.PostChange(ctx, x.record, rec)
	}
	return saved, err
}

// unsaid returns the error for an answer that cannot be encoded. An answer that is too large for
// the caller's protocol is kept: the caller can ask for it at an endpoint of another protocol (R2).
func (c caller) unsaid(ctx context.Context, m *canonical.Message, err error) error {
	if !errors.Is(err, translators.ErrTooLarge) {
		return err
	}
	x := c.x
	refusal := &problem.AnswerTooLargeError{Err: err}
	result, ok := m.Body.(*canonical.Result)
	switch {
	case x.record != nil: // it is kept already
		refusal.Task = x.record.Task.ID
		return refusal
	case !ok || x.in.Call.Agent == "":
		return refusal
	}
	task := taskOfReply(x, m, result)
	if task == nil || task.ID == "" || len(task.ID) > store.MaxTaskID {
		return refusal
	}
	rec := x.recordOf(task)
	rec.Task, rec.Last = *inFull(task, result), x.trail.Request()
	if saved, err := c.g.tasks.Save(ctx, rec); saved && err == nil {
		refusal.Task = task.ID
	}
	return refusal
}

// logUnfollowed says that a task's changes will not be noticed.
func (g *Gateway) logUnfollowed(ctx context.Context, agent string, err error) {
	g.Logger.WarnContext(ctx, "a task cannot be followed", slog.String("agent", agent), slog.Any("error", err))
}

// inside puts the evidence of an answer into its body, for a caller that wants it there. The server
// side does that for errors.
func (g *Gateway) inside(x *request, answer transport.Answer) transport.Answer {
	if x.in.Source == nil || !x.callerInside() {
		return answer
	}
	form, _ := g.Registry.Translator(answer.Wire().Binding)
	if answer.Events() != nil {
		form = x.in.Source
	}
	if x.in.Call.Agent == "" {
		return attest.Embed(form, answer, "")
	}
	return attest.Embed(form, answer, canonical.OpInvoke)
}

// subscriber is a caller who is told notifications in the way of another revision than the agent's.
type subscriber struct{ x *request }

// FirstMessage implements [execution.Subscriber].
func (s subscriber) FirstMessage() *canonical.Native {
	first, _ := s.x.notifier().Frame(s.x.hearer.Subscriber)
	return first
}

// LastMessage implements [execution.Subscriber].
func (s subscriber) LastMessage() *canonical.Message {
	x := s.x
	_, last := x.notifier().Frame(x.hearer.Subscriber)
	if last == nil {
		return nil
	}
	return &canonical.Message{
		Op: x.message.Op, Phase: canonical.PhaseResponse, Body: last,
		Origin: canonical.Origin{Binding: x.in.Source.Info().Binding, Version: x.message.Origin.Version},
	}
}

// TranslateEvent implements [execution.Subscriber].
func (s subscriber) TranslateEvent(e *canonical.Event) bool {
	if e.Native == nil {
		return len(s.x.hearer.ID) == 0
	}
	e.Native = s.x.notifier().Retell(e.Native, s.x.hearer.Subscriber)
	return e.Native != nil
}
