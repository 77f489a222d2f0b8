package gateway

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/aepb/aepb-gateway/gateway/task/execution"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/consent"
	"github.com/aepb/aepb-gateway/translators/stream"
)

// asked is what a run waits for.
type asked struct {
	got     map[string]canonical.Answer // by the keys of the inputs
	turns   []canonical.Content         // the messages with them, for the task's history
	refused *canonical.Error            // why what the caller gave is no answer; nil: it is one
	till    time.Time
	round   int  // of the question
	heard   bool // its caller waits in a stream, and does not say twice what got lost
}

func (r *run) awaited(heard bool) *asked {
	return &asked{got: map[string]canonical.Answer{}, till: r.g.Now().Add(r.x.answerWait()), round: r.round, heard: heard}
}

// take takes the answers to the question; the first one to each counts. A client's
// error is none, nor are values that do not fit.
func (a *asked) take(inputs []canonical.Input, answers []store.AnswerForRound) {
	for _, one := range answers {
		at := slices.IndexFunc(inputs, func(in canonical.Input) bool { return in.Key == one.Key })
		if _, had := a.got[one.Key]; had || at < 0 || one.Round != 0 && one.Round != a.round+1 {
			continue
		}
		answer, err := consent.Fit(inputs[at], one.Answer)
		refused, _ := errors.AsType[*canonical.Error](err)
		if one.Failure != nil {
			refused = &canonical.Error{Code: one.Failure.Code, Message: "the client answered the question with an error: " + one.Failure.Message}
		}
		if refused != nil {
			a.refused = refused
			return
		}
		if a.got[one.Key] = answer; one.Turn != nil {
			a.turns = append(a.turns, *one.Turn)
		}
	}
}

// all: every question is answered, or one will not be.
func (a *asked) all(inputs []canonical.Input) bool {
	if a.refused != nil {
		return true
	}
	for i := range inputs {
		if _, ok := a.got[inputs[i].Key]; !ok {
			return false
		}
	}
	return true
}

// answers has one answer for each question. One that was not answered in time is
// canceled: the user did not say anything.
func (a *asked) answers(inputs []canonical.Input) []canonical.Answer {
	answers := make([]canonical.Answer, 0, len(inputs))
	for i := range inputs {
		answer, ok := a.got[inputs[i].Key]
		if !ok {
			answer = canonical.Answer{Key: inputs[i].Key, Action: canonical.Cancel}
		}
		answers = append(answers, answer)
	}
	return answers
}

// maxAsks bounds the questions that an agent has open in one stream.
const maxAsks = 16

// wonder takes a question of the agent's open stream. They are asked one by one.
func (r *run) wonder(ask *canonical.Ask) error {
	if r.ask == nil {
		r.ask = ask
		return nil
	}
	if len(r.asks) >= maxAsks-1 {
		return &transport.BadReplyError{Agent: r.x.to.Agent.Name, Reason: "it asks too much at once"}
	}
	r.asks = append(r.asks, ask)
	return nil
}

// unask takes away what the stream has asked: nobody waits for answers there. What
// is asked later is another question.
func (r *run) unask() {
	if r.ask == nil {
		return
	}
	if r.ask, r.asks = nil, nil; !r.complete() {
		r.round++
	}
}

// await waits until all that is asked is answered, or will not be: true. It hears
// the agent meanwhile: false, and what it said, which may be the end of it all.
func (r *run) await(ctx context.Context, a *asked) (step, bool, error) {
	timer := time.NewTimer(a.till.Sub(r.g.Now()))
	defer timer.Stop()
	var agent <-chan heard
	if r.ask != nil {
		agent = r.pump.out
	}
	var lost, stopped <-chan struct{}
	if a.heard {
		lost = r.mail.Disrupted().Done()
	}
	if r.x.scope.stopped != nil {
		stopped = r.x.scope.stopped.Done()
	}
	for inputs := r.inputs(); !a.all(inputs); {
		select {
		case answers := <-r.mail.Answers():
			a.take(inputs, answers)
		case h, ok := <-agent:
			s, err := r.meanwhile(ctx, h, ok)
			return s, false, err
		case <-r.mail.Canceled().Done():
			return step{}, false, errCanceled
		case <-lost:
			return step{}, false, errUnheard
		case <-r.g.workers.Context().Done():
			return step{}, false, errStopped
		case <-timer.C:
			return step{}, true, nil
		case <-ctx.Done():
			return step{}, false, ctx.Err()
		case <-stopped:
			if ctx.Err() != nil {
				return step{}, false, ctx.Err()
			}
			return step{}, false, errCanceled
		}
	}
	return step{}, true, nil
}

