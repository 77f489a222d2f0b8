package gateway

import (
	"context"
	"errors"
	"slices"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/dag"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/admission"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/destination"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/telemetry"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/membership"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/rollback"
)

// along are the ancestors of a request. A next gateway judges the message by them, so
// one that would not see all of them is not asked: what is left out, it could take for
// another token with that id.
func (g *Gateway) along(x *exchange) ([]string, error) {
	along, size := x.evidence.Ancestors()
	if size > admission.MaxAncestors && g.toGateway(x) {
		return nil, &problem.AncestorsTooLargeError{Size: size, Limit: admission.MaxAncestors}
	}
	return along, nil
}

// toGateway reports whether a message goes on to another gateway, as far as we know.
func (g *Gateway) toGateway(x *exchange) bool {
	return x.to.Via != nil || x.to.Agent.ID != "" && (x.settings.isGateway(x.to.Agent.ID) ||
		slices.ContainsFunc(g.Directory.Peers(), func(p directory.Peer) bool { return p.ID == x.to.Agent.ID }))
}

// protocols finds both translators and the destination. An unknown agent is
// kept for later: a stranger must not learn it before policy has spoken.
func (g *Gateway) protocols(x *exchange) error {
	source, ok := g.Registry.Translator(x.call.Wire.Binding)
	if !ok {
		return &problem.NoPathError{From: string(x.call.Wire.Binding), To: string(x.call.To)}
	}
	if x.source = source; x.call.Wire.Form == rollback.Name {
		x.source = rollback.Over(source)
	}
	if x.call.Wire.Hasher == nil {
		x.call.Wire.Hasher = translators.HasherOf(x.source)
	}
	var err error
	x.to, err = g.destinations.Find(x.query())
	return err
}

// query is for whom the message asks.
func (x *exchange) query() destination.Query {
	return destination.Query{
		Caller: x.call.Caller, Native: x.call.Entrance.Native(), From: x.source.Info().Binding, Agent: x.call.Agent, To: x.call.To,
		Version: x.call.ToVersion, Attested: len(x.evidence.Sources) > 0, Path: x.evidence.Path,
	}
}

// verify is step 4: it verifies what came with the message, and judges whether its
// issuers have a part in the workflows that they name (R14). Nothing is recorded
// and no token is used up before policy has permitted the message.
func (g *Gateway) verify(ctx context.Context, x *exchange) error {
	if len(x.call.Evidence) == 0 {
		return g.descend(ctx, x)
	}
	submitted, err := attest.Split(x.call.Evidence)
	if err != nil {
		return err
	}
	x.evidence.Caller = x.call.Caller.ID
	x.call.Wire = x.call.Wire.Hashed()
	body := x.inputHash()
	for _, s := range submitted {
		check := ect.Check{Purpose: ect.Parent, Peer: x.call.Caller.Peer}
		if s.Source {
			check.Purpose, check.Body, check.Unclaimed = ect.Source, body, true
		}
		v, err := g.attest.Verify(ctx, s.Compact, check)
		if err != nil {
			return err
		}
		if s.Source {
			x.evidence.Sources = append(x.evidence.Sources, v)
		} else {
			x.evidence.Parents = append(x.evidence.Parents, v)
		}
	}
	if err := x.agree(); err != nil {
		return err
	}
	return g.admitEvidence(ctx, x)
}

// permit is step 5. What is asked of the agent shows when the message is
// decoded; the permit judges it then.
func (g *Gateway) permit(x *exchange) error {
	x.admitted = true
	rules := x.to.Agent.Rules
	rules.RequireECT = rules.RequireECT || x.settings.RequireECT
	if x.call.Agent == "" {
		rules.Open = true // translating for a caller reaches nobody
	}
	destination := ""
	switch {
	case x.to.Via != nil: // what was asked for, whatever the peer takes the message in
		destination = string(translators.ParseSide(string(x.to.Via.To)).Binding)
	case x.to.Codec != nil:
		destination = string(x.to.Codec.Info().Binding)
	}
	permit, err := policy.Evaluate(policy.Request{
		Caller: x.call.Caller.ID, Anonymous: x.call.Caller.Anonymous, Native: x.call.Entrance.Native(),
		Agent: x.to.Agent.Name, Rules: rules, Gateways: x.settings.Gateways,
		SourceLevel: g.levelOf(x.call.Caller), DestLevel: x.to.Agent.AssuranceLevel,
		Source: string(x.source.Info().Binding), Dest: destination,
		Evidence: x.evidence.Sources, Path: x.evidence.Path, Ancestry: x.evidence.Ancestry, Self: g.Self(), Constraints: x.settings.Constraints,
	})
	if x.to.Unreachable != nil && x.mayKnow(err) {
		return x.to.Unreachable
	}
	if x.call.Agent != "" && x.to.Agent.Name == "" && !errors.Is(err, ect.ErrRequired) {
		return x.unknown()
	}
	countDenied(g, err)
	x.permit = permit
	return err
}

