package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"

	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/task/execution"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/consent"
	"github.com/aepb/aepb-gateway/translators/stream"
)

// resume goes on with work that an earlier message began, if this message names
// it. True: the message is answered; false: it goes on down the road, which may
// now be another message than came.
func (g *Gateway) resume(ctx context.Context, x *request) (bool, transport.Answer, error) {
	invoke := x.repeats()
	if invoke == nil || x.in.Call.Agent == "" {
		return false, transport.Answer{}, nil
	}
	round, id := execution.ReadState(invoke.State)
	if invoke.State == "" {
		id = x.message.Conversation.TaskID
	}
	if id == "" && invoke.State == "" {
		return false, transport.Answer{}, nil
	}
	rec, err := g.tasks.Load(ctx, x.keyOf(id))
	switch {
	case err != nil:
		return false, transport.Answer{}, err
	case rec == nil && invoke.State != "":
		return false, transport.Answer{}, g.unknownState(ctx, x)
	case rec == nil:
		return false, transport.Answer{}, &canonical.Error{Code: canonical.CodeTaskNotFound, Message: "no such task"}
	case rec.Method != x.message.Method():
		return false, transport.Answer{}, errAnotherCall
	case invoke.State != "" && round != rec.Round:
		return false, transport.Answer{}, &canonical.Error{Code: canonical.CodeBadParams, Message: "the request state belongs to a question that was answered"}
	}
	x.about(rec)
	return g.goOnWith(ctx, x, rec, invoke)
}

// repeats is what a message answers by repeating a request, or by naming a task; nil:
// it begins something.
func (x *request) repeats() *canonical.Invoke {
	switch body := x.message.Body.(type) {
	case *canonical.Invoke:
		return body
	case *canonical.Native:
		if body.State != "" && x.mode.Relay {
			return &canonical.Invoke{Answers: body.Answers, State: body.State}
		}
	}
	return nil
}

// unknownState judges a request state of which no record is here: nil, if the agent may
// have made it, because it asks by such states itself.
func (g *Gateway) unknownState(ctx context.Context, x *request) error {
	if !x.mode.Relay {
		return errUnknownState
	}
	if err := g.choose(ctx, x); err != nil {
		return err
	}
	asker := x.to.Features.Asker
	if x.to.Via == nil && asker != nil && asker.Asks(x.route.Endpoint.Version, x.route.Endpoint.Form) != translators.AskReply {
		return errUnknownState
	}
	return nil
}

var errUnknownState = &canonical.Error{
	Code:    canonical.CodeBadParams,
	Message: "nothing waits for this request state: what asked may have ended, or the state was made for another caller; make the call again without it",
}

var errAnotherCall = &canonical.Error{Code: canonical.CodeBadParams, Message: "the request state belongs to another call"}

func (g *Gateway) goOnWith(ctx context.Context, x *request, rec *store.Record, invoke *canonical.Invoke) (bool, transport.Answer, error) {
	none := transport.Answer{}
	if err := g.tasks.EndLost(ctx, rec); err != nil {
		return false, none, err
	}
	switch {
	case x.mode.Relay && rec.Resume == store.ResumeTask, x.mode.Relay && rec.TaskID == rec.Task.ID && rec.Resume == store.ResumeNone && invoke.State == "":
		return false, none, nil // the agent knows best what may be said to its task, but it never made our request state
	case rec.Task.Status.State.Terminal():
		return false, none, &canonical.Error{Code: canonical.CodeUnsupportedOp, Message: "the task has ended"}
	case rec.Resume == store.ResumeNone && (rec.TaskID == "" || invoke.State != ""):
		return false, none, &canonical.Error{Code: canonical.CodeUnsupportedOp, Message: "the task is at work and asks nothing"}
	}
	answers, err := answersIn(rec, invoke)
	if missing, ok := errors.AsType[*consent.MissingError](err); ok {
		if invoke.State == "" {
			return false, none, missingAnswers(missing)
		}
		answer, err := g.tellRecord(ctx, x, rec, false) // it is asked again
		return true, answer, err
	}
	if err != nil {
		return false, none, err
	}
	if endsWith(rec, answers, x) {
		answer, err := g.cancelAsked(ctx, x, rec)
		return true, answer, err
	}
	if rec.Resume == store.ResumeStream {
		answer, err := g.answerOpen(ctx, x, rec, answers)
		return true, answer, err
	}
	if rec.Resume == store.ResumeTask && !x.mode.Relay && x.mode.AgentStreams != translators.StreamsTask {
		answer, err := g.update(ctx, x, rec, answers)
		return true, answer, err
	}
	if err := g.rewrite(rec, x.message, invoke, answers); err != nil {
		return false, none, err
	}
	x.addressSkill(rec)
	prior := *rec
	x.prior = &prior
	return false, none, nil
}

