package gateway

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/consent"
	"github.com/aepb/aepb-gateway/translators/stream"
)

const cancelWait = 5 * time.Second

// task asks about work: of the agent, if the task is the agent's own, else of
// what is on record. Nobody is told of work that is not theirs (R2).
func (g *Gateway) task(ctx context.Context, x *request) (transport.Answer, error) {
	if filter, ok := x.message.Body.(*canonical.TaskFilter); ok {
		return g.list(ctx, x, filter)
	}
	query, ok := x.message.Body.(*canonical.TaskQuery)
	if !ok {
		return transport.Answer{}, &canonical.Error{Code: canonical.CodeUnsupportedOp, Message: "this cannot be asked about a task"}
	}
	rec, err := store.Known(g.tasks.Load(ctx, x.keyOf(query.ID)))
	if err != nil {
		return transport.Answer{}, err
	}
	if err := g.tasks.EndLost(ctx, rec); err != nil {
		return transport.Answer{}, err
	}
	x.about(rec)
	if x.message.Op == canonical.OpTaskCancel && rec.Resume == store.ResumeStream && rec.Runner != "" { // the replica that has the question tells the agent
		return g.cancelTask(ctx, x, rec)
	}
	apart, err := g.ofRecord(ctx, x, rec)
	if err != nil {
		return transport.Answer{}, err
	}
	if rec.Converted && x.mode.Relay || apart {
		return g.held(ctx, x, rec, query)
	}
	if rec.TaskID != "" && !rec.Task.Status.State.Terminal() || x.mode.Relay && rec.TaskID != "" {
		return g.askAgent(ctx, x, rec, query)
	}
	return g.fromRecord(ctx, x, rec, query)
}

// ofRecord: how an agent's own task stands is told from its record, which alone knows
// what came of it, or what is asked. It takes the agent's version to know that.
func (g *Gateway) ofRecord(ctx context.Context, x *request, rec *store.Record) (bool, error) {
	if x.message.Op != canonical.OpTaskGet || rec.TaskID == "" || x.mode.Relay {
		return false, nil
	}
	if x.mode.AgentVersion == "" && !rec.Task.Status.State.Terminal() {
		if err := g.choose(ctx, x); err != nil {
			return false, err
		}
	}
	return x.mode.OutcomeApart, nil
}

// askAgent asks the agent about its own task, under its own name for it.
func (g *Gateway) askAgent(ctx context.Context, x *request, rec *store.Record, query *canonical.TaskQuery) (transport.Answer, error) {
	if x.message.Op == canonical.OpTaskAnswer && !x.mode.Relay {
		return g.answerTask(ctx, x, rec, query)
	}
	named := *query
	named.ID = rec.TaskID
	x.message.Body, x.message.Conversation.TaskID = &named, rec.AgentTaskOf(x.message)
	apart := x.mode.AgentStreams != translators.StreamsTask && !x.mode.Relay
	switch {
	case apart && x.message.Op == canonical.OpTaskCancel && x.mode.SeesCanceled:
		return g.cancelApart(ctx, x)
	case apart && x.message.Op == canonical.OpTaskSubscribe && x.mode.CallerStreams == translators.StreamsTask:
		return g.watch(ctx, x, rec, true) // whoever keeps the record follows it
	}
	waits := !x.mode.Relay && x.message.Op == canonical.OpTaskResult // until there is one
	subscribes := x.message.Op == canonical.OpTaskSubscribe
	if subscribes {
		if err := g.choose(ctx, x); err != nil {
			return transport.Answer{}, err
		}
	}
	looks := subscribes && !x.verbatim()
	if waits || looks {
		x.message.Op = canonical.OpTaskGet
	}
	sealed, _, err := g.request(ctx, x)
	if err != nil {
		return transport.Answer{}, err
	}
	if waits {
		x.message.Op = canonical.OpTaskResult
		return g.begin(ctx, x, sealed, canonical.OpTaskGet).Wait(ctx)
	}
	if subscribes {
		op := x.message.Op
		x.message.Op = canonical.OpTaskSubscribe
		e := g.begin(ctx, x, sealed, op)
		if looks {
			return e.StreamTask(ctx, store.ErrEnded)
		}
		return e.Stream(ctx)
	}
	return g.converse(g.lifetime(ctx, x), x, sealed)
}

