package consensus

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/policy/consensus"
	"github.com/aepb/aepb-gateway/policy/consensus/signed"
)

// Vote takes a vote and returns its hash. The same vote once more changes nothing; another one of the same voter is kept as
// evidence and refused, and then neither counts (R24). Its errors are *[consensus.InvalidError], *[consensus.RefusedError],
// *[policy.Forbidden] for a vote of others, *[ect.InvalidError] for its signature, *[problem.NotFoundError] also for callers that take
// no part in the round, and those of the store.
func (s *Service) Vote(ctx context.Context, who ect.Identity, round string, text []byte) (hash string, err error) {
	m, err := signed.Parse[consensus.Vote](text)
	if err != nil {
		return "", err
	}
	r, now, err := s.taking(ctx, who, round)
	if err != nil {
		return "", err
	}
	if err := authentic(ctx, s.deps.Verifier, m, who, now); err != nil {
		return "", err
	}
	if r.Phase != consensus.Voting {
		return m.Hash, s.counted(ctx, r, who, m.Hash)
	}
	if err := r.Admits(m.Content, now); err != nil {
		return "", err
	}
	if err := errors.Join(s.judgeLead(ctx, r, m, now), s.judgeSealed(ctx, r, m)); err != nil {
		return "", err
	}
	doubled, err := s.archive.keepVote(ctx, round, stored{kindVote, m.Compact, now.UTC()}, who)
	if err != nil {
		return "", err
	}
	return m.Hash, s.came(ctx, r, who, m.Hash, doubled)
}

var errDoubled = &consensus.RefusedError{Reason: "this voter has sent different votes, which are kept as evidence: none of them counts any more", Doubled: true}

// taking is a round in which a caller takes part, and the store's time.
func (s *Service) taking(ctx context.Context, who ect.Identity, round string) (consensus.Round, time.Time, error) {
	r, err := s.archive.read(ctx, round)
	if err != nil {
		return r, time.Time{}, err
	}
	if !concerns(r, who) {
		return r, time.Time{}, &problem.NotFoundError{What: "round"}
	}
	now, err := s.deps.Clock(ctx)
	return r, now, recording(err)
}

// counted is nil for a vote that the outcome rests on, or will while there is none yet; else it came too late, or the outcome rests on
// it and a different one of the same voter.
func (s *Service) counted(ctx context.Context, r consensus.Round, who ect.Identity, hash string) error {
	if !slices.Contains(r.End.Counted, hash) {
		return &consensus.RefusedError{Reason: "the round is " + string(r.Phase) + ": the time for votes is over", Late: true}
	}
	for slot := range maxSlots {
		entry, found, err := s.deps.Entries.Get(ctx, messageKey(r.Proposal.Round, kindVote, who, slot))
		if err != nil || !found {
			return recording(err)
		}
		var m stored
		if err := json.Unmarshal(entry.Value, &m); err != nil {
			return err
		}
		if other := ect.Hash([]byte(m.Compact)); other != hash && slices.Contains(r.End.Counted, other) {
			return errDoubled
		}
	}
	return nil
}

// came looks at a round for which a vote was written. Each replica reads the clock before the messages, so a vote that is on record
// before a round may be decided is counted by all of them. One that was written later counts if the round has it once its time for
// votes is over; while that is not known, the voter sends it again. A vote that was written while the round ended early may not
// count.
func (s *Service) came(ctx context.Context, r consensus.Round, who ect.Identity, hash string, doubled bool) error {
	now, err := s.deps.Clock(ctx)
	if err != nil {
		return recording(err)
	}
	inTime := now.Before(r.Due())
	var failed error
	if len(r.Rules.Members) <= smallRound || doubled || !inTime {
		failed = s.visit(ctx, r.Proposal.Round)
	}
	if failed != nil || len(r.Rules.Members) > smallRound {
		s.touch(r.Proposal.Round)
	}
	after, err := s.archive.read(ctx, r.Proposal.Round)
	switch {
	case err != nil:
		return err
	case after.Phase != consensus.Voting:
		return s.counted(ctx, after, who, hash)
	case doubled:
		return errDoubled
	case !inTime:
		return cmp.Or[error](failed, errUndecided)
	}
	return nil
}

var errUndecided = &problem.ConflictError{Reason: "the time for votes ended while the vote was written, and it is not known yet if it counts: send it again"}

// judgeLead refuses a decision of the leader that would have to be explained and is not.
func (s *Service) judgeLead(ctx context.Context, r consensus.Round, m signed.Message[consensus.Vote], now time.Time) error {
	if r.Rules.Leader != m.Content.Voter || r.Rules.Leader == "" {
		return nil
	}
	box, err := s.archive.box(ctx, r.Proposal.Round)
	if err != nil {
		return err
	}
	box.Ballots = append(box.Ballots, consensus.Ballot{Vote: m.Content, Hash: m.Hash, Received: now})
	if r.Overrides(box) {
		return &consensus.RefusedError{Reason: "most votes say otherwise: the leader needs a rationale to decide against them"}
	}
	return nil
}

// judgeSealed refuses a vote to which its voter has not committed, where votes are committed to first.
func (s *Service) judgeSealed(ctx context.Context, r consensus.Round, m signed.Message[consensus.Vote]) error {
	if r.Proposal.Terms.RevealBy.IsZero() {
		return nil
	}
	promised := 0
	for slot := range maxSlots {
		entry, found, err := s.deps.Entries.Get(ctx, messageKey(r.Proposal.Round, string(consensus.Sealed), m.Content.Voter, slot))
		if err != nil {
			return recording(err)
		}
		if !found {
			break
		}
		ack, err := ackOf(entry.Value)
		if err != nil {
			return err
		}
		if promised++; ack.Vote != m.Hash {
			return &consensus.RefusedError{Reason: "the voter has committed to another vote"}
		}
	}
	if promised == 0 {
		return &consensus.RefusedError{Reason: "the voter has committed to no vote in time"}
	}
	return nil
}