// claim takes the question that this message answers off the record: whoever
// comes second answers nothing. It is done last, so that an answer that cannot
// be said leaves the question open.
func (g *Gateway) claim(ctx context.Context, x *request) error {
	if x.prior == nil {
		return nil
	}
	rec := x.record
	rec.Resume, rec.State, rec.Task.Inputs, rec.Saved, rec.Last = store.ResumeNone, "", nil, nil, x.trail.Request()
	rec.Round++
	rec.Task.Status, rec.Writer = canonical.Status{State: canonical.StateWorking}, g.instance
	ok, err := g.tasks.Save(ctx, rec)
	if err == nil && !ok {
		err = &problem.ConflictError{Reason: "the question was answered by somebody else"}
	}
	if err != nil {
		x.prior = nil // it is not ours to put back
		return err
	}
	x.prior.Revision = rec.Revision
	return nil
}

// claimAndRegister is claim, then registers the push notification configuration of
// the message, and posts that the task is at work again.
func (g *Gateway) claimAndRegister(ctx context.Context, x *request) error {
	if err := g.claim(ctx, x); err != nil {
		return err
	}
	if err := g.registerKnown(ctx, x); err != nil {
		return err
	}
	if x.prior != nil {
		g.postChange(ctx, x.prior, x.record)
	}
	return nil
}

// restore puts a question back that was answered in vain, if nothing has come of
// the answer since.
func (g *Gateway) restore(ctx context.Context, x *request) {
	if x.prior == nil || x.prior.Revision != x.record.Revision {
		return
	}
	ctx = context.WithoutCancel(ctx)
	restored, err := g.tasks.SaveIfCurrent(ctx, x.prior, x.record.Round)
	if err != nil {
		g.Logger.WarnContext(ctx, "a question is not put back", slog.String("task", x.prior.Task.ID), slog.Any("error", err))
	}
	if restored {
		g.postChange(ctx, x.record, x.prior)
	}
}

// inputs are what the record asks, as the agent asked it.
func inputsOf(rec *store.Record) []canonical.Input {
	if rec.Resume == store.ResumeTask {
		return stream.Plain(stream.Inputs(&rec.Task))
	}
	return stream.Inputs(&rec.Task)
}

// answers are what a message answers to what the record asks. Work that asks nothing
// takes any message, and so does an agent that only talks.
func answersIn(rec *store.Record, invoke *canonical.Invoke) ([]canonical.Answer, error) {
	asked := inputsOf(rec)
	if rec.Resume == store.ResumeNone {
		return nil, nil
	}
	read := consent.Read
	if rec.Resume == store.ResumeArgs { // for arguments, not for consent
		read = consent.ReadArguments
	}
	answers, err := read(asked, invoke)
	_, missing := errors.AsType[*consent.MissingError](err)
	talks := rec.Resume == store.ResumeTask && len(asked) == 1 && stream.Talk(asked[0])
	if missing && talks && invoke.State == "" && len(invoke.Answers) == 0 {
		return nil, nil
	}
	return answers, err
}

func missingAnswers(missing *consent.MissingError) error {
	return &canonical.Error{Code: canonical.CodeBadParams, Message: missing.Error() + ": answer all questions at once"}
}

func declined(answers []canonical.Answer) bool {
	return slices.ContainsFunc(answers, func(a canonical.Answer) bool { return a.Action == canonical.Decline })
}

// endsWith reports whether work ends with these answers: where the caller cancels what
// its agent could only hear as words of the user, or does not say which arguments a
// call is to have.
func endsWith(rec *store.Record, answers []canonical.Answer, x *request) bool {
	switch rec.Resume {
	case store.ResumeArgs:
		return declined(answers) || slices.ContainsFunc(answers, execution.IsCancel)
	case store.ResumeTask:
		return slices.ContainsFunc(answers, execution.IsCancel) && (x.mode.Relay || x.mode.AgentStreams == translators.StreamsTask)
	default:
		return false
	}
}

// cancelAsked ends work whose question was canceled, also at the agent, and tells the
// caller so.
func (g *Gateway) cancelAsked(ctx context.Context, x *request, rec *store.Record) (transport.Answer, error) {
	if rec.Resume == store.ResumeTask && rec.TaskID != "" {
		stop := x.derive(&canonical.Message{
			Op: canonical.OpTaskCancel, Phase: canonical.PhaseRequest, Body: &canonical.TaskQuery{ID: rec.TaskID}, Conversation: rec.AgentNames(),
			Correlation: x.message.Correlation, Preferences: x.message.Preferences, Origin: x.message.Origin, Trace: x.message.Trace,
		})
		if err := g.agent(stop).confirm(ctx); err != nil {
			return transport.Answer{}, err
		}
	}
	rec, err := g.endWaiting(ctx, rec)
	if err != nil {
		return transport.Answer{}, err
	}
	return g.tellRecord(ctx, x, rec, false)
}

