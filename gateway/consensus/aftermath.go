package consensus

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/policy/consensus"
)

// sendFor is how long an agreed action is sent again to an agent that does not take it. The pauses grow from a second to five minutes.
const (
	sendFor      = time.Hour
	longestPause = 5 * time.Minute
)

// aftermath does what follows from an outcome.
type aftermath struct {
	deps    Deps
	archive *archive

	mu     sync.Mutex
	seized map[string]time.Time // until when this replica does what follows from a round
}

// follow does what follows from an outcome, at one replica and in the background: another one does it if this one ends.
func (f *aftermath) follow(ctx context.Context, r consensus.Round) error {
	now, err := f.deps.Clock(ctx)
	if err != nil {
		return recording(err)
	}
	mine, err := f.archive.index(ctx, r, func(o open) (open, bool) {
		if o.Runner != "" && o.Until.After(now) {
			return o, false
		}
		o.Runner, o.Until, o.Due = f.deps.Replica, now.Add(maxSeized), now.Add(maxSeized)
		return o, true
	})
	if err != nil || !mine {
		return err
	}
	f.seize(r.Proposal.Round, f.deps.Now().Add(maxSeized))
	return f.deps.Go(string(r.Proposal.Proposer), func(ctx context.Context) {
		defer f.seize(r.Proposal.Round, time.Time{})
		if err := f.finish(ctx, r); err != nil && ctx.Err() == nil {
			f.deps.Logger.WarnContext(ctx, "what follows from a consensus round is done later", slog.String("round", r.Proposal.Round), slog.Any("error", err))
		}
	})
}

// finish records the votes, sends what was agreed, and takes the round out of the index once nothing is left to do.
func (f *aftermath) finish(ctx context.Context, r consensus.Round) error {
	if err := f.recordVotes(ctx, r); err != nil {
		return err
	}
	due := r.Due() // of a draw
	if r.Phase == consensus.Committed {
		left, err := f.sendAll(ctx, r)
		if err != nil {
			return err
		}
		due = left
	}
	if due.IsZero() {
		return recording(f.deps.Entries.Delete(ctx, openKey(r.Proposal.Round, r.Proposal.Proposer)))
	}
	_, err := f.archive.index(ctx, r, func(o open) (open, bool) {
		o.Runner, o.Until, o.Due = "", time.Time{}, due
		return o, true
	})
	return err
}

