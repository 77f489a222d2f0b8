package gateway

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/admission"
	"github.com/aepb/aepb-gateway/gateway/conversation"
	"github.com/aepb/aepb-gateway/gateway/idempotency"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/stream"
)

// store keeps an answer, or how the message failed, under the key of each source that
// was used up.
func (g *Gateway) store(ctx context.Context, x *request, answer transport.Answer, cause error) {
	if len(x.in.Used) == 0 {
		return
	}
	reply := idempotency.Reply{Wire: answer.Wire(), Evidence: x.trail.IDs()}
	if cause != nil {
		p := problem.From(cause)
		p.Request = transport.RequestID(ctx)
		reply.Problem = &p
	}
	blob, err := reply.Encode()
	if err != nil {
		return
	}
	for _, v := range x.in.Used {
		key := ect.ReplayKey{Issuer: v.Issuer(), Workflow: v.Workflow(), ID: v.ID()}
		g.Answers.Finish(ctx, key, blob, time.Unix(v.Expires(), 0))
	}
}

// postChange posts what is different in a task between two of its records, if the
// task has push notification configurations.
func (g *Gateway) postChange(ctx context.Context, before, after *store.Record) {
	if !after.Pushes {
		return
	}
	known, err := g.tasks.Present(before)
	var task *canonical.Task
	if err == nil {
		task, err = g.tasks.Present(after)
	}
	if err != nil {
		g.Logger.WarnContext(ctx, "a change of a task is not posted", slog.String("task", after.Task.ID), slog.Any("error", err))
		return
	}
	g.hooks.Post(ctx, after, stream.Diff(known, task))
}

// inFull is a task with what came of it: the same for each caller and each way to ask.
func inFull(task *canonical.Task, result *canonical.Result) *canonical.Task {
	if result.Task != nil || result.Output == nil {
		return task
	}
	whole := stream.TaskOf(task.ID, task.ContextID, result)
	whole.Output = result.Output
	return whole
}

// recordOf is the record of a task that was answered. What only its run knows
// stays as it is.
func (x *request) recordOf(task *canonical.Task) *store.Record {
	brief := canonical.Task{ID: task.ID, ContextID: task.ContextID, Status: canonical.Status{State: task.Status.State}, History: x.history()}
	if x.record != nil {
		rec := *x.record
		rec.Task, rec.Workflow, rec.Requests = brief, x.lineage.Workflow, x.requests()
		rec.Task.ID, rec.Task.ContextID = x.record.Task.ID, x.record.Task.ContextID
		return &rec
	}
	rec := x.newRecord(&brief)
	if task.ID != "" && (x.mode.Relay || x.mode.AgentStreams == translators.StreamsTask) {
		rec.TaskID = task.ID
		if x.thread.NamedByAgent(task.ContextID) { // else it is the caller's name for it
			rec.Context = task.ContextID
		}
	}
	return rec
}

// taskOfReply is the task that a caller may ask about after this reply; nil: none.
func taskOfReply(x *request, m *canonical.Message, result *canonical.Result) *canonical.Task {
	asks := x.mode.CallerStreams == translators.StreamsTask
	switch {
	case result.Task != nil && (asks || !result.Task.Status.State.Terminal() || x.record != nil):
		return result.Task
	case result.Output != nil && asks && !x.mode.Relay:
		state := canonical.StateCompleted
		if result.Output.Failed {
			state = canonical.StateFailed
		}
		return &canonical.Task{ID: m.Conversation.TaskID, ContextID: m.Conversation.ContextID, Status: canonical.Status{State: state}}
	default:
		return nil
	}
}

// owner is whose share of the store this exchange takes.
func (x *request) owner() string { return admission.Owner(x.in.Call.Caller, x.in.Call.Address) }

// keyOf names the record of the caller's task: it belongs to the caller and the agent.
func (x *request) keyOf(id string) store.EntryKey {
	return store.TaskKey(x.owner(), x.to.Agent.Name, id)
}

// parties are the two sides of the exchange's dialogue.
func (x *request) parties() conversation.Parties {
	agent := x.to.Agent.Name
	if x.in.Call.Agent == "" {
		agent = ""
	}
	return conversation.Parties{Owner: x.owner(), Agent: agent}
}

