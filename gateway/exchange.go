package gateway

import (
	"context"
	"encoding/json"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/telemetry"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// exchange is one message on its way: what each step found out. A step reads
// what earlier steps wrote and never calls one.
type exchange struct {
	call      transport.Call
	settings  *Settings // in force when the message came
	began     time.Time
	source    translators.Translator
	dest      translators.Translator
	evidence  evidence
	agent     directory.Agent // zero: translate only
	endpoint  transport.Endpoint
	permit    policy.Permit
	message   *canonical.Message    // the request as decoded
	chosen    *canonical.Capability // what is called
	wireID    json.RawMessage       // the caller's own id for its request
	workflow  string                // wid of everything that we sign here
	parents   []ect.ID
	issued    []string // our tokens, compact, oldest first
	issuedIDs []ect.ID // and their ids
	losses    []canonical.Loss
	admitted  bool // from here on every failure leaves evidence (architecture section 5)

	requestID, replyID ect.ID // of the ECTs of the two legs, once recorded
	replyContext       string // the dialogue that the reply belongs to
}

// reader is whoever leg 1 is for: the agent, else the caller who asked for a
// translation only.
func (x *exchange) reader() ect.Identity {
	if x.call.Agent == "" {
		return x.call.Caller.ID
	}
	return x.agent.ID
}

// relay: both sides speak one protocol.
func (x *exchange) relay() bool { return x.source.Info().Binding == x.dest.Info().Binding }

// Exchange carries one message to its destination and the reply back.
func (g *Gateway) Exchange(ctx context.Context, call transport.Call) (answer transport.Answer, err error) {
	x := &exchange{call: call, settings: g.settings.Load(), began: g.Now()}
	defer g.Metrics.Enter()()
	defer func() {
		if err != nil {
			answer = g.fail(ctx, x, answer, err)
		}
		g.store(ctx, x, answer, err)
		g.finish(ctx, x, err)
	}()

	if err := g.limit(call.Caller, call.Address); err != nil {
		return answer, err
	}
	if err := g.protocols(x); err != nil {
		return answer, err
	}
	if stored, done, err := g.verify(ctx, x); done || err != nil {
		return stored, err
	}
	if err := g.permit(x); err != nil {
		return answer, err
	}
	sealed, wire, err := g.request(ctx, x)
	if err != nil || call.Agent == "" {
		return g.answer(x, wire), err
	}
	reply, err := g.send(ctx, x, sealed)
	if err != nil {
		return answer, err
	}
	wire, err = g.reply(ctx, x, reply)
	if err != nil {
		return answer, err
	}
	answer = g.answer(x, wire)
	g.remember(ctx, x)
	return answer, nil
}

// request is leg 1: the caller's message in the destination's words.
func (g *Gateway) request(ctx context.Context, x *exchange) (transport.Sealed, translators.Wire, error) {
	message, err := g.decodeRequest(x)
	if err != nil {
		return transport.Sealed{}, translators.Wire{}, err
	}
	x.message = message
	if err := g.choose(ctx, x); err != nil {
		return transport.Sealed{}, translators.Wire{}, err
	}
	g.lineage(ctx, x)
	id := ect.ID(g.NewID())
	stampRequest(message, id, x.relay())
	wire, receipt, err := g.leg(ctx, x, leg{
		name: legRequest, id: id, message: message, from: x.call.Wire.Body,
		encoder: x.dest, target: translators.Target{Version: x.endpoint.Version, Form: x.endpoint.Form, Capability: x.chosen},
		source: x.source.Info().Binding, dest: x.dest.Info().Binding,
		parents: x.parents, audience: g.audience(x), reader: x.reader(),
	})
	if err != nil || x.call.Agent == "" {
		return transport.Sealed{}, wire, err
	}
	sealed, err := transport.Seal(receipt, wire, x.evidence.ancestors()...)
	return sealed, wire, err
}

// send carries the sealed request out.
func (g *Gateway) send(ctx context.Context, x *exchange, sealed transport.Sealed) (transport.Reply, error) {
	timeout := x.endpoint.Timeout
	if timeout <= 0 {
		timeout = x.settings.Timeout
	}
	x.endpoint.Timeout = timeout
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	began := g.Now()
	reply, err := g.Dialers[x.endpoint.Binding].Dial(ctx, x.endpoint, sealed)
	took := g.Now().Sub(began)
	g.Metrics.Upstream(x.agent.Name, string(x.endpoint.Binding), took)
	g.Metrics.Took(string(x.call.Wire.Binding), string(x.endpoint.Binding), telemetry.StageSend, took)
	return reply, err
}

// reply is leg 2: the agent's answer in the caller's words. An agent's error
// is a message like any other.
func (g *Gateway) reply(ctx context.Context, x *exchange, reply transport.Reply) (translators.Wire, error) {
	parents, err := g.replyEvidence(ctx, x, reply)
	if err != nil {
		return translators.Wire{}, err
	}
	message, err := decodeReply(x, reply)
	if err != nil {
		return translators.Wire{}, err
	}
	g.stampReply(x, message)
	wire, _, err := g.leg(ctx, x, leg{
		name: legReply, id: ect.ID(g.NewID()), message: message, from: reply.Wire.Body,
		encoder: x.source, target: translators.Target{Version: x.message.Origin.Version, Form: x.call.Wire.Form, Capability: x.chosen},
		source: x.dest.Info().Binding, dest: x.source.Info().Binding,
		parents: parents, audience: []string{string(x.call.Caller.ID)}, reader: x.call.Caller.ID,
	})
	return wire, err
}

func (g *Gateway) answer(x *exchange, wire translators.Wire) transport.Answer {
	return transport.Answer{Wire: wire, Evidence: x.issued, Losses: x.losses}
}