// recordVotes records a consensus_vote for each vote that the outcome rests on. Before the tally no evidence has them (R25). The same
// vote has the same id: one that is on record is not signed again, and what a replica left half done when it ended is completed.
func (f *aftermath) recordVotes(ctx context.Context, r consensus.Round) error {
	box, err := f.archive.box(ctx, r.Proposal.Round)
	if err != nil {
		return err
	}
	for _, b := range box.Ballots {
		if !slices.Contains(r.End.Counted, b.Hash) {
			continue
		}
		st := voteStatement(r, b)
		_, err := f.deps.Evidence.State(ctx, st)
		if _, there := errors.AsType[*ect.ConflictError](err); there {
			err = f.deps.Evidence.Complete(ctx, r.Workflow, st.ID)
		}
		if _, again := errors.AsType[*problem.RecordingError](err); again {
			return err
		}
		if err != nil { // the share of the proposer is used up
			f.deps.Logger.WarnContext(ctx, "a vote is not on record", slog.String("round", r.Proposal.Round), slog.Any("error", err))
		}
		if err := f.renew(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// seize notes until when this replica does what follows from a round; the zero time: it does not.
func (f *aftermath) seize(round string, until time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if until.IsZero() {
		delete(f.seized, round)
		return
	}
	f.seized[round] = until
}

// renew keeps the work on a round at this replica, once half of its time is over.
func (f *aftermath) renew(ctx context.Context, r consensus.Round) error {
	f.mu.Lock()
	until, now := f.seized[r.Proposal.Round], f.deps.Now()
	fresh := until.Sub(now) > maxSeized/2
	if !fresh {
		f.seized[r.Proposal.Round] = now.Add(maxSeized)
	}
	f.mu.Unlock()
	if fresh {
		return nil
	}
	at, err := f.deps.Clock(ctx)
	if err != nil {
		return recording(err)
	}
	mine, err := f.archive.index(ctx, r, func(o open) (open, bool) {
		o.Until, o.Due = at.Add(maxSeized), at.Add(maxSeized)
		return o, o.Runner == f.deps.Replica
	})
	if err == nil && !mine {
		return errSeized
	}
	return err
}

// sendAll sends the agreed action to each participant that is a listed agent and has not taken it, and returns when to send it again; the
// zero time: nothing is left to send. One that is no listed agent is told the outcome alone.
func (f *aftermath) sendAll(ctx context.Context, r consensus.Round) (again time.Time, err error) {
	claims, err := ect.ParseRecorded(r.Token)
	if err != nil {
		return again, err
	}
	now, err := f.deps.Clock(ctx)
	if err != nil {
		return again, recording(err)
	}
	passed := now.Sub(r.Changed)
	for _, m := range r.Rules.Members {
		name, listed := f.deps.Agents.Find(m.ID)
		if !listed {
			continue
		}
		key := state.EntryKey{Kind: KindAgreed, Group: r.Proposal.Round, ID: ect.Hash([]byte(m.ID)), Owner: string(r.Proposal.Proposer)}
		_, sent, err := f.deps.Entries.Get(ctx, key)
		if err == nil && !sent {
			err = f.renew(ctx, r)
		}
		if err != nil {
			return again, recording(err)
		}
		if sent {
			continue
		}
		failed := f.deps.Agents.Send(ctx, Order{
			Agent: name, Proposer: r.Proposal.Proposer, Action: r.Proposal.Action, Lineage: attest.Lineage{Workflow: r.Workflow, Parents: []ect.ID{claims.ID}},
			ID: stableID("agreed", r.Proposal.Round, string(m.ID)), At: r.Changed,
		})
		if failed != nil {
			f.deps.Logger.WarnContext(ctx, "an agent does not take what was agreed", slog.String("round", r.Proposal.Round), slog.String("agent", name), slog.Any("error", failed))
			if passed < sendFor {
				again = now.Add(min(max(passed/4, time.Second), longestPause))
				continue
			}
		}
		if err := f.delivered(ctx, key, failed); err != nil {
			return again, err
		}
	}
	return again, nil
}

func (f *aftermath) delivered(ctx context.Context, key state.EntryKey, failed error) error {
	value := "sent"
	if failed != nil {
		value = "failed"
	}
	_, err := f.archive.put(ctx, key, []byte(value), f.deps.Now().Add(life))
	if full, own := errors.AsType[*state.FullError](err); own && full.Own { // else what was sent would be sent again and again
		f.deps.Logger.WarnContext(ctx, "that an agreed action was sent is not noted: the share of the proposer is used up", slog.String("round", key.Group))
		return nil
	}
	return err
}

// voteStatement is what the gateway signs of a vote.
func voteStatement(r consensus.Round, b consensus.Ballot) attest.Statement {
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
		Input: b.Hash, Ext: ext, Audience: []string{string(v.Voter)}, Holder: holder(r), HoldUntil: r.Changed.Add(ect.MaxHold),
	}
}

// stableID is a UUID (version 8) that follows from texts.
func stableID(texts ...string) ect.ID {
	sum := sha256.Sum256([]byte(strings.Join(texts, "\n")))
	sum[6], sum[8] = sum[6]&0x0f|0x80, sum[8]&0x3f|0x80
	h := hex.EncodeToString(sum[:16])
	return ect.ID(h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:])
}

var errSeized = errors.New("consensus: another replica does what follows from this round")

// disputed tells operators of a participant that does not accept an outcome, or has got two.
func (s *Service) disputed(ctx context.Context, r consensus.Round, a consensus.Ack) {
	s.deps.Metrics.Anomaly(string(a.Kind))
	s.deps.Logger.ErrorContext(ctx, "a participant does not accept the outcome of a consensus round: look at what it has signed",
		slog.String("round", r.Proposal.Round), slog.String("participant", string(a.Participant)), slog.String("kind", string(a.Kind)))
}
