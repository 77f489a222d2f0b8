package execution

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/lifecycle"
	"github.com/aepb/aepb-gateway/gateway/outbound"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/worker"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Deps is what executions use. Every field is required but Lifecycle.
type Deps struct {
	Tasks     *store.Store
	Webhooks  Poster
	Workers   *worker.Group      // executions that go on without a caller
	Lifecycle *lifecycle.Service // counts them at their agents; nil: they are not counted
	Now       func() time.Time
	NewID     func() string
	Logger    *slog.Logger
	Replica   string // names this process among the replicas
}

// Service begins executions. It is safe for concurrent use.
type Service struct {
	deps    Deps
	check   func(error)
	evictor worker.Evictor // of work whose caller has no message to end it with
}

// New makes a Service.
func New(deps Deps) *Service { return &Service{deps: deps} }

// Check has a contradiction between the state of an execution and what came of it reported,
// before each step. It is called before the first execution, by tests.
func (s *Service) Check(report func(error)) { s.check = report }

// Execution is the work on one request from when it was sealed until its outcome is final, however
// many messages that takes. One goroutine uses it at a time.
type Execution struct {
	*Service
	req Request

	machine Machine // the state; without meaning where messages are relayed as they came
	reader
	outcome
	inputs
	recorder
	budget outbound.FoldBudget

	agentNames  canonical.Conversation // the ids of the work in the agent's words
	callerNames canonical.Conversation // in the caller's
	observer    bool                   // the caller only asks about the work, which is another request's
	converted   bool                   // the caller asks about it here, and answers here what it asks
	stopped     context.Context        //nolint:containedctx // ends when the caller cancels its request; nil: it cannot
}

// new makes the execution of a request that asks op.
func (s *Service) new(req Request, op canonical.Op, parents []ect.ID) *Execution {
	e := &Execution{
		Service: s, req: req, machine: Begin(beginsAs(op)), observer: req.Message.Op != canonical.OpInvoke, stopped: req.Stopped,
		reader: reader{op: op, parents: parents}, budget: outbound.FoldBudget{Open: req.Budget}, inputs: inputs{history: req.History}, recorder: recorder{changed: s.deps.Now()},
	}
	e.outcome.asTask, e.fold.Join = req.Handling.AsTask, !req.Mode.SameWords
	e.callerNames = s.CallerNames(req)
	if rec := req.Record; rec != nil {
		task := rec.Task
		e.record, e.agentNames, e.log, e.savedEvents = rec, rec.AgentNames(), rec.Log, rec.Log.Count
		e.recording, e.posted, e.round, e.converted = !e.observer, &task, rec.Round, rec.Converted && !e.observer
	}
	return e
}

// beginsAs is the state of an execution that begins with op.
func beginsAs(op canonical.Op) State {
	switch op { //nolint:exhaustive // the others are requests
	case canonical.OpTaskSubscribe:
		return Subscribed
	case canonical.OpTaskGet:
		return Polling
	case canonical.OpTaskResult:
		return Fetching
	}
	return Sent
}

// CallerNames are the ids by which the caller of a request knows its work: those on record, or new
// ones where tasks are made here. Empty: the agent gives them.
func (s *Service) CallerNames(req Request) canonical.Conversation {
	switch {
	case req.Record != nil:
		return req.Record.CallerNames()
	case !req.Mode.StreamsHere:
		return canonical.Conversation{}
	}
	names := canonical.Conversation{TaskID: s.deps.NewID(), ContextID: req.Message.Conversation.ContextID}
	if names.ContextID == "" {
		names.ContextID = s.deps.NewID()
	}
	return names
}

// Start sends a sealed request whose work may last; request is the id of its ECT. What comes of it
// answers op.
func (s *Service) Start(ctx context.Context, req Request, sealed transport.Sealed, request ect.ID, op canonical.Op) *Execution {
	e := s.new(req, op, []ect.ID{request})
	e.sendFor(ctx, sealed)
	return e
}

