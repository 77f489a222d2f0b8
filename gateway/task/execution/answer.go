package execution

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/aepb/aepb-gateway/gateway/outbound"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/worker"
	"github.com/aepb/aepb-gateway/policy/quota"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/stream"
)

// FirstEventWait is how long a caller who asked for a stream, or not to wait, waits all the same:
// what fails at once is refused in words, and what is done at once is answered with its result.
const FirstEventWait = 250 * time.Millisecond

// taskReplyWait is how long a caller who asked not to wait waits for a result: so little that the
// task is promised within FirstEventWait, evidence and record included.
const taskReplyWait = 150 * time.Millisecond

// Answer tells the caller what it asked to be told: everything, that there is a task, or how it
// ended.
func (e *Execution) Answer(ctx context.Context) (transport.Answer, error) {
	p := e.req.Message.Preferences
	switch {
	case e.asTask && p.TaskOK:
		return e.promise(ctx)
	case p.Stream, e.req.Mode.Relay && !e.asTask && !e.req.Handling.Posts:
		return e.Stream(ctx)
	case p.NoWait, p.TaskOK:
		return e.promise(ctx)
	default:
		return e.Wait(ctx)
	}
}

// Wait answers once the work is settled.
func (e *Execution) Wait(ctx context.Context) (transport.Answer, error) {
	err := e.settleForCaller(ctx)
	switch {
	case err == nil && e.asksInStream():
		return e.Stream(ctx)
	case err == nil:
		e.recount(ctx)
		return e.close(ctx)
	case (errors.Is(err, outbound.ErrNothingYet) || isUnchanged(err)) && e.agentNames.TaskID != "" && e.req.Mode.Asking != translators.AskTask && !e.asTask:
		e.on(Deadline)
		return e.close(ctx) // it goes on at the agent, and can be asked about
	case errors.Is(err, outbound.ErrNothingYet) && e.agentNames.TaskID != "" && e.enrolled(): // and its webhook is told how it ends
		e.stop()
		e.releaseOrFail(ctx, "")
		e.req.Caller.FollowTask(ctx, e.record)
		return transport.Answer{}, e.timeoutError(err)
	}
	return transport.Answer{}, e.drop(ctx, e.timeoutError(err))
}

// enrolled: the work is on record for the webhook of this request, and what has come of the request
// was put there. A question that was answered in vain is put back elsewhere.
func (e *Execution) enrolled() bool {
	return e.recording && e.req.Handling.Posts && (!e.req.Handling.OnRecord || e.agentHash.Count() > 0)
}

// drop ends work of which its caller is told an error.
func (e *Execution) drop(ctx context.Context, cause error) error {
	if e.enrolled() {
		e.saveCause(context.WithoutCancel(ctx), e.req.Caller.Cause(cause))
	}
	e.Abort()
	return cause
}

// timeoutError says that the agent is at fault where nothing came.
func (e *Execution) timeoutError(err error) error {
	if errors.Is(err, outbound.ErrNothingYet) {
		return &transport.TimeoutError{Agent: e.req.AgentName, After: e.req.Limits.Timeout}
	}
	return err
}

// settleForCaller reads what the agent says for a caller who waits. What a webhook is to be told
// goes on record meanwhile, also if the agent is silent for long.
func (e *Execution) settleForCaller(ctx context.Context) error {
	limit := e.req.Limits.Timeout
	if e.req.Handling.Posts {
		if err := e.settle(ctx, FirstEventWait); !errors.Is(err, outbound.ErrNothingYet) {
			return err
		}
		if err := e.enroll(ctx); err != nil {
			return err
		}
		limit -= FirstEventWait
	}
	return e.settle(ctx, limit)
}

// settleBriefly does so for a caller who does not wait. An agent that is seen at work in place of
// its reply at once is read until it names its task.
func (e *Execution) settleBriefly(ctx context.Context) error {
	if !e.req.Mode.Relay || !e.req.Handling.Posts {
		return e.settle(ctx, taskReplyWait)
	}
	err := e.settle(ctx, e.req.Limits.Timeout)
	if e.callerNames.TaskID == "" {
		err = e.timeoutError(err)
	}
	return err
}

