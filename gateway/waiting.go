package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/task/execution"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/stream"
)

// answer tells the caller what it asked to be told: everything, that there is a
// task, or how it ended.
func (r *run) answer(ctx context.Context) (transport.Answer, error) {
	p, tasking := r.x.message.Preferences, r.x.tasking()
	switch {
	case tasking && p.TaskOK:
		return r.promise(ctx)
	case p.Stream, r.x.mode.Relay && !tasking && !r.x.posts():
		return r.tell(ctx)
	case p.NoWait, p.TaskOK:
		return r.promise(ctx)
	default:
		return r.wait(ctx)
	}
}

// wait answers once the work is settled.
func (r *run) wait(ctx context.Context) (transport.Answer, error) {
	err := r.hearOut(ctx)
	switch {
	case err == nil && r.asked() && r.x.mode.Asking == translators.AskStream:
		return r.tell(ctx)
	case err == nil:
		r.recount(ctx)
		return r.close(ctx)
	case (errors.Is(err, errPatience) || isUnchanged(err)) && r.agent.TaskID != "" && r.x.mode.Asking != translators.AskTask && !r.x.tasking():
		r.on(execution.Deadline)
		return r.close(ctx) // it goes on at the agent, and can be asked about
	case errors.Is(err, errPatience) && r.agent.TaskID != "" && r.enrolled(): // and its webhook is told how it ends
		r.stop()
		r.lose(ctx, "")
		r.g.attend(ctx, r.x, r.x.record)
		return transport.Answer{}, r.late(err)
	}
	return transport.Answer{}, r.drop(ctx, r.late(err))
}

// enrolled: the work is on record for the webhook of this message, and what has come of
// the message was put there. A question that was answered in vain is put back elsewhere.
func (r *run) enrolled() bool {
	return r.keeping && r.x.posts() && (!r.x.webhook.known || r.said.Count() > 0)
}

// drop ends work of which its caller is told an error.
func (r *run) drop(ctx context.Context, cause error) error {
	if r.enrolled() {
		r.forsake(context.WithoutCancel(ctx), r.g.stopCause(r.x, cause))
	}
	r.abort()
	return cause
}

// late says whose fault it is that nothing came.
func (r *run) late(err error) error {
	if errors.Is(err, errPatience) {
		return &transport.TimeoutError{Agent: r.x.to.Agent.Name, After: r.x.route.Endpoint.Timeout}
	}
	return err
}

// hearOut hears the agent for a caller who waits. What a webhook is to be told goes on
// record meanwhile, also if the agent is silent for long.
func (r *run) hearOut(ctx context.Context) error {
	limit := r.x.route.Endpoint.Timeout
	if r.x.posts() {
		if err := r.settle(ctx, grace); !errors.Is(err, errPatience) {
			return err
		}
		if err := r.enroll(ctx); err != nil {
			return err
		}
		limit -= grace
	}
	return r.settle(ctx, limit)
}

// hearBriefly does so for a caller who does not wait. An agent that is heard at work in
// place of its answer at once is heard until it names its task.
func (r *run) hearBriefly(ctx context.Context) error {
	if !r.x.mode.Relay || !r.x.posts() {
		return r.settle(ctx, promptly)
	}
	err := r.settle(ctx, r.x.route.Endpoint.Timeout)
	if r.own.TaskID == "" {
		err = r.late(err)
	}
	return err
}

// settle hears the agent until the work is settled, at most for this long.
func (r *run) settle(ctx context.Context, limit time.Duration) error {
	end := time.Now().Add(limit)
	for {
		s, err := r.step(ctx, max(time.Until(end), 0))
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			r.unheard(s)
			err = r.report(ctx, s)
		}
		if err != nil {
			return err
		}
	}
}

// report puts on record what a webhook is to be told. What has ended before there was
// a record is posted with the answer. errPatience: the caller is to be told now of the
// task, as the agent would have told it.
func (r *run) report(ctx context.Context, s step) error {
	if !r.x.posts() || r.complete() && !r.keeping {
		return nil
	}
	if err := r.enroll(ctx); err != nil {
		return err
	}
	if r.note(ctx, s); r.x.mode.Relay && r.x.message.Preferences.NoWait && r.keeping && !r.settled() {
		return errPatience
	}
	return nil
}

