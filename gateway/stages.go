package gateway

import (
	"context"
	"errors"
	"slices"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/dag"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/destination"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/rollback"
)

// evidence is the ECTs that came with a message, verified.
type evidence struct {
	sources []ect.Verified // those that no other submitted one names as parent (R4)
	parents []ect.Verified
	caller  ect.Identity // who brought them
	named   *ect.Record  // without any: the one that the message names; nil: it names none

	path     dag.Path // the way that this message took (R1)
	ancestry dag.Path // by the draft's letter; only where the operator counts so
}

// ancestorsSize bounds, in octets, what travels along behind our own token, which
// takes up to 2 KiB of the 8 KiB (R4).
const ancestorsSize = 8<<10 - 2<<10

// ancestors travel along behind our own token, newest first, as many as fit: the
// sources, which a next gateway must resolve to see where the translation path begins
// (R1), and the path's translate ECTs with what they were made of: the path ends where
// that is no translation, and who cannot see that must refuse. size is that of all.
func (e evidence) ancestors() (along []string, size int) {
	kept := 0
	add := func(compact string) {
		size += len(compact)
		if kept+len(compact) <= ancestorsSize {
			kept += len(compact)
			along = append(along, compact)
		}
	}
	for _, v := range e.sources {
		add(v.Compact())
	}
	for _, v := range e.parents {
		if slices.ContainsFunc(e.path.Nodes, func(n dag.Node) bool { return n.ID == v.ID() || slices.Contains(n.Parents, v.ID()) }) {
			add(v.Compact())
		}
	}
	return along, size
}

// along are the ancestors of a request. A next gateway judges the message by them, so
// one that would not see all of them is not asked: what is left out, it could take for
// another token with that id.
func (g *Gateway) along(x *exchange) ([]string, error) {
	along, size := x.evidence.ancestors()
	if size > ancestorsSize && g.toGateway(x) {
		return nil, &problem.AncestorsTooLargeError{Size: size, Limit: ancestorsSize}
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
		Version: x.call.ToVersion, Attested: len(x.evidence.sources) > 0, Path: x.evidence.path,
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
	x.evidence.caller = x.call.Caller.ID
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
			x.evidence.sources = append(x.evidence.sources, v)
		} else {
			x.evidence.parents = append(x.evidence.parents, v)
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
		Evidence: x.evidence.sources, Path: x.evidence.path, Ancestry: x.evidence.ancestry, Self: g.Self(), Constraints: x.settings.Constraints,
	})
	if x.to.Unreachable != nil && x.mayKnow(err) {
		return x.to.Unreachable
	}
	if x.call.Agent != "" && x.to.Agent.Name == "" && !errors.Is(err, ect.ErrRequired) {
		return x.unknown()
	}
	g.countDenied(err)
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

func (g *Gateway) countDenied(err error) {
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
