package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/consensus"
	"github.com/aepb/aepb-gateway/gateway/mcpbridge"
	"github.com/aepb/aepb-gateway/gateway/outbound"
	"github.com/aepb/aepb-gateway/gateway/problem"
	undo "github.com/aepb/aepb-gateway/gateway/rollback"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/hitl"
	"github.com/aepb/aepb-gateway/policy/membership"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/rollback"
)

// pass carries what only one protocol has, and what answers or stops what is
// under way there. Across protocols it has no counterpart (R7, L13, L14).
func (g *Gateway) pass(ctx context.Context, x *request) (transport.Answer, error) {
	if reply, ok := x.message.Body.(*canonical.Reply); ok {
		if id := unquoted(reply.ID); id != "" && x.in.Call.Session != "" {
			if done, err := g.tasks.Answer(ctx, g.caller(x).QuestionKey(id), reply, x.answerWait()); done || err != nil {
				return transport.Answer{}, err
			}
		}
	}
	if abort, ok := x.message.Body.(*canonical.Abort); ok {
		if done, err := g.cancel(ctx, x, abort.Request); done || err != nil {
			return transport.Answer{}, err
		}
	}
	if x.message.Op == canonical.OpAnswer && g.asksIn(ctx, x, true) { // an answer said again, to a question of ours, which was taken
		return transport.Answer{}, nil
	}
	if answer, done, err := g.changeSubscription(ctx, x); done || err != nil {
		return answer, err
	}
	if x.listens() && !g.asksIn(ctx, x, false) { // there is nothing to hear, which is no mistake
		return transport.Answer{}, nil
	}
	if !x.mode.Relay {
		if answer, done, err := g.look(ctx, x); done || err != nil {
			return answer, err
		}
		return transport.Answer{}, x.noCounterpart()
	}
	if x.message.Op == canonical.OpNative {
		var err error
		if ctx, err = g.register(ctx, x); err != nil {
			return transport.Answer{}, err
		}
		if answered, answer, err := g.resume(ctx, x); answered || err != nil {
			return answer, err
		}
	}
	sealed, _, err := g.request(ctx, x)
	if err != nil {
		return transport.Answer{}, err
	}
	if x.message.Op == canonical.OpNative {
		return g.converse(ctx, x, sealed)
	}
	reply, err := g.agent(x).Send(ctx, sealed, x.route.Endpoint.Timeout)
	outbound.CloseReply(reply)
	if err == nil {
		err = g.accepted(x, reply)
	}
	return transport.Answer{Evidence: x.trail.Tokens()}, err
}

// accepted returns the error with which the agent refuses an answer or a cancellation. Agents of
// most protocols send no reply to these.
func (g *Gateway) accepted(x *request, reply transport.Reply) error {
	if len(x.in.WireID) == 0 || reply.Events != nil || len(reply.Wire.Body) == 0 {
		return nil
	}
	m, err := g.agent(x).decode(reply.Wire, x.message.Op)
	if err != nil {
		return err
	}
	if refused, ok := m.Body.(*canonical.Error); ok {
		return refused
	}
	return nil
}

// noCounterpart refuses a method that the agent's protocol does not have. A message without a reply
// is dropped.
func (x *request) noCounterpart() error {
	if x.message.Op == canonical.OpAbort && len(x.in.WireID) > 0 { // its caller waits to hear that it was stopped
		return &canonical.Error{Code: canonical.CodeNotCancelable, Message: "no request of this name is under way here that could be stopped"}
	}
	if x.in.Call.EntryPoint.Native() && x.message.Op != canonical.OpNative {
		return nil
	}
	if x.in.Call.EntryPoint.Native() {
		return &canonical.Error{Code: canonical.CodeNoMethod, Message: "the agent speaks a protocol without this method"}
	}
	code := canonical.LossOperation
	if x.message.Op == canonical.OpNative {
		code = canonical.LossPrompts
	}
	loss := canonical.Loss{Code: code, Path: "/" + string(x.message.Op), Fate: canonical.Dropped}
	return x.in.Permit.Judge(attest.Judged([]canonical.Loss{loss}))
}

