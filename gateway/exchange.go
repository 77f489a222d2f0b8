package gateway

import (
	"context"
	"errors"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/outbound"
	"github.com/aepb/aepb-gateway/gateway/routing"
	"github.com/aepb/aepb-gateway/gateway/task"
	"github.com/aepb/aepb-gateway/gateway/task/execution"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// exchange is a message about a task, as package task has it.
type exchange struct {
	g *Gateway
	x *request
}

var _ task.Exchange = exchange{}

func (g *Gateway) exchange(x *request) exchange { return exchange{g, x} }

// Work implements [task.Subject].
func (e exchange) Work() execution.Request { return e.g.work(e.x) }

// TaskKey implements [task.Subject].
func (e exchange) TaskKey(id string) store.EntryKey { return e.x.keyOf(id) }

// Dialogue implements [task.Subject].
func (e exchange) Dialogue(id string) string { return e.x.parties().BoundID(id) }

// Capability implements [task.Subject].
func (e exchange) Capability() *canonical.Capability {
	return e.x.route.Offered(e.x.in.Permit.Offer())
}

// Turn implements [task.Subject].
func (e exchange) Turn() *canonical.Content { return e.x.turn() }

// About implements [task.Editor].
func (e exchange) About(rec *store.Record) { e.x.about(rec) }

// Say implements [task.Editor].
func (e exchange) Say(m *canonical.Message) { e.x.saying(m) }

// Answer implements [task.Editor].
func (e exchange) Answer(claim *store.Claim) { e.x.claim = claim }

// Claim implements [task.Editor].
func (e exchange) Claim() *store.Claim { return e.x.claim }

// Derive implements [task.Editor].
func (e exchange) Derive(m *canonical.Message) task.Exchange { return e.g.exchange(e.x.derive(m)) }

// Choose implements [task.Carrier].
func (e exchange) Choose(ctx context.Context) error { return e.g.choose(ctx, e.x) }

// AsksByState implements [task.Carrier].
func (e exchange) AsksByState() bool {
	x := e.x
	asker := x.to.Features.Asker
	return x.to.Via != nil || asker == nil || asker.Asks(x.route.Endpoint.Version, x.route.Endpoint.Form) == translators.AskReply
}

// Seal implements [task.Carrier].
func (e exchange) Seal(ctx context.Context) (transport.Sealed, ect.ID, error) {
	sealed, _, err := e.g.request(ctx, e.x)
	return sealed, e.x.trail.Request(), err
}

// Register implements [task.Carrier].
func (e exchange) Register(ctx context.Context) error { return e.g.registerKnown(ctx, e.x) }

// Acknowledge implements [task.Carrier].
func (e exchange) Acknowledge(ctx context.Context, sealed transport.Sealed) ([]ect.ID, error) {
	_, _, parents, err := e.g.agent(e.x).acknowledged(ctx, sealed)
	return parents, err
}

// Start implements [task.Starter].
func (e exchange) Start(ctx context.Context, sealed transport.Sealed, op canonical.Op) *execution.Execution {
	return e.g.begin(ctx, e.x, sealed, op)
}

// Converse implements [task.Starter].
func (e exchange) Converse(ctx context.Context, sealed transport.Sealed) (transport.Answer, error) {
	return e.g.converse(e.g.lifetime(ctx, e.x), e.x, sealed)
}

// Tell implements [task.Starter].
func (e exchange) Tell(ctx context.Context, m *canonical.Message, proof execution.Proof) (transport.Answer, error) {
	return e.g.caller(e.x).Tell(ctx, m, proof)
}

// ParentsOf implements [task.Starter].
func (e exchange) ParentsOf(rec *store.Record) []ect.ID {
	if rec != nil {
		return e.x.since(rec)
	}
	if e.x.lineage.Workflow == "" {
		e.g.lineage(e.x)
	}
	return e.x.lineage.Parents
}

// resume goes on with work that an earlier message began, if this one says something to it. True: it is
// answered.
func (g *Gateway) resume(ctx context.Context, x *request) (bool, transport.Answer, error) {
	invoke := task.Resumes(x.message, x.mode.Relay)
	if invoke == nil || x.in.Call.Agent == "" {
		return false, transport.Answer{}, nil
	}
	return g.tasks.Resume(ctx, g.exchange(x), invoke)
}

// claimInput claims what a sealed message answers, and registers its webhook.
func (g *Gateway) claimInput(ctx context.Context, x *request) error {
	if x.claim == nil && x.webhook == nil {
		return nil
	}
	return g.tasks.ClaimInput(ctx, g.exchange(x), x.trail.Request())
}

// waits returns the context for the wait for an answer. It ends with the caller, unless the task
// that the agent makes has to be canceled after the caller has left.
func (g *Gateway) waits(ctx context.Context, x *request) context.Context {
	if x.createsTask() {
		return g.workers.Detach(ctx)
	}
	return ctx
}

// begin sends a request whose work may last. What comes of it answers op.
func (g *Gateway) begin(ctx context.Context, x *request, sealed transport.Sealed, op canonical.Op) *execution.Execution {
	return g.executions.Start(ctx, g.work(x), sealed, x.trail.Request(), op)
}

// drop deals with a reply whose caller has left meanwhile.
func (a agent) drop(ctx context.Context, reply transport.Reply) {
	message, parents, err := a.hear(ctx, reply)
	if err != nil {
		outbound.CloseReply(reply)
		return
	}
	a.g.executions.StartFrom(ctx, a.g.work(a.x), reply, message, parents).Abort()
}

// converse sends the request and passes the reply on. What is more than one
// reply becomes a run.
func (g *Gateway) converse(ctx context.Context, x *request, sealed transport.Sealed) (transport.Answer, error) {
	waits := g.waits(ctx, x)
	reply, err := g.agent(x).Send(waits, sealed, x.route.Endpoint.Timeout)
	if err != nil {
		if _, late := errors.AsType[*transport.TimeoutError](err); late || waits.Err() != nil {
			g.agent(x).CancelRequest()
		}
		return transport.Answer{}, err
	}
	if gone := ctx.Err(); gone != nil {
		g.agent(x).drop(context.WithoutCancel(ctx), reply)
		return transport.Answer{}, gone
	}
	message, parents, err := g.agent(x).hear(ctx, reply)
	if err == nil && x.wantsTask(message) {
		if sealed, err = g.agent(x).SealAsTask(ctx); err != nil {
			return transport.Answer{}, err
		}
		return g.begin(ctx, x, sealed, x.message.Op).Answer(ctx)
	}
	if err == nil {
		message, err = x.ownCard(message)
	}
	if err != nil {
		outbound.CloseReply(reply)
		return transport.Answer{}, err
	}
	if message == nil || !x.final(message) {
		return g.executions.StartFrom(ctx, g.work(x), reply, message, parents).Answer(ctx)
	}
	return g.caller(x).Relay(ctx, reply.Wire, message, parents)
}

// translated has a peer translate a message, without an agent (AEPB, Multi-Hop Translation). The
// answer has the evidence of that peer and ours.
func (g *Gateway) translated(ctx context.Context, x *request) (transport.Answer, error) {
	sealed, _, err := g.request(ctx, x)
	if err != nil {
		return transport.Answer{}, err
	}
	reply, err := g.agent(x).Send(ctx, sealed, x.route.Endpoint.Timeout)
	if err != nil {
		return transport.Answer{}, err
	}
	defer outbound.CloseReply(reply)
	reply.Wire.Binding = translators.ParseSide(string(x.to.Via.To)).Binding
	form, known := g.Registry.Translator(reply.Wire.Binding)
	if known {
		reply.Wire.Hasher = translators.HasherOf(form)
	}
	passed := attest.Passed{Subject: x.subject(), Workflow: x.lineage.Workflow, Wire: reply.Wire, Known: known}
	if reply.Events == nil {
		passed.Tokens = reply.Evidence
	}
	answer, reason, err := g.attest.Learn(ctx, x.trail, passed)
	if reason != "" {
		err = &transport.BadReplyError{Agent: x.route.Endpoint.Agent, Reason: reason}
	}
	if err != nil {
		return transport.Answer{}, err
	}
	answer.Evidence, answer.Losses, answer.Notice = x.trail.Proof(), x.trail.Losses(), routing.NoticeOf(x.to.Agent.Lifecycle)
	return answer, nil
}

// maxReferences bounds the tasks that one message refers to.
const maxReferences = 32

// owned refuses a message that refers to work of another caller (R2): for the agent all requests
// have one caller, the gateway. Such work is not found, like work that does not exist.
func (g *Gateway) owned(ctx context.Context, x *request) error {
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
