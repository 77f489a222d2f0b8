package gateway

import (
	"context"

	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators"
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
	if abort, ok := x.message.Body.(*canonical.Abort); ok {
		if done, err := g.cancel(ctx, x, abort.Request); done || err != nil {
			return transport.Answer{}, err
		}
	}
	if x.message.Op == canonical.OpAnswer && g.asksIn(ctx, x, true) { // an answer said again, to a question of ours, which was taken
		return transport.Answer{}, nil
	}
	if answer, done, err := g.news(ctx, x); done || err != nil {
		return answer, err
	}
	if x.listens() && !g.asksIn(ctx, x, false) { // there is nothing to hear, which is no mistake
		return transport.Answer{}, nil
	}
	if !x.relay() {
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
	reply, err := g.send(ctx, x, sealed, x.endpoint.Timeout)
	closeReply(reply)
	if err == nil {
		err = g.heeded(x, reply)
	}
	return transport.Answer{Evidence: x.trail.Tokens()}, err
}

// ownCard puts our card in place of the extended card that an agent answers with
// (A2A 3.1.11): the same skills at our URLs, cleaned as every description is (R9).
// Any other reply stays as it is; a *transport.BadReplyError: there is no card in it.
func (x *exchange) ownCard(m *canonical.Message) (*canonical.Message, error) {
	if x.call.Card == nil {
		return m, nil
	}
	bad := &transport.BadReplyError{Agent: x.to.Agent.Name, Reason: "not a card in answer to the request for its extended card"}
	if m == nil {
		return nil, bad // it answers with a stream
	}
	said, ok := m.Body.(*canonical.Native)
	if !ok {
		return m, nil
	}
	decoded, err := x.to.Codec.Decode(translators.Wire{Binding: x.to.Codec.Info().Binding, Media: x.to.Codec.Info().Media[0], Body: said.Result, Re: canonical.OpDescribe})
	if err != nil {
		return nil, bad
	}
	description, ok := decoded.Body.(*canonical.Description)
	if !ok {
		return nil, bad
	}
	clean, _ := directory.Clean(*description)
	card, err := x.call.Card(&clean)
	if err != nil {
		return nil, bad
	}
	m.Body = &canonical.Native{Result: card}
	return m, nil
}

// heeded: what an agent says of an answer, or of a wish to stop, is no refusal.
// Most protocols say nothing of such.
func (g *Gateway) heeded(x *exchange, reply transport.Reply) error {
	if len(x.wireID) == 0 || reply.Events != nil || len(reply.Wire.Body) == 0 {
		return nil
	}
	m, err := g.decodeReply(x, reply.Wire, x.message.Op)
	if err != nil {
		return err
	}
	if refused, ok := m.Body.(*canonical.Error); ok {
		return refused
	}
	return nil
}

// noCounterpart: an agent of another protocol has no such method. What nobody
// waits for is dropped without a word.
func (x *exchange) noCounterpart() error {
	if x.message.Op == canonical.OpAbort && len(x.wireID) > 0 { // somebody waits to hear that it was stopped
		return &canonical.Error{Code: canonical.CodeNotCancelable, Message: "no request of this name is under way here that could be stopped"}
	}
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
	return x.permit.Judge(attest.Judged([]canonical.Loss{loss}))
}
