package consensus

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/policy/consensus"
)

// sendFor is how long an agreed action is sent again to an agent that does not take it. The pauses grow from a second to five minutes.
const (
	sendFor      = time.Hour
	longestPause = 5 * time.Minute
)

// follow does what follows from an outcome, at one replica and in the background: another one does it if this one ends.
func (s *Service) follow(ctx context.Context, r consensus.Round) error {
	now, err := s.deps.Clock(ctx)
	if err != nil {
		return recording(err)
	}
	mine, err := s.index(ctx, r, func(o open) (open, bool) {
		if o.Runner != "" && o.Until.After(now) {
			return o, false
		}
		o.Runner, o.Until, o.Due = s.deps.Replica, now.Add(maxSeized), now.Add(maxSeized)
		return o, true
	})
	if err != nil || !mine {
		return err
	}
	s.seize(r.Proposal.Round, s.deps.Now().Add(maxSeized))
	return s.deps.Go(string(r.Proposal.Proposer), func(ctx context.Context) {
		defer s.seize(r.Proposal.Round, time.Time{})
		if err := s.finish(ctx, r); err != nil && ctx.Err() == nil {
			s.deps.Logger.WarnContext(ctx, "what follows from a consensus round is done later", slog.String("round", r.Proposal.Round), slog.Any("error", err))
		}
	})
}

// finish records the votes, sends what was agreed, and takes the round out of the index once nothing is left to do.
func (s *Service) finish(ctx context.Context, r consensus.Round) error {
	if err := s.recordVotes(ctx, r); err != nil {
		return err
	}
	due := r.Due() // of a draw
	if r.Phase == consensus.Committed {
		left, err := s.sendAll(ctx, r)
		if err != nil {
			return err
		}
		due = left
	}
	if due.IsZero() {
		return recording(s.deps.Entries.Delete(ctx, openKey(r.Proposal.Round, r.Proposal.Proposer)))
	}
	_, err := s.index(ctx, r, func(o open) (open, bool) {
		o.Runner, o.Until, o.Due = "", time.Time{}, due
		return o, true
	})
	return err
}

