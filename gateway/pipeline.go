package gateway

import (
	"context"

	"github.com/aepb/aepb-gateway/gateway/admission"
	"github.com/aepb/aepb-gateway/gateway/approval"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Exchange carries one message to its destination and the reply back.
func (g *Gateway) Exchange(ctx context.Context, call transport.Call) (answer transport.Answer, err error) {
	if transport.RequestID(ctx) == "" { // the listener is not HTTP
		ctx = transport.WithRequestID(ctx, g.NewID())
	}
	ctx, x := g.newRequest(ctx, call)
	defer func() { answer, err = g.settle(ctx, x, answer, err) }()
	if answered, answer, err := g.admit(ctx, x); answered || err != nil {
		return answer, err
	}
	return g.carry(ctx, x)
}

// admit lets a request in, or finds its answer, if it is a repetition. It is apart from Exchange so
// that what it needs of the stack is free again while the request is carried.
func (g *Gateway) admit(ctx context.Context, x *request) (answered bool, answer transport.Answer, err error) {
	admitted, err := g.admission.Admit(ctx, x.in.Call, x.settings.rules)
	if admitted.Repeated || err != nil {
		x.in, x.to = admitted.Admitted, admitted.To
		return admitted.Repeated, admitted.Answer, err
	}
	x.admit(admitted.Admitted, admitted.To)
	x.original = x.message.Body
	if !x.listens() { // a drain waits for every request but one that only listens
		x.scope.exit = g.Lifecycle.Enter(x.to.Agent.Name)
	}
	return false, transport.Answer{}, nil
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
