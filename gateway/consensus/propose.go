package consensus

import (
	"context"
	"log/slog"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/record"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/consensus"
	"github.com/aepb/aepb-gateway/policy/consensus/signed"
	"github.com/aepb/aepb-gateway/policy/limit"
)

// Propose opens a round. The same signed proposal once more returns its round as it stands. Its errors are
// *[consensus.InvalidError], *[consensus.RefusedError], *[ect.InvalidError] for a signature, *[policy.Forbidden] for a workflow of
// others, *[quota.ExceededError], *[problem.ConflictError] for ids that are taken, and those of the store.
func (s *Service) Propose(ctx context.Context, who ect.Identity, text []byte) (consensus.Round, error) {
	m, err := signed.Parse[consensus.Proposal](text)
	if err != nil {
		return consensus.Round{}, err
	}
	now, err := s.deps.Clock(ctx)
	if err != nil {
		return consensus.Round{}, recording(err)
	}
	p := m.Content
	before, err := s.archive.read(ctx, p.Round)
	switch {
	case err == nil && before.Signed == m.Compact && before.Proposal.Proposer == who:
		return s.Show(ctx, p.Round, who)
	case err != nil && !isMissing(err):
		return consensus.Round{}, err
	}
	if err := authentic(ctx, s.deps.Verifier, m, who, now); err != nil {
		return consensus.Round{}, err
	}
	g, err := s.groups.find(p.Terms.Group, who)
	if err != nil {
		return consensus.Round{}, err
	}
	if before.Signed != "" { // only who takes part in the group learns that
		return consensus.Round{}, errRoundTaken
	}
	workflow, err := s.workflowOf(ctx, p, who)
	if err != nil {
		return consensus.Round{}, err
	}
	since, err := s.groups.ages(ctx, g, now)
	if err != nil {
		return consensus.Round{}, err
	}
	related, err := s.archive.related(ctx, p)
	if err != nil {
		return consensus.Round{}, err
	}
	r, err := consensus.Open(consensus.Opening{Proposal: p, Signed: m.Compact, Group: g, Since: since, Related: related, Workflow: workflow, Now: now.UTC()})
	if err != nil {
		return r, err
	}
	return s.open(ctx, r, m)
}

var errRoundTaken = &problem.ConflictError{Reason: "consensus_round_id is that of another round: choose a fresh UUID"}

// message is a signed message of any kind.
type message interface {
	Verify(ctx context.Context, v signed.Verifier) error
	Issued() (ect.Identity, time.Time)
}

// authentic verifies that a caller itself signed a message, just now.
func authentic(ctx context.Context, v signed.Verifier, m message, who ect.Identity, now time.Time) error {
	issuer, at := m.Issued()
	switch age := now.Sub(at); {
	case issuer != who:
		return &policy.Forbidden{Reason: "the message is of " + string(issuer) + ", and the caller is " + string(who) + ": each participant sends its own"}
	case age > Freshness || age < -Freshness:
		return &consensus.RefusedError{Reason: "the message was signed more than 5 minutes before or after now: look at the clock, and sign it anew"}
	}
	return m.Verify(ctx, v)
}

// workflowOf is the workflow in which a round stands: one of the proposer's, else its own.
func (s *Service) workflowOf(ctx context.Context, p consensus.Proposal, who ect.Identity) (string, error) {
	if p.Terms.Workflow == "" {
		return string(ect.NewID()), nil
	}
	member, err := s.deps.Belongs(ctx, p.Terms.Workflow, who)
	switch {
	case err != nil:
		return "", recording(err)
	case !member:
		return "", &policy.Forbidden{Reason: "the proposer has no part in the workflow of the proposal"}
	}
	return p.Terms.Workflow, nil
}

// open writes a round: first what finds it, then the round itself.
func (s *Service) open(ctx context.Context, r consensus.Round, m signed.Message[consensus.Proposal]) (consensus.Round, error) {
	p, end := r.Proposal, r.Opened.Add(life)
	if err := s.archive.withinShare(ctx, p.Proposer, 1); err != nil {
		return r, err
	}
	if err := s.archive.own(ctx, p, end); err != nil {
		return r, err
	}
	if err := s.archive.book(ctx, r); err != nil {
		return r, err
	}
	at, err := r.Opened.MarshalText()
	if err != nil {
		return r, err
	}
	topic := state.EntryKey{Kind: KindTopic, Group: p.Topic(), ID: p.Round, Owner: string(p.Proposer)}
	if _, err := s.archive.put(ctx, topic, append(at, " "+p.ID...), r.Deadline().Add(life)); err != nil {
		return r, err
	}
	opened, first, err := s.archive.records.Decide(ctx, roundKey(p.Round, p.Proposer), func(found record.Found[consensus.Round]) (consensus.Round, *attest.Statement, error) {
		if found.Revision != 0 {
			return found.Value, nil, record.ErrUnchanged
		}
		return r, proposed(r, m.Hash), nil
	})
	switch {
	case err != nil:
		return opened, recording(err)
	case opened.Signed != r.Signed:
		return opened, errRoundTaken
	}
	if first {
		if err := s.archive.enter(ctx, opened); err != nil { // again, if another request for the same round has had it taken out
			return opened, err
		}
		s.deps.Logger.InfoContext(ctx, "consensus round", slog.String("round", p.Round), slog.String("phase", string(opened.Phase)), slog.String("group", p.Terms.Group),
			slog.String("mechanism", string(p.Mechanism)), slog.String("proposer", string(p.Proposer)), slog.String("wid", opened.Workflow))
	}
	return opened, nil
}

// holder is in whose share of the evidence a round counts.
func holder(r consensus.Round) string { return limit.Identity(string(r.Proposal.Proposer)) }

// proposed is what the gateway signs of a round that opens.
func proposed(r consensus.Round, hash string) *attest.Statement {
	p, ext := r.Proposal, ect.Ext{}
	ext.SetString(ect.ExtProposal, p.ID)
	ext.SetString(ect.ExtRound, p.Round)
	ext.SetString(ect.ExtProposer, string(p.Proposer))
	ext.SetText(ect.ExtSubject, p.Subject)
	ext.SetString(ect.ExtMechanism, string(p.Mechanism))
	ext.SetString(ect.ExtWeights, consensus.WeightsHash(r.Rules.Members))
	ext.SetString(ect.ExtRules, r.Rules.Hash())
	st := &attest.Statement{
		Act: ect.ActConsensusPropose, Lineage: attest.Lineage{Workflow: r.Workflow}, Input: hash, Ext: ext,
		Audience: []string{string(p.Proposer)}, Holder: holder(r), HoldUntil: r.Opened.Add(ect.MaxHold),
	}
	for _, m := range r.Rules.Members {
		st.Members = append(st.Members, m.ID)
	}
	if r.Rules.Leader != "" && !r.Rules.IsMember(r.Rules.Leader) {
		st.Members = append(st.Members, r.Rules.Leader)
	}
	return st
}
