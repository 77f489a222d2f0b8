package approval

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/hitl"
)

// questionFor is how long humans have time to answer a question.
const questionFor = 24 * time.Hour

// Question is what humans decide beside calls, such as a consensus round that its participants cannot decide.
type Question struct {
	ID       string       // of the approval: the same question has the same id
	About    string       // in one word
	Asker    ect.Identity // does not decide itself
	Workflow string
	Gated    ect.ID // the token of what is decided, on record there
	Input    string // inp_hash of that token
	Subject  string
	Grant    string          // what follows from a grant
	Deny     string          // what follows from a denial, and from silence
	Content  json.RawMessage // all that is decided about
}

func (q Question) call() hitl.Call {
	return hitl.Call{Caller: q.Asker, Agent: q.About, Operation: q.About, Digest: ect.Hash(q.Content)}
}

// Ask asks humans. What was asked before under the same id stays as it is. Its errors are those of [Service.Open].
func Ask(ctx context.Context, s *Service, q Question) error {
	demand := hitl.Demand{Rules: []string{q.About}, Roles: []string{string(policy.RoleApprover)}, Approvers: 1, Wait: questionFor, Unreachable: hitl.DenyCall, Hash: ect.Hash([]byte(q.About))}
	r := Request{
		Call: q.call(), Demand: demand, Input: q.Input, Workflow: q.Workflow,
		Sign: func(context.Context) (string, ect.ID, error) { return q.Workflow, q.Gated, nil },
	}
	r.Text, r.Whole = hitl.Show(hitl.Shown{Grant: q.Grant, Deny: q.Deny, Call: r.Call, Args: q.Content, Words: q.Subject, Demand: demand, Workflow: q.Workflow, Until: s.deps.Now().Add(questionFor)})
	_, err := s.Open(ctx, q.ID, "", "", r)
	return err
}

// Answer is what humans answered; over is false while they have not. Its errors are *[problem.NotFoundError] where
// nothing was asked, and those of the store.
func Answer(ctx context.Context, s *Service, id string) (granted, over bool, err error) {
	a, err := s.read(ctx, id)
	if err != nil {
		return false, false, err
	}
	if a.State == hitl.Granted { // it is used, so that it cannot be taken back any more
		used, err := s.Consume(ctx, id, a.Call, a.Demand.Hash)
		_, refused := errors.AsType[*hitl.RefusedError](err)
		_, other := errors.AsType[*hitl.StateError](err)
		_, conflict := errors.AsType[*problem.ConflictError](err)
		if refused || other || conflict {
			return false, false, nil // another look says how it stands
		}
		return used.State == hitl.Consumed, used.State == hitl.Consumed, err
	}
	return a.State == hitl.Consumed, a.State.Over(), nil
}