// StartFrom takes over a request that was answered, but not for good: by a stream, or by a message.
func (s *Service) StartFrom(ctx context.Context, req Request, reply transport.Reply, m *canonical.Message, parents []ect.ID) *Execution {
	e := s.new(req, req.Message.Op, parents)
	e.listen(ctx, func(context.Context) (transport.Reply, error) {
		if reply.Events == nil {
			return transport.Reply{}, errNoStream
		}
		return transport.Reply{Events: reply.Events}, nil
	})
	if reply.Events == nil {
		e.hash(reply.Wire)
		_, _ = e.accumulate(m) // one message fits
		e.on(e.kind())
	}
	return e
}

// Resume goes on with a task of the agent's to which answers were given, apart from calls.
func (s *Service) Resume(ctx context.Context, req Request, parents []ect.ID) (*Execution, error) {
	e := s.new(req, req.Message.Op, parents)
	e.machine = Begin(Input)
	e.machine.On(Answered, e.facts()&^Asking|AnswersApart)
	return e, e.pollOrSubscribe(ctx)
}

// Subscribe answers with a stream of events that are not of a task. ended: there will be none.
func (s *Service) Subscribe(ctx context.Context, req Request, parents []ect.ID, events transport.Events, ended bool) (transport.Answer, error) {
	e := s.new(req, req.Message.Op, parents)
	if last := req.Subscriber.LastMessage(); ended && last != nil {
		e.endWith(last)
		e.machine.On(Outcome, 0)
	}
	e.listen(ctx, func(context.Context) (transport.Reply, error) {
		return transport.Reply{Events: events}, nil
	})
	return e.Stream(ctx)
}

// Follow follows an agent's own task, if no other replica does. rec is the caller's copy of the record,
// which becomes what is on record then; the request has another one, for the execution. What goes
// wrong later is on record.
func (s *Service) Follow(ctx context.Context, req Request, rec *store.Record) error {
	e := s.new(req, canonical.OpInvoke, nil)
	task := rec.Task
	if err := e.fold.Add(&canonical.Event{Task: &task}, e.callerNames); err != nil || e.settled() {
		return nil //nolint:nilerr // it waits for its caller
	}
	mine, err := s.deps.Tasks.Follow(ctx, e.record)
	if !mine || err != nil {
		return err
	}
	*rec = *e.record
	e.on(Quiet)
	if err := e.pollOrSubscribe(ctx); err != nil {
		e.releaseOrFail(context.WithoutCancel(ctx), "")
		return err
	}
	e.Detach(ctx)
	return nil
}

// update is what came of one thing that the agent said.
type update struct {
	events []canonical.Event // in the agent's way of streaming, under the caller's ids
	wire   *translators.Wire // the message as it came; nil: it is not told
	losses []canonical.Loss  // of reading it
}

// settled reports whether the agent sends nothing more unless the caller acts.
func (e *Execution) settled() bool {
	if e.req.Handling.Verbatim { // a caller who has the last token inside waits for it no longer than elsewhere
		return e.over || e.complete() && e.req.Caller.EmbedsECTs()
	}
	return e.ask != nil || e.complete()
}

// complete reports whether the agent has answered in full.
func (e *Execution) complete() bool {
	return e.result != nil || e.other != nil || e.failure != nil || e.fold.Settled()
}

// step waits for the next update. io.EOF: the work is settled. [outbound.ErrNothingYet]: nothing
// came in time, and the agent may be waited for again.
func (e *Execution) step(ctx context.Context, limit time.Duration) (update, error) {
	for {
		if err := e.callAgain(ctx); err != nil {
			return update{}, err
		}
		if e.check != nil {
			if err := e.contradiction(); err != nil {
				e.check(err)
			}
		}
		if e.settled() {
			if err := e.waitClosingECT(ctx); err != nil {
				return update{}, err
			}
			return update{}, io.EOF
		}
		in, err := e.next(ctx, limit)
		switch {
		case err == nil: // what was taken is not lost, also when its caller waits no more
		case ctx.Err() != nil: // what comes of an agent that has said all is no end for a caller who left
			return update{}, ctx.Err()
		case errors.Is(err, outbound.ErrNothingYet):
			return update{}, err
		default:
			if err := e.follow(ctx, err); err != nil {
				return update{}, err
			}
			continue
		}
		if u, taken, err := e.receive(ctx, in); taken && !e.wantsTask() || err != nil {
			return u, err
		}
	}
}

