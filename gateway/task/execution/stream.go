package execution

import (
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/outbound"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/stream"
)

// callerStream is an execution as its caller is told of it, event by event.
type callerStream struct {
	*EventStream

	e       *Execution
	pending *Pending // what the caller was asked in the stream; nil: nothing
}

var _ Source = (*callerStream)(nil)

// Stream begins the caller's stream. What fails at once is no stream but a refusal.
func (e *Execution) Stream(ctx context.Context) (transport.Answer, error) {
	wait := FirstEventWait
	if e.req.Subscriber != nil {
		wait = 0 // it is known what the stream begins with
	}
	first, err := e.step(ctx, wait)
	if err != nil && !errors.Is(err, outbound.ErrNothingYet) && !errors.Is(err, io.EOF) {
		e.Abort()
		return transport.Answer{}, err
	}
	return e.streamFrom(ctx, first, err)
}

// StreamTask begins a subscription with how the task stands, which the agent was asked for with
// GetTask: a subscription must begin with the task, and is refused if it has ended (A2A 1.0 section
// 3.1.6). Agents of A2A 0.3 do neither. Changes are then told as the agent tells them. Its error is
// ended for a task that has ended.
func (e *Execution) StreamTask(ctx context.Context, ended error) (transport.Answer, error) {
	first, err := e.step(ctx, e.req.Limits.Timeout)
	if err == nil && e.fold.Task() != nil && e.fold.Task().Status.State.Terminal() {
		err = ended
	}
	if err != nil && !errors.Is(err, io.EOF) {
		e.Abort()
		return transport.Answer{}, e.timeoutError(err)
	}
	return e.streamFrom(ctx, first, err)
}

// streamFrom is Stream with the first step taken already: err is nil, [outbound.ErrNothingYet] or
// io.EOF.
func (e *Execution) streamFrom(ctx context.Context, first update, err error) (transport.Answer, error) {
	mode := &e.req.Mode
	if e.settled() && e.single() && (mode.Relay && !e.asksInStream() || e.failure != nil) {
		return e.close(ctx) // the agent has answered without a stream, and so do we
	}
	s := &callerStream{e: e}
	s.EventStream = NewEventStream(e.req.Caller, s)
	s.Shape = stream.NewShaper(stream.Shape{
		From: mode.AgentStreams, To: mode.CallerStreams,
		TaskID: e.callerNames.TaskID, ContextID: e.callerNames.ContextID, Token: e.req.Message.Correlation.Progress,
		Relay: mode.Relay && !mode.Converts, // of a task that its caller knows in another way, or not at all, it is told what it has words for
	})
	if unopened := s.begin(ctx); unopened != nil {
		if e.recording && !e.observer { // it was on record, and its caller hears of no task
			e.saveEnd(context.WithoutCancel(ctx), canonical.StateFailed, problem.Native(unopened).Message)
		}
		e.Abort()
		return transport.Answer{}, unopened
	}
	answer, unsealed := s.Answered()
	if unsealed != nil {
		return transport.Answer{}, unsealed
	}
	switch {
	case err == nil:
		err = s.deliver(ctx, first)
	case errors.Is(err, outbound.ErrNothingYet):
		err = s.encode(s.Shape.Begin())
	default:
		err = nil
	}
	if err != nil {
		s.Fail(ctx, err)
	}
	return answer, nil
}

// asksInStream reports whether the caller answers the agent's question while it reads the stream.
func (e *Execution) asksInStream() bool {
	return e.waitsForAnswer() && e.req.Mode.Asking == translators.AskStream
}

// single reports whether one reply in the caller's protocol ended the work.
func (e *Execution) single() bool { return e.agentHash.Count() == 1 && e.replyWire != nil }

// begin puts the work on record, opens the stream, and tells a subscriber what it will be told.
func (s *callerStream) begin(ctx context.Context) error {
	e := s.e
	if err := e.enroll(ctx); err != nil {
		return err
	}
	if err := s.Begin(ctx, e.parents); err != nil || e.req.Subscriber == nil {
		return err
	}
	if first := e.req.Subscriber.FirstMessage(); first != nil {
		return s.encode([]canonical.Event{{Native: first}})
	}
	return nil
}

// Complete implements [Source].
func (s *callerStream) Complete() bool { return s.e.complete() }

// Advance implements [Source].
func (s *callerStream) Advance(ctx context.Context) error {
	u, err := s.e.nextUpdate(ctx)
	whole := context.WithoutCancel(ctx) // what came is told, or fails, as a whole
	switch {
	case errors.Is(err, io.EOF) && s.e.asksInStream():
		return s.ask(ctx)
	case errors.Is(err, io.EOF), errors.Is(err, ErrStopped) && s.endSubscription():
		return s.end(whole)
	case err == nil:
		return s.deliver(whole, u)
	}
	return err
}