// look answers a caller that lists or reads artifacts of its tasks. The gateway answers itself,
// since only it knows which task belongs to which caller. False: the request is another one.
func (g *Gateway) look(ctx context.Context, x *request) (answer transport.Answer, done bool, err error) {
	librarian := x.in.Features.Librarian
	native, asks := x.message.Body.(*canonical.Native)
	if librarian == nil || !asks || !x.in.Call.EntryPoint.Native() {
		return answer, false, nil
	}
	seeking, err := librarian.Seeks(native)
	if err != nil || seeking == nil {
		return answer, false, err
	}
	m := &canonical.Message{
		Op: x.message.Op, Phase: canonical.PhaseResponse, Correlation: canonical.Correlation{WireID: x.in.WireID},
		Origin: canonical.Origin{Binding: x.in.Source.Info().Binding},
	}
	g.lineage(x)
	var showing translators.ResourceResult
	switch showing.What = seeking.What; seeking.What {
	case translators.SeekPatterns:
		showing.Resources = mcpbridge.Patterns(x.to.Agent.Name)
	case translators.SeekOne:
		var read mcpbridge.Read
		read, err = mcpbridge.Artifacts{Tasks: g.tasks.Store}.Read(ctx, x.to.Agent.Name, seeking.URI, x.keyOf)
		if err == nil {
			showing.Contents, m.Losses = read.Contents, read.Losses
			x.lineage.Workflow, x.lineage.Parents = read.Workflow, x.since(&store.Record{Proof: store.Proof{Last: read.Last}})
		}
	default:
		showing.Resources, showing.Next, err = mcpbridge.Artifacts{Tasks: g.tasks.Store}.List(ctx, x.keyOf("").Group, x.to.Agent.Name, seeking.Cursor)
	}
	if err != nil {
		return answer, false, err
	}
	m.Body = librarian.Shows(showing)
	out, err := g.translate(ctx, x, g.caller(x).translation(m, x.lineage.Parents))
	return x.answer(out), true, err
}

// unquoted reads an id that is a text; "": it is something else.
func unquoted(raw json.RawMessage) string {
	var id string
	if err := json.Unmarshal(raw, &id); err != nil {
		return ""
	}
	return id
}

// asksIn reports whether the agent, which can be reached, asks in its replies, or else
// in streams, where it may say something without being asked.
func (g *Gateway) asksIn(ctx context.Context, x *request, replies bool) bool {
	asker := x.to.Features.Asker
	return asker != nil && x.mode.Relay && g.choose(ctx, x) == nil && (asker.Asks(x.route.Endpoint.Version, x.route.Endpoint.Form) == translators.AskReply) == replies
}

// signal carries a message that is a token (canonical.Signal) to whom it is for.
func (g *Gateway) signal(ctx context.Context, x *request) (transport.Answer, error) {
	token, err := g.admission.Signal(ctx, x.in, x.settings.rules)
	if err != nil {
		return transport.Answer{}, err
	}
	if x.message.Op == canonical.OpDecision {
		return g.decide(ctx, x, token)
	}
	if answer, done, err := g.rollBack(ctx, x, token); done || err != nil {
		return answer, err
	}
	return g.relaySignal(ctx, x, token)
}

// decide tells a human's decision to those who wait for it; where no caller has
// said so, to the agent that it is addressed to (AEPB, HITL Callback
// Registration).
func (g *Gateway) decide(ctx context.Context, x *request, token ect.Verified) (transport.Answer, error) {
	statement, _ := x.message.Body.(*canonical.Signal)
	if done, err := g.parts.Approvals.DecideBy(ctx, statement.Approval, token, g.operator(token.Issuer())); err != nil {
		return transport.Answer{}, err
	} else if done {
		return g.decided(ctx, x, token)
	}
	waiting, err := g.parts.Callbacks.Of(ctx, token.Workflow())
	if err != nil {
		return transport.Answer{}, err
	}
	if len(waiting) == 0 || x.in.Call.Agent == "" {
		return g.relaySignal(ctx, x, token)
	}
	for _, w := range waiting {
		if w.Caller == token.Issuer() { // R23
			return transport.Answer{}, &policy.Forbidden{Agent: x.to.Agent.Name, Reason: "who asks for an approval does not give it"}
		}
	}
	fresh, err := g.parts.Callbacks.Decide(ctx, statement, token)
	if err != nil {
		return transport.Answer{}, err
	}
	if fresh {
		g.parts.Callbacks.Announce(ctx, statement, waiting)
	}
	return g.decided(ctx, x, token)
}

