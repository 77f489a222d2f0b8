package task

import (
	"context"
	"errors"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/task/execution"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/consent"
	"github.com/aepb/aepb-gateway/translators/stream"
)

const cancelWait = 5 * time.Second

// Handle asks about work: of the agent, if the task is the agent's own, else of
// what is on record. A caller is told of its own work alone (R2).
func (s *Service) Handle(ctx context.Context, x Exchange) (transport.Answer, error) {
	if filter, ok := x.Work().Message.Body.(*canonical.TaskFilter); ok {
		return s.list(ctx, x, filter)
	}
	query, ok := x.Work().Message.Body.(*canonical.TaskQuery)
	if !ok {
		return transport.Answer{}, &canonical.Error{Code: canonical.CodeUnsupportedOp, Message: "this cannot be asked about a task"}
	}
	rec, err := store.Known(s.Load(ctx, x.TaskKey(query.ID)))
	if err != nil {
		return transport.Answer{}, err
	}
	if err := s.EndLost(ctx, rec); err != nil {
		return transport.Answer{}, err
	}
	x.About(rec)
	if x.Work().Message.Op == canonical.OpTaskCancel && rec.Resume == store.ResumeStream && rec.Runner != "" { // the replica that has the question tells the agent
		return s.cancelTask(ctx, x, rec)
	}
	apart, err := toldFromRecord(ctx, x, rec)
	if err != nil {
		return transport.Answer{}, err
	}
	if rec.Converted && x.Work().Mode.Relay || apart {
		return s.answerConverted(ctx, x, rec, query)
	}
	if rec.TaskID != "" && !rec.Task.Status.State.Terminal() || x.Work().Mode.Relay && rec.TaskID != "" {
		return s.askAgent(ctx, x, rec, query)
	}
	return s.fromRecord(ctx, x, rec, query)
}

// toldFromRecord answers a query for the state of an agent's own task from its record, if only the
// record has the result or the questions. That depends on the agent's version.
func toldFromRecord(ctx context.Context, x Exchange, rec *store.Record) (bool, error) {
	if x.Work().Message.Op != canonical.OpTaskGet || rec.TaskID == "" || x.Work().Mode.Relay {
		return false, nil
	}
	if x.Work().Mode.AgentVersion == "" && !rec.Task.Status.State.Terminal() {
		if err := x.Choose(ctx); err != nil {
			return false, err
		}
	}
	return x.Work().Mode.OutcomeApart, nil
}

// askAgent asks the agent about its own task, under its own name for it.
func (s *Service) askAgent(ctx context.Context, x Exchange, rec *store.Record, query *canonical.TaskQuery) (transport.Answer, error) {
	if x.Work().Message.Op == canonical.OpTaskAnswer && !x.Work().Mode.Relay {
		return s.answerTask(ctx, x, rec, query)
	}
	named := *query
	named.ID = rec.TaskID
	x.Work().Message.Body, x.Work().Message.Conversation.TaskID = &named, rec.AgentTaskOf(x.Work().Message)
	apart := x.Work().Mode.AgentStreams != translators.StreamsTask && !x.Work().Mode.Relay
	switch {
	case apart && x.Work().Message.Op == canonical.OpTaskCancel && x.Work().Mode.SeesCanceled:
		return cancelApart(ctx, x)
	case apart && x.Work().Message.Op == canonical.OpTaskSubscribe && x.Work().Mode.CallerStreams == translators.StreamsTask:
		return s.watch(ctx, x, rec, true) // the replica that keeps the record follows it
	}
	waits := !x.Work().Mode.Relay && x.Work().Message.Op == canonical.OpTaskResult // until there is one
	subscribes := x.Work().Message.Op == canonical.OpTaskSubscribe
	if subscribes {
		if err := x.Choose(ctx); err != nil {
			return transport.Answer{}, err
		}
	}
	looks := subscribes && !x.Work().Handling.Verbatim
	if waits || looks {
		x.Work().Message.Op = canonical.OpTaskGet
	}
	sealed, _, err := x.Seal(ctx)
	if err != nil {
		return transport.Answer{}, err
	}
	if waits {
		x.Work().Message.Op = canonical.OpTaskResult
		return x.Start(ctx, sealed, canonical.OpTaskGet).Wait(ctx)
	}
	if subscribes {
		op := x.Work().Message.Op
		x.Work().Message.Op = canonical.OpTaskSubscribe
		e := x.Start(ctx, sealed, op)
		if looks {
			return e.StreamTask(ctx, store.ErrEnded)
		}
		return e.Stream(ctx)
	}
	return x.Converse(ctx, sealed)
}