// settle reads what the agent says until the work is settled, at most for this long.
func (e *Execution) settle(ctx context.Context, limit time.Duration) error {
	end := time.Now().Add(limit)
	for {
		u, err := e.step(ctx, max(time.Until(end), 0))
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			e.addLosses(u)
			err = e.report(ctx, u)
		}
		if err != nil {
			return err
		}
	}
}

// report puts on record what a webhook is to be told. What has ended before there was a record is
// posted with the answer. [outbound.ErrNothingYet]: the caller is to be told now of the task, as the
// agent would have told it.
func (e *Execution) report(ctx context.Context, u update) error {
	if !e.req.Handling.Posts || e.complete() && !e.recording {
		return nil
	}
	if err := e.enroll(ctx); err != nil {
		return err
	}
	if e.saveIfChanged(ctx, u); e.req.Mode.Relay && e.req.Message.Preferences.NoWait && e.recording && !e.settled() {
		return outbound.ErrNothingYet
	}
	return nil
}

// promise answers with the result if it is there at once, else with the task. A caller who insists
// on a task gets one that may have ended.
func (e *Execution) promise(ctx context.Context) (transport.Answer, error) {
	err := e.settleBriefly(ctx)
	e.converted = e.asTask
	ended := err == nil && !(e.converted && e.waitsForAnswer())
	if ended && (e.failure != nil || !e.req.Mode.Insists) {
		return e.close(ctx)
	}
	if err != nil && !errors.Is(err, outbound.ErrNothingYet) {
		return transport.Answer{}, e.drop(ctx, err)
	}
	if e.callerNames.TaskID == "" {
		e.callerNames = canonical.Conversation{TaskID: e.deps.NewID(), ContextID: e.req.Message.Conversation.ContextID}
	}
	if err := e.save(ctx, true); err != nil {
		e.Abort()
		return transport.Answer{}, err
	}
	var answer transport.Answer
	if err = e.register(ctx); err == nil {
		answer, err = e.reply(ctx, &canonical.Message{
			Op: canonical.OpInvoke, Phase: canonical.PhaseResponse, Body: &canonical.Result{Task: e.record.Brief()},
		})
	}
	if err != nil {
		e.saveEnd(ctx, canonical.StateFailed, problem.Native(err).Message)
		e.Abort()
		return transport.Answer{}, err
	}
	if ended {
		e.notifyObservers(ctx)
		e.stop()
		return answer, nil
	}
	e.Detach(ctx) // from here on a worker has the execution
	return answer, nil
}

// close answers with how the work stands.
func (e *Execution) close(ctx context.Context) (transport.Answer, error) {
	if e.req.Handling.Verbatim && e.replyWire != nil {
		e.stop()
		return e.req.Caller.Relay(ctx, *e.replyWire, e.message, e.parents)
	}
	m, err := e.outcomeMessage(ctx)
	if err != nil {
		e.stop()
		return transport.Answer{}, err
	}
	answer, err := e.reply(ctx, m)
	switch {
	case err != nil && e.waitsForAnswer(): // what it asks cannot be said to its caller, and has no answer
		e.saveEnd(ctx, canonical.StateFailed, problem.Native(err).Message)
		e.Abort()
		return answer, err
	case e.ask != nil && err == nil:
		e.Detach(ctx) // the agent's stream waits for the answer
		return answer, nil
	}
	e.stop()
	return answer, err
}

// reply answers with a message.
func (e *Execution) reply(ctx context.Context, m *canonical.Message) (transport.Answer, error) {
	m.Conversation, m.Origin = e.callerNames, e.req.Origin
	m.Losses = canonical.MergeLosses(m.Losses, e.losses)
	return e.req.Caller.ReplyWith(ctx, m, e.proof(), e.recording)
}