// unheard keeps what is lost of a step that its caller is not told as it comes.
func (r *run) unheard(s step) { r.untold = canonical.MergeLosses(r.untold, unlogged(s.events)) }

// unlogged declares the log messages among the events: a caller who gets one answer, or
// a task, gets none of them.
func unlogged(events []canonical.Event) []canonical.Loss {
	if !slices.ContainsFunc(events, func(e canonical.Event) bool { return e.Log != nil }) {
		return nil
	}
	return []canonical.Loss{{Code: canonical.LossProgress, Path: "/body/log", Fate: canonical.Dropped}}
}

// promise answers with the result if it is there at once, else with the task. Who
// insists on a task gets one that may have ended.
func (r *run) promise(ctx context.Context) (transport.Answer, error) {
	err := r.hearBriefly(ctx)
	r.held = r.x.tasking()
	ended := err == nil && !(r.held && r.asked())
	if ended && (r.failure != nil || !r.x.mode.Insists) {
		return r.close(ctx)
	}
	if err != nil && !errors.Is(err, errPatience) {
		return transport.Answer{}, r.drop(ctx, err)
	}
	if r.own.TaskID == "" {
		r.own = canonical.Conversation{TaskID: r.g.NewID(), ContextID: r.x.message.Conversation.ContextID}
	}
	if err := r.keep(ctx, true); err != nil {
		r.abort()
		return transport.Answer{}, err
	}
	var answer transport.Answer
	if err = r.registerNew(ctx); err == nil {
		answer, err = r.reply(ctx, &canonical.Message{
			Op: canonical.OpInvoke, Phase: canonical.PhaseResponse, Body: &canonical.Result{Task: r.x.record.Brief()},
		})
	}
	if err != nil {
		r.mark(ctx, canonical.StateFailed, problem.Native(err).Message)
		r.abort()
		return transport.Answer{}, err
	}
	if ended {
		r.tellOthers(ctx)
		r.stop()
		return answer, nil
	}
	r.handOver(ctx) // from here on the run is another's
	return answer, nil
}

// close answers with how the work stands.
func (r *run) close(ctx context.Context) (transport.Answer, error) {
	if r.x.verbatim() && r.whole != nil {
		r.stop()
		return r.g.reply(ctx, r.x, *r.whole, r.message, r.parents)
	}
	m, err := r.outcome(ctx)
	if err != nil {
		r.stop()
		return transport.Answer{}, err
	}
	answer, err := r.reply(ctx, m)
	switch {
	case err != nil && r.asked(): // what it asks cannot be said to its caller, and has no answer
		r.mark(ctx, canonical.StateFailed, problem.Native(err).Message)
		r.abort()
		return answer, err
	case r.ask != nil && err == nil:
		r.handOver(ctx) // the agent's stream waits for the answer
		return answer, nil
	}
	r.stop()
	return answer, err
}

// outcome is the reply, with what has to be kept for it kept.
func (r *run) outcome(ctx context.Context) (*canonical.Message, error) {
	if r.asked() && r.x.mode.Relay && r.x.mode.Asking == translators.AskNone && r.result != nil && r.result.Pending != nil {
		return nil, &transport.BadReplyError{Agent: r.x.to.Agent.Name, Reason: "it asks a caller who said that nobody can be asked"}
	}
	if r.asked() && r.own.TaskID == "" {
		r.own.TaskID = r.g.NewID()
	}
	if err := r.settledOnRecord(ctx); err != nil {
		return nil, err
	}
	m := &canonical.Message{Op: r.x.message.Op, Phase: canonical.PhaseResponse, Conversation: r.own}
	switch {
	case r.failure != nil:
		m = r.failure
	case r.other != nil:
		m = r.other
	case r.asked():
		m.Body = r.question()
		if r.x.mode.AsksAlike {
			m.Preferences.CanAnswer = append([]canonical.Mode{}, r.x.message.Preferences.CanAnswer...)
		}
	default:
		m.Body = r.final()
		if m.Losses = chunksJoined(r.fold.Joined()); r.message != nil && r.x.posts() {
			m.From = r.message.From // as in the answer of one that is not heard at work
		}
	}
	return m, nil
}

// chunksJoined is what is lost where appended chunks of an artifact are told as one part.
func chunksJoined(joined bool) []canonical.Loss {
	if !joined {
		return nil
	}
	return []canonical.Loss{{Code: canonical.LossChunks, Path: "/body/artifact", Fate: canonical.Dropped}}
}