// cancelApart cancels a task of an agent that only acknowledges that, and answers
// with how the task stands then (reference, task, poll, cancel).
func cancelApart(ctx context.Context, x Exchange) (transport.Answer, error) {
	if err := confirm(ctx, x); err != nil {
		return transport.Answer{}, err
	}
	x.Work().Message.Op = canonical.OpTaskGet
	sealed, err := x.Work().Agent.Inquire(ctx, x.Work().Message.Op, x.Work().Message.Body)
	if err != nil {
		return transport.Answer{}, err
	}
	return x.Converse(ctx, sealed)
}

// confirm sends the message, which is only acknowledged.
func confirm(ctx context.Context, x Exchange) error {
	sealed, _, err := x.Seal(ctx)
	if err == nil {
		_, err = x.Acknowledge(ctx, sealed)
	}
	return err
}

// update gives answers to an agent's task that takes them apart from calls (MCP,
// tasks/update), and goes on with the task.
func (s *Service) update(ctx context.Context, x Exchange, rec *store.Record, answers []canonical.Answer) (*execution.Execution, error) {
	request := x.Work().Message
	named := *request
	named.Op, named.To.Skill = canonical.OpTaskAnswer, rec.Skill
	named.Conversation.TaskID = rec.AgentTaskOf(request)
	named.Body = &canonical.TaskQuery{ID: rec.TaskID, Answers: answers}
	x.Answer(store.NewClaim(rec))
	x.Say(&named)
	sealed, err := s.sealAndClaim(ctx, x)
	var parents []ect.ID
	if err == nil {
		parents, err = x.Acknowledge(ctx, sealed)
	}
	if err != nil { // the agent has not got the answers
		s.ReopenInput(ctx, x.Claim())
		return nil, err
	}
	x.Say(request)
	return s.Deps.Executions.Resume(ctx, x.Work(), parents)
}

// answerConverted answers about a task that its caller knows in another way than its agent,
// or of which its agent says apart what came of it: from the record, which a replica
// keeps up with the agent's task.
func (s *Service) answerConverted(ctx context.Context, x Exchange, rec *store.Record, query *canonical.TaskQuery) (transport.Answer, error) {
	x.Work().Caller.FollowTask(ctx, rec)
	if x.Work().Message.Op != canonical.OpTaskCancel || rec.TaskID == "" || rec.Task.Status.State.Terminal() {
		return s.fromRecord(ctx, x, rec, query)
	}
	named := *query
	named.ID = rec.TaskID
	x.Work().Message.Body, x.Work().Message.Conversation.TaskID = &named, rec.AgentTaskOf(x.Work().Message)
	if err := confirm(ctx, x); err != nil {
		return transport.Answer{}, err
	}
	rec, err := s.untilEnd(ctx, x, rec)
	if err != nil {
		return transport.Answer{}, err
	}
	return s.tellRecord(ctx, x, rec, false)
}

// fromRecord answers about work that is ours to answer for.
func (s *Service) fromRecord(ctx context.Context, x Exchange, rec *store.Record, query *canonical.TaskQuery) (transport.Answer, error) {
	done := rec.Task.Status.State.Terminal()
	switch x.Work().Message.Op {
	case canonical.OpTaskCancel:
		if done {
			if x.Work().Mode.SeesCanceled {
				return transport.Answer{}, &canonical.Error{Code: canonical.CodeNotCancelable, Message: "the task has ended"}
			}
			return s.tellRecord(ctx, x, rec, false) // a protocol that only acknowledges (reference, task, poll, cancel)
		}
		return s.cancelTask(ctx, x, rec)
	case canonical.OpTaskSubscribe:
		if done {
			return transport.Answer{}, store.ErrEnded
		}
		return s.watch(ctx, x, rec, true)
	case canonical.OpTaskResult:
		return s.watch(ctx, x, rec, false)
	case canonical.OpTaskAnswer:
		return s.answerTask(ctx, x, rec, query)
	default:
		return s.tellRecord(ctx, x, rec, false)
	}
}

// cancelTask tells the replica that works on it to stop, and waits a little for that. It may
// have done with it meanwhile without having heard of the wish.
func (s *Service) cancelTask(ctx context.Context, x Exchange, rec *store.Record) (transport.Answer, error) {
	informed := ""
	for end := time.Now().Add(cancelWait); !rec.Task.Status.State.Terminal(); {
		var next *store.Record
		var err error
		switch {
		case rec.Runner == "" && rec.Follower == "" && rec.TaskID != "":
			return s.Handle(ctx, x) // the agent itself is told
		case rec.Runner == "" && rec.Follower == "":
			next, err = s.endWaiting(ctx, rec)
		case rec.Queue != "" && rec.Queue != informed:
			informed, next, err = rec.Queue, rec, s.Send(ctx, rec.ControlKey(), store.ControlMessage{Cancel: true})
		default:
			next, err = s.changed(ctx, x, rec, time.Until(end))
		}
		if err != nil {
			return transport.Answer{}, err
		}
		if next == nil {
			break
		}
		rec = next
	}
	return s.tellRecord(ctx, x, rec, false)
}