// decided acknowledges a decision.
func (g *Gateway) decided(ctx context.Context, x *request, token ect.Verified) (transport.Answer, error) {
	if x.in.WireID == nil {
		x.lineage.Workflow = token.Workflow()
		return transport.Answer{}, nil
	}
	return g.replySignal(ctx, x, token.Workflow(), token.ID(), &canonical.Done{})
}

// replySignal answers a signal itself. parent testifies to the answer.
func (g *Gateway) replySignal(ctx context.Context, x *request, workflow string, parent ect.ID, body canonical.Body) (transport.Answer, error) {
	x.lineage.Workflow = workflow
	m := &canonical.Message{Op: x.message.Op, Phase: canonical.PhaseResponse, Body: body, Correlation: canonical.Correlation{WireID: x.in.WireID}}
	out, err := g.translate(ctx, x, g.caller(x).translation(m, []ect.ID{parent}))
	return x.answer(out), err
}

// rollBack carries out a rollback to a checkpoint that is kept here; false: it is not, so its agent is asked.
func (g *Gateway) rollBack(ctx context.Context, x *request, token ect.Verified) (answer transport.Answer, done bool, err error) {
	order, _ := undo.OrderOf(token) // it has a parent
	from, ours, err := g.parts.Rollbacks.Concerns(ctx, order.Workflow, order.From, order.Issuer)
	if err != nil || !ours {
		return answer, false, err
	}
	order.From = from
	if len(token.Parents()) > 1 {
		return answer, true, &problem.QueryError{Reason: "a rollback request has one parent, the checkpoint: send a request for each"}
	}
	order.Owner, order.Holder = x.owner(), x.in.Holder
	result, err := g.parts.Rollbacks.Undo(ctx, order)
	if err != nil {
		return answer, true, err
	}
	claims, err := ect.ParseRecorded(result.Compact)
	if err != nil {
		return answer, true, err
	}
	answer, err = g.replySignal(ctx, x, order.Workflow, claims.ID, &canonical.Signal{Token: result.Compact})
	return answer, true, err
}

// relaySignal says a signal to the agent, in its protocol's form for that. A
// protocol without one cannot be told: L36.
func (g *Gateway) relaySignal(ctx context.Context, x *request, token ect.Verified) (transport.Answer, error) {
	if x.in.Call.Agent != "" {
		g.rollbackForm(x)
		if err := g.choose(ctx, x); err != nil {
			return transport.Answer{}, err
		}
	}
	if !signalling(x.to.Features.Signaler, x.message.Op, x.route.Endpoint.Version, x.route.Endpoint.Form) {
		loss := canonical.Loss{Code: canonical.LossOperation, Path: "/" + string(x.message.Op), Fate: canonical.Dropped}
		if err := x.in.Permit.Judge(attest.Judged([]canonical.Loss{loss})); err != nil {
			return transport.Answer{}, err
		}
		return transport.Answer{}, &canonical.Error{Code: canonical.CodeUnsupportedOp, Message: "the agent's protocol has no form for this"}
	}
	sealed, out, err := g.request(ctx, x)
	if err != nil || x.in.Call.Agent == "" {
		return x.answer(out), err
	}
	reply, err := g.agent(x).Send(ctx, sealed, x.route.Endpoint.Timeout)
	if err != nil {
		return transport.Answer{}, err
	}
	message, parents, err := g.agent(x).hear(ctx, reply)
	if err != nil || message == nil {
		outbound.CloseReply(reply)
		if err == nil {
			err = &transport.BadReplyError{Agent: x.to.Agent.Name, Reason: "it answers a signal with a stream"}
		}
		return transport.Answer{}, err
	}
	if statement, ok := message.Body.(*canonical.Signal); ok {
		v, err := g.outcome(ctx, x, statement.Token, token.Claims(), func(v ect.Verified) error {
			if err := undo.Judge(v, token.Parents()); err != nil {
				return &transport.BadReplyError{Agent: x.to.Agent.Name, Reason: "its rollback result is not to be believed: " + err.Error()}
			}
			return nil
		})
		if err != nil {
			return transport.Answer{}, err
		}
		g.parts.Levels.RolledBack(ctx, v)
		parents = slices.DeleteFunc(parents, func(id ect.ID) bool { return id == v.ID() })
		parents = append([]ect.ID{v.ID()}, parents...) // it comes before all else that the reply is proven by
	}
	return g.caller(x).Relay(ctx, reply.Wire, message, parents)
}

