package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/admission"
	"github.com/aepb/aepb-gateway/gateway/attest"
	keep "github.com/aepb/aepb-gateway/gateway/checkpoint"
	"github.com/aepb/aepb-gateway/gateway/conversation"
	"github.com/aepb/aepb-gateway/gateway/destination"
	"github.com/aepb/aepb-gateway/gateway/mcpbridge"
	"github.com/aepb/aepb-gateway/gateway/outbound"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/routing"
	"github.com/aepb/aepb-gateway/gateway/task/execution"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/lifecycle/checkpoint"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/rollback"
	"github.com/aepb/aepb-gateway/translators/stream"
)

// request is one message on its way, as the values that the steps of the pipeline have made. A
// step reads what earlier steps made, and never calls one.
type request struct {
	in       admission.Admitted
	to       destination.Destination
	settings *Settings          // in force when the message came
	message  *canonical.Message // as it goes on
	mode     execution.Mode     // made anew with the route
	route    routing.Route
	thread   conversation.Thread // where its dialogue stands
	lineage  attest.Lineage      // of everything that is signed here
	trail    *attest.Trail
	hearer   *notifiedCaller // who is told news in the way of another revision; nil: there is no such caller
	scope    *scope

	work
}

// work is what a message is about.
type work struct {
	original canonical.Body // what its caller says, whatever becomes of the message
	record   *store.Record  // of the task; nil: it is not known yet, or none is kept
	claim    *store.Claim   // the questions on record that it answers; nil: it answers none
	webhook  *pushTarget    // who is to be told of changes of the task; nil: the message names no webhook
	snapshot *snapshot      // what the reply brings that its caller can read later; nil: nothing
	attested bool           // it began with an ECT, which is not here any more
	started  bool           // its workflow has a start on record
	intended bool           // the gateway signed an intent for it
	approval string         // that releases it; empty: it came from its caller just now
	failure  string         // that the agent reported in a stream; empty: it reported no failure
	made     *made          // the checkpoint of the message; nil: it needs none
	errand   Errand         // what the gateway itself sends; the zero value: it is a caller's message
	unseen   bool           // no caller is told: what the agent says is only saved
	forced   bool           // the agent does it as a task or not at all
}

// sentAt is when a message is sent that says so.
func (x *request) sentAt(now time.Time) time.Time {
	if at := x.errand.At; !at.IsZero() {
		return at
	}
	return now
}

// admit takes what admission has found out of the message.
func (x *request) admit(in admission.Admitted, to destination.Destination) {
	x.in, x.to, x.message = in, to, in.Message
	x.mode = execution.NewMode(x.sides(), x.route)
}

// saying puts another message in place of the one that goes on.
func (x *request) saying(m *canonical.Message) *request {
	x.message = m
	return x
}

// derive is another message about the same work: of the same caller to the same agent, with a trail of
// its own behind the request.
func (x *request) derive(m *canonical.Message) *request {
	own := &request{
		in: x.in, to: x.to, settings: x.settings, scope: &scope{began: x.scope.began}, mode: x.mode,
		route:   routing.Route{Endpoint: x.route.Endpoint, Description: x.route.Description, Renamed: x.route.Renamed},
		message: m, thread: x.thread, lineage: x.lineage, trail: x.trail.Again(),
		work: work{attested: x.attested, record: x.record},
	}
	own.trail.Follow(x.trail.Request())
	return own
}

// about makes the request one about the task of a record.
func (x *request) about(rec *store.Record) { x.record, x.lineage.Workflow = rec, rec.Workflow }

// clone is the request as it stands, with a record of its own.
func (x *request) clone() *request {
	own := *x
	if x.record != nil {
		rec := *x.record
		own.record = &rec
	}
	return &own
}

// sides are the caller and the agent.
func (x *request) sides() routing.Sides {
	return routing.Sides{In: &x.in, To: &x.to, Message: x.message}
}

// reader is the identity that the request is for: the agent, else the caller who asked for a
// translation only.
func (x *request) reader() ect.Identity {
	switch {
	case x.to.Via != nil:
		return x.to.Via.Peer.ID
	case x.in.Call.Agent == "":
		return x.in.Call.Caller.ID
	}
	return x.to.Agent.ID
}

// sends is the kind of the call that goes to where x goes.
func (x *request) sends() outbound.Kind {
	if x.to.Via != nil {
		return outbound.Peer
	}
	if _, apart := x.to.Codec.(*rollback.Form); apart {
		return outbound.Rollback
	}
	return outbound.Message
}

// agentLabel is the agent in metrics: callers can name unknown agents without end.
func (x *request) agentLabel() string {
	if x.to.Via != nil && x.to.Via.Unlisted {
		return "gateway"
	}
	return label(x.to.Agent)
}