func ackOf(value []byte) (consensus.Ack, error) {
	var m stored
	if err := json.Unmarshal(value, &m); err != nil {
		return consensus.Ack{}, err
	}
	a, err := signed.Take[consensus.Ack](m.Compact)
	return a.Content, err
}

// Acknowledge takes an acknowledgement and returns its hash. Its errors are those of Vote.
func (s *Service) Acknowledge(ctx context.Context, who ect.Identity, round string, text []byte) (hash string, err error) {
	m, err := signed.Parse[consensus.Ack](text)
	if err != nil {
		return "", err
	}
	r, now, err := s.taking(ctx, who, round)
	if err != nil {
		return "", err
	}
	a := m.Content
	if err := authentic(ctx, s.deps.Verifier, m, who, now); err != nil {
		return "", err
	}
	if err := r.AdmitsAck(a, now); err != nil {
		return "", err
	}
	if err := judgeOutcomes(ctx, s.deps.Verifier, s.deps.Signer().Issuer(), a); err != nil {
		return "", err
	}
	slots := map[consensus.AckKind]int{consensus.Sealed: maxSlots, consensus.Disputed: maxSlots}[a.Kind]
	there, first, err := s.archive.keep(ctx, round, stored{string(a.Kind), m.Compact, now.UTC()}, who, max(slots, 1))
	if err != nil {
		return "", err
	}
	switch {
	case !there && (a.Kind == consensus.Received || a.Kind == consensus.Executed):
		return m.Hash, nil // one says it
	case !there:
		return "", &consensus.RefusedError{Reason: "an acknowledgement of this kind that says something else is on record"}
	case first && (a.Kind == consensus.Disputed || a.Kind == consensus.Refuses):
		s.disputed(ctx, r, a)
	}
	s.touch(round)
	return m.Hash, nil
}

// judgeOutcomes refuses an acknowledgement whose outcomes are not signed, are about another round, or do not differ: operators are
// told of disputes.
func judgeOutcomes(ctx context.Context, v signed.Verifier, own ect.Identity, a consensus.Ack) error {
	refused := func(reason string) error {
		return &consensus.InvalidError{Message: "acknowledgement", Member: "outcomes", Reason: reason}
	}
	for _, compact := range a.Outcomes {
		o, err := signed.Take[consensus.Outcome](compact)
		if err != nil {
			return refused("are signed outcomes, each a JWS in compact form")
		}
		if o.Content.Proposal != a.Proposal || o.Content.Round != a.Round {
			return refused("are about another round")
		}
		if o.Content.Coordinator != own {
			return refused("are of another coordinator than " + string(own))
		}
		if err := o.Verify(ctx, v); err != nil {
			return err
		}
	}
	if a.Kind != consensus.Disputed {
		return nil
	}
	var differ *signed.EquivocationError
	if _, err := signed.Accept(a.Outcomes[0], a.Outcomes[1]); !errors.As(err, &differ) {
		return refused("of a dispute say the same: expected two that differ")
	}
	return nil
}

// Message is a signed message of a round, as it may be told.
type Message struct {
	Kind     string // vote or ack
	Compact  string
	Received time.Time
}

// JSON is the message as it was sent.
func (m Message) JSON() ([]byte, error) {
	if m.Kind == kindVote {
		v, err := signed.Take[consensus.Vote](m.Compact)
		if err != nil {
			return nil, err
		}
		return v.MarshalJSON()
	}
	a, err := signed.Take[consensus.Ack](m.Compact)
	if err != nil {
		return nil, err
	}
	return a.MarshalJSON()
}

// Messages is a page of the signed messages of a round: before the tally the caller's own alone, to the leader of a round also the votes
// that it decides with; after it those that the outcome rests on. Without an identity, for operators: none before the tally. Its
// errors are those of [Service.Show].
func (s *Service) Messages(ctx context.Context, round string, who ect.Identity, after, limit int) (page []Message, more bool, err error) {
	r, err := s.Show(ctx, round, who)
	if err != nil {
		return nil, false, err
	}
	all, err := s.archive.messages(ctx, round)
	if err != nil {
		return nil, false, err
	}
	for _, m := range all {
		readable, err := mayRead(r, m, who)
		if err != nil {
			return nil, false, err
		}
		if !readable {
			continue
		}
		if after--; after >= 0 {
			continue
		}
		if len(page) == limit {
			return page, true, nil
		}
		kind := kindVote
		if m.Kind != kindVote {
			kind = "ack"
		}
		page = append(page, Message{kind, m.Compact, m.Received})
	}
	return page, false, nil
}

func mayRead(r consensus.Round, m stored, who ect.Identity) (bool, error) {
	if r.Phase.Decided() { // with others among them, such as the reader's own executed, the outcome would not follow
		return slices.Contains(r.End.Counted, ect.Hash([]byte(m.Compact))), nil
	}
	if r.Rules.Leader == who && who != "" && r.Proposal.Mechanism == consensus.Leader && m.Kind == kindVote {
		return true, nil
	}
	if m.Kind == kindVote {
		v, err := signed.Take[consensus.Vote](m.Compact)
		return err == nil && who != "" && v.Content.Voter == who, err
	}
	a, err := signed.Take[consensus.Ack](m.Compact)
	return err == nil && who != "" && a.Content.Participant == who, err
}

// isMissing reports whether a round is not there.
func isMissing(err error) bool {
	_, missing := errors.AsType[*problem.NotFoundError](err)
	return missing
}
