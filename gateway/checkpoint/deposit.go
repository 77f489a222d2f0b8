package checkpoint

import (
	"context"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/lifecycle/checkpoint"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/translators"
)

// Depositor is an agent that deposits its state.
type Depositor struct {
	ID     ect.Identity
	Owner  string // whose share of the store it takes
	Holder string // in whose share its evidence counts
}

// Deposit keeps the state of an agent, and the atd:checkpoint that the agent signed of it, until the checkpoint ends.
// The state is kept as it came: an agent can seal it itself. Once more the same does nothing. Its errors are
// *[checkpoint.InvalidError] and *[ect.InvalidError] for a token that is not such a checkpoint of the agent's own, or whose hash
// is not that of the state; *[policy.Forbidden] for an agent that has no part in the workflow; *[state.FullError],
// *[limit.ExceededError], *[translators.TooLongError], and those of [attest.Recording].
func (s *Service) Deposit(ctx context.Context, who Depositor, compact string, content []byte) (checkpoint.Checkpoint, error) {
	claims, _, err := ect.ParseUnverified(compact)
	if err != nil {
		return checkpoint.Checkpoint{}, err
	}
	made, err := checkpoint.Parse(claims)
	if err != nil {
		return made, err
	}
	switch {
	case len(content) > MaxDeposit:
		return made, &translators.TooLongError{Reason: "a state has at most 716800 bytes: deposit a part of it, or its place"}
	case claims.Workflow == "":
		return made, &ect.InvalidError{Reason: ect.ReasonMissingClaim, ID: claims.ID, Claim: "wid"}
	case ect.Hash(content) != made.State:
		return made, &ect.InvalidError{Reason: ect.ReasonInvalidClaim, ID: claims.ID, Claim: "out_hash"}
	case !made.Ends().After(s.deps.Now()):
		return made, &ect.InvalidError{Reason: ect.ReasonExpired, ID: claims.ID}
	}
	member, err := s.deps.Belongs(ctx, made.Workflow, who.ID)
	switch {
	case err != nil:
		return made, &problem.RecordingError{Err: err}
	case !member:
		return made, &policy.Forbidden{Reason: "the caller has no part in this workflow"}
	}
	if err := s.admit(made.Workflow, who.Owner); err != nil {
		return made, err
	}
	v, err := s.deps.Evidence.Bring(ctx, compact, who.ID, who.Holder)
	if err != nil {
		return made, err
	}
	if v.Level() < ect.L2 {
		return made, &ect.InvalidError{Reason: ect.ReasonLevelTooLow, ID: v.ID()}
	}
	key := state.BlobKey{Group: made.Workflow, ID: string(made.ID), Owner: who.Owner}
	if err := s.put(ctx, key, stored{Version: version, Token: compact, State: content, Deposit: true}, made.Ends()); err != nil {
		return made, err
	}
	s.deps.Count("deposited")
	return made, nil
}

// Fetch is the state that an agent deposited, for that agent alone. *[problem.NotFoundError]: there is no such deposit of this agent.
func (s *Service) Fetch(ctx context.Context, who ect.Identity, id ect.ID) (Saved, []byte, error) {
	missing := &problem.NotFoundError{What: "checkpoint"}
	found, err := s.deps.Find(ctx, ect.Ref{ID: id, Issuer: who})
	if err != nil {
		return Saved{}, nil, attest.Recording(err)
	}
	for _, r := range found[0] {
		if r.Issuer != who || r.Act != ect.ActCheckpoint {
			continue
		}
		k, err := s.Find(ctx, r.Workflow, id)
		if err != nil {
			return Saved{}, nil, err
		}
		if k.Plan == nil && k.Issuer == who {
			return k, k.state, nil
		}
	}
	return Saved{}, nil, missing
}