// recordVotes records a consensus_vote for each vote that the outcome rests on. Before the tally no evidence has them (R25). The same
// vote has the same id: one that is on record is not signed again, and what a replica left half done when it ended is completed.
func (s *Service) recordVotes(ctx context.Context, r consensus.Round) error {
	box, err := s.box(ctx, r.Proposal.Round)
	if err != nil {
		return err
	}
	for _, b := range box.Ballots {
		if !slices.Contains(r.Counted, b.Hash) {
			continue
		}
		st := cast(r, b)
		_, err := s.deps.Evidence.State(ctx, st)
		if _, there := errors.AsType[*ect.ConflictError](err); there {
			err = s.deps.Evidence.Complete(ctx, r.Workflow, st.ID)
		}
		if err != nil {
			return err
		}
		if err := s.renew(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// cast is what the gateway signs of a vote.
func cast(r consensus.Round, b consensus.Ballot) attest.Statement {
	v, ext := b.Vote, ect.Ext{}
	ext.SetString(ect.ExtProposal, v.Proposal)
	ext.SetString(ect.ExtRound, v.Round)
	ext.SetString(ect.ExtVoter, string(v.Voter))
	ext.SetString(ect.ExtDecision, string(v.Decision))
	if v.Rationale != "" {
		ext.SetText(ect.ExtRationale, v.Rationale)
	}
	return attest.Statement{
		Act: ect.ActConsensusVote, ID: stableID("vote", b.Hash), Lineage: attest.Lineage{Workflow: r.Workflow, Parents: []ect.ID{r.Proposed}},
		Input: b.Hash, Ext: ext, Audience: []string{string(v.Voter)}, HoldUntil: r.Changed.Add(life),
	}
}

// stableID is a UUID (version 8) that follows from texts.
func stableID(texts ...string) ect.ID {
	sum := sha256.Sum256([]byte(strings.Join(texts, "\n")))
	sum[6], sum[8] = sum[6]&0x0f|0x80, sum[8]&0x3f|0x80
	h := hex.EncodeToString(sum[:16])
	return ect.ID(h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:])
}

// seize notes until when this replica does what follows from a round; the zero time: it does not.
func (s *Service) seize(round string, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if until.IsZero() {
		delete(s.seized, round)
		return
	}
	s.seized[round] = until
}

// renew keeps the work on a round at this replica, once half of its time is over.
func (s *Service) renew(ctx context.Context, r consensus.Round) error {
	s.mu.Lock()
	until, now := s.seized[r.Proposal.Round], s.deps.Now()
	fresh := until.Sub(now) > maxSeized/2
	if !fresh {
		s.seized[r.Proposal.Round] = now.Add(maxSeized)
	}
	s.mu.Unlock()
	if fresh {
		return nil
	}
	at, err := s.deps.Clock(ctx)
	if err != nil {
		return recording(err)
	}
	mine, err := s.index(ctx, r, func(o open) (open, bool) {
		o.Until, o.Due = at.Add(maxSeized), at.Add(maxSeized)
		return o, o.Runner == s.deps.Replica
	})
	if err == nil && !mine {
		return errSeized
	}
	return err
}

var errSeized = errors.New("consensus: another replica does what follows from this round")

// sendAll sends the agreed action to each participant that is a listed agent and has not taken it, and returns when to send it again; the
// zero time: nothing is left to send. One that is no listed agent is told the outcome alone.
func (s *Service) sendAll(ctx context.Context, r consensus.Round) (again time.Time, err error) {
	claims, err := ect.ParseRecorded(r.Token)
	if err != nil {
		return again, err
	}
	now, err := s.deps.Clock(ctx)
	if err != nil {
		return again, recording(err)
	}
	passed := now.Sub(r.Changed)
	for _, m := range r.Rules.Members {
		name, listed := s.deps.Agents.Find(m.ID)
		if !listed {
			continue
		}
		key := state.EntryKey{Kind: KindAgreed, Group: r.Proposal.Round, ID: ect.Hash([]byte(m.ID)), Owner: string(r.Proposal.Proposer)}
		_, sent, err := s.deps.Entries.Get(ctx, key)
		if err == nil && !sent {
			err = s.renew(ctx, r)
		}
		if err != nil {
			return again, recording(err)
		}
		if sent {
			continue
		}
		failed := s.deps.Agents.Send(ctx, Order{
			Agent: name, Action: r.Proposal.Action, Lineage: attest.Lineage{Workflow: r.Workflow, Parents: []ect.ID{claims.ID}},
			ID: stableID("agreed", r.Proposal.Round, string(m.ID)), At: r.Changed,
		})
		if failed != nil {
			s.deps.Logger.WarnContext(ctx, "an agent does not take what was agreed", slog.String("round", r.Proposal.Round), slog.String("agent", name), slog.Any("error", failed))
			if passed < sendFor {
				again = now.Add(min(max(passed/4, time.Second), longestPause))
				continue
			}
		}
		if err := s.delivered(ctx, key, failed); err != nil {
			return again, err
		}
	}
	return again, nil
}

// delivery is what became of an agreed action at one participant.
type delivery struct {
	Failed bool `json:"failed,omitempty"` // the agent did not take it in time
}

func (s *Service) delivered(ctx context.Context, key state.EntryKey, failed error) error {
	value, err := json.Marshal(delivery{failed != nil})
	if err != nil {
		return err
	}
	_, err = s.put(ctx, key, value, s.deps.Now().Add(life))
	return err
}

// disputed tells operators of a participant that does not accept an outcome, or has got two.
func (s *Service) disputed(ctx context.Context, r consensus.Round, a consensus.Ack) {
	s.deps.Metrics.Anomaly(string(a.Kind))
	s.deps.Logger.ErrorContext(ctx, "a participant does not accept the outcome of a consensus round: look at what it has signed",
		slog.String("round", r.Proposal.Round), slog.String("participant", string(a.Participant)), slog.String("kind", string(a.Kind)), slog.String("why", a.Rationale))
}
