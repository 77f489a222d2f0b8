package checkpoint

import (
	"context"

	"github.com/aepb/aepb-gateway/ect"
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
	at := depositKey(who.ID, made.ID)
	at.Owner = who.Owner
	if err := recording(s.deps.Blobs.Put(ctx, at, []byte(made.Workflow), made.Ends())); err != nil {
		return made, err
	}
	s.deps.Count("deposited")
	return made, nil
}

// Fetch is the state that an agent deposited, for that agent alone. *[problem.NotFoundError]: there is no such deposit of this agent.
func (s *Service) Fetch(ctx context.Context, who ect.Identity, id ect.ID) (Saved, []byte, error) {
	workflow, _, found, err := s.deps.Blobs.Get(ctx, depositKey(who, id))
	if err != nil {
		return Saved{}, nil, recording(err)
	}
	if !found {
		return Saved{}, nil, &problem.NotFoundError{What: "checkpoint"}
	}
	k, err := s.Find(ctx, string(workflow), id)
	switch {
	case err != nil:
		return Saved{}, nil, err
	case k.Plan != nil || k.Issuer != who:
		return Saved{}, nil, &problem.NotFoundError{What: "checkpoint"}
	}
	return k, k.state, nil
}

// depositKey is where the workflow of a deposit is stored, which its agent needs not name. Evidence may end before the deposit does. An agent has many
// such groups, so that their bound is not one of its deposits.
func depositKey(who ect.Identity, id ect.ID) state.BlobKey {
	return state.BlobKey{Group: "deposits of " + string(who) + " " + string(id[:min(len(id), 2)]), ID: string(id)}
}
