package destination

import (
	"context"

	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/policy"
)

// maxFollowed bounds how often a document leads to a listed agent whose own
// successor is a document again.
const maxFollowed = 3

// document asks an agent that describes itself in a capability document: one that is
// listed, or one whose document the caller named as destination (R8).
func (r *Resolver) document(ctx context.Context, q Query, d Destination) Destination {
	if q.Agent == "" || d.Agent.Name != "" && d.Agent.Capability == "" && !d.Agent.Ended() {
		return d
	}
	if d.Agent.Name == "" {
		if q.Native || !q.Attested {
			return d
		}
		visitor, ok, err := r.deps.Directory.Visitor(q.Agent)
		if !ok {
			if err != nil {
				d.Unreachable = err
			}
			return d
		}
		d.Agent = visitor
	}
	if MayCall(q.Caller, d.Agent.Rules) != nil {
		return d
	}
	return r.follow(ctx, q, d, true)
}

// follow goes from an agent that describes itself to the one that is called: its
// successor where it has ended, the listed agent where its document describes one.
// An agent that drains is called itself if that is wanted: whether it takes this
// message depends on what that is.
func (r *Resolver) follow(ctx context.Context, q Query, d Destination, drained bool) Destination {
	var also *policy.Rules
	for range maxFollowed {
		if resolved, err := r.deps.Directory.Resolve(ctx, d.Agent); drained && err == nil && resolved.Lifecycle.Status == directory.Draining && len(resolved.Listings) == 0 {
			d.Agent, d.Draining = resolved, true
			d.Agent.Rules.Also = also
			return r.bound(q, d)
		}
		d.Agent, d.Unreachable = r.deps.Directory.Reach(ctx, d.Agent)
		if d.Agent.Rules.Also = also; d.Unreachable != nil {
			return d
		}
		if len(d.Agent.Listings) == 0 {
			return r.bound(q, d)
		}
		found := d.Agent.Rules
		also = &found
		if d.Agent = r.listed(q.Caller, d.Agent.Listings); MayCall(q.Caller, d.Agent.Rules) != nil {
			d.Agent.Rules.Also = also
			return d
		}
	}
	d.Unreachable = &problem.NoPathError{From: string(q.From), To: string(q.To)}
	return d
}

// listed is the listed agent that a capability document describes, to be called under the
// rules of both: of several, the first that the caller may call.
func (r *Resolver) listed(caller identity.Caller, names []string) directory.Agent {
	var first directory.Agent
	for _, name := range names {
		listed, ok := r.deps.Directory.Find(name)
		if ok && MayCall(caller, listed.Rules) == nil {
			return listed
		}
		if ok && first.Name == "" {
			first = listed
		}
	}
	return first
}

// bound finds the protocol toward an agent that was found.
func (r *Resolver) bound(q Query, d Destination) Destination {
	codec, err := r.codec(q, d.Agent)
	d = r.speaking(d, codec)
	d.Unreachable = err
	if d.Unreachable == nil && d.Codec == nil { // its document names no protocol that is spoken here
		d.Unreachable = &problem.NoPathError{From: string(q.From), To: string(q.To)}
	}
	return d
}
