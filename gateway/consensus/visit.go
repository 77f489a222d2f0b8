package consensus

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/approval"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/record"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/policy/consensus"
	"github.com/aepb/aepb-gateway/policy/consensus/signed"
)

const (
	// unwritten is how long the index may name a round that is not written: its replica ended in between.
	unwritten = time.Minute
	// pause is between two looks at a round that waits for a human, for others about the same, or for participants.
	pause = 2 * time.Second
)

// scan visits all rounds that are due.
func (s *Service) scan(ctx context.Context) error {
	now, err := s.deps.Clock(ctx)
	if err != nil {
		return err
	}
	var due []string
	err = s.archive.each(ctx, KindOpen, "", func(entry state.Entry) error {
		var o open
		if err := json.Unmarshal(entry.Value, &o); err != nil {
			return err
		}
		if !o.Due.After(now) {
			due = append(due, entry.Key.ID)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, id := range due {
		s.visitLogged(ctx, id)
	}
	return nil
}

func (s *Service) visitLogged(ctx context.Context, id string) {
	if err := s.visit(ctx, id); err != nil && ctx.Err() == nil {
		s.deps.Logger.WarnContext(ctx, "a consensus round is looked at again later", slog.String("round", id), slog.Any("error", err))
	}
}

// visit takes a round as far as it goes now.
func (s *Service) visit(ctx context.Context, id string) error {
	r, err := s.archive.read(ctx, id)
	if isMissing(err) {
		return s.archive.abandon(ctx, id)
	}
	if err != nil {
		return err
	}
	if r.Phase == consensus.Escalated {
		r, err = s.ask(ctx, r)
	} else if !r.Phase.Over() {
		r, err = s.look(ctx, r)
	}
	if err != nil {
		return err
	}
	if r.Phase.Decided() {
		if r, err = s.Show(ctx, id, ""); err != nil { // only what lasts is acted on
			return err
		}
		return s.aftermath.follow(ctx, r)
	}
	if r.Phase == consensus.Voting {
		return nil
	}
	return s.archive.lookAgain(ctx, r, pause)
}

// look takes a round one step further with what was received for it.
func (s *Service) look(ctx context.Context, r consensus.Round) (consensus.Round, error) {
	now, err := s.deps.Clock(ctx) // before the messages are read: what was on record at that moment counts
	if err != nil {
		return r, recording(err)
	}
	box, err := s.archive.box(ctx, r.Proposal.Round)
	if err != nil {
		return r, err
	}
	e := consensus.Event{Kind: consensus.Look, At: now.UTC(), Box: box}
	if next, err := r.Next(e); err == nil && next.Term == r.Term { // it waits for more, whatever others are about the same
		return r, nil
	}
	if e.Related, err = s.archive.related(ctx, r.Proposal); err != nil {
		return r, err
	}
	next, err := r.Next(e)
	if err == nil && next.Term == r.Term {
		return r, nil
	}
	if err := s.archive.confirm(ctx, r.Proposal.Round, next.End.Counted); err != nil { // an outcome rests on what lasts
		return r, err
	}
	return s.decide(ctx, r, e)
}

// decide writes a round after an event, unless it has changed since the event. What ends it is signed before.
func (s *Service) decide(ctx context.Context, r consensus.Round, e consensus.Event) (consensus.Round, error) {
	p := r.Proposal
	next, changed, err := s.archive.records.Decide(ctx, roundKey(p.Round, p.Proposer), func(found record.Found[consensus.Round]) (consensus.Round, *attest.Statement, error) {
		if found.Value.Term != r.Term || !found.Value.Changed.Equal(r.Changed) {
			return found.Value, nil, record.ErrUnchanged
		}
		next, err := found.Value.Next(e)
		if _, over := errors.AsType[*consensus.StateError](err); over || err == nil && next.Term == found.Value.Term {
			return found.Value, nil, record.ErrUnchanged
		}
		if next.Phase == consensus.Escalated {
			next.Human.Approval = p.Round
		}
		if err != nil || !next.Phase.Decided() || next.End.Signature != "" {
			return next, nil, err
		}
		next.End.Outcome.Coordinator = s.deps.Signer().Issuer()
		m, err := signed.Sign(s.deps.Signer(), next.End.Outcome)
		next.End.Signature = m.Compact
		return next, ended(next), err
	})
	if changed {
		s.tell(ctx, next)
	}
	if err == nil {
		s.archive.decoded.confirmed(next)
	}
	return next, recording(err)
}

// tell logs and counts a change that this replica made.
func (s *Service) tell(ctx context.Context, r consensus.Round) {
	p := r.Proposal
	s.deps.Logger.InfoContext(ctx, "consensus round", slog.String("round", p.Round), slog.String("phase", string(r.Phase)), slog.String("group", p.Terms.Group),
		slog.String("mechanism", string(p.Mechanism)), slog.String("outcome", string(r.End.Outcome.Result)), slog.String("reason", string(r.End.Outcome.Reason)),
		slog.String("wid", r.Workflow))
	if r.Phase.Decided() && r.End.Outcome.Decided.Equal(r.Changed) {
		s.deps.Metrics.Ended(string(p.Mechanism), string(r.End.Outcome.Result), r.Changed.Sub(r.Opened))
	}
	if r.Phase.Decided() || r.Phase == consensus.Escalated {
		for _, kind := range r.End.Anomalies {
			s.deps.Metrics.Anomaly(string(kind))
			s.deps.Logger.WarnContext(ctx, "votes of a consensus round look alike: look at them", slog.String("round", p.Round), slog.String("pattern", string(kind)))
		}
	}
}

// ended is what the gateway signs of an outcome (R25).
func ended(r consensus.Round) *attest.Statement {
	o, ext := r.End.Outcome, ect.Ext{}
	ext.SetString(ect.ExtProposal, o.Proposal)
	ext.SetString(ect.ExtRound, o.Round)
	ext.SetString(ect.ExtOutcome, string(o.Result))
	ext.SetString(ect.ExtOutcomeReason, string(o.Reason))
	ext.SetString(ect.ExtRules, o.Rules)
	ext.SetString(ect.ExtOutcomeSignature, r.End.Signature[strings.LastIndexByte(r.End.Signature, '.')+1:])
	if tally, err := json.Marshal(o.Tally); err == nil {
		ext[ect.ExtTally] = tally
	}
	if o.Approval != "" {
		ext.SetString(ect.ExtApproval, o.Approval)
	}
	if len(r.End.Anomalies) > 0 {
		if kinds, err := json.Marshal(r.End.Anomalies); err == nil {
			ext[ect.ExtAnomalies] = kinds
		}
	}
	return &attest.Statement{
		Act: ect.ActConsensusCommit, Lineage: attest.Lineage{Workflow: r.Workflow, Parents: []ect.ID{r.Proposed}}, Input: o.Votes,
		Output: ect.Hash([]byte(r.End.Signature)), Ext: ext, Audience: []string{string(r.Proposal.Proposer)}, Holder: holder(r), HoldUntil: r.Changed.Add(ect.MaxHold),
	}
}

// ask has humans decide a round, and ends it as they did (Escalation to Human Operator).
func (s *Service) ask(ctx context.Context, r consensus.Round) (consensus.Round, error) {
	granted, over, err := s.deps.Humans.Answer(ctx, r.Human.Approval)
	if isMissing(err) {
		return r, s.escalate(ctx, r)
	}
	if err != nil || !over {
		return r, err
	}
	now, err := s.deps.Clock(ctx)
	if err != nil {
		return r, recording(err)
	}
	return s.decide(ctx, r, consensus.Event{Kind: consensus.Decide, At: now.UTC(), Granted: granted})
}

// escalate shows humans the proposal, all votes and the reason.
func (s *Service) escalate(ctx context.Context, r consensus.Round) error {
	box, err := s.archive.box(ctx, r.Proposal.Round)
	if err != nil {
		return err
	}
	votes := []consensus.Vote{}
	for _, b := range box.Ballots {
		votes = append(votes, b.Vote)
	}
	content, err := json.Marshal(struct {
		Reason   consensus.Reason      `json:"reason"`
		Tally    consensus.Tally       `json:"tally"`
		Proposal consensus.Proposal    `json:"proposal"`
		Votes    []consensus.Vote      `json:"votes"`
		Deadlock []consensus.Candidate `json:"deadlocked_proposals,omitempty"`
	}{r.Human.Why, r.End.Outcome.Tally, r.Proposal, votes, r.Deadlock.Candidates})
	if err != nil {
		return err
	}
	return s.deps.Humans.Ask(ctx, approval.Question{
		ID: r.Human.Approval, About: "consensus", Asker: r.Proposal.Proposer, Workflow: r.Workflow, Gated: r.Proposed, Input: ect.Hash([]byte(r.Signed)),
		Subject: r.Proposal.Subject, Grant: "the round commits", Deny: "the round aborts", Content: content,
	})
}