// sameCall: whoever answers by calling again calls the same (MCP, requestState).
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
func (g *Gateway) rewrite(rec *store.Record, m *canonical.Message, invoke *canonical.Invoke, answers []canonical.Answer) error {
	next := *invoke
	next.State = ""
	if invoke.State != "" && invoke.Call != nil && rec.Call != nil {
		if _, began, err := g.tasks.First(rec); err != nil || !sameCall(began.Call, invoke.Call) {
			return errAnotherCall
		}
	}
	switch rec.Resume {
	case store.ResumeState, store.ResumeArgs:
		first, again, err := g.tasks.First(rec)
		if err != nil {
			return err
		}
		next = *again
		if rec.Resume == store.ResumeState {
			next.Answers, next.State = answers, rec.State
		} else {
			next.Call = &canonical.Call{Name: rec.Skill, Args: answers[0].Value}
			next.Turn = canonical.Content{ID: invoke.Turn.ID, Role: canonical.RoleCaller}
		}
		tenant := m.Conversation.Tenant // of this call; the first may have named it in another way
		m.To, m.Conversation = first.To, first.Conversation
		m.Conversation.Tenant = tenant
	default:
		m.Conversation.TaskID, m.Conversation.ContextID = rec.TaskID, rec.Context
		if len(invoke.Answers) > 0 || declined(answers) { // else the caller's own words stay as they are
			next.Turn, next.Call, next.Answers = stream.Turn(answers), nil, execution.Spoken(inputsOf(rec), answers)
		}
	}
	m.Body = &next
	return nil
}

// answerOpen gives the answer to whoever holds the agent's stream, wherever
// that is, and waits for what comes of it.
func (g *Gateway) answerOpen(ctx context.Context, x *request, rec *store.Record, answers []canonical.Answer) (transport.Answer, error) {
	x.addressSkill(rec)
	if err := g.choose(ctx, x); err != nil {
		return transport.Answer{}, err
	}
	asked := *rec // the answers are to this question, whatever the record says by now
	if err := g.registerKnown(ctx, x); err != nil {
		return transport.Answer{}, err
	}
	given := asked.ForRound(answers)
	if turn := x.turn(); turn != nil && len(given) > 0 {
		given[0].Turn = turn
	}
	if err := g.tasks.Send(ctx, asked.ControlKey(), store.ControlMessage{Answers: given}); err != nil {
		return transport.Answer{}, err
	}
	return g.watch(ctx, x, &asked, x.message.Preferences.Stream)
}

// bindable is the question that a message in plain text leaves open to a
// protocol of calls (profile P3): the arguments. Only whoever can be asked by a
// task is asked; nil: the error stands.
func (x *request) bindable(err error) *canonical.Input {
	missing, ok := errors.AsType[*canonical.Error](err)
	if !ok || missing.Code != canonical.CodeBadParams || missing.Schema == nil || x.in.Call.Agent == "" ||
		x.route.Capability == nil || x.mode.Asking != translators.AskTask || x.message.Body.(*canonical.Invoke).Call != nil {
		return nil
	}
	return &canonical.Input{
		Key: "arguments", Mode: canonical.ModeForm, Schema: missing.Schema,
		Prompt: []canonical.Part{{Kind: canonical.KindText, Text: "Which arguments? Answer with a data part that matches the schema of " + x.route.Capability.ID + "."}},
	}
}

// ask answers a message with a question of our own.
func (g *Gateway) ask(ctx context.Context, x *request, question *canonical.Input) (transport.Answer, error) {
	names := g.executions.CallerNames(g.work(x))
	task := &canonical.Task{ID: names.TaskID, ContextID: names.ContextID, Inputs: []canonical.Input{*question}, Status: canonical.Status{
		State: canonical.StateInputRequired, Message: &canonical.Content{ID: g.NewID(), Role: canonical.RoleAgent, Parts: question.Prompt},
	}}
	before := *x.recordFor(task)
	x.record.Task, x.record.Saved, x.record.Resume, x.record.Skill = *task, nil, store.ResumeArgs, x.route.Capability.ID
	if err := g.caller(x).SaveRequest(x.record); err != nil {
		return transport.Answer{}, err
	}
	if len(x.lineage.Parents) > 0 {
		x.record.Last = x.lineage.Parents[0]
	}
	ok, err := g.tasks.Save(ctx, x.record)
	if err == nil && !ok {
		err = &problem.ConflictError{Reason: "the task was changed by somebody else"}
	}
	if err == nil {
		g.postChange(ctx, &before, x.record)
		err = g.caller(x).Register(ctx, x.record)
	}
	if err != nil {
		return transport.Answer{}, err
	}
	return g.tellRecord(ctx, x, x.record, x.message.Preferences.Stream)
}

// unquoted reads an id that is a text; "": it is something else.
func unquoted(raw json.RawMessage) string {
	var id string
	if err := json.Unmarshal(raw, &id); err != nil {
		return ""
	}
	return id
}
