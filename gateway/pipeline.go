package gateway

import (
	"context"
	"errors"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/admission"
	"github.com/aepb/aepb-gateway/gateway/approval"
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

// Exchange carries one message to its destination and the reply back.
func (g *Gateway) Exchange(ctx context.Context, call transport.Call) (answer transport.Answer, err error) {
	if transport.RequestID(ctx) == "" { // the listener is not HTTP
		ctx = transport.WithRequestID(ctx, g.NewID())
	}
	ctx, x := g.newRequest(ctx, call)
	defer func() { answer, err = g.settle(ctx, x, answer, err) }()
	admitted, err := g.admission.Admit(ctx, call, x.settings.rules)
	if admitted.Repeated || err != nil {
		x.in, x.to = admitted.Admitted, admitted.To
		return admitted.Answer, err
	}
	x.admit(admitted.Admitted, admitted.To)
	x.original = x.message.Body
	if !x.listens() { // a drain waits for every request but one that only listens
		x.scope.exit = g.Lifecycle.Enter(x.to.Agent.Name)
	}
	return g.carry(ctx, x)
}

// newRequest counts a request in, and binds its context to the workers; its scope undoes both.
func (g *Gateway) newRequest(ctx context.Context, call transport.Call) (context.Context, *request) {
	ctx, unbindWorkers := g.workers.Bind(ctx)
	leave, stopCounting := g.requests.Enter(), g.Metrics.Enter()
	release := func() { stopCounting(); unbindWorkers(); leave() }
	return ctx, &request{
		in: admission.Admitted{Call: call}, settings: g.settings.Load(), scope: &scope{began: g.Now(), release: release}, trail: attest.Begin(),
	}
}

// settle ends a request: it signs a failure, stores and counts the answer, and embeds its tokens.
func (g *Gateway) settle(ctx context.Context, x *request, answer transport.Answer, err error) (transport.Answer, error) {
	err = g.caller(x).Cause(err)
	if answer.Events() == nil { // a stream is settled at its end
		ctx = context.WithoutCancel(ctx) // also for a caller who has left, and at the end of this process
		if err != nil {
			g.tasks.ReopenInput(ctx, x.claim)
			answer = g.fail(ctx, x, answer, err)
		}
		g.store(ctx, x, answer, err)
		g.finish(ctx, x, err)
	}
	return g.inside(x, answer), err
}

// carry does what the message asks for.
func (g *Gateway) carry(ctx context.Context, x *request) (transport.Answer, error) {
	if x.in.Call.Agent == "" && !signal(x.message.Op) { // translate only
		if x.to.Via != nil {
			return g.translated(ctx, x)
		}
		_, out, err := g.request(ctx, x)
		return x.answer(out), err
	}
	if err := crowded(ctx, x.message.Op); err != nil {
		return transport.Answer{}, err
	}
	switch x.message.Op {
	case canonical.OpInvoke:
		return g.invoke(ctx, x)
	case canonical.OpNative, canonical.OpAnswer, canonical.OpAbort:
		return g.pass(ctx, x)
	case canonical.OpPush:
		return g.push(ctx, x)
	case canonical.OpRollback, canonical.OpDecision:
		return g.signal(ctx, x)
	default:
		return g.tasks.Handle(ctx, g.exchange(x))
	}
}

// crowded refuses new work if so many answers to this caller wait that another would wait too long.
// Requests about work, or to cancel it, pass.
func crowded(ctx context.Context, op canonical.Op) error {
	share := transport.ShareFrom(ctx)
	if share == nil || op != canonical.OpInvoke && op != canonical.OpNative {
		return nil
	}
	return share.Crowded()
}

// invoke asks an agent to do something.
func (g *Gateway) invoke(ctx context.Context, x *request) (transport.Answer, error) {
	if err := g.takeWebhook(x); err != nil {
		return transport.Answer{}, err
	}
	if err := g.owned(ctx, x); err != nil {
		return transport.Answer{}, err
	}
	ctx, err := g.register(ctx, x)
	if err != nil {
		return transport.Answer{}, err
	}
	if answered, answer, err := g.resume(ctx, x); answered || err != nil {
		return answer, err
	}
	if p := x.message.Preferences; p.NoWait || p.TaskOK { // before the agent gets the request
		if x.scope.worker, err = g.workers.Reserve(x.owner(), len(x.in.Call.Wire.Body)); err != nil {
			return transport.Answer{}, err
		}
	}
	defer x.scope.releaseWorker()
	sealed, out, err := g.request(ctx, x)
	if waits, parked := approval.Parked(err); parked {
		return g.tasks.Park(ctx, g.exchange(x), g.parts.Approvals.Asking(ctx, waits))
	}
	if err != nil {
		if answer, asks, err := g.tasks.AskArguments(ctx, g.exchange(x), err); asks {
			return answer, err
		}
		return x.answer(out), err
	}
	if err := g.claimInput(ctx, x); err != nil {
		return transport.Answer{}, err
	}
	if x.longRunning() {
		return g.begin(ctx, x, sealed, x.message.Op).Answer(ctx)
	}
	return g.converse(ctx, x, sealed)
}

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
func (e exchange) Capability() *canonical.Capability { return e.x.route.Capability }

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
