package destination

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Bounds of a search for a gateway.
const (
	maxQuestions = 32                        // to other gateways, about one message
	maxForwards  = policy.DefaultMaxHops - 1 // gateways behind the one that is asked: more could not pass on a message
	maxName      = 2048                      // bytes of an agent's name
	maxSide      = 64                        // bytes of a protocol's name and version
	verdictAge   = time.Hour                 // of what this gateway says of itself (AEPB, Protocol Negotiation)
	agentAge     = time.Minute               // of what it says of an agent
)

// onwards finds another gateway for an agent that cannot be served from here:
// one that is behind a peer, that speaks no protocol of ours, or that only a peer
// knows; and for a protocol that is not spoken here, where only that is asked for.
// No gateway is asked on behalf of a caller who may not call.
func (r *Resolver) onwards(ctx context.Context, q Query, d Destination) Destination {
	var noPath *problem.NoPathError
	if len(r.deps.Directory.Peers()) == 0 || (d.Unreachable != nil && !errors.As(d.Unreachable, &noPath)) || (d.Unreachable == nil && q.Agent == "") {
		return d
	}
	search, ok := r.search(q, d.Agent)
	if !ok {
		return d
	}
	found, _, err := r.ask(ctx, search)
	switch {
	case errors.As(err, &noPath) && q.Agent == "": // which was known, and why
		return d
	case errors.As(err, &noPath) && d.Agent.Name == "":
		noPath.Detail = "unknown_agent"
	}
	if err != nil {
		return d.failed(err)
	}
	if found.Unlisted = d.Agent.Name == ""; found.Unlisted {
		d = d.at(directory.Agent{Name: q.Agent, Rules: found.Peer.Rules})
	}
	d = d.failed(nil)
	d.Via = found
	codec, _ := r.deps.Registry.Translator(found.From)
	return r.speaking(d, codec)
}

// search is what is looked for, and where.
type search struct {
	from     canonical.Binding   // what the message is in
	to       []canonical.Binding // what the agent speaks, preferred first
	agent    string
	peers    []directory.Peer
	visited  func(ect.Identity) bool // gateways that the message has been through
	named    bool                    // there is one peer to go through, and no other
	forwards int
}

// search says what to look for on behalf of a message; false: there is nothing.
func (r *Resolver) search(q Query, agent directory.Agent) (search, bool) {
	s := search{from: q.From, visited: q.Path.Visits, forwards: maxForwards - q.Path.Hops()}
	if q.Agent == "" {
		s.to, s.peers = sideOf(q.To, q.Version), r.deps.Directory.Peers()
		return s, q.Attested && len(s.to[0]) <= maxSide
	}
	if agent.Name != "" {
		if MayCall(q.Caller, agent.Rules) != nil {
			return s, false
		}
		return r.searchFor(s, agent, q.To)
	}
	if q.Native || !q.Attested || q.To == "" || len(q.Agent) > maxName {
		return s, false
	}
	s.agent, s.to, s.peers = q.Agent, []canonical.Binding{q.To}, r.openTo(q.Caller)
	return s, len(s.peers) > 0
}

// sideOf is what a message is to be translated into, as other gateways are asked for it.
func sideOf(binding canonical.Binding, version string) []canonical.Binding {
	return []canonical.Binding{canonical.Binding(translators.Side{Binding: binding, Version: version}.String())}
}

// searchFor says what to look for on the way to an agent that is known here.
// to is the protocol that was asked for; empty: any.
func (r *Resolver) searchFor(s search, agent directory.Agent, to canonical.Binding) (search, bool) {
	e := agent.Endpoint(s.from)
	if to != "" {
		e, _ = agent.EndpointOf(to)
	}
	if e.Through != "" {
		peer, ok := r.deps.Directory.Peer(e.Through)
		s.named, s.agent, s.to, s.peers = true, agent.Name, []canonical.Binding{e.Binding}, []directory.Peer{peer}
		return s, ok
	}
	if e.Binding != "" || agent.ID == "" {
		return s, false // reached directly, or other gateways would not know which agent is meant
	}
	s.agent, s.to = string(agent.ID), agent.Beyond
	if to != "" {
		s.to = slices.DeleteFunc(slices.Clone(agent.Beyond), func(b canonical.Binding) bool { return b != to })
	}
	s.peers = slices.Clone(r.deps.Directory.Peers())
	slices.SortStableFunc(s.peers, func(a, b directory.Peer) int { // those that its own document names come first
		return before(slices.Contains(agent.Gateways, a.URL), slices.Contains(agent.Gateways, b.URL))
	})
	return s, len(s.to) > 0
}

func before(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	default:
		return 1
	}
}