// outcomeMessage is the reply, with what has to be saved for it saved.
func (e *Execution) outcomeMessage(ctx context.Context) (*canonical.Message, error) {
	if e.waitsForAnswer() && e.req.Mode.Relay && e.req.Mode.Asking == translators.AskNone && e.result != nil && e.result.Pending != nil {
		return nil, e.badReply("it asks a caller who said that it cannot be asked")
	}
	if e.waitsForAnswer() && e.callerNames.TaskID == "" {
		e.callerNames.TaskID = e.deps.NewID()
	}
	if err := e.saveSettled(ctx); err != nil {
		return nil, err
	}
	request := e.req.Message
	m := &canonical.Message{Op: request.Op, Phase: canonical.PhaseResponse, Conversation: e.callerNames}
	switch {
	case e.failure != nil:
		m = e.failure
	case e.other != nil:
		m = e.other
	case e.waitsForAnswer():
		m.Body = e.question()
		if e.req.Mode.AsksAlike {
			m.Preferences.CanAnswer = append([]canonical.Mode{}, request.Preferences.CanAnswer...)
		}
	default:
		m.Body = e.final()
		if m.Losses = chunkLosses(e.fold.Joined()); e.message != nil && e.req.Handling.Posts {
			m.From = e.message.From // as in the reply of an agent that is not seen at work
		}
	}
	return m, nil
}

// question is the reply that asks: the question itself where the caller knows such, else the task
// that waits. A caller in the agent's own protocol who has not said that it can be asked hears from
// its codec what it lacks.
func (e *Execution) question() *canonical.Result {
	if (e.req.Mode.Asking == translators.AskReply || e.req.Mode.AsksAlike) && !e.req.Message.Preferences.TaskOK {
		return &canonical.Result{Pending: &canonical.Pending{
			Inputs: stream.Forms(e.openInputs()), State: StateOf(e.round, e.callerNames.TaskID),
		}}
	}
	return &canonical.Result{Task: e.snapshot()}
}

// longestSilence is how long a stream of notifications may be silent.
const longestSilence = time.Hour

// Save puts the work on record, before its caller hears of it. On an error the work has to be
// aborted.
func (e *Execution) Save(ctx context.Context) error { return e.save(ctx, true) }

// Detach lets the work go on without its caller. If there is no capacity for background work, the
// work ends, and its record says so.
func (e *Execution) Detach(ctx context.Context) {
	share, leave := e.req.Caller.DetachWork()
	goOn(ctx, e, share, leave)
}

// goOn lets work go on that was taken off its request.
func goOn(ctx context.Context, e *Execution, grant *quota.Grant, leave func()) {
	work, evicted := worker.NewEvictable()
	e.stopped = evicted // from now on only that and control messages stop it
	var err error
	if grant == nil {
		err = e.evictor.Take(ctx, e.req.Holder, func() (err error) {
			grant, err = e.deps.Workers.Reserve(e.req.Holder, e.req.Size)
			return err
		})
	}
	if err == nil {
		exit := e.deps.Lifecycle.Enter(e.req.AgentName)
		letEvict(e, work) // before the caller can make its next call
		err = e.deps.Workers.GoGranted(grant, func(ctx context.Context) {
			defer exit()
			defer work.End()
			defer leave()
			e.runDetached(ctx, work, leave)
			grant.Release()
			e.control.Wait()
		})
		if err != nil {
			exit()
			e.evictor.Remove(e.req.Holder, work)
		}
	}
	if err != nil {
		leave()
		work.End()
		e.releaseOrFail(context.WithoutCancel(ctx), "the gateway could not go on with it; whether the agent has finished is not known")
		e.Abort()
	}
}

// letEvict lets work be evicted while its caller is asked in a reply: it is answered by a retry, or
// never, and the caller has no message to end the work with (MCP 2026-07-28, multi round-trip requests).
func letEvict(e *Execution, work *worker.Evictable) {
	if e.waitsForAnswer() && e.question().Pending != nil {
		e.evictor.Add(e.req.Holder, work)
	}
}

// runDetached does the work until it is settled, and answers what it asks with what the caller sends
// later. Work that waits for its caller leaves its place at the agent to others.
func (e *Execution) runDetached(ctx context.Context, work *worker.Evictable, leave func()) {
	defer e.stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for {
		for !e.settled() {
			u, err := e.nextUpdate(ctx)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				e.ended(ctx, err)
				return
			}
			e.addLosses(u)
			e.saveIfChanged(ctx, u)
		}
		for !e.trySave(ctx) && e.answersHere() && worker.Pause(ctx, saveInterval) {
			continue // until then nothing is asked
		}
		if leave(); !e.answersHere() || e.machine.State() == Overtaken || !e.waitAndAnswer(ctx, work) { // an answer after the end has no effect
			return
		}
	}
}

