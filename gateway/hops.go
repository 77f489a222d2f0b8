package gateway

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/outbound"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/hop"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/rollback"
)

// Bounds of a search for a gateway.
const (
	maxQuestions = 32                        // to other gateways, about one message
	maxForwards  = policy.DefaultMaxHops - 1 // gateways behind the one that is asked: more could not pass on a message
	maxDest      = 2048                      // octets of a destination's name
	maxSide      = 64                        // octets of a protocol's name and version
	verdictAge   = time.Hour                 // of what we say of ourselves (AEPB, Protocol Negotiation)
	verdictDest  = time.Minute               // of what we say of an agent
)

// passage is the way of a message through another gateway (AEPB, Multi-Hop
// Translation).
type passage struct {
	peer     directory.Peer
	from, to canonical.Binding // the pair that the peer serves: we translate into from
	dest     string            // as the peer knows the agent
	unlisted bool              // nobody here knows it
	asked    int               // questions that it took
}

// onwards finds another gateway for an agent that cannot be served from here:
// one that is behind a peer, that speaks no protocol of ours, or that only a peer
// knows; and for a protocol that is not spoken here, where only that is asked for.
// Nobody is asked on behalf of a caller who may not call.
func (g *Gateway) onwards(ctx context.Context, x *exchange) {
	var noPath *problem.NoPathError
	if len(g.Directory.Peers()) == 0 || g.Network.Peers == nil || (x.lost != nil && !errors.As(x.lost, &noPath)) || (x.lost == nil && x.call.Agent == "") {
		return
	}
	search, ok := g.search(x)
	if !ok {
		return
	}
	found, _, err := g.find(ctx, search)
	switch {
	case errors.As(err, &noPath) && x.call.Agent == "": // which was known, and why
		return
	case errors.As(err, &noPath) && x.agent.Name == "":
		noPath.Detail = "unknown_agent"
	}
	if err != nil {
		x.lost = err
		return
	}
	if found.unlisted = x.agent.Name == ""; found.unlisted {
		x.agent = directory.Agent{Name: x.call.Agent, Rules: found.peer.Rules}
	}
	x.via, x.lost = found, nil
	x.dest, _ = g.Registry.Translator(found.from)
}

// search is what is looked for, and where.
type search struct {
	from     canonical.Binding   // what the message is in
	to       []canonical.Binding // what the agent speaks, preferred first
	dest     string
	peers    []directory.Peer
	visited  func(ect.Identity) bool // gateways that the message has been through
	named    bool                    // there is one peer to go through, and no other
	forwards int
}

// search says what to look for on behalf of a message; false: there is nothing.
func (g *Gateway) search(x *exchange) (search, bool) {
	s := search{from: x.source.Info().Binding, visited: x.evidence.path.Visits, forwards: maxForwards - x.evidence.path.Hops()}
	if x.call.Agent == "" {
		s.to, s.peers = sideOf(x.call.To, x.call.ToVersion), g.Directory.Peers()
		return s, len(x.evidence.sources) > 0 && len(s.to[0]) <= maxSide
	}
	if x.agent.Name != "" {
		if !mayAsk(x) {
			return s, false
		}
		return g.searchFor(s, x.agent, x.call.To)
	}
	if x.call.Entrance.Native() || len(x.evidence.sources) == 0 || x.call.To == "" || len(x.call.Agent) > maxDest {
		return s, false
	}
	s.dest, s.to, s.peers = x.call.Agent, []canonical.Binding{x.call.To}, g.openTo(x.call.Caller)
	return s, len(s.peers) > 0
}

// sideOf is what a message is to be translated into, as other gateways are asked
// for it.
func sideOf(binding canonical.Binding, version string) []canonical.Binding {
	return []canonical.Binding{canonical.Binding(translators.Side{Binding: binding, Version: version}.String())}
}

