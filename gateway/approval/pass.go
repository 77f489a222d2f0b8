package approval

import (
	"context"
	"errors"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/idempotency"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/record"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/policy/hitl"
)

// Request is a call for which the rules demand an approval.
type Request struct {
	Call     hitl.Call
	Demand   hitl.Demand
	Input    string // inp_hash of the message
	Text     string // what approvers are shown
	Whole    bool   // Text shows all of the call
	Attested bool   // the caller's own token is what is approved
	Workflow string // that the caller names; empty: none, so the same call is meant in any
	// Sign records what is to be approved, and says in which workflow: the source of the message, or an intent.
	Sign func(ctx context.Context) (workflow string, gated ect.ID, err error)
}

// Pass consumes the approval of a call whose caller sends it again once it is granted. Without a granted one it
// asks humans, and its error is a *[problem.ApprovalError] that says how that stands. Other errors are those of
// the store and of Sign, *[quota.ExceededError], and *[problem.ConflictError].
func (s *Service) Pass(ctx context.Context, r Request) (hitl.Approval, error) {
	for range maxRaces {
		key := callKey(r.Call, r.Workflow)
		entry, found, err := s.deps.Entries.Get(ctx, key)
		if err != nil {
			return hitl.Approval{}, attest.Recording(err)
		}
		id, before := s.deps.NewID(), ""
		if found {
			a, err := s.read(ctx, string(entry.Value))
			_, missing := errors.AsType[*problem.NotFoundError](err)
			switch {
			case missing: // its replica ended before it was written
				return s.ask(ctx, string(entry.Value), "", r)
			case err != nil:
				return a, err
			}
			a, again, err := s.passWith(ctx, a, r)
			if err != nil || !again {
				return a, err
			}
			before = a.ID
		}
		_, first, err := s.deps.Entries.Swap(ctx, key, entry.Revision, []byte(id), s.deps.Now().Add(life))
		if err != nil {
			return hitl.Approval{}, attest.Recording(err)
		}
		if first {
			return s.ask(ctx, id, before, r)
		}
	}
	return hitl.Approval{}, &problem.ConflictError{Reason: "the same call is being sent many times at once: send it once"}
}

// ask opens an approval. Its error is a *[problem.ApprovalError] if that is done.
func (s *Service) ask(ctx context.Context, id, before string, r Request) (hitl.Approval, error) {
	a, err := s.Open(ctx, id, "", before, r)
	if err == nil {
		err = refusal(a)
	}
	return a, err
}

// passWith consumes the latest approval of a call if it is granted. again: it is over, or void, so that another
// one is needed.
func (s *Service) passWith(ctx context.Context, a hitl.Approval, r Request) (_ hitl.Approval, again bool, err error) {
	now := s.deps.Now()
	if a.State == hitl.Granted {
		used, err := s.Consume(ctx, a.ID, r.Call, r.Demand.Hash)
		_, void := errors.AsType[*hitl.RefusedError](err)
		_, other := errors.AsType[*hitl.StateError](err)
		if void || other { // late, or under other rules, or another message was first
			return used, true, s.Cancel(ctx, a.ID, "it was not used in time, or the rules have changed")
		}
		return used, false, err
	}
	waits := a.State == hitl.Pending || a.State == hitl.Denied
	if waits && now.Before(a.Until) && (a.State == hitl.Denied || a.Demand.Hash == r.Demand.Hash) {
		return a, false, refusal(a)
	}
	if !a.State.Over() {
		return a, true, s.Cancel(ctx, a.ID, "it was not decided in time, or the rules have changed")
	}
	return a, true, nil
}

// callKey names the latest approval of a call.
func callKey(c hitl.Call, workflow string) state.EntryKey {
	name := idempotency.AppendTexts(nil, string(c.Caller), c.Address, c.Agent, c.Operation, c.Tool, c.Digest, workflow)
	return state.EntryKey{Kind: KindCall, ID: ect.Hash(name), Owner: c.Owner()}
}