// parentsOf is what testifies to a record, and to the question about it. Of a message that is answered
// with a question of ours, both are one token.
func (x *request) parentsOf(rec *store.Record) []ect.ID {
	_, parents := x.in.Evidence.Origins()
	if rec.Last != "" && !slices.Contains(parents, rec.Last) {
		parents = append(parents, rec.Last)
	}
	return parents
}

// since is what testifies to work on record, else what its caller sent.
func (x *request) since(rec *store.Record) []ect.ID {
	if parents := x.parentsOf(rec); len(parents) > 0 {
		return parents
	}
	return x.lineage.Parents
}

// requests are the ids of the request tokens of this execution, also of the time before
// it was taken up from its record.
func (x *request) requests() []ect.ID { return x.trail.Requests(x.keptRequests()) }

// timeout is how long a caller waits for what does not come.
func (x *request) timeout() time.Duration {
	if x.route.Endpoint.Timeout > 0 {
		return x.route.Endpoint.Timeout
	}
	return x.settings.Timeout
}

// answerWait is how long a question of this exchange may wait for its answer.
func (x *request) answerWait() time.Duration {
	if x.settings.AnswerWait > 0 {
		return x.settings.AnswerWait
	}
	return DefaultAnswerWait
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

// lastTold is the token of the last reply in the dialogue of a record, else of the record; its workflow is the record's.
func (g *Gateway) lastTold(ctx context.Context, p conversation.Parties, rec *store.Record) (ect.ID, error) {
	names := conversation.Names{Agent: rec.Context, Caller: rec.Task.ContextID}
	key := p.Key(conversation.Thread{}.AgentID(p, rec.Task.ContextID, names))
	workflow, last, found, err := g.Conversations.Last(ctx, key)
	if err != nil {
		return "", &problem.RecordingError{Err: err}
	}
	if !found || workflow != rec.Workflow {
		return rec.Last, nil
	}
	return last, nil
}

// goOnAfterReply makes the last reply the parent of what a caller without a token says to work on record, such as
// the answer to a question.
func (g *Gateway) goOnAfterReply(ctx context.Context, x *request) error {
	_, own := x.in.Evidence.Origins()
	answers := x.claim != nil || x.mode.Relay && x.message.Op == canonical.OpInvoke
	if x.record == nil || len(own) > 0 || !answers || x.approval != "" || x.lineage.Workflow != x.record.Workflow {
		return nil
	}
	last, err := g.lastTold(ctx, x.parties(), x.record)
	if err == nil && last != "" {
		x.lineage.Parents = []ect.ID{last}
	}
	return err
}

// goOnAfterState makes the reply that gave a caller a state the parent of the call that brings it back, where the gateway
// relays both and has no record.
func (g *Gateway) goOnAfterState(ctx context.Context, x *request) (found bool, err error) {
	invoke, ok := x.original.(*canonical.Invoke)
	if !ok || !x.mode.Relay || invoke.State == "" || invoke.Call == nil {
		return false, nil
	}
	workflow, last, found, err := g.Conversations.Last(ctx, x.dialogueKey(conversation.OfCall(invoke.State, invoke.Call.Name, invoke.Call.Args)))
	if err != nil {
		return false, &problem.RecordingError{Err: err}
	}
	if found {
		x.lineage.Workflow, x.lineage.Parents = workflow, []ect.ID{last}
	}
	return found, nil
}

// Following finds the token that a caller's next message about a task of its own names as parent; false: it has no
// such task. Its errors are *[problem.RecordingError].
func (g *Gateway) Following(ctx context.Context, caller identity.Caller, address, agent, id string) (ect.Ref, bool, error) {
	p := conversation.Parties{Owner: admission.Owner(caller, address), Agent: agent}
	rec, err := g.tasks.Load(ctx, store.TaskKey(p.Owner, agent, id))
	if err != nil || rec == nil {
		return ect.Ref{}, false, err
	}
	last, err := g.lastTold(ctx, p, rec)
	return ect.Ref{ID: last, Workflow: rec.Workflow, Issuer: g.Signer.Issuer()}, last != "", err
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
	if called := x.route.Offered(x.in.Permit.Offer()); called != nil {
		rec.Skill = called.ID
	}
	rec.Method = x.message.Method()
	return rec
}

// from is where what the caller is told came from.
func (x *request) from() canonical.Origin {
	return canonical.Origin{Binding: x.to.Codec.Info().Binding, Version: x.route.Endpoint.Version}
}

// sessionKey names what the caller's session subscribes to at the agent.
func (x *request) sessionKey() store.EntryKey {
	return mcpbridge.KeyOf(x.in.Call.Session, x.to.Agent.Name, x.owner())
}

// sessionsOf keeps what sessions subscribe to.
func sessionsOf(g *Gateway) mcpbridge.Sessions {
	return mcpbridge.Sessions{Tasks: g.tasks.Store, Entries: g.Entries, Now: g.Now}
}

// made is the checkpoint of a message, and what was heard of its outcome so far. All methods of a nil one do nothing.
type made struct {
	keep.Made

	outcome keep.Outcome
	over    bool // the outcome is known
	saved   bool // and stored
}

// protect makes the checkpoint of a message that may change something, which is signed and not sent (R22). agent is how tokens name its agent. A message that goes on with
// work that is under way has none: that of the work covers it.
func (g *Gateway) protect(ctx context.Context, x *request, agent string) error {
	if x.in.Call.Agent == "" || x.message.Op != canonical.OpInvoke || !x.started && !x.settings.Constraints.Checkpoint {
		return nil
	}
	repeats := x.claim != nil && x.claim.Prior.Resume == store.ResumeState
	tool, way := x.route.Called(x.message), x.to.Agent.Undo
	work := checkpoint.Work{
		Begins: x.record == nil || x.approval != "" || repeats, InWorkflow: x.started, Required: x.settings.Constraints.Checkpoint,
		Changes: destroys(x.route.Capability), ReadOnly: way.IsReadOnly(tool),
	}
	if !work.Needs() {
		return nil
	}
	action := keep.Action{
		Workflow: x.lineage.Workflow, Request: x.trail.Request(), Audience: []string{agent, string(x.in.Call.Caller.ID)},
		Agent: x.to.Agent.Name, Tool: tool, Undo: way, TTL: x.settings.CheckpointTTL, Owner: x.owner(), Holder: x.in.Holder,
	}
	if invoke, ok := x.message.Body.(*canonical.Invoke); ok && invoke.Call != nil {
		action.Call = invoke.Call.Args
	}
	m, err := g.parts.Checkpoints.Make(ctx, action)
	if err != nil {
		return err
	}
	x.trail.Add(m.Compact, m.ID)
	x.made = &made{Made: m}
	return nil
}

// destroys reports whether an agent says of a tool that it changes something. What it says makes the gateway more careful alone.
func destroys(c *canonical.Capability) bool {
	if c == nil || len(c.Annotations) == 0 {
		return false
	}
	var hints struct {
		Destructive bool `json:"destructiveHint"`
	}
	return json.Unmarshal(c.Annotations, &hints) == nil && hints.Destructive
}

// hears notes what a reply, or an event, says of the outcome.
func (c *made) hears(m *canonical.Message) {
	if c == nil {
		return
	}
	if canonical.FailureOf(m) != "" {
		c.outcome, c.over = keep.Outcome{Failed: true}, true
		return
	}
	c.over = c.over || m.Over()
	if result, ok := m.Body.(*canonical.Result); ok {
		c.outcome.Failed = result.Pending != nil // it asks first, and has done nothing
	}
	if value := resultOf(m); value != nil {
		c.outcome.Result = value
	}
}

// ended keeps the outcome of a message that needed a checkpoint, once it is known.
func (g *Gateway) ended(ctx context.Context, x *request) {
	if x.made == nil || !x.made.over || x.made.saved {
		return
	}
	g.parts.Checkpoints.Ended(context.WithoutCancel(ctx), x.made.Made, x.made.outcome)
	x.made.saved = true
}

// resultOf is the value that an answer has, for what points into it: the structured result, else the data, else the text,
// which is read as JSON if it is that. Nil: the answer has no value.
func resultOf(m *canonical.Message) json.RawMessage {
	switch body := m.Body.(type) {
	case *canonical.Result:
		switch {
		case body.Output != nil:
			return valueOf(body.Output.Structured, body.Output.Parts)
		case body.Turn != nil:
			return valueOf(nil, body.Turn.Parts)
		case body.Task != nil:
			return valueOfTask(body.Task)
		}
	case *canonical.Event:
		switch {
		case body.Task != nil:
			return valueOfTask(body.Task)
		case body.Artifact != nil:
			return valueOf(nil, body.Artifact.Artifact.Parts)
		case body.Turn != nil:
			return valueOf(nil, body.Turn.Parts)
		}
	}
	return nil
}

func valueOfTask(t *canonical.Task) json.RawMessage {
	if t.Output != nil {
		return valueOf(t.Output.Structured, t.Output.Parts)
	}
	for i := range t.Artifacts {
		if value := valueOf(nil, t.Artifacts[i].Parts); value != nil {
			return value
		}
	}
	return nil
}

func valueOf(structured json.RawMessage, parts []canonical.Part) json.RawMessage {
	if structured != nil {
		return structured
	}
	for i := range parts {
		if len(parts[i].Data) > 0 {
			return parts[i].Data
		}
	}
	text, there := canonical.TextOf(parts, "\n")
	switch {
	case !there:
		return nil
	case json.Valid([]byte(text)):
		return bytes.TrimSpace([]byte(text))
	}
	quoted, _ := json.Marshal(text)
	return quoted
}