// levelOf is what the directory knows of a caller's declared level.
func (g *Gateway) levelOf(caller identity.Caller) ect.Level {
	if caller.Anonymous {
		return 0
	}
	agent, _ := g.Directory.Find(string(caller.ID))
	return agent.AssuranceLevel
}

func countDenied(g *Gateway, err error) {
	if denied, ok := errors.AsType[*policy.Denied](err); ok {
		g.Metrics.Denied(denied.Constraint)
	}
	if _, ok := errors.AsType[*policy.LevelError](err); ok {
		g.Metrics.Denied(policy.ConstraintLevel)
	}
}

// unknown is a destination that nobody listed: at a translate endpoint there
// is then no path to it (R8).
func (x *exchange) unknown() error {
	if !x.call.Entrance.Native() {
		return &problem.NoPathError{From: string(x.call.Wire.Binding), To: string(x.call.To), Detail: "unknown_agent"}
	}
	return &problem.UnknownAgentError{Agent: x.call.Agent}
}

// mayKnow: a caller whom policy refuses learns nothing about an agent. That the
// operator allows no such document is nothing about an agent.
func (x *exchange) mayKnow(refusal error) bool {
	var forbidden *policy.Forbidden
	return !errors.Is(refusal, ect.ErrRequired) && (x.to.Agent.Name == "" || !errors.As(refusal, &forbidden))
}

// admitEvidence judges whether the issuers of a message's tokens have a part in the
// workflows that they name, and walks the translation path (R1). An outsider's
// message leaves nothing but a count.
func (g *Gateway) admitEvidence(ctx context.Context, x *exchange) error {
	tokens := slices.Concat(x.evidence.Sources, x.evidence.Parents)
	admission, err := g.members.Admit(ctx, membership.Submission{
		Caller: x.call.Caller.ID, Gateway: x.settings.isGateway, Decides: g.Decides(x.call.Caller.ID), Tokens: tokens,
	})
	if err != nil {
		return g.refuseEvidence(ctx, x, err)
	}
	x.admission = admission
	nodes := make([]dag.Node, len(tokens))
	for i, v := range tokens {
		nodes[i] = dag.NodeOf(v)
	}
	return g.way(ctx, x, nodes[:len(x.evidence.Sources)], nodes)
}

// refuseEvidence counts a message that was refused before anything was recorded of it.
func (g *Gateway) refuseEvidence(ctx context.Context, x *exchange, err error) error {
	if _, forbidden := errors.AsType[*policy.Forbidden](err); forbidden || attest.Outside(err) {
		g.attest.Refusal(ctx, x.holder, err)
		return err
	}
	return attest.Recording(err)
}

// claimEvidence is step 5a: it uses up the sources of a permitted message and
// records what came with it. A byte-identical repetition of a message that was
// answered gets the stored answer (R6): done is then true.
func (g *Gateway) claimEvidence(ctx context.Context, x *exchange) (answer transport.Answer, done bool, err error) {
	if len(x.admission.Filed) == 0 {
		x.kept = true
		return answer, false, nil
	}
	body := x.inputHash()
	if x.call.Agent != "" {
		body += " " + x.call.Agent // for another agent it is another message
	}
	claims := x.claims()
	for _, v := range claims {
		err := g.Verifier.Claim(ctx, v, body)
		if err == nil {
			continue
		}
		// The token was used before: what is on record about that use stays as it is.
		x.admitted, x.evidence = false, admission.Evidence{}
		if replayed, ok := errors.AsType[*ect.ReplayedError](err); ok {
			if err := g.mayRepeat(x); err != nil {
				return answer, false, err
			}
			return g.repeat(ctx, replayed.Key)
		}
		g.Metrics.Verified(v.Level(), telemetry.VerifyResult(err))
		return answer, false, err
	}
	x.used = claims
	for _, filed := range x.admission.Filed {
		g.Dialects.Learn(filed.Token)
		// Who brings a token is charged for it: issuers may know nothing of what a gateway carries.
		err := g.Recorder.Keep(ctx, filed.Token, ect.Filing{
			Holder: x.holder, Members: filed.Members, Begins: filed.Begins,
			ByIssuer: filed.Token.Issuer() == x.call.Caller.ID && !x.call.Caller.Anonymous,
		})
		if _, late := errors.AsType[*ect.ForeignRootError](err); late && filed.Begins {
			return answer, false, membership.Outsider() // it has begun since the message was judged
		}
		if err != nil {
			return answer, false, attest.Recording(err)
		}
	}
	x.kept = true
	return answer, false, nil
}

