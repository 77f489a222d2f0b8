package task

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/routing"
	"github.com/aepb/aepb-gateway/gateway/task/execution"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/consent"
	"github.com/aepb/aepb-gateway/translators/stream"
)

// Resumes is what a message says to work that an earlier one began, by naming its task or by repeating a
// request; nil: it begins something.
func Resumes(m *canonical.Message, relay bool) *canonical.Invoke {
	switch body := m.Body.(type) {
	case *canonical.Invoke:
		if body.State != "" || m.Conversation.TaskID != "" {
			return body
		}
	case *canonical.Native:
		if body.State != "" && relay {
			return &canonical.Invoke{Answers: body.Answers, State: body.State}
		}
	}
	return nil
}

// Resume goes on with work that an earlier message to an agent began; invoke is what the message says to
// it. True: the message is answered; false: it goes on, and may now be another message than came.
func (s *Service) Resume(ctx context.Context, x Exchange, invoke *canonical.Invoke) (bool, transport.Answer, error) {
	m := x.Work().Message
	round, id := execution.ReadState(invoke.State)
	if invoke.State == "" {
		id = m.Conversation.TaskID
	}
	rec, err := s.Load(ctx, x.TaskKey(id))
	switch {
	case err != nil:
		return false, transport.Answer{}, err
	case rec == nil && invoke.State != "":
		return false, transport.Answer{}, unknownState(ctx, x)
	case rec == nil:
		return false, transport.Answer{}, &canonical.Error{Code: canonical.CodeTaskNotFound, Message: "no such task"}
	case rec.Method != m.Method():
		return false, transport.Answer{}, errAnotherCall
	case invoke.State != "" && round != rec.Round:
		return false, transport.Answer{}, &canonical.Error{Code: canonical.CodeBadParams, Message: "the request state belongs to a question that was answered"}
	}
	x.About(rec)
	return s.goOnWith(ctx, x, rec, invoke, func(e *execution.Execution) (transport.Answer, error) { return e.Answer(ctx) })
}

// unknownState judges a request state of which no record is here: nil, if the agent may
// have made it, because it asks by such states itself.
func unknownState(ctx context.Context, x Exchange) error {
	if !x.Work().Mode.Relay {
		return errUnknownState
	}
	if err := x.Choose(ctx); err != nil {
		return err
	}
	if !x.AsksByState() {
		return errUnknownState
	}
	return nil
}

var errUnknownState = &canonical.Error{
	Code:    canonical.CodeBadParams,
	Message: "nothing waits for this request state: what asked may have ended, or the state was made for another caller; make the call again without it",
}

var errAnotherCall = &canonical.Error{Code: canonical.CodeBadParams, Message: "the request state belongs to another call"}

// goOnWith goes on with the work of a record. answer answers the message once the agent has taken answers
// apart from calls, and its task goes on.
func (s *Service) goOnWith(
	ctx context.Context, x Exchange, rec *store.Record, invoke *canonical.Invoke, answer func(*execution.Execution) (transport.Answer, error),
) (bool, transport.Answer, error) {
	none, mode := transport.Answer{}, x.Work().Mode
	if err := s.EndLost(ctx, rec); err != nil {
		return false, none, err
	}
	switch {
	case rec.Resume == store.ResumeApproval:
		return false, none, &problem.TaskStateError{Reason: "a human decides about the call of this task: wait, or cancel it and send another message"}
	case mode.Relay && rec.Resume == store.ResumeTask, mode.Relay && rec.TaskID == rec.Task.ID && rec.Resume == store.ResumeNone && invoke.State == "":
		return false, none, nil // the agent knows best what may be said to its task, but it never made our request state
	case rec.Task.Status.State.Terminal():
		return false, none, &problem.TaskStateError{Reason: "the task has ended"}
	case rec.Resume == store.ResumeNone && (rec.TaskID == "" || invoke.State != ""):
		return false, none, &problem.TaskStateError{Reason: "the task is at work and asks nothing"}
	}
	answers, err := answersIn(rec, invoke)
	if err != nil {
		return s.askAgain(ctx, x, rec, invoke, err)
	}
	if endsWith(rec, answers, &mode) {
		answer, err := s.cancelInput(ctx, x, rec)
		return true, answer, err
	}
	if rec.Resume == store.ResumeStream {
		answer, err := s.answerOpen(ctx, x, rec, answers)
		return true, answer, err
	}
	if rec.Resume == store.ResumeTask && !mode.Relay && mode.AgentStreams != translators.StreamsTask {
		e, err := s.update(ctx, x, rec, answers)
		if err != nil {
			return true, none, err
		}
		reply, err := answer(e)
		return true, reply, err
	}
	if err := s.rewrite(rec, x.Work().Message, invoke, answers); err != nil {
		return false, none, err
	}
	addressSkill(x, rec)
	x.Answer(store.NewClaim(rec))
	return false, none, nil
}