// meanwhile hears one thing that the agent says while it is to be answered. If that
// was the end of its stream, the question has ended with it.
func (r *run) meanwhile(ctx context.Context, h heard, ok bool) (step, error) {
	err := h.err
	if !ok {
		err = io.EOF
	}
	if err == nil {
		s, _, err := r.hear(ctx, h)
		return s, err
	}
	if err := r.follow(ctx, err); err != nil {
		return step{}, err
	}
	r.unask()
	return step{}, nil
}

// pass tells the agent what came of its question.
func (r *run) pass(ctx context.Context, a *asked) error {
	inputs := r.inputs()
	r.history = newest(append(append(r.history, question(r.own.TaskID, r.round, inputs)), a.turns...))
	switch {
	case a.refused != nil:
		return r.refuse(ctx, a.refused)
	case r.talks() && !a.all(inputs):
		// The agent hears answers only as words of the user, and the user said nothing.
		return &canonical.Error{Code: canonical.CodeTimeout, Message: "the question was not answered within " + r.x.answerWait().String()}
	default:
		return r.give(ctx, a.answers(inputs))
	}
}

// DefaultAnswerWait is how long an agent's question waits if the settings do not say it.
const DefaultAnswerWait = 10 * time.Minute

// answerWait is how long a question of this exchange may wait for its answer.
func (x *request) answerWait() time.Duration {
	if x.settings.AnswerWait > 0 {
		return x.settings.AnswerWait
	}
	return DefaultAnswerWait
}

// moot: what was asked is not asked any more.
func (r *run) moot(a *asked) bool { return !r.asked() || r.round != a.round }

// answered waits for the answers to what is asked, and gives them to the agent.
// False: the work has ended in failure.
func (r *run) answered(ctx context.Context) bool {
	said := r.awaited(false)
	for !r.moot(said) {
		s, done, err := r.await(ctx, said)
		if err == nil && done {
			err = r.pass(ctx, said)
		}
		if err != nil {
			r.ended(ctx, err)
			return false
		}
		if done {
			r.keepUp(ctx)
			return true
		}
		r.unheard(s)
		r.note(ctx, s)
	}
	return true
}

// inquire asks the caller in the middle of its stream.
func (t *telling) inquire(ctx context.Context) error {
	r := t.run
	if t.waits != nil {
		return t.await(ctx)
	}
	if r.own.TaskID == "" {
		r.own.TaskID = r.g.NewID()
	}
	r.x.recordFor(r.snapshot())
	if err := r.listen(); err != nil { //nolint:contextcheck // it lives as long as the run
		return err
	}
	if err := r.keep(ctx, true); err != nil {
		return err
	}
	t.waits = r.awaited(true)
	for _, in := range stream.Forms(r.inputs()) {
		id := r.g.NewID()
		if err := r.g.tasks.Ask(ctx, r.x.questionKey(id), r.x.record, in.Key, r.x.answerWait()); err != nil {
			return err
		}
		if err := t.say([]canonical.Event{{Ask: &canonical.Ask{ID: quoted(id), Input: in}}}); err != nil {
			return err
		}
	}
	return nil
}

// errUnheard: doors have given up delivering answers, and clients do not send
// them again.
var errUnheard = &canonical.Error{
	Code: canonical.CodeUnavailable, Message: "the answer could not be delivered in time; whether the agent has finished is not known",
}

// await waits until everything is answered, and tells the agent. What is not
// answered in time is answered with that. What the agent says meanwhile, its caller
// is told.
func (t *telling) await(ctx context.Context) error {
	r, said := t.run, t.waits
	s, done, err := r.await(ctx, said)
	switch {
	case err != nil:
		return err
	case done:
		t.waits = nil
		err := r.pass(ctx, said)
		if errors.Is(err, errCanceled) { // the question, not the request: that has a result (MCP 2025-11-25, elicitation, Response Actions)
			return r.dismiss(ctx)
		}
		return err
	}
	if r.moot(said) {
		t.waits = nil
	}
	return t.take(context.WithoutCancel(ctx), s)
}

