package gateway

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/attest"
	keep "github.com/aepb/aepb-gateway/gateway/checkpoint"
	"github.com/aepb/aepb-gateway/gateway/outbound"
	"github.com/aepb/aepb-gateway/gateway/problem"
	undo "github.com/aepb/aepb-gateway/gateway/rollback"
	"github.com/aepb/aepb-gateway/gateway/task/execution"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/lifecycle/checkpoint"
	"github.com/aepb/aepb-gateway/lifecycle/compensation"
	"github.com/aepb/aepb-gateway/policy/membership"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/rollback"
)

// made is the checkpoint of a message, and what was heard of its outcome so far. All methods of a nil one do nothing.
type made struct {
	keep.Made

	outcome keep.Outcome
	over    bool // the outcome is known
}

// protect makes the checkpoint of a message that may change something, which is signed and not sent (R22). A message that goes on with
// work that is under way has none: that of the work covers it.
func (g *Gateway) protect(ctx context.Context, x *request) error {
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
		Workflow: x.lineage.Workflow, Request: x.trail.Request(), Audience: []string{g.audience(x)[0], string(x.in.Call.Caller.ID)},
		Agent: x.to.Agent.Name, Tool: tool, Undo: way, TTL: x.settings.CheckpointTTL, Owner: x.owner(), Holder: x.in.Holder,
	}
	if invoke, ok := x.message.Body.(*canonical.Invoke); ok && invoke.Call != nil {
		action.Call = invoke.Call.Args
	}
	if rule, there := way.Compensate[tool]; there && rule.Before != nil {
		action.Before = g.readBefore(ctx, x, *rule.Before, action.Call)
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

// readBefore reads the state that a call will change, with a call of the gateway's own; nil: it cannot be read, so the
// call cannot be undone.
func (g *Gateway) readBefore(ctx context.Context, x *request, r compensation.Reading, call json.RawMessage) json.RawMessage {
	args, err := r.Arguments.Fill(compensation.Values{Call: call})
	var answer Answered
	if err == nil {
		answer, err = g.Errand(ctx, Errand{Agent: x.to.Agent.Name, Message: callOf(r.Tool, args)})
	}
	if err == nil && canonical.FailureOf(answer.Message) != "" {
		err = &problem.UnsentError{Reason: canonical.FailureOf(answer.Message)}
	}
	if err != nil {
		g.Logger.WarnContext(ctx, "the state before a call is not known: the call cannot be undone",
			slog.String("agent", x.to.Agent.Name), slog.String("wid", x.lineage.Workflow), slog.Any("error", err))
		return nil
	}
	return resultOf(answer.Message)
}

// callOf is a call of a tool.
func callOf(tool string, args json.RawMessage) *canonical.Message {
	return &canonical.Message{Op: canonical.OpInvoke, Phase: canonical.PhaseRequest, Body: &canonical.Invoke{Call: &canonical.Call{Name: tool, Args: args}}}
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
	switch body := m.Body.(type) {
	case *canonical.Result:
		c.over = body.Task == nil || body.Task.Status.State.Terminal()
		c.outcome.Failed = body.Pending != nil // it asks first, and has done nothing
	case *canonical.Event:
		c.over = c.over || body.Turn != nil || body.Status != nil && body.Status.State.Terminal() || body.Task != nil && body.Task.Status.State.Terminal()
	}
	if value := resultOf(m); value != nil {
		c.outcome.Result = value
	}
}

// ended keeps the outcome of a message that needed a checkpoint, once it is known.
func (g *Gateway) ended(ctx context.Context, x *request) {
	if x.made == nil || !x.made.over {
		return
	}
	g.parts.Checkpoints.Ended(context.WithoutCancel(ctx), x.made.Made, x.made.outcome)
	x.made = nil
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

// Errand is a message of the gateway's own to a listed agent.
type Errand struct {
	Agent   string // directory name
	Message *canonical.Message
	Lineage attest.Lineage // where it stands; zero: it begins a workflow of its own
	// ID is that of the token of the request. What is sent again under the same id, with the same At, has the same bytes and the same
	// token: the agent can tell that it has got it before. Empty: it is sent once, under a fresh id.
	ID ect.ID
	At time.Time // when it was sent first; zero: now
}

// Answered is what an agent answered to an errand.
type Answered struct {
	Message *canonical.Message
	ID      ect.ID // of the token that testifies to it: its parents are the request and what the agent signed
	Hash    string // of its bytes
}

// Errand sends a message of the gateway's own, in the agent's protocol. It takes the gateway's own share of background work.
// Its errors are *[quota.ExceededError], *[problem.UnknownAgentError], those of policy and of the way to the
// agent, *[canonical.Error] of an agent that refuses, and those of [attest.Recording].
func (g *Gateway) Errand(ctx context.Context, e Errand) (Answered, error) {
	x, wire, answer, parents, err := g.send(ctx, e)
	if err != nil {
		return Answered{}, err
	}
	out := Answered{Message: answer, Hash: ect.Hash(wire.HashInput())}
	out.ID, err = g.attest.Statements().Answered(ctx, attest.Answered{
		Subject: x.subject(), Lineage: attest.Lineage{Workflow: x.lineage.Workflow, Parents: parents}, Pair: x.pairBack(), Hash: out.Hash,
	})
	return out, err
}

// send sends an errand and returns what testifies to its answer.
func (g *Gateway) send(ctx context.Context, e Errand) (x *request, wire translators.Wire, answer *canonical.Message, parents []ect.ID, err error) {
	grant, err := g.workers.Reserve(string(g.Self()), 0)
	if err != nil {
		return nil, wire, nil, nil, err
	}
	defer grant.Release()
	if x, err = g.onErrand(ctx, e); err != nil {
		return nil, wire, nil, nil, err
	}
	sealed, err := g.agent(x).Seal(ctx, x.message)
	if err != nil {
		return nil, wire, nil, nil, err
	}
	sent := x.trail.Requests(nil)
	x.trail.Follow(sent[len(sent)-1])
	wire, answer, parents, err = g.agent(x).concluded(ctx, sealed)
	return x, wire, answer, parents, err
}

// concluded sends a message and returns the reply to it, with what testifies to that. Many MCP servers tell of progress, or log, in a stream
// before they reply: that is left out, for no caller waits for it. Its errors are those of [agent.acknowledged], and
// *[transport.TimeoutError] for a stream without a reply in time.
func (a agent) concluded(ctx context.Context, sealed transport.Sealed) (wire translators.Wire, m *canonical.Message, parents []ect.ID, err error) {
	limit := a.x.route.Endpoint.Timeout
	reply, err := a.Send(ctx, sealed, limit)
	defer outbound.CloseReply(reply)
	if err != nil {
		return wire, nil, nil, err
	}
	m, parents, err = a.hear(ctx, reply)
	if wire = reply.Wire; err == nil && m == nil {
		within, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		var own []ect.ID
		wire, m, own, err = a.replyIn(within, reply.Events)
		if parents = slices.Concat(own, parents); err != nil && ctx.Err() == nil && within.Err() != nil {
			err = &transport.TimeoutError{Agent: a.x.to.Agent.Name, After: limit}
		}
	}
	if err == nil {
		if refusal, ok := m.Body.(*canonical.Error); ok {
			err = refusal
		}
	}
	return wire, m, parents, err
}

// replyIn reads a stream to the reply in it, and the tokens of the agent in it. A question in it is refused: it would wait for an answer.
func (a agent) replyIn(ctx context.Context, events transport.Events) (wire translators.Wire, m *canonical.Message, parents []ect.ID, err error) {
	bad := func(reason string) error { return &transport.BadReplyError{Agent: a.x.to.Agent.Name, Reason: reason} }
	var whole ect.StreamHash
	for {
		event, err := events.Next(ctx)
		if errors.Is(err, io.EOF) || err == nil && len(event.Wire.Body) == 0 {
			err = bad("its stream ended without a reply")
		}
		if err != nil {
			return wire, nil, nil, err
		}
		event.Wire.Event = true
		got, err := a.Read(ctx, event.Wire, a.x.message.Op)
		if _, unread := errors.AsType[*translators.UnreadableNoticeError](err); err != nil && !unread {
			return wire, nil, nil, err
		}
		whole.Add(got.Wire.HashInput())
		check := ect.Check{Purpose: ect.Parent}
		replied := got.Message != nil && got.Message.Phase != canonical.PhaseEvent
		if replied {
			check = ect.Check{Purpose: ect.Reply, Body: whole.Sum()}
			got.Tokens = append(got.Tokens, closing(ctx, events)...)
		} else if got.Message != nil && asks(got.Message) {
			return wire, nil, nil, bad("it asks a question, which a call of the gateway's own cannot answer")
		}
		if len(got.Tokens) > 0 {
			own, err := a.Verify(ctx, got.Tokens, check)
			if err != nil {
				return wire, nil, nil, err
			}
			parents = append(parents, own...)
		}
		if replied {
			return got.Wire, got.Message, parents, nil
		}
	}
}

// asks reports whether an event asks the caller something.
func asks(m *canonical.Message) bool {
	event, ok := m.Body.(*canonical.Event)
	return ok && event.Ask != nil
}

// closing are the tokens that close a stream whose reply came. An agent that keeps its stream open gives none.
func closing(ctx context.Context, events transport.Events) []string {
	ctx, cancel := context.WithTimeout(ctx, execution.FirstEventWait)
	defer cancel()
	if event, err := events.Next(ctx); err == nil && len(event.Wire.Body) == 0 {
		return event.Evidence
	}
	return nil
}

// sentAt is when a message is sent that says so.
func (g *Gateway) sentAt(x *request) time.Time {
	if at := x.errand.At; !at.IsZero() {
		return at
	}
	return g.Now()
}

// onErrand is the request of an errand, with its permit and its route.
func (g *Gateway) onErrand(ctx context.Context, e Errand) (*request, error) {
	agent, found := g.Directory.Find(e.Agent)
	if !found || len(agent.Endpoints) == 0 {
		return nil, &problem.UnknownAgentError{Agent: e.Agent}
	}
	settings, binding := g.settings.Load(), agent.Endpoints[0].Binding
	message := *e.Message
	message.Origin = canonical.Origin{} // it came in no protocol
	if invoke, ok := message.Body.(*canonical.Invoke); ok && e.ID != "" {
		own := *invoke
		own.Turn.ID = string(e.ID)
		message.Body, message.Correlation.MessageID = &own, string(e.ID)
	}
	call := transport.Call{Agent: e.Agent, EntryPoint: transport.Native, Target: transport.Target{To: binding}, Detached: true, Wire: translators.Wire{Binding: binding}}
	in, err := g.admission.Errand(ctx, call, &message, settings.rules)
	if err == nil {
		err = in.Permit.Perform(string(message.Op))
	}
	if err != nil {
		return nil, err
	}
	e.Lineage.Workflow = cmp.Or(e.Lineage.Workflow, g.NewID())
	x := &request{settings: settings, scope: &scope{began: g.Now()}, lineage: e.Lineage, trail: attest.Begin(), work: work{errand: e}}
	x.admit(in, in.To)
	g.rollbackForm(x)
	if err := g.choose(ctx, x); err != nil {
		return nil, err
	}
	return x, in.Permit.Carry(x.route.Security(true))
}

// rollbackForm puts the form of rollbacks over HTTP in place of a protocol that has
// none of its own, where the agent can be asked that way.
func (g *Gateway) rollbackForm(x *request) {
	if x.message.Op != canonical.OpRollback || x.to.Codec == nil || x.to.Via != nil || g.Network.Rollbacks[x.to.Codec.Info().Binding] == nil {
		return
	}
	x.to.Codec = rollback.Over(x.to.Codec)
	x.to.Features = translators.FeaturesOf(x.to.Codec)
}

// undoing asks agents to undo their work, for rollbacks.
type undoing struct{ g *Gateway }

func errandOf(c undo.Call, m *canonical.Message) Errand {
	return Errand{Agent: c.Agent, Message: m, Lineage: attest.Lineage{Workflow: c.Request.Workflow, Parents: []ect.ID{c.Request.ID}}, ID: c.ID, At: c.At}
}

// Call implements [undo.Agents].
func (u undoing) Call(ctx context.Context, c undo.Call) (string, error) {
	answer, err := u.g.Errand(ctx, errandOf(c, callOf(c.Tool, c.Arguments)))
	if err != nil {
		return "", err
	}
	if failure := canonical.FailureOf(answer.Message); failure != "" {
		return "", &transport.BadReplyError{Agent: c.Agent, Reason: failure}
	}
	return answer.Hash, nil
}

// Ask implements [undo.Agents].
func (u undoing) Ask(ctx context.Context, c undo.Call, judge func(ect.Verified) error) (ect.Verified, error) {
	m := &canonical.Message{Op: canonical.OpRollback, Phase: canonical.PhaseRequest, Body: &canonical.Signal{Token: c.Token}}
	x, _, answer, _, err := u.g.send(ctx, errandOf(c, m))
	if err != nil {
		return ect.Verified{}, err
	}
	statement, ok := answer.Body.(*canonical.Signal)
	if !ok {
		return ect.Verified{}, &transport.BadReplyError{Agent: c.Agent, Reason: "it answers a rollback without a result"}
	}
	return u.g.outcome(ctx, x, statement.Token, c.Request, judge)
}

// outcome verifies the token with which an agent answers a rollback
// request (ATD, Basic Rollback), and keeps it if it is accepted.
func (g *Gateway) outcome(ctx context.Context, x *request, token string, request ect.Claims, accept func(ect.Verified) error) (ect.Verified, error) {
	v, err := g.attest.Verify(ctx, token, ect.Check{Purpose: ect.Parent})
	bad := v.Act() != ect.ActRollbackResult || v.Level() < ect.L2 || v.Workflow() != request.Workflow ||
		!slices.Contains(v.Parents(), request.ID) || x.to.Agent.ID != "" && v.Issuer() != x.to.Agent.ID
	if err != nil || bad {
		return v, &transport.BadReplyError{Agent: x.to.Agent.Name, Reason: "its rollback result is not to be believed"}
	}
	if err := accept(v); err != nil {
		return v, err
	}
	reply := membership.Reply{Workflow: request.Workflow, Requests: []ect.ID{request.ID}, Agent: x.to.Agent.ID, Gateway: x.settings.rules.IsGateway}
	return v, g.attest.Bound(ctx, v, reply, x.replier())
}