// ClaimInput claims the questions that a message answers, if it answers any, registers its webhook, and
// posts that the task is at work again. request is the ECT of the sealed message.
func (s *Service) ClaimInput(ctx context.Context, x Exchange, request ect.ID) error {
	claim := x.Claim()
	if claim != nil {
		if err := s.Claim(ctx, claim, request); err != nil {
			return err
		}
	}
	if err := x.Register(ctx); err != nil {
		return err
	}
	if claim != nil {
		s.PostChange(ctx, &claim.Prior, claim.Record())
	}
	return nil
}

// sealAndClaim seals a message and claims what it answers.
func (s *Service) sealAndClaim(ctx context.Context, x Exchange) (transport.Sealed, error) {
	sealed, request, err := x.Seal(ctx)
	if err == nil {
		err = s.ClaimInput(ctx, x, request)
	}
	return sealed, err
}

// ReopenInput puts questions back that a message answered in vain, if nothing has come of the answer
// since, and posts that.
func (s *Service) ReopenInput(ctx context.Context, claim *store.Claim) {
	ctx = context.WithoutCancel(ctx)
	reopened, err := s.Reopen(ctx, claim)
	if err != nil {
		s.Deps.Logger.WarnContext(ctx, "input request not reopened", slog.String("task", claim.Prior.Task.ID), slog.Any("error", err))
	}
	if reopened {
		s.PostChange(ctx, claim.Record(), &claim.Prior)
	}
}

// answersIn are what a message answers to what the record asks. Work that asks nothing
// takes any message, and so does an agent that only talks.
func answersIn(rec *store.Record, invoke *canonical.Invoke) ([]canonical.Answer, error) {
	inputs := rec.Inputs()
	if rec.Resume == store.ResumeNone {
		return nil, nil
	}
	read := consent.Read
	switch {
	case rec.Resume == store.ResumeArgs: // for arguments, not for consent
		read = consent.ReadArguments
	case rec.Resume == store.ResumeTool && invoke.Call != nil && len(invoke.Answers) == 0:
		invoke = &canonical.Invoke{Answers: []canonical.Answer{routing.Choosing(invoke.Call)}}
	}
	answers, err := read(inputs, invoke)
	_, missing := errors.AsType[*consent.MissingError](err)
	talks := rec.Resume == store.ResumeTask && len(inputs) == 1 && stream.Talk(inputs[0])
	if missing && talks && invoke.State == "" && len(invoke.Answers) == 0 {
		return nil, nil
	}
	return answers, err
}

// askAgain deals with answers that are missing or do not fit, as cause says. A caller that answers by
// calling again is asked again: without limit where answers are missing, [execution.MaxAgain] times in
// a round where values do not fit. For all others cause is the error.
func (s *Service) askAgain(ctx context.Context, x Exchange, rec *store.Record, invoke *canonical.Invoke, cause error) (bool, transport.Answer, error) {
	missing, lacks := errors.AsType[*consent.MissingError](cause)
	why := misfits(rec.Inputs(), invoke.Answers)
	switch {
	case lacks && invoke.State == "":
		return false, transport.Answer{}, missingAnswers(missing)
	case lacks:
		answer, err := s.tellRecord(ctx, x, rec, false)
		return true, answer, err
	case invoke.State == "", len(why) == 0, rec.Again >= execution.MaxAgain:
		return false, transport.Answer{}, cause
	}
	if err := s.CountAgain(ctx, rec); err != nil {
		return false, transport.Answer{}, err
	}
	m, err := s.answerOf(x, rec)
	if err != nil {
		return false, transport.Answer{}, err
	}
	if result, ok := m.Body.(*canonical.Result); ok && result.Pending != nil {
		result.Pending.Inputs = execution.Explain(result.Pending.Inputs, why)
	}
	answer, err := reply(ctx, x, rec, m)
	return true, answer, err
}