// nextUpdate is step, unless a party says to stop: a control message, the client of a session, or
// the end of this process. An agent that has a task of its own may be silent: it is asked about it.
func (e *Execution) nextUpdate(ctx context.Context) (update, error) {
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	ends := e.deps.Workers.Context()
	defer context.AfterFunc(ends, cancel)() //nolint:contextcheck // a signal
	stops := e.stops()
	for _, stop := range stops {
		defer context.AfterFunc(stop, cancel)() //nolint:contextcheck // a signal
	}
	u, err := e.waitUpdate(within)
	if err == nil || errors.Is(err, io.EOF) || ctx.Err() != nil {
		return u, err
	}
	if ends.Err() != nil {
		return u, ErrStopped
	}
	for _, stop := range stops {
		if stop.Err() != nil {
			return u, ErrCanceled
		}
	}
	if errors.Is(err, outbound.ErrNothingYet) && e.agentNames.TaskID != "" && !e.req.Handling.Verbatim {
		err = e.follow(within, err)
	}
	return u, e.timeoutError(err)
}

// waitUpdate is step within the agent's time. A caller of notifications may hear nothing for longer;
// the server side keeps such a connection alive.
func (e *Execution) waitUpdate(ctx context.Context) (update, error) {
	limit := e.req.Limits.Timeout
	for silent := time.Duration(0); ; silent += limit {
		u, err := e.step(ctx, limit)
		if !errors.Is(err, outbound.ErrNothingYet) || !e.began || !e.req.Handling.Listens || silent >= longestSilence {
			return u, err
		}
	}
}

// stops are the signals that the caller wants the work ended.
func (e *Execution) stops() []context.Context {
	var stops []context.Context
	if e.control != nil {
		stops = append(stops, e.control.Canceled())
	}
	if e.stopped != nil {
		stops = append(stops, e.stopped)
	}
	return stops
}

// ended writes why the work ended before it was settled.
func (e *Execution) ended(ctx context.Context, cause error) {
	why := cause
	if errors.Is(cause, ErrCanceled) {
		e.Abort()
	} else if ctx.Err() != nil && !isUnchanged(cause) {
		why = ErrStopped
	}
	e.saveCause(context.WithoutCancel(ctx), why)
	e.req.Caller.FinishRequest(ctx, cause)
}

// Abort ends the work at the agent, because its caller does not want it any more. It is done in the
// background, and only as well as it can be.
func (e *Execution) Abort() {
	named := e.agentNames.TaskID != "" || !e.req.Handling.NamesTask
	if !e.observer && !e.complete() && !named && e.deps.Workers.GoFor(e.req.Holder, e.req.Size, e.cancelWhenNamed) == nil {
		return
	}
	e.stop()
	switch {
	case e.reused: // under that id the caller has had another task
	case e.observer, e.complete() && !e.waitsForAnswer():
	case e.agentNames.TaskID != "" && e.req.Mode.KeepsTasks:
		e.cancelAtAgent()
	case e.req.Mode.AgentStreams != translators.StreamsTask:
		e.req.Agent.CancelRequest()
	}
}

// cancelWhenNamed reads what the agent says until it has named its task, or ended it, and no longer
// than a reply may take; then the task is canceled.
func (e *Execution) cancelWhenNamed(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, e.req.Limits.Timeout)
	defer cancel()
	for e.agentNames.TaskID == "" && !e.complete() {
		if _, err := e.step(ctx, e.req.Limits.Timeout); err != nil {
			break
		}
	}
	e.stop()
	if e.agentNames.TaskID != "" && (!e.complete() || e.waitsForAnswer()) {
		e.cancelAtAgent()
	}
}

func (e *Execution) cancelAtAgent() {
	e.req.Agent.Notify(canonical.OpTaskCancel, &canonical.TaskQuery{ID: e.agentNames.TaskID})
}
