package attest

import (
	"context"
	"log/slog"
	"sync"

	"github.com/aepb/aepb-gateway/ect"
)

// maxNegotiated is how many negotiations are remembered. One that is forgotten is
// recorded again.
const maxNegotiated = 4096

// negotiations are those that are on record already, by workflow and agent.
type negotiations struct {
	mu    sync.Mutex
	known map[string]bool
}

// FirstNegotiation reports whether a negotiation for an agent is not on record yet in a
// workflow, and remembers it.
func (s *Service) FirstNegotiation(workflow, agent string) bool {
	key := workflow + "\x00" + agent
	n := &s.negotiations
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.known[key] {
		return false
	}
	if n.known == nil || len(n.known) >= maxNegotiated {
		n.known = map[string]bool{}
	}
	n.known[key] = true
	return true
}

// Negotiation is what was chosen, of what, and why.
type Negotiation struct {
	Subject    Subject
	Lineage    Lineage
	From, To   string // protocols
	Candidates []string
	Reason     string
}

// Negotiation records what a negotiation came to (AEPB, Protocol Downgrade Attacks: the
// results are part of the workflow's graph). The token is not handed out: it says nothing
// of any message. What cannot be recorded is logged: the message has evidence of its own.
func (s *Service) Negotiation(ctx context.Context, n Negotiation) {
	ext := s.ext(n.Subject)
	ext.SetString(ect.ExtGatewayID, string(s.self()))
	ext.SetString(ect.ExtSourceProtocol, n.From)
	ext.SetString(ect.ExtDestProtocol, n.To)
	ext.SetList(ect.ExtCandidates, n.Candidates, 0)
	ext.SetString(ect.ExtReason, n.Reason)
	if _, _, err := s.sign(ctx, ect.DialectSeed, ect.Claims{
		Act: ect.ActNegotiate, Audience: []string{string(n.Subject.Caller.ID), string(s.self())},
		Workflow: n.Lineage.Workflow, Parents: n.Lineage.Parents, Ext: ext,
	}, n.Subject.Permit, s.filing(n.Subject, nil)); err != nil {
		s.deps.Logger.ErrorContext(ctx, "a negotiation could not be recorded", slog.Any("error", err))
	}
}