// cancelApart cancels a task of an agent that only acknowledges that, and answers
// with how the task stands then (reference, task, poll, cancel).
func (g *Gateway) cancelApart(ctx context.Context, x *request) (transport.Answer, error) {
	if err := g.agent(x).confirm(ctx); err != nil {
		return transport.Answer{}, err
	}
	x.message.Op = canonical.OpTaskGet
	sealed, err := g.agent(x).Inquire(ctx, x.message.Op, x.message.Body)
	if err != nil {
		return transport.Answer{}, err
	}
	return g.converse(g.lifetime(ctx, x), x, sealed)
}

// update gives answers to an agent's task that takes them apart from calls (MCP,
// tasks/update), and goes on with the task.
func (g *Gateway) update(ctx context.Context, x *request, rec *store.Record, answers []canonical.Answer) (transport.Answer, error) {
	prior, asked, said := *rec, x.message, *x.message
	said.Op, said.To.Skill = canonical.OpTaskAnswer, rec.Skill
	said.Conversation.TaskID = rec.AgentTaskOf(x.message)
	said.Body = &canonical.TaskQuery{ID: rec.TaskID, Answers: answers}
	x.prior = &prior
	sealed, _, err := g.request(ctx, x.saying(&said))
	if err == nil {
		err = g.claimAndRegister(ctx, x)
	}
	if err != nil {
		return transport.Answer{}, err
	}
	_, _, parents, err := g.agent(x).acknowledged(ctx, sealed)
	if err != nil {
		return transport.Answer{}, err
	}
	x.saying(asked)
	e, err := g.executions.Resume(ctx, g.work(x), parents)
	if err != nil {
		return transport.Answer{}, err
	}
	return e.Answer(ctx)
}

// held answers about a task that its caller knows in another way than its agent,
// or of which its agent says apart what came of it: from the record, which somebody
// here keeps up with the agent's task.
func (g *Gateway) held(ctx context.Context, x *request, rec *store.Record, query *canonical.TaskQuery) (transport.Answer, error) {
	g.attend(ctx, x, rec)
	if x.message.Op != canonical.OpTaskCancel || rec.TaskID == "" || rec.Task.Status.State.Terminal() {
		return g.fromRecord(ctx, x, rec, query)
	}
	named := *query
	named.ID = rec.TaskID
	x.message.Body, x.message.Conversation.TaskID = &named, rec.AgentTaskOf(x.message)
	if err := g.agent(x).confirm(ctx); err != nil {
		return transport.Answer{}, err
	}
	rec, err := g.untilEnd(ctx, x, rec)
	if err != nil {
		return transport.Answer{}, err
	}
	return g.tellRecord(ctx, x, rec, false)
}

// fromRecord answers about work that is ours to answer for.
func (g *Gateway) fromRecord(ctx context.Context, x *request, rec *store.Record, query *canonical.TaskQuery) (transport.Answer, error) {
	done := rec.Task.Status.State.Terminal()
	switch x.message.Op {
	case canonical.OpTaskCancel:
		if done {
			if x.mode.SeesCanceled {
				return transport.Answer{}, &canonical.Error{Code: canonical.CodeNotCancelable, Message: "the task has ended"}
			}
			return g.tellRecord(ctx, x, rec, false) // a protocol that only acknowledges (reference, task, poll, cancel)
		}
		return g.cancelTask(ctx, x, rec)
	case canonical.OpTaskSubscribe:
		if done {
			return transport.Answer{}, store.ErrEnded
		}
		return g.watch(ctx, x, rec, true)
	case canonical.OpTaskResult:
		return g.watch(ctx, x, rec, false)
	case canonical.OpTaskAnswer:
		return g.answerTask(ctx, x, rec, query)
	default:
		return g.tellRecord(ctx, x, rec, false)
	}
}

// cancel tells whoever works on it to stop, and waits a little for that. They may
// have done with it meanwhile without having heard of the wish.
func (g *Gateway) cancelTask(ctx context.Context, x *request, rec *store.Record) (transport.Answer, error) {
	told := ""
	for end := time.Now().Add(cancelWait); !rec.Task.Status.State.Terminal(); {
		var next *store.Record
		var err error
		switch {
		case rec.Runner == "" && rec.Follower == "" && rec.TaskID != "":
			return g.task(ctx, x) // the agent itself is told
		case rec.Runner == "" && rec.Follower == "":
			next, err = g.endWaiting(ctx, rec)
		case rec.Queue != "" && rec.Queue != told:
			told, next, err = rec.Queue, rec, g.tasks.Send(ctx, rec.ControlKey(), store.ControlMessage{Cancel: true})
		default:
			next, err = g.changed(ctx, x, rec, time.Until(end))
		}
		if err != nil {
			return transport.Answer{}, err
		}
		if next == nil {
			break
		}
		rec = next
	}
	return g.tellRecord(ctx, x, rec, false)
}