// settledOnRecord: what goes on, or waits for its caller, is on record before
// its caller hears of it; what has ended is put there if it was there before.
func (r *run) settledOnRecord(ctx context.Context) error {
	lasting := r.x.message.Op == canonical.OpInvoke && (r.asked() || !r.complete()) || r.x.message.Op == canonical.OpNative && r.asked()
	if !lasting && !r.keeping {
		return nil
	}
	err := r.keep(ctx, lasting)
	if err == nil {
		r.tellOthers(ctx)
		err = r.g.registerNew(ctx, r.x, r.x.record)
	}
	if lasting {
		return err
	}
	if err != nil {
		r.unkept(ctx, err)
	}
	return nil
}

// inputs are the questions that are open.
func (r *run) inputs() []canonical.Input {
	switch {
	case r.ask != nil:
		return []canonical.Input{r.ask.Input}
	case r.result != nil && r.result.Pending != nil:
		return r.result.Pending.Inputs
	default:
		return stream.Inputs(r.snapshot())
	}
}

// question is the reply that asks: the question itself where the caller knows
// such, else the task that waits. A caller in the agent's own protocol who has not said
// that it can be asked hears from its codec what it lacks.
func (r *run) question() *canonical.Result {
	if (r.x.mode.Asking == translators.AskReply || r.x.mode.AsksAlike) && !r.x.message.Preferences.TaskOK {
		return &canonical.Result{Pending: &canonical.Pending{Inputs: stream.Forms(r.inputs()), State: stateOf(r.round, r.own.TaskID)}}
	}
	return &canonical.Result{Task: r.snapshot()}
}

// reply is leg 2 of a run.
func (r *run) reply(ctx context.Context, m *canonical.Message) (transport.Answer, error) {
	g, x := r.g, r.x
	tr := g.toCaller(x, m, r.parents)
	tr.Input, tr.Ext = r.input()
	m.Conversation, m.Origin = r.own, x.from()
	m.Losses = canonical.MergeLosses(m.Losses, r.untold)
	g.stampReply(x, m)
	dialogue := m.Conversation.ContextID
	out, err := g.translate(ctx, x, tr)
	if err != nil {
		return transport.Answer{}, g.unsaid(ctx, x, m, err)
	}
	g.remember(ctx, x, dialogue)
	if !r.keeping {
		if err := g.keepReply(ctx, x, m, out.Wire(), tr.Input); err != nil {
			return transport.Answer{}, err
		}
	}
	return x.answer(out), nil
}

// final is the reply to a caller who waited, as far as it has come.
func (r *run) final() *canonical.Result {
	if r.result != nil {
		return r.result
	}
	if result := r.fold.Result(); result != nil {
		return result
	}
	return &canonical.Result{Task: &canonical.Task{
		ID: r.own.TaskID, ContextID: r.own.ContextID, Status: canonical.Status{State: canonical.StateWorking},
	}}
}

// native is the result of a request that only one protocol has; nil: there is none.
func (r *run) native() json.RawMessage {
	if r.other == nil {
		return nil
	}
	if body, ok := r.other.Body.(*canonical.Native); ok {
		return body.Result
	}
	return nil
}

// snapshot is the work as a task.
func (r *run) snapshot() *canonical.Task {
	var task *canonical.Task
	switch {
	case r.failure != nil:
		failed, _ := r.failure.Body.(*canonical.Error)
		task = stream.Failed(r.own, failed)
	case r.native() != nil:
		task = &canonical.Task{ID: r.own.TaskID, ContextID: r.own.ContextID, Status: canonical.Status{State: canonical.StateCompleted}}
	case r.result != nil && r.result.Task == nil:
		task = stream.TaskOf(r.own.TaskID, r.own.ContextID, r.result)
		task.Output = r.result.Output
	default:
		task = r.final().Task
		if task == nil {
			task = stream.TaskOf(r.own.TaskID, r.own.ContextID, r.final())
		}
	}
	if r.ask != nil {
		asked := *task
		asked.Status, asked.Inputs = canonical.Status{State: canonical.StateInputRequired}, []canonical.Input{r.ask.Input}
		task = &asked
	}
	return r.made(task)
}
