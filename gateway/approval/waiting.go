package approval

import (
	"context"
	"errors"
	"log/slog"

	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/worker"
	"github.com/aepb/aepb-gateway/policy/hitl"
)

// Watch looks at what is due from now on: it ends what no human decides in time, and goes on where another replica
// ended. It returns when ctx ends.
func (s *Service) Watch(ctx context.Context) {
	for worker.Pause(ctx, interval) {
		due, err := s.agenda.readWaiting(ctx, true)
		if err != nil {
			s.deps.Logger.WarnContext(ctx, "approvals are not looked at", slog.Any("error", err))
		}
		for _, id := range due {
			if err := s.visit(ctx, id); err != nil && ctx.Err() == nil {
				s.deps.Logger.WarnContext(ctx, "an approval is looked at again later", slog.String("approval", id), slog.Any("error", err))
			}
		}
	}
}

// visit does what an approval needs that is due.
func (s *Service) visit(ctx context.Context, id string) error {
	a, err := s.read(ctx, id)
	if _, missing := errors.AsType[*problem.NotFoundError](err); missing {
		return s.abandon(ctx, id)
	}
	if err != nil {
		return err
	}
	now := s.deps.Now()
	if late := !now.Before(a.Until); late && (a.State == hitl.Pending || a.State == hitl.Granted) {
		if a, err = s.on(ctx, id, hitl.Event{Kind: overdue(a), At: now.UTC(), Reason: "no human decided in time"}); err != nil {
			return err
		}
	}
	return s.settle(ctx, a)
}

// overdue is what happens to an approval whose time is over.
func overdue(a hitl.Approval) hitl.Kind {
	switch {
	case a.State == hitl.Granted || a.Demand.Unreachable == hitl.DenyCall:
		return hitl.Expire
	case a.Demand.Unreachable == hitl.Continue && a.Whole:
		return hitl.Proceed
	case a.Demand.Unreachable == hitl.Escalate:
		return hitl.Raise
	}
	return hitl.Expire
}

// abandon ends the task of an approval that its replica did not write before it ended.
func (s *Service) abandon(ctx context.Context, id string) error {
	w := s.agenda.find(id)
	if w.Task != "" {
		a := hitl.Approval{ID: id, State: hitl.Canceled, Call: w.Call, Task: w.Task}
		if err := s.deps.Tasks.End(ctx, a, "the gateway ended before it could ask for an approval: nothing was sent"); err != nil {
			return err
		}
	}
	s.agenda.drop(ctx, id)
	return nil
}

// settle does what follows from the state of an approval. It may be done again.
func (s *Service) settle(ctx context.Context, a hitl.Approval) error {
	if (a.State == hitl.Granted || a.State == hitl.Denied) && s.agenda.announces(a.ID) {
		s.deps.Notices.decided(ctx, a)
	}
	switch {
	case a.State == hitl.Granted && a.Task != "":
		return s.release(ctx, a)
	case !a.State.Over():
		return s.agenda.lookAgain(ctx, a.ID, a.Until)
	case a.State == hitl.Consumed && a.Task != "" && a.End.Replica == s.deps.Replica:
		return s.finish(ctx, a)
	case a.State == hitl.Consumed && a.Task != "" && s.deps.Alive(ctx, a.End.Replica):
		return s.agenda.lookAgain(ctx, a.ID, s.deps.Now().Add(settleAfter)) // that replica has it in hand
	case a.Task != "":
		return s.end(ctx, a, reasonOfEnd(a))
	}
	s.agenda.drop(ctx, a.ID)
	return nil
}

// release sends a granted call of which a task waits, or ends the task.
func (s *Service) release(ctx context.Context, a hitl.Approval) error {
	first, before := s.agenda.begin(a.ID)
	if !first {
		return s.agenda.lookAgain(ctx, a.ID, s.deps.Now().Add(settleAfter))
	}
	now, err := s.read(ctx, a.ID) // since a was read, another release may have sent the call
	if err != nil || now.State != hitl.Granted {
		s.agenda.ended(a.ID, before)
		if err != nil {
			return err
		}
		return s.settle(ctx, now)
	}
	failure := s.deps.Tasks.Release(ctx, now)
	s.agenda.ended(a.ID, failure)
	if failure == nil {
		s.agenda.drop(ctx, a.ID)
		return nil
	}
	if now, err = s.read(ctx, a.ID); err != nil {
		return errors.Join(failure, err)
	}
	unsent, never := errors.AsType[*problem.UnsentError](failure)
	switch {
	case now.State == hitl.Consumed && now.End.Replica != s.deps.Replica: // another replica was first
		return s.agenda.lookAgain(ctx, a.ID, s.deps.Now().Add(settleAfter))
	case now.State == hitl.Consumed: // it is never sent again
		return s.finish(ctx, now)
	case !never:
		return errors.Join(failure, s.agenda.lookAgain(ctx, a.ID, s.deps.Now().Add(settleAfter)))
	}
	if now, err = s.on(ctx, a.ID, hitl.Event{Kind: hitl.Cancel, At: s.deps.Now().UTC(), Reason: unsent.Reason}); err != nil {
		return err
	}
	return s.end(ctx, now, reasonOfEnd(now))
}

// finish ends the task of a call that this replica has consumed and could not send.
func (s *Service) finish(ctx context.Context, a hitl.Approval) error {
	begun, failure := s.agenda.failure(a.ID)
	switch {
	case begun && failure == nil:
		return s.agenda.lookAgain(ctx, a.ID, s.deps.Now().Add(settleAfter))
	case begun:
		return s.end(ctx, a, reasonOfFailure(failure))
	}
	s.agenda.drop(ctx, a.ID)
	return nil
}

// end ends the task of an approval that is over.
func (s *Service) end(ctx context.Context, a hitl.Approval, why string) error {
	if err := s.deps.Tasks.End(ctx, a, why); err != nil {
		return err
	}
	s.agenda.drop(ctx, a.ID)
	return nil
}

// reasonOfEnd says to a caller why its task ends.
func reasonOfEnd(a hitl.Approval) string {
	why := reason(a)
	switch a.State {
	case hitl.Denied:
		return "the call was denied, and not sent" + because(why)
	case hitl.Consumed:
		return "the gateway that released the call was lost: whether the agent has got it is not known"
	case hitl.Canceled:
		why = a.End.Why // whatever an approver said before
	case hitl.Pending, hitl.Granted, hitl.Expired:
	}
	return "the call was not approved, and not sent" + because(why)
}

// reasonOfFailure says to a caller why its task ends whose call was approved.
func reasonOfFailure(failure error) string {
	if unsent, never := errors.AsType[*problem.UnsentError](failure); never {
		return "the call was approved, and failed: " + unsent.Reason + ": nothing was sent"
	}
	return "the call was approved, and failed: " + failure.Error() + ": whether the agent has got it is not known"
}

func because(why string) string {
	if why == "" {
		return ""
	}
	return ": " + why
}