// endSubscription ends a subscriber's stream as its revision has it; false: there is no such end.
func (s *callerStream) endSubscription() bool {
	if s.e.req.Subscriber == nil {
		return false
	}
	last := s.e.req.Subscriber.LastMessage()
	if last != nil {
		s.e.endWith(last)
	}
	return last != nil
}

// deliver tells what the agent said.
func (s *callerStream) deliver(ctx context.Context, u update) error {
	e := s.e
	if err := e.enroll(ctx); err != nil {
		return err
	}
	e.saveIfChanged(ctx, u)
	if e.req.Handling.Verbatim {
		s.AddLosses(e.losses)
		return s.relay(u.wire)
	}
	if s.AddLosses(u.losses); e.req.Mode.CallerStreams == translators.StreamsTask {
		e.addLosses(u)
	}
	for i := range u.events {
		event := &u.events[i]
		if event.Ask != nil || e.req.Subscriber != nil && !e.req.Subscriber.TranslateEvent(event) {
			continue // asked at the end of what is there
		}
		shaped, losses := s.Shape.Event(event)
		s.AddLosses(losses)
		if err := s.encode(shaped); err != nil {
			return err
		}
	}
	return nil
}

// relay queues a message as it came: an event, or the one reply of an agent that answers without a
// stream later than its caller's was begun. A text in place of a message is an error in the caller's
// words.
func (s *callerStream) relay(wire *translators.Wire) error {
	switch {
	case wire == nil:
		return nil
	case wire.Media == translators.MediaText:
		refusal := *s.e.message
		refusal.Correlation.WireID = s.e.req.WireID
		return s.Encode(&refusal)
	case !wire.Event: // an event has no carriage returns, and in JSON they mean nothing
		wire.Body = bytes.ReplaceAll(wire.Body, []byte{'\r'}, nil)
	}
	s.Queue(*wire)
	return nil
}

// encode queues events in the caller's words.
func (s *callerStream) encode(all []canonical.Event) error {
	e := s.e
	for i := range all {
		e.complement(&all[i])
		m := &canonical.Message{
			Op: canonical.OpInvoke, Phase: canonical.PhaseEvent, Body: &all[i],
			Correlation: canonical.Correlation{WireID: e.req.WireID}, Conversation: e.callerNames, Origin: e.req.Origin,
		}
		if all[i].Log != nil {
			m.Preferences.LogLevel = e.req.Message.Preferences.LogLevel
		}
		if err := s.EncodeEvent(m, &all[i]); err != nil {
			return err
		}
	}
	return nil
}

// ask asks the caller in the middle of its stream, or waits for the answers.
func (s *callerStream) ask(ctx context.Context) error {
	e := s.e
	if s.pending != nil {
		return s.waitForAnswers(ctx)
	}
	if e.callerNames.TaskID == "" {
		e.callerNames.TaskID = e.deps.NewID()
	}
	e.recordFor(e.snapshot())
	if err := e.openControl(ctx); err != nil {
		return err
	}
	if err := e.save(ctx, true); err != nil {
		return err
	}
	s.pending = e.pose(true)
	return s.askUntil(ctx, s.pending.questions())
}

// askUntil asks questions that are pending, again too, for as long as they wait for answers.
func (s *callerStream) askUntil(ctx context.Context, inputs []canonical.Input) error {
	e, req := s.e, s.e.req
	req.Limits.Answers = s.pending.until.Sub(e.now())
	return e.AskInSession(ctx, &req, e.record, inputs, func(ask *canonical.Ask) error {
		return s.encode([]canonical.Event{{Ask: ask}})
	})
}

// AskInSession registers questions about a record in the caller's session, and asks them.
func (s *Service) AskInSession(ctx context.Context, req *Request, rec *store.Record, inputs []canonical.Input, ask func(*canonical.Ask) error) error {
	for _, in := range stream.Forms(inputs) {
		id := s.deps.NewID()
		if err := s.deps.Tasks.Ask(ctx, req.Caller.QuestionKey(id), rec, in.Key, req.Limits.Answers); err != nil {
			return err
		}
		if err := ask(&canonical.Ask{ID: canonical.TextID(id), Input: in}); err != nil {
			return err
		}
	}
	return nil
}