// refusal says to a caller how its approval stands.
func refusal(a hitl.Approval) error {
	return &problem.ApprovalError{ID: a.ID, State: string(a.State), URL: Path(a.ID), Until: a.Until, Reason: reason(a)}
}

// Path is where the gateway serves an approval.
func Path(id string) string { return "/hitl/approvals/" + id }

// reason is what the last approver said, else why it ended.
func reason(a hitl.Approval) string {
	if n := len(a.Decisions); n > 0 && a.Decisions[n-1].Reason != "" {
		return a.Decisions[n-1].Reason
	}
	return a.End.Why
}

// Reserve books an approval in its caller's share before it is opened. If it is not opened soon, its task is ended.
// Its errors are those of the store, and *[quota.ExceededError].
func (s *Service) Reserve(ctx context.Context, id, task string, call hitl.Call) error {
	now := s.deps.Now().UTC().Truncate(time.Millisecond)
	return s.agenda.enter(ctx, id, waiting{Due: now.Add(settleAfter), Opened: now, Call: call, Task: task})
}

// Open asks humans about a call: it books the caller's share, keeps the text, has the call signed, and writes
// the approval. task is the caller's task that waits for it; empty: its caller sends the call again. before is
// the approval of the same call before. An approval of this id that is there already is returned. Its errors are
// those of the store and of Request.Sign, and *[quota.ExceededError].
func (s *Service) Open(ctx context.Context, id, task, before string, r Request) (hitl.Approval, error) {
	if err := s.Reserve(ctx, id, task, r.Call); err != nil {
		return hitl.Approval{}, err
	}
	now := s.deps.Now().UTC().Truncate(time.Millisecond)
	a, err := s.write(ctx, r, hitl.Approval{
		Form: hitl.Form, ID: id, Term: 1, State: hitl.Pending, Call: r.Call, Demand: r.Demand, Origin: hitl.Origin{Input: r.Input, Attested: r.Attested, Before: before},
		Shown: ect.Hash([]byte(r.Text)), Whole: r.Whole, Opened: now, Until: now.Add(r.Demand.Wait), Changed: now, Task: task,
	})
	if err != nil {
		s.agenda.drop(context.WithoutCancel(ctx), id)
		return a, err
	}
	return a, s.agenda.lookAgain(ctx, id, a.Until)
}

// write keeps the text of a new approval, has its call signed, and writes it.
func (s *Service) write(ctx context.Context, r Request, first hitl.Approval) (hitl.Approval, error) {
	text := textKey(first)
	if _, _, err := s.deps.Entries.Swap(ctx, text, 0, []byte(r.Text), first.Opened.Add(life)); err != nil {
		return first, attest.Recording(err)
	}
	var err error
	if first.Origin.Workflow, first.Origin.Gated, err = r.Sign(ctx); err != nil {
		return first, err
	}
	a, opened, err := s.records.Decide(ctx, keyOf(first.ID, r.Call.Owner()), func(found record.Found[hitl.Approval]) (hitl.Approval, *attest.Statement, error) {
		if found.Revision != 0 {
			return found.Value, nil, record.ErrUnchanged
		}
		return first, nil, nil
	})
	if opened {
		s.deps.Notices.changed(ctx, a)
	}
	return a, recording(err)
}

// Consume takes a granted approval for one call, which may be sent then. Of all who try it one succeeds. rules is
// the hash of the rules that demand an approval of it now; empty: none does. Its errors are those of
// [hitl.Approval.Next] and of the store, *[problem.NotFoundError] and *[problem.ConflictError].
func (s *Service) Consume(ctx context.Context, id string, call hitl.Call, rules string) (hitl.Approval, error) {
	a, err := s.on(ctx, id, hitl.Event{Kind: hitl.Consume, At: s.deps.Now().UTC(), Replica: s.deps.Replica, Call: call, Rules: rules})
	if err == nil && a.Task == "" {
		s.agenda.drop(ctx, id)
	}
	return a, err
}
