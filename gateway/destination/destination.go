package destination

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"time"

	"github.com/aepb/aepb-gateway/ect/dag"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Query is who asks for whom.
type Query struct {
	Caller   identity.Caller
	Native   bool              // at a native endpoint: its caller may never have heard of AEPB
	From     canonical.Binding // the protocol of the message
	Agent    string            // directory name, SPIFFE ID or URL of a capability document; empty: for translation alone
	To       canonical.Binding // the protocol that is asked for; empty: one of the agent's
	Version  string            // of To; empty: any
	Attested bool              // the message brought a token of its own: without one, agents that are not listed are not looked up
	Path     dag.Path          // of the message so far (R1)
}

// Destination is who is meant. It does not change.
type Destination struct {
	Agent       directory.Agent        // zero: unknown, or for translation alone
	Codec       translators.Translator // of the protocol there; nil: not known
	Features    *translators.Features  // of Codec
	Via         *PeerRoute             // the other gateway that the message goes through; nil: none
	Unreachable error                  // why the agent cannot be reached, for those who may know it; nil: it can
	Draining    bool                   // the agent takes no new work
}

// PeerRoute is the way of a message through another gateway (AEPB, Multi-Hop Translation).
type PeerRoute struct {
	Peer     directory.Peer
	From, To canonical.Binding // the pair that the peer serves: messages are translated into From here
	Agent    string            // as the peer knows the agent
	Unlisted bool              // the agent is not known here
}

// URL is where the peer takes a message in From for an agent that it reaches in To; without an
// agent it answers with the message in To.
func (p PeerRoute) URL() string {
	values := url.Values{"from": {string(p.From)}, "to": {string(p.To)}}
	if p.Agent != "" {
		values.Set("dest", p.Agent)
	}
	return p.Peer.URL + "?" + values.Encode()
}

// Deps is what a Resolver is built from. Every field is required.
type Deps struct {
	Registry  *translators.Registry
	Directory *directory.Directory
	Now       func() time.Time
	Denied    func(policy.Constraint) // counts a refusal by policy
}

// Resolver finds destinations. It is safe for concurrent use.
type Resolver struct{ deps Deps }

// New makes a resolver.
func New(deps Deps) (*Resolver, error) {
	if deps.Registry == nil || deps.Directory == nil || deps.Now == nil || deps.Denied == nil {
		return nil, errors.New("destination: incomplete Deps: expected a registry, a directory, a clock and a counter")
	}
	return &Resolver{deps}, nil
}

// Find is the destination as far as it is known without the network. Its error is a
// *[problem.NoPathError] where no other gateway can know a path either.
func (r *Resolver) Find(q Query) (Destination, error) {
	var d Destination
	d.Agent, _ = r.deps.Directory.Find(q.Agent)
	codec, err := r.codec(q, d.Agent)
	d = r.speaking(d, codec)
	if err != nil && len(r.deps.Directory.Peers()) > 0 {
		d.Unreachable, err = err, nil // another gateway may know one: it is asked once it is known who wants that
	}
	return d, err
}

// at is the destination with another agent.
func (d Destination) at(agent directory.Agent) Destination {
	d.Agent = agent
	return d
}

// failed is the destination with why it cannot be reached; nil: it can.
func (d Destination) failed(why error) Destination {
	d.Unreachable = why
	return d
}

// Reach finds out who the agent is, and the gateway that it is behind, if there is one.
func (r *Resolver) Reach(ctx context.Context, q Query, d Destination) Destination {
	return r.onwards(ctx, q, r.document(ctx, q, d))
}

// Successor is where new work goes that an agent which drains does not take. With Unreachable set, it
// has none that this caller may call.
func (r *Resolver) Successor(ctx context.Context, q Query, d Destination) Destination {
	d.Via, d.Draining = nil, false
	return r.onwards(ctx, q, r.follow(ctx, q, d, false))
}

// Current is the agent in place of a listed one whom the caller may call: itself, or what it was
// succeeded by. Its errors are those of [directory.Directory.Reach], of [MayCall] and of
// [identity.Caller.Permits].
func (r *Resolver) Current(ctx context.Context, caller identity.Caller, agent directory.Agent) (directory.Agent, error) {
	d := r.follow(ctx, Query{Caller: caller, Agent: agent.Name}, Destination{Agent: agent}, false)
	if _, ok := errors.AsType[*problem.NoPathError](d.Unreachable); d.Unreachable != nil && !ok {
		return d.Agent, d.Unreachable
	}
	if err := MayCall(caller, d.Agent.Rules); err != nil {
		return d.Agent, err
	}
	return d.Agent, caller.Permits(d.Agent.Name, "")
}

// speaking is the destination with the codec of its protocol; nil: it is not known.
func (r *Resolver) speaking(d Destination, codec translators.Translator) Destination {
	binding := canonical.Binding("")
	if codec != nil {
		binding = codec.Info().Binding
	}
	d.Codec, d.Features = codec, r.deps.Registry.Features(binding)
	return d
}

// codec finds the protocol of the destination, as far as the agent is known.
func (r *Resolver) codec(q Query, agent directory.Agent) (translators.Translator, error) {
	to := q.To
	if to == "" {
		to = agent.Endpoint(q.From).Binding
	}
	codec, ok := r.deps.Registry.Translator(to)
	switch {
	case !ok && (to != "" || q.Agent == ""):
		return nil, &problem.NoPathError{From: string(q.From), To: string(to)}
	case ok && q.Version != "" && !slices.Contains(codec.Info().Versions, q.Version):
		return codec, &problem.NoPathError{From: string(q.From), To: string(to), Detail: "unsupported_version"}
	}
	return codec, nil
}

// MayCall judges who may call an agent, and so ask about it. A prefix of the trust domain
// does not let callers in who have no identity. Its errors are those of [policy.Admit].
func MayCall(caller identity.Caller, rules policy.Rules) error {
	if caller.Anonymous && !rules.Open {
		return &policy.Forbidden{Constraint: policy.ConstraintCallers}
	}
	return policy.Admit(caller.ID, rules)
}