// signal: the operation is one.
func signal(op canonical.Op) bool { return op == canonical.OpRollback || op == canonical.OpDecision }

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
	wire, answer, parents, err = g.agent(x).acknowledged(ctx, sealed)
	return x, wire, answer, parents, err
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
	e.Lineage.Workflow = cmp.Or(e.Lineage.Workflow, string(ect.NewID()))
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

// sendAgreed sends an agent what a consensus round agreed on, and returns what it answers. An agreement gives its proposer no authority
// at an agent: what it may not call itself, or not without an approval, or not in a held workflow, is not sent.
func (g *Gateway) sendAgreed(ctx context.Context, o consensus.Order, m *canonical.Message) (*canonical.Message, error) {
	agent, _ := g.Directory.Find(o.Agent)
	if err := policy.AdmitTo(o.Proposer, string(m.Op), agent.Rules); err != nil {
		return nil, err
	}
	facts, rules := hitl.Facts{Caller: o.Proposer, Agent: o.Agent, Operation: string(m.Op), Words: true}, g.settings.Load().Approvals
	offer := policy.OfferOf(o.Proposer, agent.Rules)
	switch invoke, ok := m.Body.(*canonical.Invoke); {
	case ok && invoke.Call != nil:
		tool, offered := offer.Called(invoke.Call.Name)
		if !offered {
			return nil, &policy.Forbidden{Agent: o.Agent, Reason: "the proposer may not call this tool of the agent"}
		}
		facts.Tool, facts.Args, facts.Words, m = tool, invoke.Call.Args, false, callOf(tool, invoke.Call.Args)
	case !offer.Whole(): // what the agent makes of words could be any of its tools
		return nil, &policy.Forbidden{Agent: o.Agent, Reason: "the proposer may call some tools of the agent alone, and the agreement names none"}
	}
	if _, needed := rules.Match(facts); needed || rules.NeedsLosses(facts) {
		return nil, &policy.Forbidden{Agent: o.Agent, Reason: "a human has to approve this call, and an agreement of agents is no approval: its proposer sends it itself"}
	}
	if err := g.parts.Levels.Refusal(ctx, o.Lineage.Workflow, string(m.Op), true); err != nil {
		return nil, err
	}
	answer, err := g.Errand(ctx, Errand{Agent: o.Agent, Message: m, Lineage: o.Lineage, ID: o.ID, At: o.At})
	return answer.Message, err
}

// callOf is a call of a tool.
func callOf(tool string, args json.RawMessage) *canonical.Message {
	return &canonical.Message{Op: canonical.OpInvoke, Phase: canonical.PhaseRequest, Body: &canonical.Invoke{Call: &canonical.Call{Name: tool, Args: args}}}
}

// readState calls a tool of an agent that reads a state, for a checkpoint. An agent that says that it failed is an error.
func (g *Gateway) readState(ctx context.Context, agent, tool string, args json.RawMessage) (json.RawMessage, error) {
	answer, err := g.Errand(ctx, Errand{Agent: agent, Message: callOf(tool, args)})
	if err != nil {
		return nil, err
	}
	if failure := canonical.FailureOf(answer.Message); failure != "" {
		return nil, &transport.BadReplyError{Agent: agent, Reason: failure}
	}
	return resultOf(answer.Message), nil
}
