package gateway

import (
	"context"

	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// pass carries what only one protocol has, and what answers or stops what is
// under way there. Across protocols it has no counterpart (R7, L13, L14).
func (g *Gateway) pass(ctx context.Context, x *exchange) (transport.Answer, error) {
	if reply, ok := x.message.Body.(*canonical.Reply); ok {
		if done, err := g.answerQuestion(ctx, x, reply); done || err != nil {
			return transport.Answer{}, err
		}
	}
	if abort, ok := x.message.Body.(*canonical.Abort); ok && g.inflight.stop(x.call.Session, abort.Request) {
		return transport.Answer{}, nil
	}
	if !x.relay() {
		return transport.Answer{}, g.noCounterpart(x)
	}
	sealed, _, err := g.request(ctx, x)
	if err != nil {
		return transport.Answer{}, err
	}
	ctx, leave := g.inflight.enter(x.lifetime(ctx), x.call.Session, x.wireID)
	x.stopped, x.forget = ctx, leave
	if x.message.Op == canonical.OpNative {
		return g.converse(ctx, x, sealed)
	}
	life := x.patience(ctx)
	defer life.close()
	reply, err := g.send(life.ctx, x, sealed) //nolint:contextcheck // it may outlive who waits
	closeReply(reply)
	return transport.Answer{Evidence: x.issued}, life.judge(x, err)
}

// noCounterpart: an agent of another protocol has no such method. What nobody
// waits for is dropped without a word.
func (g *Gateway) noCounterpart(x *exchange) error {
	if x.call.Entrance.Native() && x.message.Op != canonical.OpNative {
		return nil
	}
	if x.call.Entrance.Native() {
		return &canonical.Error{Code: canonical.CodeNoMethod, Message: "the agent speaks a protocol without this method"}
	}
	code := canonical.LossOperation
	if x.message.Op == canonical.OpNative {
		code = canonical.LossPrompts
	}
	loss := canonical.Loss{Code: code, Path: "/" + string(x.message.Op), Fate: canonical.Dropped}
	return x.permit.Judge(judged([]canonical.Loss{loss}))
}