// openTo are the peers whose agents a caller may be sent on to.
func (r *Resolver) openTo(caller identity.Caller) []directory.Peer {
	var out []directory.Peer
	for _, p := range r.deps.Directory.Peers() {
		if MayCall(caller, p.Rules) == nil {
			out = append(out, p)
		}
	}
	return out
}

// ask asks the gateways in turn. A message goes to none that it came through: where only
// that one is left, this is a loop, or there is no path. until is how long the answer holds.
func (r *Resolver) ask(ctx context.Context, s search) (found *PeerRoute, until time.Time, err error) {
	until, questions := r.deps.Now().Add(verdictAge), 0
	for _, to := range s.to {
		for _, peer := range s.peers {
			if s.visited != nil && s.visited(peer.ID) {
				if s.named {
					r.deps.Denied(policy.ConstraintLoop)
					return nil, until, &policy.Denied{Constraint: policy.ConstraintLoop}
				}
				continue
			}
			for _, from := range r.carriages(s.from) {
				if questions++; questions > maxQuestions {
					return nil, until, noPath(s)
				}
				v := r.deps.Directory.Ask(ctx, peer, directory.Question{
					From: string(from), To: string(to), Dest: s.agent, Forwards: max(0, s.forwards-1),
				})
				if v.Until.Before(until) {
					until = v.Until
				}
				if v.Serves {
					return &PeerRoute{Peer: peer, From: from, To: to, Agent: s.agent}, v.Until, nil
				}
			}
		}
	}
	return nil, until, noPath(s)
}

func noPath(s search) error {
	e := &problem.NoPathError{From: string(s.from)}
	if len(s.to) > 0 {
		e.To = string(s.to[0])
	}
	return e
}

// carriages are the protocols in which messages travel between gateways: those
// with one message per HTTP body, the message's own first, since nothing is lost
// that way.
func (r *Resolver) carriages(own canonical.Binding) []canonical.Binding {
	var out []canonical.Binding
	for _, b := range [...]canonical.Binding{"a2a-v1", "mcp-v1"} {
		if _, ok := r.deps.Registry.Translator(b); ok {
			out = append(out, b)
		}
	}
	slices.SortStableFunc(out, func(a, b canonical.Binding) int { return before(a == own, b == own) })
	return out
}

// Serves answers a question (AEPB, Protocol Negotiation step 3), and for how
// long that holds. What is not served here may be by a peer.
func (r *Resolver) Serves(ctx context.Context, q transport.PairQuery) (bool, time.Duration) {
	if q.Dest == "" && r.deps.Registry.Serves(q.From, q.To) {
		return true, verdictAge
	}
	known := q.Caller.ID != "" && !q.Caller.Anonymous
	if !known || len(q.Dest) > maxName {
		return false, verdictAge
	}
	s := search{from: q.From.Binding, to: sideOf(q.To.Binding, ""), agent: q.Dest, forwards: min(q.Forwards, maxForwards)}
	s.visited = func(id ect.Identity) bool { return id == q.Caller.ID } // who asks is not asked back
	served, ok := false, true
	if q.Dest == "" {
		s.to, s.peers = sideOf(q.To.Binding, q.To.Version), r.deps.Directory.Peers()
	} else {
		served, ok = r.servesAgent(ctx, q, &s)
	}
	if served || !ok || q.Forwards <= 0 {
		return served, age(q)
	}
	if speaks, ok := r.deps.Registry.Translator(q.From.Binding); !ok || q.From.Version != "" && !slices.Contains(speaks.Info().Versions, q.From.Version) {
		return false, age(q)
	}
	found, until, _ := r.ask(ctx, s)
	return found != nil, min(max(until.Sub(r.deps.Now()), time.Second), age(q))
}

func age(q transport.PairQuery) time.Duration {
	if q.Dest == "" {
		return verdictAge
	}
	return agentAge
}

// servesAgent: is an agent reached from here, without another gateway? ok: else
// another one may be asked as s says.
func (r *Resolver) servesAgent(ctx context.Context, q transport.PairQuery, s *search) (served, ok bool) {
	agent, listed := r.deps.Directory.Find(q.Dest)
	if !listed {
		s.peers = r.openTo(q.Caller)
		return false, len(s.peers) > 0
	}
	if MayCall(q.Caller, agent.Rules) != nil {
		return false, false
	}
	agent, err := r.Current(ctx, q.Caller, agent)
	if err != nil {
		return false, false
	}
	e, _ := agent.EndpointOf(q.To.Binding)
	if e.Binding != "" && e.Through == "" {
		_, speaks := r.deps.Registry.Translator(q.From.Binding)
		return speaks, false
	}
	*s, ok = r.searchFor(*s, agent, q.To.Binding)
	return false, ok
}