// dismiss ends the work of an agent that hears no word of a question that the user
// dismissed.
func (r *run) dismiss(ctx context.Context) error {
	task := *r.snapshot()
	task.Status, task.Inputs = canonical.Status{State: canonical.StateCanceled, At: r.g.Now()}, nil
	r.stop()
	if r.agent.TaskID != "" && r.x.mode.KeepsTasks {
		if err := r.order(ctx, canonical.OpTaskCancel, nil); err != nil {
			return err
		}
	}
	r.result = &canonical.Result{Task: &task}
	r.on(execution.Outcome)
	return nil
}

// talks reports whether the agent hears answers only as words of the user.
func (r *run) talks() bool {
	return r.ask == nil && (r.result == nil || r.result.Pending == nil) &&
		(r.agent.TaskID == "" || r.x.mode.AgentStreams == translators.StreamsTask)
}

// refuse tells the agent that there is no answer, where its protocol has words for
// that: an error in place of the answer to a request of its own. Everywhere else the
// question stays open, and the call ends with the error.
func (r *run) refuse(ctx context.Context, cause *canonical.Error) error {
	if r.ask == nil {
		return cause
	}
	r.round++
	return r.answerAsk(ctx, &canonical.Reply{ID: r.ask.ID, Failure: cause})
}

// answerAsk answers a request of the agent's.
func (r *run) answerAsk(ctx context.Context, reply *canonical.Reply) error {
	m := &canonical.Message{Op: canonical.OpAnswer, Phase: canonical.PhaseRequest, To: r.x.message.To, Trace: r.x.message.Trace, Body: reply}
	m.Preferences = r.x.message.Preferences
	sealed, err := r.g.sealOwn(ctx, r.x, m)
	if err != nil {
		return err
	}
	if r.ask = nil; len(r.asks) > 0 { // they are asked one by one
		r.ask, r.asks = r.asks[0], r.asks[1:]
	}
	event := execution.Answered
	if reply.Failure != nil {
		event = execution.AnswerRefused
	}
	r.on(event)
	taken, err := r.g.send(ctx, r.x, sealed, r.x.route.Endpoint.Timeout)
	closeReply(taken)
	return err
}

// give carries answers to the agent and goes on hearing it.
func (r *run) give(ctx context.Context, answers []canonical.Answer) error {
	if r.talks() && slices.ContainsFunc(answers, canceled) {
		return errCanceled // it is no word of the user's
	}
	r.round++
	m := &canonical.Message{Op: canonical.OpInvoke, Phase: canonical.PhaseRequest, To: r.x.message.To, Trace: r.x.message.Trace}
	m.Preferences = r.x.message.Preferences
	switch {
	case r.ask != nil:
		reply := &canonical.Reply{ID: r.ask.ID}
		if len(answers) > 0 {
			reply.Answer = answers[0]
		}
		return r.answerAsk(ctx, reply)
	case r.result != nil && r.result.Pending != nil:
		m.Op, m.Origin, m.Conversation = r.x.message.Op, r.x.message.Origin, r.x.message.Conversation
		m.Body = repeated(r.x.message.Body, answers, r.result.Pending.State)
	case r.agent.TaskID != "" && r.x.mode.AgentStreams != translators.StreamsTask:
		return r.hand(ctx, answers)
	default:
		m.Body = &canonical.Invoke{Turn: stream.Turn(answers), Answers: spoken(stream.Inputs(r.snapshot()), answers)}
		m.Conversation = r.agent
	}
	m.Correlation.MessageID = r.g.NewID()
	if invoke, ok := m.Body.(*canonical.Invoke); ok && invoke.Turn.ID == "" {
		invoke.Turn.ID = m.Correlation.MessageID
	}
	sealed, err := r.g.sealOwn(ctx, r.x, m)
	if err != nil {
		return err
	}
	if r.machine.State() == execution.Input { // else it wants the call again
		r.machine.On(execution.Answered, 0)
	}
	r.reopen()
	r.send(ctx, sealed)
	return nil
}

// repeated is a request that is made again, with the answers to what the agent asked
// about it.
func repeated(request canonical.Body, answers []canonical.Answer, state string) canonical.Body {
	switch body := request.(type) {
	case *canonical.Invoke:
		again := *body
		again.Answers, again.State = answers, state
		return &again
	case *canonical.Native:
		again := *body
		again.Answers, again.State = answers, state
		return &again
	default:
		return request
	}
}