// misfits says, by the key of a question, why its answer does not fit; nil: some answer is none of
// values to such a question, so that to ask again does not help.
func misfits(inputs []canonical.Input, answers []canonical.Answer) map[string]string {
	why := map[string]string{}
	for _, one := range answers {
		at := slices.IndexFunc(inputs, func(in canonical.Input) bool { return in.Key == one.Key })
		if at < 0 {
			return nil
		}
		if _, err := consent.Fit(inputs[at], one); err == nil {
			continue
		} else if refused, ok := errors.AsType[*canonical.Error](err); ok && execution.IsMisfit(inputs[at], one) {
			why[one.Key] = refused.Message
			continue
		}
		return nil
	}
	return why
}

func missingAnswers(missing *consent.MissingError) error {
	return &canonical.Error{Code: canonical.CodeBadParams, Message: missing.Error() + ": answer all questions at once"}
}

func declined(answers []canonical.Answer) bool {
	return slices.ContainsFunc(answers, func(a canonical.Answer) bool { return a.Action == canonical.Decline })
}

// endsWith reports whether work ends with these answers: where the caller cancels what
// its agent could only hear as words of the user, or does not say which tool is meant, or
// which arguments a call is to have.
func endsWith(rec *store.Record, answers []canonical.Answer, mode *execution.Mode) bool {
	switch rec.Resume {
	case store.ResumeArgs, store.ResumeTool:
		return declined(answers) || slices.ContainsFunc(answers, execution.IsCancel)
	case store.ResumeTask:
		return slices.ContainsFunc(answers, execution.IsCancel) && (mode.Relay || mode.AgentStreams == translators.StreamsTask)
	default:
		return false
	}
}

// cancelInput ends work whose question was canceled, also at the agent, and tells the
// caller so.
func (s *Service) cancelInput(ctx context.Context, x Exchange, rec *store.Record) (transport.Answer, error) {
	if rec.Resume == store.ResumeTask && rec.TaskID != "" {
		m := x.Work().Message
		cancel := x.Derive(&canonical.Message{
			Op: canonical.OpTaskCancel, Phase: canonical.PhaseRequest, Body: &canonical.TaskQuery{ID: rec.TaskID}, Conversation: rec.AgentNames(),
			Correlation: m.Correlation, Preferences: m.Preferences, Origin: m.Origin, Trace: m.Trace,
		})
		if err := confirm(ctx, cancel); err != nil {
			return transport.Answer{}, err
		}
	}
	rec, err := s.endWaiting(ctx, rec)
	if err != nil {
		return transport.Answer{}, err
	}
	return s.tellRecord(ctx, x, rec, false)
}

// sameCall: a caller who answers by calling again calls the same (MCP, requestState).
func sameCall(a, b *canonical.Call) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Name == b.Name && bytes.Equal(compact(a.Args), compact(b.Args))
}

func compact(raw json.RawMessage) []byte {
	var out bytes.Buffer
	if json.Compact(&out, raw) != nil {
		return raw
	}
	return out.Bytes()
}

// rewrite makes the message what the agent is to be told.
func (s *Service) rewrite(rec *store.Record, m *canonical.Message, invoke *canonical.Invoke, answers []canonical.Answer) error {
	next := *invoke
	next.State = ""
	if invoke.State != "" && invoke.Call != nil && rec.Call != nil {
		if _, began, err := s.First(rec); err != nil || !sameCall(began.Call, invoke.Call) {
			return errAnotherCall
		}
	}
	switch rec.Resume {
	case store.ResumeState, store.ResumeArgs, store.ResumeTool:
		first, again, err := s.First(rec)
		if err != nil {
			return err
		}
		next = *repeated(rec, first, again, invoke, answers)
		tenant := m.Conversation.Tenant // of this call; the first may have named it in another way
		m.To, m.Conversation = first.To, first.Conversation
		m.Conversation.Tenant = tenant
	default:
		m.Conversation.TaskID, m.Conversation.ContextID = rec.TaskID, rec.Context
		if len(invoke.Answers) > 0 || declined(answers) { // else the caller's own words stay as they are
			next.Turn, next.Call, next.Answers = stream.Turn(answers), nil, execution.Spoken(rec.Inputs(), answers)
		}
	}
	m.Body = &next
	return nil
}

// repeated is the request with which the work began, made again with what it lacked.
func repeated(rec *store.Record, first *canonical.Message, began, invoke *canonical.Invoke, answers []canonical.Answer) *canonical.Invoke {
	next, args := *began, answers[0].Value
	switch rec.Resume { //nolint:exhaustive // the others do not repeat it
	case store.ResumeState:
		next.Answers, next.State = answers, rec.State
		return &next
	case store.ResumeTool:
		rec.Skill = routing.Chosen(answers[0])
		first.To.Skill = rec.Skill
		if invoke.Call == nil || string(compact(invoke.Call.Args)) == "{}" {
			next.Turn.ID = invoke.Turn.ID // the same words, to the tool that was chosen
			return &next
		}
		args = invoke.Call.Args
	}
	next.Call = &canonical.Call{Name: cmp.Or(first.To.Skill, rec.Skill), Args: args} // as the caller names it
	next.Turn = canonical.Content{ID: invoke.Turn.ID, Role: canonical.RoleCaller}
	return &next
}