// searchFor says what to look for on the way to an agent that is known here.
// to is the protocol that was asked for; empty: any.
func (g *Gateway) searchFor(s search, agent directory.Agent, to canonical.Binding) (search, bool) {
	e := agent.Endpoint(s.from)
	if to != "" {
		e, _ = agent.EndpointOf(to)
	}
	if e.Through != "" {
		peer, ok := g.Directory.Peer(e.Through)
		s.named, s.dest, s.to, s.peers = true, agent.Name, []canonical.Binding{e.Binding}, []directory.Peer{peer}
		return s, ok
	}
	if e.Binding != "" || agent.ID == "" {
		return s, false // reached directly, or nobody else would know whom we mean
	}
	s.dest, s.to = string(agent.ID), agent.Beyond
	if to != "" {
		s.to = slices.DeleteFunc(slices.Clone(agent.Beyond), func(b canonical.Binding) bool { return b != to })
	}
	s.peers = slices.Clone(g.Directory.Peers())
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
func (g *Gateway) openTo(caller identity.Caller) []directory.Peer {
	var out []directory.Peer
	for _, p := range g.Directory.Peers() {
		if admit(caller, p.Rules) == nil {
			out = append(out, p)
		}
	}
	return out
}

// find asks the gateways in turn. A message goes to none that it came through:
// where only that one is left, this is a loop, or there is no path. until is how
// long the answer holds.
func (g *Gateway) find(ctx context.Context, s search) (found *passage, until time.Time, err error) {
	until, asked := g.Now().Add(verdictAge), 0
	for _, to := range s.to {
		for _, peer := range s.peers {
			if s.visited != nil && s.visited(peer.ID) {
				if s.named {
					denied := &policy.Denied{Constraint: policy.ConstraintLoop}
					g.countDenied(denied)
					return nil, until, denied
				}
				continue
			}
			for _, from := range g.carriages(s.from) {
				if asked++; asked > maxQuestions {
					return nil, until, noWay(s)
				}
				v := g.Directory.Ask(ctx, peer, directory.Question{
					From: string(from), To: string(to), Dest: s.dest, Forwards: max(0, s.forwards-1),
				})
				if v.Until.Before(until) {
					until = v.Until
				}
				if v.Serves {
					return &passage{peer: peer, from: from, to: to, dest: s.dest, asked: asked}, v.Until, nil
				}
			}
		}
	}
	return nil, until, noWay(s)
}

func noWay(s search) error {
	e := &problem.NoPathError{From: string(s.from)}
	if len(s.to) > 0 {
		e.To = string(s.to[0])
	}
	return e
}

// carriages are the protocols in which messages travel between gateways: those
// with one message per HTTP body, the message's own first, since nothing is lost
// that way.
func (g *Gateway) carriages(own canonical.Binding) []canonical.Binding {
	var out []canonical.Binding
	for _, b := range [...]canonical.Binding{"a2a-v1", "mcp-v1"} {
		if _, ok := g.Registry.Translator(b); ok {
			out = append(out, b)
		}
	}
	slices.SortStableFunc(out, func(a, b canonical.Binding) int { return before(a == own, b == own) })
	return out
}

// throughPeer is the endpoint of a message that goes on through another gateway.
// What the agent says of itself is known only where an operator listed it.
func (g *Gateway) throughPeer(ctx context.Context, x *exchange) error {
	o := x.via
	name := x.agent.Name
	if name == "" {
		name = string(o.to)
	}
	x.endpoint = transport.Endpoint{
		Agent: name, ID: o.peer.ID, Binding: o.from, Version: x.dest.Info().Versions[0],
		URL: hop.Target(o.peer.URL, o.from, o.to, o.dest), Caller: x.call.Caller.ID, Timeout: x.agent.Timeout,
	}
	x.dress()
	listed, _ := x.agent.EndpointOf(o.to)
	if listed.Through == "" || x.kin() || x.message.Op != canonical.OpInvoke {
		return nil
	}
	description, _, err := g.Directory.DescribeFor(ctx, x.agent, listed, x.viewer())
	if err != nil {
		return err
	}
	x.described = description
	x.chosen, err = g.capability(ctx, x, listed)
	return err
}

// translated is a message that another gateway puts into the protocol that was
// asked for, for nobody in particular (AEPB, Multi-Hop Translation). What that
// gateway signed covers the message, and goes back with what we did.
func (g *Gateway) translated(ctx context.Context, x *exchange) (transport.Answer, error) {
	sealed, _, err := g.request(ctx, x)
	if err != nil {
		return transport.Answer{}, err
	}
	life := x.patience(ctx)
	defer life.Close()
	reply, err := g.send(life.Context(), x, sealed) //nolint:contextcheck // it may outlive who waits
	if err != nil {
		return transport.Answer{}, life.Judge(err)
	}
	defer closeReply(reply)
	reply.Wire.Binding = translators.ParseSide(string(x.via.to)).Binding
	passed := attest.Passed{
		Subject: x.subject(), Workflow: x.workflow, To: reply.Wire.Binding,
		Covers: func(v ect.Verified) bool { return g.covers(v, reply.Wire) },
	}
	if reply.Events == nil {
		passed.Tokens = reply.Evidence
	}
	if reason, err := g.attest.Learn(ctx, x.trail, passed); reason != "" || err != nil {
		if err == nil {
			err = &transport.BadReplyError{Agent: x.endpoint.Agent, Reason: reason}
		}
		return transport.Answer{}, err
	}
	return transport.Answer{Wire: reply.Wire, Evidence: x.trail.Proof(), Losses: x.trail.Losses(), Notice: notice(x.agent.Lifecycle)}, nil
}

// covers: a token was made of this message. How those of a protocol that is not
// spoken here are hashed, other than octet by octet, nobody here knows.
func (g *Gateway) covers(v ect.Verified, wire translators.Wire) bool {
	form, known := g.Registry.Translator(wire.Binding)
	if known {
		wire.Hasher = translators.HasherOf(form)
	}
	said := v.Claims().OutputHash
	if _, otherwise := v.Extension(ect.ExtHashForm); otherwise && !known {
		return said != ""
	}
	return said == ect.Hash(wire.Octets())
}

// sends is the kind of the call that goes to where x goes.
func (x *exchange) sends() outbound.Kind {
	if x.via != nil {
		return outbound.Peer
	}
	if _, apart := x.dest.(*rollback.Form); apart {
		return outbound.Rollback
	}
	return outbound.Message
}

// whom is the agent in metrics: callers can name what nobody here knows without end.
func (x *exchange) whom() string {
	if x.via != nil && x.via.unlisted {
		return "gateway"
	}
	return label(x.agent)
}

// Serves answers a question (AEPB, Protocol Negotiation step 3), and for how
// long that holds. What is not served here may be by a peer.
func (g *Gateway) Serves(ctx context.Context, q transport.Question) (bool, time.Duration) {
	own := g.Registry.Serves(q.From, q.To)
	if q.Dest == "" && own {
		return true, verdictAge
	}
	known := q.Caller.ID != "" && !q.Caller.Anonymous
	if !known || len(q.Dest) > maxDest {
		return false, verdictAge
	}
	s := search{from: q.From.Binding, to: sideOf(q.To.Binding, ""), dest: q.Dest, forwards: min(q.Forwards, maxForwards)}
	s.visited = func(id ect.Identity) bool { return id == q.Caller.ID } // who asks is not asked back
	served, ok := false, true
	if q.Dest == "" {
		s.to, s.peers = sideOf(q.To.Binding, q.To.Version), g.Directory.Peers()
	} else {
		served, ok = g.servesAgent(ctx, q, &s)
	}
	if served || !ok || q.Forwards <= 0 {
		return served, age(q)
	}
	if speaks, ok := g.Registry.Translator(q.From.Binding); !ok || q.From.Version != "" && !slices.Contains(speaks.Info().Versions, q.From.Version) {
		return false, age(q)
	}
	found, until, _ := g.find(ctx, s)
	return found != nil, min(max(until.Sub(g.Now()), time.Second), age(q))
}

func age(q transport.Question) time.Duration {
	if q.Dest == "" {
		return verdictAge
	}
	return verdictDest
}

// servesAgent: is an agent reached from here, without another gateway? ok: else
// another one may be asked as s says.
func (g *Gateway) servesAgent(ctx context.Context, q transport.Question, s *search) (served, ok bool) {
	agent, listed := g.Directory.Find(q.Dest)
	if !listed {
		s.peers = g.openTo(q.Caller)
		return false, len(s.peers) > 0
	}
	if admit(q.Caller, agent.Rules) != nil {
		return false, false
	}
	agent, err := g.Directory.Reach(ctx, agent)
	if err != nil {
		return false, false
	}
	e, _ := agent.EndpointOf(q.To.Binding)
	if e.Binding != "" && e.Through == "" {
		_, speaks := g.Registry.Translator(q.From.Binding)
		return speaks, false
	}
	*s, ok = g.searchFor(*s, agent, q.To.Binding)
	return false, ok
}