// claims are the sources that the message uses up: its caller's own. A caller that got
// to know a token of another must not use it up, or get what was answered to it. Only a
// listed gateway brings messages of others.
func (x *exchange) claims() []ect.Verified {
	if x.settings.isGateway(x.call.Caller.ID) {
		return x.evidence.Sources
	}
	return slices.DeleteFunc(slices.Clone(x.evidence.Sources), func(v ect.Verified) bool { return v.Issuer() != x.call.Caller.ID })
}

// mayRepeat judges the operation of a message that was answered before: what is
// permitted may have changed since (R6). A message that cannot be read was refused.
func (g *Gateway) mayRepeat(x *exchange) error {
	message, err := g.spoken(x)
	if err != nil {
		return nil //nolint:nilerr // the stored answer says why
	}
	return x.permit.Perform(string(message.Op))
}

// foreign reports whether a message that was refused, or whose tokens could not be
// recorded, names a workflow to which its caller did not belong before: evidence of
// that is then kept out of it (R14).
func (x *exchange) foreign() bool {
	_, ids := x.evidence.Origins()
	return (!x.permit.Valid() || !x.kept) && len(ids) > 0 && !x.admission.Member
}

// isGateway reports whether an identity may carry the evidence of others (R2).
func (s *Settings) isGateway(id ect.Identity) bool { return policy.Listed(s.Gateways, id) }

// lifecycleGate is step 6: an agent that drains takes no new work, and what goes on
// there goes on (AEPB, Graceful Shutdown). New work goes to its successor, if it has
// one that the caller may call.
func (g *Gateway) lifecycleGate(ctx context.Context, x *exchange) error {
	if !x.to.Draining || x.message.Op != canonical.OpInvoke {
		return nil
	}
	under, err := g.underWay(ctx, x, x.message)
	if err != nil || under {
		return err
	}
	if x.to = g.destinations.Successor(ctx, x.query(), x.to); x.to.Unreachable != nil {
		return x.to.Unreachable
	}
	if err := g.permit(x); err != nil {
		return err
	}
	return x.permit.Perform(string(x.message.Op))
}

// takesWork refuses a message that would begin new work at a gateway that drains
// (R16). It is judged before the message's tokens are used up: its caller can send the
// same message to another replica, or again after the restart.
func (g *Gateway) takesWork(ctx context.Context, x *exchange) error {
	if !g.requests.isDraining() {
		return nil
	}
	message, err := g.spoken(x)
	if err != nil || message.Op != canonical.OpInvoke {
		return nil //nolint:nilerr // it is refused for that later
	}
	under, err := g.underWay(ctx, x, message)
	if err != nil || under {
		return err
	}
	return &problem.DrainingError{}
}

// underWay reports whether a message goes on with work that the agent has begun.
func (g *Gateway) underWay(ctx context.Context, x *exchange, message *canonical.Message) (bool, error) {
	invoke, ok := message.Body.(*canonical.Invoke)
	if ok && invoke.State != "" {
		return true, nil
	}
	id := message.Conversation.TaskID
	if id == "" {
		return false, nil
	}
	rec, err := g.tasks.Load(ctx, x.keyOf(id))
	return rec != nil, err
}

// A message can name the ECT that it came of by its jti alone (AEPB, Task
// Invocation with Parent Reference): its sender signs none, or the frame had no
// room for it. Beside an ECT the name says nothing new, and must not say anything
// else: it is that token's own or one of its parents', or the same of an ancestor
// that came along, since a message that is relayed octet by octet keeps its name.

// claimParameter is what a refusal names.
const claimParameter = "parent_jti"

