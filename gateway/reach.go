package gateway

import (
	"context"
	"errors"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy"
)

// reach finds out who an agent is, and the gateway that it is behind, if there is
// one. Nobody is asked on behalf of a caller who may not call; what went wrong is
// kept until policy has spoken.
func (g *Gateway) reach(ctx context.Context, x *exchange) {
	g.meet(ctx, x)
	g.onwards(ctx, x)
}

// meet asks an agent that describes itself in a capability document: one that is
// listed, or one whose document the caller named as destination (R8).
func (g *Gateway) meet(ctx context.Context, x *exchange) {
	if x.call.Agent == "" || (x.agent.Name != "" && x.agent.Capability == "") {
		return
	}
	if x.agent.Name == "" {
		if x.call.Entrance.Native() || len(x.evidence.sources) == 0 {
			return
		}
		visitor, ok, err := g.Directory.Visitor(x.call.Agent)
		if !ok {
			if err != nil {
				x.lost = err
			}
			return
		}
		x.agent = visitor
	}
	if !mayAsk(x) {
		return
	}
	g.follow(ctx, x, true)
}

// follow goes from an agent that describes itself to the one that is called: its
// successor where it has ended, the listed agent where its document describes one.
// An agent that drains is called itself if that is wanted: whether it takes this
// message depends on what that is.
func (g *Gateway) follow(ctx context.Context, x *exchange, drained bool) {
	var also *policy.Rules
	for range maxFollowed {
		if resolved, err := g.Directory.Resolve(ctx, x.agent); drained && err == nil && drains(resolved) && len(resolved.Listings) == 0 {
			x.agent, x.draining = resolved, true
			x.agent.Rules.Also = also
			g.bound(x)
			return
		}
		x.agent, x.lost = g.Directory.Reach(ctx, x.agent)
		if x.agent.Rules.Also = also; x.lost != nil {
			return
		}
		if len(x.agent.Listings) == 0 {
			g.bound(x)
			return
		}
		found := x.agent.Rules
		also = &found
		if x.agent = g.asListed(x); admit(x.call.Caller, x.agent.Rules) != nil {
			x.agent.Rules.Also = also
			return
		}
	}
	x.lost = &problem.NoPathError{From: string(x.source.Info().Binding), To: string(x.call.To)}
}

// maxFollowed bounds how often a document leads to a listed agent whose own
// successor is a document again.
const maxFollowed = 3

// asListed is the listed agent that a capability document describes, to be
// called under the rules of both: of several, the first that the caller may call.
func (g *Gateway) asListed(x *exchange) directory.Agent {
	var first directory.Agent
	for _, name := range x.agent.Listings {
		listed, ok := g.Directory.Find(name)
		if ok && admit(x.call.Caller, listed.Rules) == nil {
			return listed
		}
		if ok && first.Name == "" {
			first = listed
		}
	}
	return first
}

func mayAsk(x *exchange) bool { return admit(x.call.Caller, x.agent.Rules) == nil }

// bound finds the protocol toward an agent that was found.
func (g *Gateway) bound(x *exchange) {
	x.lost = g.destine(x)
	if x.lost == nil && x.dest == nil { // its document names no protocol that is spoken here
		x.lost = &problem.NoPathError{From: string(x.source.Info().Binding), To: string(x.call.To)}
	}
}

// mayKnow: a caller whom policy refuses learns nothing about an agent. That the
// operator allows no such document is nothing about an agent.
func (x *exchange) mayKnow(refusal error) bool {
	var forbidden *policy.Forbidden
	return !errors.Is(refusal, ect.ErrRequired) && (x.agent.Name == "" || !errors.As(refusal, &forbidden))
}

// notice is what an agent's capability document says of its future.
func notice(l directory.Lifecycle) transport.Notice {
	if l.Status != directory.Deprecated {
		return transport.Notice{}
	}
	return transport.Notice{Deprecated: l.DeprecatedAt, Sunset: l.SunsetAt, Successor: l.Successor}
}

// Notice is what is known of an agent's future, to those who may call it. A door
// asks at the end, so that whatever was learned on the way is in it.
func (g *Gateway) Notice(q transport.Inquiry) transport.Notice {
	agent, ok := g.Directory.Find(q.Agent)
	if !ok || admit(q.Caller, agent.Rules) != nil {
		return transport.Notice{}
	}
	return notice(g.Directory.Known(agent))
}

// label is an agent in metrics: callers can name documents without end.
func label(a directory.Agent) string {
	if a.Name != "" && !a.Listed() {
		return "document"
	}
	return a.Name
}
