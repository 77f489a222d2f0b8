package gateway

import (
	"context"
	"slices"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// maxLineage bounds how many ancestors are looked at for a signal's sender.
const maxLineage = 1024

// signal carries a message that is a token (canonical.Signal) to whom it is for,
// if its sender was party to the work that it is about (ATD, Rollback
// Authorization; R14).
func (g *Gateway) signal(ctx context.Context, x *exchange) (transport.Answer, error) {
	token, err := g.signed(ctx, x)
	if err != nil {
		return transport.Answer{}, err
	}
	if x.message.Op == canonical.OpDecision {
		return g.decide(ctx, x, token)
	}
	return g.relaySignal(ctx, x, token)
}

// signed is the token that the message is, verified with the rest of its evidence.
func (g *Gateway) signed(ctx context.Context, x *exchange) (ect.Verified, error) {
	said, ok := x.message.Body.(*canonical.Signal)
	if !ok {
		return ect.Verified{}, &canonical.Error{Code: canonical.CodeInvalidRequest, Message: "not a signal"}
	}
	submitted := slices.Concat(x.evidence.sources, x.evidence.parents) // behind a gateway it is an ancestor
	at := slices.IndexFunc(submitted, func(v ect.Verified) bool { return v.Compact() == said.Token })
	if at < 0 {
		return ect.Verified{}, ect.ErrRequired
	}
	token := submitted[at]
	switch {
	case token.Level() < ect.L2: // ATD, Security Considerations
		return token, &ect.InvalidError{Reason: ect.ReasonLevelTooLow, ID: token.ID()}
	case !signals(x.message.Op, token.Act()):
		return token, &ect.InvalidError{Reason: ect.ReasonInvalidClaim, ID: token.ID(), Claim: "exec_act"}
	case token.Issuer() != x.call.Caller.ID && !slices.Contains(x.settings.Gateways, x.call.Caller.ID):
		return token, &ect.InvalidError{Reason: ect.ReasonIssuerMismatch, ID: token.ID()}
	case len(token.Parents()) == 0:
		return token, &ect.InvalidError{Reason: ect.ReasonMissingClaim, ID: token.ID(), Claim: "par"}
	}
	return token, g.party(ctx, x, token)
}

// signal: the operation is one.
func signal(op canonical.Op) bool { return op == canonical.OpRollback || op == canonical.OpDecision }

// signals says which acts a signal may be of.
func signals(op canonical.Op, act ect.Act) bool {
	if op == canonical.OpRollback {
		return act == ect.ActRollbackRequest
	}
	return act == ect.ActApprovalGranted || act == ect.ActApprovalDenied
}

// party refuses a sender who had no part in what the token's parents came of:
// neither made nor was given any token on the way there, in the same workflow.
// Nobody can put himself there afterwards.
func (g *Gateway) party(ctx context.Context, x *exchange, token ect.Verified) error {
	outside := &policy.Forbidden{Agent: x.agent.Name, Reason: "the caller has no part in this workflow"}
	queue, seen, party := token.Parents(), map[ect.ID]bool{token.ID(): true}, false
	for i := 0; i < len(queue); i++ {
		if seen[queue[i]] {
			continue
		}
		if seen[queue[i]] = true; len(seen) > maxLineage {
			return outside
		}
		record, ok, err := g.meant(ctx, x, queue[i])
		switch {
		case err != nil:
			return recording(err)
		case !ok && i < len(token.Parents()), ok && record.Workflow != token.Workflow():
			return outside
		case ok:
			party = party || g.names(record, token.Issuer())
			queue = append(queue, record.Parents...)
		}
	}
	if !party {
		return outside
	}
	return nil
}

// meant is the token that a parent's id means: ours, else the agent's, else the
// only one. Where several others have one id, any of them may have taken it to
// be somebody.
func (g *Gateway) meant(ctx context.Context, x *exchange, id ect.ID) (ect.Record, bool, error) {
	records, err := g.named(ctx, id)
	if i := slices.IndexFunc(records, func(r ect.Record) bool { return r.Issuer == x.agent.ID }); i >= 0 {
		records = records[i : i+1]
	}
	if err != nil || len(records) != 1 {
		return ect.Record{}, false, err
	}
	return records[0], true, nil
}

// names: a token was made by somebody, or for him; or we made it of a message
// of his that brought none.
func (g *Gateway) names(r ect.Record, who ect.Identity) bool {
	if r.Issuer == who || slices.Contains(r.Audience, string(who)) {
		return true
	}
	if r.Issuer != g.Self() {
		return false
	}
	claims, _, err := ect.ParseUnverified(r.Compact) // ours
	if err != nil {
		return false
	}
	caller, _ := claims.Ext.String(ect.ExtCaller)
	return caller == string(who)
}

// relaySignal says a signal to the agent, in its protocol's form for that. A
// protocol without one cannot be told: L36.
func (g *Gateway) relaySignal(ctx context.Context, x *exchange, token ect.Verified) (transport.Answer, error) {
	if x.call.Agent != "" {
		g.undoing(x)
		if err := g.choose(ctx, x); err != nil {
			return transport.Answer{}, err
		}
	}
	if !signalling(x.dest, x.message.Op, x.endpoint.Version, x.endpoint.Form) {
		loss := canonical.Loss{Code: canonical.LossOperation, Path: "/" + string(x.message.Op), Fate: canonical.Dropped}
		if err := x.permit.Judge(judged([]canonical.Loss{loss})); err != nil {
			return transport.Answer{}, err
		}
		return transport.Answer{}, &canonical.Error{Code: canonical.CodeUnsupportedOp, Message: "the agent's protocol has no form for this"}
	}
	sealed, wire, err := g.request(ctx, x)
	if err != nil || x.call.Agent == "" {
		return g.answer(x, wire), err
	}
	life := x.patience(ctx)
	defer life.close()
	reply, err := g.send(life.ctx, x, sealed) //nolint:contextcheck // it may outlive who waits
	if err != nil {
		return transport.Answer{}, life.judge(x, err)
	}
	message, parents, err := g.hear(ctx, x, reply)
	if err != nil || message == nil {
		closeReply(reply)
		if err == nil {
			err = &transport.BadReplyError{Agent: x.agent.Name, Reason: "it answers a signal with a stream"}
		}
		return transport.Answer{}, err
	}
	if said, ok := message.Body.(*canonical.Signal); ok {
		if parents, err = g.outcome(ctx, x, said, token, parents); err != nil {
			return transport.Answer{}, err
		}
	}
	return g.reply(ctx, x, reply.Wire, message, parents)
}

// outcome verifies and keeps the token with which an agent answers a rollback
// request (ATD, Basic Rollback). It comes before all else that the reply is
// proven by.
func (g *Gateway) outcome(ctx context.Context, x *exchange, said *canonical.Signal, request ect.Verified, parents []ect.ID) ([]ect.ID, error) {
	v, err := g.Verifier.Verify(ctx, said.Token, ect.Check{Purpose: ect.Parent})
	bad := v.Act() != ect.ActRollbackResult || v.Level() < ect.L2 || v.Workflow() != request.Workflow() ||
		!slices.Contains(v.Parents(), request.ID()) || x.agent.ID != "" && v.Issuer() != x.agent.ID
	if err != nil || bad {
		return nil, &transport.BadReplyError{Agent: x.agent.Name, Reason: "its rollback result is not to be believed"}
	}
	if err := g.Recorder.Keep(ctx, v); err != nil {
		return nil, recording(err)
	}
	parents = slices.DeleteFunc(parents, func(id ect.ID) bool { return id == v.ID() })
	return append([]ect.ID{v.ID()}, parents...), nil
}

// signalling: a protocol has a form for a signal, or, with OpInvoke, for the
// callback of a request.
func signalling(form translators.Translator, op canonical.Op, version, wire string) bool {
	s, ok := form.(translators.Signaler)
	return ok && s.Signals(op, translators.Target{Version: version, Form: wire})
}

// decide tells a human's decision to those who wait for it; where nobody has
// said so, to the agent that it is addressed to (AEPB, HITL Callback
// Registration).
func (g *Gateway) decide(ctx context.Context, x *exchange, token ect.Verified) (transport.Answer, error) {
	said, _ := x.message.Body.(*canonical.Signal)
	waiting, err := g.callbacks(ctx, token.Workflow())
	if err != nil {
		return transport.Answer{}, err
	}
	if len(waiting) == 0 || x.call.Agent == "" {
		return g.relaySignal(ctx, x, token)
	}
	for _, w := range waiting {
		if w.Caller == token.Issuer() { // R23
			return transport.Answer{}, &policy.Forbidden{Agent: x.agent.Name, Reason: "who asks for an approval does not give it"}
		}
	}
	fresh, err := g.decided(ctx, said, token)
	if err != nil {
		return transport.Answer{}, err
	}
	if fresh {
		g.announce(ctx, said, waiting)
	}
	x.workflow = token.Workflow()
	m := &canonical.Message{
		Op: x.message.Op, Phase: canonical.PhaseResponse, Body: &canonical.Done{}, Correlation: canonical.Correlation{WireID: x.wireID},
	}
	if x.wireID == nil {
		return transport.Answer{}, nil
	}
	wire, _, err := g.leg(ctx, x, g.toCaller(x, m, []ect.ID{token.ID()}))
	return g.answer(x, wire), err
}

// decided writes down what was decided. The same again is no news (false), and
// another decision about the same is refused (R23).
func (g *Gateway) decided(ctx context.Context, said *canonical.Signal, token ect.Verified) (bool, error) {
	if said.Approval == "" || len(said.Approval) > maxTaskID {
		return false, &canonical.Error{Code: canonical.CodeBadParams, Message: "a decision names what it is about"}
	}
	key := EntryKey{Kind: entryDecided, Group: token.Workflow(), ID: said.Approval, Owner: string(token.Issuer())}
	_, fresh, err := g.Entries.Swap(ctx, key, 0, []byte(ect.Hash([]byte(said.Token))), g.Now().Add(callbackLife))
	if err != nil {
		return false, &problem.RecordingError{Err: err}
	}
	if fresh {
		return true, nil
	}
	entry, ok, err := g.Entries.Get(ctx, key)
	switch {
	case err != nil:
		return false, &problem.RecordingError{Err: err}
	case ok && string(entry.Value) != ect.Hash([]byte(said.Token)):
		return false, &problem.ConflictError{Reason: "this was decided before"}
	default:
		return false, nil
	}
}