// callAgain makes the call again for an agent that wants no more than that: its reply asks
// nothing, but has a state (MCP, input_required), or it does as a task what it was asked for, or not
// at all.
func (e *Execution) callAgain(ctx context.Context) error {
	if e.wantsTask() {
		sealed, err := e.req.Agent.SealAsTask(ctx)
		if err != nil {
			return err
		}
		e.source.Stop()
		e.failure, e.asTask = nil, true
		e.send(ctx, sealed)
		return nil
	}
	if !e.wantsCall() {
		return nil
	}
	if e.repeats++; e.result.Pending.State == "" || e.repeats > maxCalls {
		return e.badReply("it asks for nothing")
	}
	return e.sendAnswers(ctx, nil)
}

// wantsTask reports whether the agent refused the call since it does it as a task only.
func (e *Execution) wantsTask() bool {
	return e.failure != nil && e.req.Message.Op == canonical.OpInvoke && !e.asTask && e.req.Mode.DemandsTask(e.failure)
}

// wantsCall reports whether the agent wants the call again, and has no question.
func (e *Execution) wantsCall() bool {
	return e.result != nil && e.result.Pending != nil && len(e.result.Pending.Inputs) == 0 && !e.req.Mode.Relay
}

// on takes note of what has happened to the work.
func (e *Execution) on(event Event) {
	if e.req.Handling.Verbatim {
		e.machine.End(event, e.facts())
		return
	}
	e.machine.On(event, e.facts())
}

// facts are what the next state depends on.
func (e *Execution) facts() Facts {
	var all Facts
	is := func(holds bool, fact Facts) {
		if holds {
			all |= fact
		}
	}
	is(e.agentNames.TaskID != "", AgentTask)
	is(e.canSubscribe(), CanSubscribe)
	is(e.stream != nil, StreamOpen)
	is(e.waitsForAnswer(), Asking)
	is(e.broken > maxBroken, Stubborn)
	is(e.op == canonical.OpTaskResult, Fetches)
	return all
}

// kind is what came last.
func (e *Execution) kind() Event {
	switch {
	case e.wantsTask():
		return TaskDemanded
	case e.wantsCall():
		return CallAgain
	case e.failure == nil && e.other == nil && e.waitsForAnswer():
		return AgentAsks
	case e.complete():
		return Outcome
	default:
		return Update
	}
}

// contradiction is the first event that cannot have happened, or a state that what came does not
// bear out.
func (e *Execution) contradiction() error {
	if err := e.machine.Wrong(); err != nil {
		return err
	}
	is, also := e.observed()
	if state := e.machine.State(); !e.req.Handling.Verbatim && state != is && state != also {
		return fmt.Errorf("execution: the state is %s, and what came says %s or %s (%s)", state, is, also, e.op)
	}
	return nil
}

// observed is the state that what came shows, or two that look alike.
func (e *Execution) observed() (is, also State) {
	switch state := e.machine.State(); {
	case state.Final():
		return state, state
	case e.failure != nil, e.other != nil, e.complete() && !e.waitsForAnswer():
		if e.stream != nil && e.ask == nil {
			return Closing, Closing
		}
		return Settled, Settled
	case e.waitsForAnswer():
		return Input, Input
	case e.op == canonical.OpTaskSubscribe && !e.noStream:
		return Subscribed, Subscribed
	case e.op == canonical.OpTaskSubscribe, e.op == canonical.OpTaskGet:
		return Polling, Fetching
	case e.op == canonical.OpTaskResult:
		return Fetching, Fetching
	case e.stream != nil:
		return Streaming, Streaming
	}
	return Sent, Streaming
}

func (e *Execution) now() time.Time { return e.deps.Now() }

// stop ends the execution: it reads nothing more, and takes no control message.
func (e *Execution) stop() {
	e.source.Stop()
	e.control.Close()
	e.budget.End()
}
