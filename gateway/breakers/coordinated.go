package breakers

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/lifecycle/breaker"
)

// maxCoordinated bounds the agents whose openings are remembered, a minute each: four times as many
// as breakers open in the worst minute of a gateway with some hundred agents. Of more, the openings
// are not counted.
const maxCoordinated = 1024

// ownGateway is this gateway, all its replicas together, among the gateways whose breakers open.
const ownGateway = "this gateway"

// coordination counts for each agent the gateways whose breakers open for it: this one and its peers
// (ATD, Coordinated Circuit Breaking; R21). The zero value is ready. It is safe for concurrent use.
type coordination struct {
	mu     sync.Mutex
	agents map[string]openings
}

type openings struct {
	breaker.Openings

	newest time.Time
}

// opened counts the opening of one gateway's breaker for an agent. Due: it is time to escalate;
// raised: that is now, or was within the minute before.
func (c *coordination) opened(agent, gateway string, now time.Time) (e breaker.Escalation, due, raised bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.agents == nil {
		c.agents = map[string]openings{}
	}
	o, known := c.agents[agent]
	if !known && len(c.agents) >= maxCoordinated {
		maps.DeleteFunc(c.agents, func(_ string, o openings) bool { return now.Sub(o.newest).Abs() > breaker.EscalateWithin })
		if len(c.agents) >= maxCoordinated {
			return breaker.Escalation{}, false, false
		}
	}
	o.newest = now
	o.Openings, e, due = o.Opened(now, gateway)
	c.agents[agent] = o
	return e, due, o.Raised(now)
}

// PeerOpened counts that the breaker of another gateway has opened for an agent. Gateway is the identity
// that its certificate has proved, and agent a listed agent's. It opens and closes no breaker here: with
// those of others it can have a human called, once a minute for each agent, and has a breaker that is
// open wait the longest cool-down.
func (s *Set) PeerOpened(ctx context.Context, agent, gateway ect.Identity) {
	s.openedAt(ctx, string(agent), string(gateway))
}

// openedAt escalates when the breakers of several gateways have opened for one agent.
func (s *Set) openedAt(ctx context.Context, agent, gateway string) {
	now := s.deps.Now()
	e, due, raised := s.coordination.opened(agent, gateway, now)
	if due || raised && gateway == ownGateway { // what opens after the escalation is slow too
		s.slow(ctx, agent, now)
	}
	if due && s.firstReplica(ctx, agent, now) {
		s.escalate(ctx, agent, breaker.ReasonCoordinated, slog.Any("gateways", e.Who))
	}
}

// slow has the listed breakers of an agent wait the longest cool-down between probes until they close.
func (s *Set) slow(ctx context.Context, agent string, now time.Time) {
	s.mu.RLock()
	all := slices.Collect(maps.Values(s.all))
	s.mu.RUnlock()
	config := *s.circuit.Load()
	for _, d := range all {
		if !d.listed || d.downstream != agent {
			continue
		}
		d.mu.Lock()
		before := d.breaker
		d.breaker = before.Slow(config, now)
		changed := d.breaker != before
		d.mu.Unlock()
		if changed {
			d.shareState(ctx, config)
		}
	}
}

// firstReplica reports whether this replica is the one that signs and posts an escalation, for all
// within the same minute. While the store cannot be asked each does: twice is better than not at all.
func (s *Set) firstReplica(ctx context.Context, agent string, now time.Time) bool {
	key := state.EntryKey{Kind: KindBreaker, Group: "escalation " + agent, ID: breaker.ReasonCoordinated}
	_, first, err := s.deps.Entries.Swap(ctx, key, 0, []byte(s.deps.Replica), now.Add(breaker.EscalateWithin))
	if err != nil {
		s.deps.Logger.WarnContext(ctx, "an escalation is not shared: other replicas may say it too", slog.String("agent", agent), slog.Any("error", err))
	}
	return first || err != nil
}
