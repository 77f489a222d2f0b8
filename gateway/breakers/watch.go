package breakers

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/lifecycle/breaker"
)

// Event is a change of a breaker, or how one stands.
type Event struct {
	Agent   string    `json:"agent"`              // SPIFFE id, else its name
	State   string    `json:"state"`              // closed, open, half_open; escalated is no state but an event
	Reason  string    `json:"reason,omitempty"`   // of an escalation: probes, coordinated or many_agents
	At      time.Time `json:"at,omitzero"`        // of the last change
	Token   string    `json:"ect,omitempty"`      // evidence of the change
	Work    string    `json:"wid,omitempty"`      // workflow whose step failed critically; empty: it is about an agent
	Replica string    `json:"instance,omitempty"` // that says so
	// Approval is the path of an approval that humans decide about (R23); empty: the event is about a breaker.
	Approval string `json:"approval,omitempty"`
}

const (
	maxWatchers   = 64
	maxWatchesOne = 4  // of one identity
	maxBehind     = 32 // events that a watcher has not taken yet: then its stream ends
)

// List is how all breakers stand that were ever open, and are known still, by agent.
func (s *Set) List() []Event {
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.all))
	s.mu.Unlock()
	var list []Event
	for _, d := range all {
		d.mu.Lock()
		if !d.changed.IsZero() {
			list = append(list, Event{Agent: d.downstream, State: d.breaker.State().String(), At: d.changed, Replica: s.deps.Replica})
		}
		d.mu.Unlock()
	}
	slices.SortFunc(list, func(a, b Event) int { return strings.Compare(a.Agent, b.Agent) })
	return list
}

// Watch returns the changes from now on to a watcher, until the function it returns is called.
// The channel is closed then, where the watcher is too far behind, and where this gateway ends.
// Its error is a *[quota.ExceededError]: this one, or all together, watch too often.
func (s *Set) Watch(who ect.Identity) (<-chan Event, func(), error) {
	grant, err := s.watching.Take(string(who), 1)
	if err != nil {
		return nil, nil, err
	}
	c := make(chan Event, maxBehind)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchers[c] = grant
	if s.ended {
		s.end(c)
	}
	return c, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.end(c)
	}, nil
}

// EndWatches closes the channels of all watchers, and takes no new ones.
func (s *Set) EndWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	for c := range s.watchers {
		s.end(c)
	}
}

// end closes a watcher's channel once.
func (s *Set) end(c chan Event) {
	if grant, ok := s.watchers[c]; ok {
		delete(s.watchers, c)
		grant.Release()
		close(c)
	}
}

func (s *Set) publish(e Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.watchers {
		select {
		case c <- e:
		default:
			s.end(c)
		}
	}
}

// opened escalates when the breakers of several agents have opened at this gateway in a short time
// (R21), or those of several gateways for this agent. What a caller can name without end does not count.
func (s *Set) opened(ctx context.Context, agent string, now time.Time) {
	s.mu.Lock()
	next, _, due := s.openings.Opened(now, agent)
	s.openings = next
	s.mu.Unlock()
	if due {
		s.escalate(ctx, agent, breaker.ReasonManyAgents)
	}
	s.openedAt(ctx, agent, ownGateway)
}

// escalate calls a human: this does not recover by itself.
func (s *Set) escalate(ctx context.Context, agent, reason string, more ...slog.Attr) {
	act, ext := breaker.EscalationClaims(agent, reason)
	s.deps.Metrics.BreakerEscalated(reason)
	message := "an agent does not recover: look after it"
	if reason == breaker.ReasonManyAgents {
		message = "several agents fail at once: look after this gateway, which is probably the cause"
	}
	s.deps.Logger.LogAttrs(ctx, slog.LevelError, message, append(more, slog.String("agent", agent), slog.String("reason", reason))...)
	event := Event{Agent: agent, State: "escalated", Reason: reason, At: s.deps.Now(), Token: s.sign(ctx, agent, act, ext), Replica: s.deps.Replica}
	s.publish(event)
	s.deps.Escalate(ctx, event)
}
