package approval

import (
	"context"
	"net/http"

	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/task"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/policy/hitl"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Resume makes the message of a task, as its caller sent it, one that an approval releases. Policy is asked again. end
// is called once with how that went.
type Resume func(ctx context.Context, who store.Principal, rec *store.Record, approval string) (x task.Exchange, end func(error), err error)

// taskPart is the part of tasks of callers that has to do with approvals.
type taskPart struct {
	tasks   *task.Service
	resume  Resume
	replica string
}

// NewTasks are the tasks of a service.
func NewTasks(tasks *task.Service, resume Resume, replica string) Tasks {
	return taskPart{tasks, resume, replica}
}

// Release implements Tasks.
func (t taskPart) Release(ctx context.Context, a hitl.Approval) error {
	if err := t.tasks.StartHeartbeat(ctx); err != nil { // else others would take what it consumes for lost
		return err
	}
	rec, err := t.tasks.Parking().Parked(ctx, taskOf(a), a.ID)
	if err != nil {
		return err
	}
	if rec == nil {
		return &problem.UnsentError{Reason: "its caller does not wait for it any more"}
	}
	err = t.send(ctx, a, rec)
	if p := problem.From(err); err != nil && p.Status < http.StatusInternalServerError && p.Code != problem.CodePaused {
		err = &problem.UnsentError{Reason: p.Detail}
	}
	return err
}

func (t taskPart) send(ctx context.Context, a hitl.Approval, rec *store.Record) error {
	who := store.Principal{
		Caller: a.Call.Caller, Anonymous: a.Call.Address != "", Attested: a.Origin.Attested, Address: a.Call.Address, Version: rec.Call.Version, Form: rec.Call.Form,
	}
	x, end, err := t.resume(ctx, who, rec, a.ID)
	if err != nil {
		return err
	}
	err = t.tasks.Parking().Release(ctx, x, rec)
	end(err)
	return err
}

// End implements Tasks.
func (t taskPart) End(ctx context.Context, a hitl.Approval, why string) error {
	if a.State == hitl.Consumed {
		return t.tasks.Parking().EndReleased(ctx, taskOf(a), a.ID, why, a.End.Replica == t.replica)
	}
	return t.tasks.Parking().EndParked(ctx, taskOf(a), a.ID, canonical.StateRejected, why)
}

// taskOf names the caller's task that waits for an approval.
func taskOf(a hitl.Approval) store.EntryKey {
	return store.TaskKey(a.Call.Owner(), a.Call.Agent, a.Task)
}

// Asking is how a task that waits for a parked message asks humans.
func (s *Service) Asking(ctx context.Context, r Request) task.Asking {
	id := s.deps.NewID()
	return task.Asking{
		Approval: id, Path: Path(id),
		Reserve: func(task string) error { return s.Reserve(ctx, id, task, r.Call) },
		Open: func(task string) error {
			_, err := s.Open(ctx, id, task, "", r)
			return err
		},
	}
}