// recordedNames are the ids of the dialogue in the record of the work.
func (x *request) recordedNames() conversation.Names {
	if x.record == nil {
		return conversation.Names{}
	}
	return conversation.Names{Agent: x.record.Context, Caller: x.record.Task.ContextID}
}

// dialogueKey is the key of a dialogue by the agent's name for it.
func (x *request) dialogueKey(id string) string {
	p := x.parties()
	return p.Key(x.thread.AgentID(p, id, x.recordedNames()))
}

// recordFor is the record of the request's task, which begins with this task.
func (x *request) recordFor(task *canonical.Task) *store.Record {
	if x.record == nil {
		x.record = x.newRecord(task)
	}
	return x.record
}

// newRecord begins the record of this exchange's work.
func (x *request) newRecord(task *canonical.Task) *store.Record {
	rec := &store.Record{
		AsTold:    store.AsTold{Form: store.RecordForm, Task: *task},
		AgentSide: store.AgentSide{Agent: x.to.Agent.Name, Binding: x.to.Codec.Info().Binding},
		Proof:     store.Proof{Workflow: x.lineage.Workflow, Last: x.trail.Request(), Requests: x.requests()},
		Origin:    store.Origin{Source: x.in.Source.Info().Binding},
		Key:       x.keyOf(task.ID),
	}
	if x.route.Capability != nil {
		rec.Skill = x.route.Capability.ID
	}
	rec.Method = x.message.Method()
	return rec
}

// addressSkill says of an answer what it is an answer to, which it need not say again.
func (x *request) addressSkill(rec *store.Record) {
	if invoke, ok := x.message.Body.(*canonical.Invoke); ok && !x.mode.Relay && invoke.Call == nil && x.message.To.Skill == "" {
		x.message.To.Skill = rec.Skill
	}
}

// list answers from the record, because the agent takes all callers of the gateway for one
// caller: it would show one of them the work of another.
func (g *Gateway) list(ctx context.Context, x *request, f *canonical.TaskFilter) (transport.Answer, error) {
	page, err := g.tasks.List(ctx, x.keyOf("").Group, x.parties().BoundID(f.ContextID), f)
	if err != nil {
		return transport.Answer{}, err
	}
	g.lineage(x)
	wire, err := g.tellPage(ctx, x, f, page)
	return x.answer(wire), err
}

// tellPage answers with a page, or with as much of it as a message of the caller's
// protocol holds (µACP: 64 KiB).
func (g *Gateway) tellPage(ctx context.Context, x *request, f *canonical.TaskFilter, page store.Page) (transport.Attested, error) {
	tasks := make([]*canonical.Task, len(page.Items))
	for i := range tasks {
		tasks[i] = g.told(ctx, x, page.Items[i], f)
	}
	for {
		list := &canonical.TaskList{Size: page.Size, Total: page.Total, Tasks: []canonical.Task{}}
		if n := len(tasks); n > 0 && (page.More || n < len(page.Items)) {
			list.Next = page.Items[n-1].Cursor()
		}
		for _, task := range tasks {
			if task != nil {
				list.Tasks = append(list.Tasks, *task)
			}
		}
		m := &canonical.Message{Op: x.message.Op, Phase: canonical.PhaseResponse, Body: list, Correlation: canonical.Correlation{WireID: x.in.WireID}}
		out, err := g.translate(ctx, x, g.caller(x).translation(m, x.lineage.Parents))
		if unsaid, ok := errors.AsType[*canonical.Error](err); !ok || unsaid.Code != canonical.CodeBadParams || len(tasks) < 2 {
			return out, err
		}
		tasks = tasks[:len(tasks)/2]
	}
}

// told is a task as a list shows it; nil: it is gone.
func (g *Gateway) told(ctx context.Context, x *request, one store.Item, f *canonical.TaskFilter) *canonical.Task {
	rec := g.tasks.LoadItem(ctx, x.keyOf("").Group, one)
	if rec == nil {
		return nil
	}
	task, err := g.tasks.Present(rec)
	if err != nil {
		return nil
	}
	if task.Output = nil; f.IncludeArtifacts == nil || !*f.IncludeArtifacts {
		task.Artifacts = nil
	}
	return task
}
