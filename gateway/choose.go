package gateway

import (
	"context"
	"encoding/json"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/routing"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/rollback"
)

// choose finds the route of the message: where the agent is, and what is called there.
func (g *Gateway) choose(ctx context.Context, x *exchange) error {
	q := routing.Query{
		Sides: x.sides(), Body: x.asked, Header: x.in.Call.Wire.Header, Version: x.route.Endpoint.Version, Alone: x.alone, Timeout: x.settings.Timeout,
	}
	if x.record != nil {
		q.Skill = x.record.Skill
	}
	route, err := routing.Router{Directory: g.Directory}.Resolve(ctx, q)
	x.route, x.message, x.in.Call.Wire.Header = route, route.Message, route.Header
	x.renamedCall = x.renamedCall || route.Renamed
	return err
}

// sides are the caller and the agent.
func (x *exchange) sides() routing.Sides {
	return routing.Sides{In: &x.in, To: &x.to, Message: x.message}
}

// kin: both sides use the words of one protocol, whoever carries them.
func (x *exchange) kin() bool { return x.sides().Kin(x.agentVersion()) }

// heed: an agent that says that it has changed is not as it is known here, nor
// is one that misses something in the header of a request.
func (g *Gateway) heed(x *exchange, heard *canonical.Message) {
	if heard == nil {
		return
	}
	changed := false
	switch said := heard.Body.(type) {
	case *canonical.Error:
		changed = said.Code == canonical.CodeHeaderMismatch
	case *canonical.Event:
		changer := x.to.Features.Changer
		changed = changer != nil && said.Native != nil && changer.Changes(said.Native)
	}
	if changed {
		g.Directory.Outdated(x.to.Agent.Name)
	}
}

// lineage decides workflow and parents of leg 1 (R3, R4): the source's, or those
// of the token that the message names, else the conversation's, else a root of a
// fresh workflow.
func (g *Gateway) lineage(x *exchange) {
	if workflow, ids := x.in.Evidence.Origins(); len(ids) > 0 {
		x.workflow, x.parents = workflow, ids
		return
	}
	if x.record != nil { // more about the same work
		x.workflow, x.parents = x.record.Workflow, x.behind(x.record)
		return
	}
	if workflow, last, ok := x.thread.Last(); ok {
		x.workflow, x.parents = workflow, []ect.ID{last}
		return
	}
	x.workflow = g.NewID()
}

// remember makes the reply's ECT the conversation's last (R3).
func (g *Gateway) remember(ctx context.Context, x *exchange) {
	g.Conversations.Remember(ctx, x.dialogueKey(x.replyContext), x.workflow, x.trail.Reply())
}

// maxReferences bounds the tasks that one message refers to.
const maxReferences = 32

// owned refuses a message that refers to work which is not its caller's (R2): the
// agent takes all of us for one caller, and would let it in. What is another's is
// not found, like what never was.
func (g *Gateway) owned(ctx context.Context, x *exchange) error {
	at := &x.message.Conversation
	if x.in.Call.Agent == "" {
		return nil
	}
	if len(at.ReferenceTasks) > maxReferences {
		return &canonical.Error{Code: canonical.CodeBadParams, Message: "the message refers to too many tasks"}
	}
	for i, id := range at.ReferenceTasks {
		rec, err := store.Known(g.tasks.Load(ctx, x.keyOf(id)))
		if err != nil {
			return err
		}
		if rec.TaskID != "" {
			at.ReferenceTasks[i] = rec.TaskID
		}
	}
	return nil
}

// stampRequest gives a message bound for an agent what only the roof can mint:
// its id on the wire is the id of the ECT that testifies to it, and so is the
// name of its progress. A relay within one protocol has every other id that it needs.
func (x *exchange) stampRequest(id ect.ID) {
	m := x.message
	m.Correlation.WireID = quoted(string(id))
	if x.in.Call.Agent != "" {
		m.Preferences.CanAnswer = x.answerable(m.Preferences.CanAnswer)
	}
	if m.Preferences.CanAnswer == nil {
		m.Preferences.CanAnswer = x.route.Endpoint.Asked // in a protocol where every request says so
	}
	if x.relay() || m.Op != canonical.OpInvoke {
		return
	}
	if m.Correlation.MessageID == "" {
		m.Correlation.MessageID = string(id)
	}
	if invoke, ok := m.Body.(*canonical.Invoke); ok && invoke.Turn.ID == "" {
		invoke.Turn.ID = m.Correlation.MessageID
	}
	if x.agentStreams() == translators.StreamsReply && x.in.Call.Agent != "" && m.Correlation.Progress == nil && x.lasts() {
		m.Correlation.Progress = m.Correlation.WireID
	}
}

// tasked is a message as an agent hears it that may answer a call with a task:
// that its caller would rather wait is our business and not the agent's, and so is
// that its caller would take a task, where the agent has not said that it has any.
func (x *exchange) tasked(m *canonical.Message) *canonical.Message {
	if m.Op != canonical.OpInvoke || x.in.Call.Agent == "" || x.route.Description == nil || m.Preferences.TaskOK == x.route.Description.Tasks ||
		x.agentStreams() == translators.StreamsTask || x.relay() && (m.Preferences.TaskOK || !x.tasking()) {
		return m
	}
	out := *m
	out.Preferences.TaskOK = x.route.Description.Tasks
	return &out
}

func quoted(id string) json.RawMessage { return json.RawMessage(`"` + id + `"`) }

// stampReply gives a reply bound for the caller its own request's id, and ids
// to results that came without: an A2A task must have both.
func (g *Gateway) stampReply(x *exchange, m *canonical.Message) {
	m.Correlation.WireID = x.in.WireID
	if x.relay() {
		x.replyContext = m.Conversation.ContextID
		return
	}
	if x.record != nil { // the work has names already
		m.Conversation = x.record.CallerNames()
		if result, ok := m.Body.(*canonical.Result); ok && result.Task != nil {
			result.Task.ID, result.Task.ContextID = m.Conversation.TaskID, m.Conversation.ContextID
		}
	}
	if m.Conversation.ContextID == "" {
		m.Conversation.ContextID = x.message.Conversation.ContextID
	}
	if result, ok := m.Body.(*canonical.Result); ok && result.Output != nil {
		if m.Conversation.ContextID == "" {
			m.Conversation.ContextID = g.NewID()
		}
		if m.Conversation.TaskID == "" {
			m.Conversation.TaskID = g.NewID()
		}
	}
	x.replyContext = m.Conversation.ContextID
	g.completeTask(x, m)
}

// undoing puts the form of rollbacks over HTTP in place of a protocol that has
// none of its own, where the agent can be asked that way.
func (g *Gateway) undoing(x *exchange) {
	if x.message.Op != canonical.OpRollback || x.to.Codec == nil || x.to.Via != nil || g.Network.Rollbacks[x.to.Codec.Info().Binding] == nil {
		return
	}
	x.to.Codec = rollback.Over(x.to.Codec)
	x.to.Features = translators.FeaturesOf(x.to.Codec)
}