// descend finds the token that a message without an ECT names. It becomes the
// parent of ours, and the message belongs to its workflow (R3, R4), if it is on
// record here and its caller may go on with it: he made it, it was made for him, or
// it testifies to a message of his that brought none. That is narrower than R14: to
// share a workflow is not enough. Nor is his own token: others may have brought it, or
// his role alone, so he must belong to the workflow, too. Any other is not found, whether it exists or not (R1, R2); and a caller that shows nothing
// of himself has none.
func (g *Gateway) descend(ctx context.Context, x *exchange) error {
	id, who := ect.ID(x.call.Parent), x.call.Caller
	if id == "" {
		return nil
	}
	if !id.Valid() {
		return errReference
	}
	records, err := g.attest.Named(ctx, ect.Ref{ID: id, Issuer: who.ID})
	if err != nil {
		return attest.Recording(err)
	}
	records = slices.DeleteFunc(records, func(r ect.Record) bool {
		return who.Anonymous || r.Issuer != who.ID && !g.members.Names(r, who.ID)
	})
	if len(records) != 1 {
		return &ect.InvalidError{Reason: ect.ReasonUnknownParent, Claim: claimParameter}
	}
	if wid := records[0].Workflow; wid != "" {
		belongs, err := g.members.Belongs(ctx, wid, who.ID)
		switch {
		case err != nil:
			return attest.Recording(err)
		case !belongs:
			return &ect.InvalidError{Reason: ect.ReasonUnknownParent, Claim: claimParameter}
		}
	}
	x.evidence.Named = &records[0]
	return g.way(ctx, x, []dag.Node{dag.NodeOfRecord(records[0])}, nil)
}

// errReference: what is no UUID names no token.
var errReference = &ect.MalformedError{Reason: "the parent reference is no UUID"}

// agree holds the name beside an ECT to what that says, in verified tokens alone.
func (x *exchange) agree() error {
	id := ect.ID(x.call.Parent)
	means := func(v ect.Verified) bool { return v.ID() == id || slices.Contains(v.Parents(), id) }
	switch {
	case id == "", slices.ContainsFunc(x.evidence.Sources, means), slices.ContainsFunc(x.evidence.Parents, means):
		return nil
	case !id.Valid():
		return errReference
	default:
		return &ect.InvalidError{Reason: ect.ReasonConflictingParents, Claim: claimParameter}
	}
}

// way walks the translation path (R1) from the tokens that a message came with;
// nodes are those that need not be looked up. From a token that it only names the
// path begins there if its sender, or a gateway before it, made that of this very
// message; else what he did in between is no translation, and there is none.
func (g *Gateway) way(ctx context.Context, x *exchange, start, nodes []dag.Node) error {
	find := func(ctx context.Context, refs []ect.Ref) ([][]dag.Node, error) { return g.nodes(ctx, refs, nodes) }
	limit := x.settings.Constraints.WalkLimit()
	var err error
	if n := x.evidence.Named; n == nil || n.Issuer == x.call.Caller.ID || x.settings.isGateway(x.call.Caller.ID) {
		if x.evidence.Path, err = dag.LegPath(ctx, dag.Request, start, find, limit); err != nil {
			return err
		}
	}
	if x.settings.Constraints.HopScope == policy.ScopeAncestry {
		x.evidence.Ancestry, err = dag.Ancestry(ctx, start, find, limit)
	}
	return err
}

// nodes finds what each id may mean: the tokens that came along, or else those on
// record, of several issuers. The walk takes those of the workflow that it is in.
func (g *Gateway) nodes(ctx context.Context, refs []ect.Ref, along []dag.Node) ([][]dag.Node, error) {
	found := make([][]dag.Node, len(refs))
	var missing []ect.Ref
	var at []int
	for i, ref := range refs {
		for n := range along { // maxSignatures at most
			if along[n].ID == ref.ID {
				found[i] = append(found[i], along[n])
			}
		}
		if found[i] == nil {
			missing, at = append(missing, ref), append(at, i)
		}
	}
	if len(missing) == 0 {
		return found, nil
	}
	records, err := g.Evidence.Get(ctx, missing...)
	if err != nil {
		return nil, err
	}
	for n, i := range at {
		for _, record := range records[n] {
			found[i] = append(found[i], dag.NodeOfRecord(record))
		}
	}
	return found, nil
}