// waitForAnswers waits until everything is answered, and tells the agent. What is not answered in
// time is answered with that. What the agent says meanwhile, its caller is told.
func (s *callerStream) waitForAnswers(ctx context.Context) error {
	e, p := s.e, s.pending
	u, done, err := e.waitForAnswers(ctx, p)
	switch {
	case err != nil:
		return err
	case done && p.misses():
		again := e.poseAgain(p)
		if err := e.save(ctx, true); err != nil {
			return err
		}
		return s.askUntil(ctx, again)
	case done:
		s.pending = nil
		err := e.closeInput(ctx, p)
		if errors.Is(err, ErrCanceled) { // the question, not the request: that has a result (MCP 2025-11-25, elicitation, Response Actions)
			return e.dismiss(ctx)
		}
		return err
	}
	if e.stale(p) {
		s.pending = nil
	}
	return s.deliver(context.WithoutCancel(ctx), u)
}

// end tells how the work is settled.
func (s *callerStream) end(ctx context.Context) error {
	e := s.e
	e.saveIfChanged(ctx, update{})
	if !e.req.Handling.Verbatim {
		m, err := e.outcomeMessage(ctx)
		if err == nil {
			err = s.last(m)
		}
		if err != nil {
			return err
		}
	}
	s.finish(ctx, nil)
	if e.ask != nil {
		e.Detach(ctx) // the agent's stream waits for the answer
	} else {
		e.stop()
	}
	return nil
}

// last tells the reply, in the caller's way of streaming.
func (s *callerStream) last(m *canonical.Message) error {
	e := s.e
	m.Correlation.WireID = e.req.WireID
	result, ok := m.Body.(*canonical.Result)
	if !ok {
		return s.Encode(m)
	}
	if e.req.Mode.CallerStreams != translators.StreamsTask {
		m.Conversation, m.Origin = e.callerNames, e.req.Origin
		return s.Encode(m)
	}
	var all []canonical.Event
	switch {
	case e.result != nil || result.Pending != nil:
		all, _ = s.Shape.End(result)
	case e.ask != nil: // the rest of the result the events have told
		all, _ = s.Shape.Event(&canonical.Event{Ask: e.ask})
	}
	if s.sent.Count() == 0 && result.Output != nil && len(all) > 0 && all[0].Task == nil { // a stream begins with the task (A2A 1.0, 3.1.2)
		all = append([]canonical.Event{{Task: e.workingTask()}}, all...)
	}
	return s.encode(all)
}

// finish signs the ECT that closes the stream and settles the books.
func (s *callerStream) finish(ctx context.Context, cause error) {
	e := s.e
	ctx = context.WithoutCancel(ctx)
	if cause != nil {
		s.Break(ctx, cause)
		return
	}
	err := s.Seal(ctx, attest.End{Parents: e.parents, Input: e.proof().Input, In: e.agentHash.Count()})
	if err != nil {
		s.Fail(ctx, err)
		return
	}
	e.req.Caller.Closed(ctx, e.callerNames.ContextID)
	e.req.Caller.FinishRequest(ctx, nil)
}

// Fail implements [Source]: it ends the stream with an error in the caller's words, never silently.
func (s *callerStream) Fail(ctx context.Context, cause error) {
	e := s.e
	ctx = context.WithoutCancel(ctx)
	canceled := errors.Is(cause, ErrCanceled)
	e.saveCause(ctx, cause)
	if canceled && s.encodeCanceled() == nil {
		cause = nil // it is what its caller wanted
	} else {
		s.Refuse(cause)
	}
	s.finish(ctx, cause)
	if e.recording && isUnchanged(cause) { // its caller may ask about the task, or cancel it
		e.stop()
		return
	}
	e.Abort()
}

// encodeCanceled ends a stream of tasks as its caller wanted.
func (s *callerStream) encodeCanceled() error {
	if s.e.req.Mode.CallerStreams != translators.StreamsTask {
		return ErrCanceled
	}
	status := canonical.Status{State: canonical.StateCanceled, At: s.e.now()}
	return s.encode(append(s.Shape.Begin(), canonical.Event{Status: &status}))
}

// Leave implements [Source]. Work that does not belong to the connection goes on.
func (s *callerStream) Leave() {
	e := s.e
	ctx := context.Background() // the caller's has ended
	letGoOn := func() {}
	if e.req.Handling.Detached && e.recording { // its work has its place when the request is over
		share, leave := e.req.Caller.DetachWork()
		letGoOn = func() { goOn(ctx, e, share, leave) }
	}
	if e.req.Message.Op == canonical.OpNative && s.sent.Count() > 0 {
		s.finish(ctx, nil) // a caller who subscribes ends like this, and what was told is on record
	} else {
		e.req.Caller.FinishRequest(ctx, context.Canceled)
	}
	switch {
	case e.req.Handling.Detached && e.recording:
		letGoOn()
		return
	case e.recording && e.observer:
		e.releaseOrFail(ctx, "")
	case e.recording:
		e.saveEnd(ctx, canonical.StateCanceled, "")
	}
	e.Abort()
}