// endWaiting ends work that only waits for its caller, or returns it as another
// request has changed it meanwhile.
func (s *Service) endWaiting(ctx context.Context, rec *store.Record) (*store.Record, error) {
	before, approval := rec.Task, ""
	if rec.Resume == store.ResumeApproval {
		approval = rec.State
	}
	rec.Task.Status, rec.Task.Inputs = canonical.Status{State: canonical.StateCanceled, At: s.Deps.Now()}, nil
	rec.Resume, rec.State, rec.Saved = store.ResumeNone, "", nil
	ok, err := s.Save(ctx, rec)
	if err != nil {
		return nil, err
	}
	if ok {
		if approval != "" {
			s.Deps.Unwanted(ctx, approval)
		}
		s.Deps.Webhooks.Post(ctx, rec, stream.Diff(&before, &rec.Task))
		return rec, nil
	}
	return store.Known(s.Load(ctx, rec.Key))
}

// untilEnd waits a little for the end of what was canceled.
func (s *Service) untilEnd(ctx context.Context, x Exchange, rec *store.Record) (*store.Record, error) {
	for end := time.Now().Add(cancelWait); !rec.Task.Status.State.Terminal(); {
		next, err := s.changed(ctx, x, rec, time.Until(end))
		if err != nil {
			return nil, err
		}
		if next == nil {
			break
		}
		rec = next
	}
	return rec, nil
}

// answerTask takes the answers to what a task asks (MCP tasks/update) and goes
// on with it in the background.
func (s *Service) answerTask(ctx context.Context, x Exchange, rec *store.Record, query *canonical.TaskQuery) (transport.Answer, error) {
	if rec.Resume == store.ResumeNone {
		return transport.Answer{}, &canonical.Error{Code: canonical.CodeBadParams, Message: "the task asks nothing"}
	}
	if rec.Resume == store.ResumeStream {
		answers, err := consent.Check(rec.Inputs(), query.Answers)
		if missing, ok := errors.AsType[*consent.MissingError](err); ok {
			err = missingAnswers(missing)
		}
		if err != nil {
			return transport.Answer{}, err
		}
		if err := s.Send(ctx, rec.ControlKey(), store.ControlMessage{Answers: rec.ForRound(answers)}); err != nil {
			return transport.Answer{}, err
		}
		return done(ctx, x, rec)
	}
	request, invoke := x.Work().Message, &canonical.Invoke{Answers: query.Answers}
	answering := x.Derive(&canonical.Message{
		Op: canonical.OpInvoke, Phase: canonical.PhaseRequest, Body: invoke,
		Correlation: request.Correlation, Preferences: request.Preferences, Origin: request.Origin, Trace: request.Trace,
	})
	answering.Work().Message.Correlation.MessageID = s.Deps.NewID()
	acknowledge := func(e *execution.Execution) (transport.Answer, error) {
		answer, err := done(ctx, x, rec)
		e.Detach(ctx) // from here on a worker has the record
		return answer, err
	}
	acknowledged := false
	answered, answer, err := s.goOnWith(ctx, answering, rec, invoke, func(e *execution.Execution) (transport.Answer, error) {
		if err := e.Save(ctx); err != nil { // the agent has the answers: the question is not open any more
			e.Abort()
			return transport.Answer{}, err
		}
		acknowledged = true
		return acknowledge(e)
	})
	switch {
	case err != nil || acknowledged:
		return answer, err
	case answered: // the agent was told, or needs not be
		return done(ctx, x, rec)
	}
	sealed, err := s.sealAndClaim(ctx, answering)
	if err == nil {
		e := answering.Start(ctx, sealed, canonical.OpInvoke)
		if err = e.Save(ctx); err == nil {
			return acknowledge(e)
		}
		e.Abort()
	}
	s.ReopenInput(ctx, answering.Claim())
	return transport.Answer{}, err
}

// done acknowledges.
func done(ctx context.Context, x Exchange, rec *store.Record) (transport.Answer, error) {
	m := &canonical.Message{
		Op: x.Work().Message.Op, Phase: canonical.PhaseResponse, Body: &canonical.Done{}, Correlation: canonical.Correlation{WireID: x.Work().WireID},
	}
	return x.Tell(ctx, m, execution.Proof{Parents: x.ParentsOf(rec)})
}
