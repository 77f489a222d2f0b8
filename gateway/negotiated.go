package gateway

import (
	"context"
	"strconv"
	"sync"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/directory"
)

// maxNegotiated is how many negotiations are remembered. One that is forgotten is
// told again.
const maxNegotiated = 4096

// negotiations are those that are on record already, by workflow and agent.
type negotiations struct {
	mu   sync.Mutex
	told map[string]bool
}

// first reports whether a negotiation is news.
func (n *negotiations) first(key string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.told[key] {
		return false
	}
	if n.told == nil || len(n.told) >= maxNegotiated {
		n.told = map[string]bool{}
	}
	n.told[key] = true
	return true
}

// negotiated records what a negotiation came to, once in a workflow (AEPB,
// Protocol Downgrade Attacks: the results are part of the workflow's graph). There
// is one where the agent's own document, a choice of endpoints or another gateway
// decided; an endpoint that is the only one was no choice. The token is not handed
// out: it says nothing of any message.
func (g *Gateway) negotiated(ctx context.Context, x *exchange) {
	if x.to.Via == nil && (x.call.To != "" || (x.to.Agent.Capability == "" && len(x.to.Agent.Endpoints) < 2)) {
		return // the caller named it, or there was nothing to choose from
	}
	workflow := x.workflow
	if workflow == "" {
		workflow = string(x.first())
	}
	if !g.negotiations.first(workflow + "\x00" + x.to.Agent.Name) {
		return
	}
	chosen, candidates, reason := x.choice()
	g.attest.Negotiation(ctx, attest.Negotiation{
		Subject: x.subject(), Lineage: attest.Lineage{Workflow: x.workflow, Parents: []ect.ID{x.first()}},
		From: string(x.source.Info().Binding), To: chosen, Candidates: candidates, Reason: reason,
	})
}

// choice is what was chosen, of what, and why.
func (x *exchange) choice() (chosen string, candidates []string, reason string) {
	for _, e := range x.to.Agent.Endpoints {
		candidates = append(candidates, candidate(e))
	}
	for _, b := range x.to.Agent.Beyond {
		candidates = append(candidates, string(b))
	}
	if x.to.Via != nil {
		if len(candidates) == 0 {
			candidates = []string{string(x.to.Via.To)}
		}
		return string(x.to.Via.To), candidates, "served by " + string(x.to.Via.Peer.ID) + " as " + string(x.to.Via.From) + " to " + string(x.to.Via.To)
	}
	chosen = string(x.to.Codec.Info().Binding)
	if chosen == string(x.source.Info().Binding) {
		return chosen, candidates, "the caller's own protocol"
	}
	return chosen, candidates, "the lowest priority of what both the agent and this gateway speak"
}

func candidate(e directory.Endpoint) string {
	return string(e.Binding) + " priority " + strconv.Itoa(e.Rank())
}

// first is the first ECT of the workflow, as far as it is known: the oldest that
// the caller showed, else what came before, else our own.
func (x *exchange) first() ect.ID {
	var oldest ect.Verified
	for _, list := range [...][]ect.Verified{x.evidence.sources, x.evidence.parents} {
		for _, v := range list {
			if oldest.ID() == "" || v.IssuedAt() < oldest.IssuedAt() || (v.IssuedAt() == oldest.IssuedAt() && len(v.Claims().Parents) == 0) {
				oldest = v
			}
		}
	}
	switch {
	case oldest.ID() != "":
		return oldest.ID()
	case len(x.parents) > 0:
		return x.parents[0]
	default:
		return x.trail.Request()
	}
}