// endWaiting ends work that only waits for its caller, or returns it as somebody
// else has changed it meanwhile.
func (g *Gateway) endWaiting(ctx context.Context, rec *store.Record) (*store.Record, error) {
	before := rec.Task
	rec.Task.Status, rec.Task.Inputs = canonical.Status{State: canonical.StateCanceled, At: g.Now()}, nil
	rec.Resume, rec.Saved = store.ResumeNone, nil
	ok, err := g.tasks.Save(ctx, rec)
	if err != nil {
		return nil, err
	}
	if ok {
		g.hooks.Post(ctx, rec, stream.Diff(&before, &rec.Task))
		return rec, nil
	}
	return store.Known(g.tasks.Load(ctx, rec.Key))
}

// untilEnd waits a little for the end of what was canceled.
func (g *Gateway) untilEnd(ctx context.Context, x *request, rec *store.Record) (*store.Record, error) {
	for end := time.Now().Add(cancelWait); !rec.Task.Status.State.Terminal(); {
		next, err := g.changed(ctx, x, rec, time.Until(end))
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
func (g *Gateway) answerTask(ctx context.Context, x *request, rec *store.Record, query *canonical.TaskQuery) (transport.Answer, error) {
	if rec.Resume == store.ResumeNone {
		return transport.Answer{}, &canonical.Error{Code: canonical.CodeBadParams, Message: "the task asks nothing"}
	}
	if rec.Resume == store.ResumeStream {
		answers, err := consent.Check(inputsOf(rec), query.Answers)
		if missing, ok := errors.AsType[*consent.MissingError](err); ok {
			err = missingAnswers(missing)
		}
		if err != nil {
			return transport.Answer{}, err
		}
		if err := g.tasks.Send(ctx, rec.ControlKey(), store.ControlMessage{Answers: rec.ForRound(answers)}); err != nil {
			return transport.Answer{}, err
		}
		return g.done(ctx, x, rec)
	}
	asking := x.derive(&canonical.Message{
		Op: canonical.OpInvoke, Phase: canonical.PhaseRequest, Body: &canonical.Invoke{Answers: query.Answers},
		Correlation: x.message.Correlation, Preferences: x.message.Preferences, Origin: x.message.Origin, Trace: x.message.Trace,
	})
	asking.message.Correlation.MessageID = g.NewID()
	_, _, err := g.goOnWith(ctx, asking, rec, asking.message.Body.(*canonical.Invoke))
	if err != nil {
		return transport.Answer{}, err
	}
	sealed, _, err := g.request(ctx, asking)
	if err == nil {
		err = g.claimAndRegister(ctx, asking)
	}
	if err != nil {
		return transport.Answer{}, err
	}
	e := g.begin(ctx, asking, sealed, asking.message.Op)
	if err := e.Save(ctx); err != nil {
		e.Abort()
		g.restore(ctx, asking)
		return transport.Answer{}, err
	}
	answer, err := g.done(ctx, x, rec)
	e.Detach(ctx)
	return answer, err
}

// done acknowledges.
func (g *Gateway) done(ctx context.Context, x *request, rec *store.Record) (transport.Answer, error) {
	m := &canonical.Message{
		Op: x.message.Op, Phase: canonical.PhaseResponse, Body: &canonical.Done{}, Correlation: canonical.Correlation{WireID: x.in.WireID},
	}
	return g.caller(x).tell(ctx, m, x.behind(rec))
}

// behind is what testifies to a record, and to the question about it. Of a message
// that is answered with a question of ours, both are one token.
func (x *request) behind(rec *store.Record) []ect.ID {
	_, parents := x.in.Evidence.Origins()
	if rec.Last != "" && !slices.Contains(parents, rec.Last) {
		parents = append(parents, rec.Last)
	}
	return parents
}