// answerOpen gives the answer to the replica that holds the agent's stream, and waits for what comes of it.
func (s *Service) answerOpen(ctx context.Context, x Exchange, rec *store.Record, answers []canonical.Answer) (transport.Answer, error) {
	addressSkill(x, rec)
	if err := x.Choose(ctx); err != nil {
		return transport.Answer{}, err
	}
	asking := *rec // the answers are to this question, whatever the record says by now
	if err := x.Register(ctx); err != nil {
		return transport.Answer{}, err
	}
	given := asking.ForRound(answers)
	if turn := x.Turn(); turn != nil && len(given) > 0 {
		given[0].Turn = turn
	}
	if err := s.Send(ctx, asking.ControlKey(), store.ControlMessage{Answers: given}); err != nil {
		return transport.Answer{}, err
	}
	return s.watch(ctx, x, &asking, x.Work().Message.Preferences.Stream)
}

// leftOpen is the question that a message in plain text leaves open to a protocol of
// calls (profile P3): which tool, or the arguments. Only a caller who can be asked by a
// task is asked; nil: the error stands.
func leftOpen(x Exchange, err error) (*canonical.Input, store.ResumeKind) {
	work := x.Work()
	if invoke, ok := work.Message.Body.(*canonical.Invoke); !ok || invoke.Call != nil || work.Mode.Asking != translators.AskTask {
		return nil, store.ResumeNone
	}
	if unnamed, ok := errors.AsType[*routing.UnnamedError](err); ok {
		return unnamed.Question, store.ResumeTool
	}
	missing, ok := errors.AsType[*canonical.Error](err)
	if !ok || missing.Code != canonical.CodeBadParams || missing.Schema == nil || x.Capability() == nil {
		return nil, store.ResumeNone
	}
	return &canonical.Input{
		Key: "arguments", Mode: canonical.ModeForm, Schema: missing.Schema,
		Prompt: []canonical.Part{{Kind: canonical.KindText, Text: "Which arguments? Answer with a data part that matches the schema of " + x.Capability().ID + "."}},
	}, store.ResumeArgs
}

// AskArguments answers a message that could not be sealed with a question of ours, if all that is
// missing is the name of a tool or arguments, and the caller can be asked by a task; false: the error
// stands.
func (s *Service) AskArguments(ctx context.Context, x Exchange, unsealed error) (answer transport.Answer, asks bool, err error) {
	question, kind := leftOpen(x, unsealed)
	if question == nil {
		return answer, false, nil
	}
	work := x.Work()
	names := s.Deps.Executions.CallerNames(work)
	task := &canonical.Task{ID: names.TaskID, ContextID: names.ContextID, Inputs: []canonical.Input{*question}, Status: canonical.Status{
		State: canonical.StateInputRequired, Message: &canonical.Content{ID: s.Deps.NewID(), Role: canonical.RoleAgent, Parts: question.Prompt},
	}}
	rec := work.Caller.Record(task)
	before := *rec
	rec.Task, rec.Saved, rec.Resume = *task, nil, kind
	if called := x.Capability(); called != nil {
		rec.Skill = called.ID
	}
	if err := work.Caller.SaveRequest(rec); err != nil {
		return answer, true, err
	}
	if parents := x.ParentsOf(nil); len(parents) > 0 {
		rec.Last = parents[0]
	}
	ok, err := s.Save(ctx, rec)
	if err == nil && !ok {
		err = &problem.ConflictError{Reason: "the task was changed by another request"}
	}
	if err == nil {
		s.PostChange(ctx, &before, rec)
		err = work.Caller.Register(ctx, rec)
	}
	if err != nil {
		return answer, true, err
	}
	answer, err = s.tellRecord(ctx, x, rec, work.Message.Preferences.Stream)
	return answer, true, err
}

// addressSkill says of an answer what it is an answer to, which it need not say again.
func addressSkill(x Exchange, rec *store.Record) {
	work := x.Work()
	if invoke, ok := work.Message.Body.(*canonical.Invoke); ok && !work.Mode.Relay && invoke.Call == nil && work.Message.To.Skill == "" {
		work.Message.To.Skill = rec.Skill
	}
}
