package task

import (
	"context"
	"errors"

	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Asking asks humans about a call of which a task waits.
type Asking struct {
	Approval string                  // its id
	Path     string                  // where it can be read
	Reserve  func(task string) error // before the task is on record: where this process ends then, the task is ended
	Open     func(task string) error // once the task is on record
}

// Park answers a message about which humans decide with a task that waits for an approval. The caller of a
// protocol whose tasks can say so is told that it waits; to another one the task is at work. Its errors are those
// of asking, of the store and of SaveRequest.
func (s *Service) Park(ctx context.Context, x Exchange, ask Asking) (transport.Answer, error) {
	work := x.Work()
	names := s.Deps.Executions.CallerNames(work)
	if names.TaskID == "" {
		names.TaskID = s.Deps.NewID()
	}
	state := canonical.StateWorking
	if work.Mode.Asking == translators.AskTask {
		state = canonical.StateAuthRequired
	}
	task := &canonical.Task{ID: names.TaskID, ContextID: names.ContextID, Status: s.Parking().statusOf(state, "A human decides about this call: "+ask.Path)}
	rec := work.Caller.Record(task)
	rec.Task, rec.Saved, rec.Resume, rec.State = *task, nil, store.ResumeApproval, ask.Approval
	if called := x.Capability(); called != nil {
		rec.Skill = called.ID
	}
	if parents := x.ParentsOf(nil); len(parents) > 0 {
		rec.Last = parents[0]
	}
	if err := work.Caller.SaveRequest(rec); err != nil {
		return transport.Answer{}, err
	}
	if err := ask.Reserve(task.ID); err != nil {
		return transport.Answer{}, err
	}
	ok, err := s.Save(ctx, rec)
	if err == nil && !ok {
		err = store.Conflict()
	}
	if err == nil {
		err = work.Caller.Register(ctx, rec)
	}
	if err == nil {
		err = ask.Open(task.ID)
	}
	if err != nil {
		end := s.Parking().EndParked(context.WithoutCancel(ctx), rec.Key, ask.Approval, canonical.StateFailed, "no human could be asked: nothing was sent")
		return transport.Answer{}, errors.Join(err, end)
	}
	return s.tellRecord(ctx, x, rec, work.Message.Preferences.Stream)
}

// statusOf is a status of which the gateway says why.
func (p Parking) statusOf(state canonical.State, text string) canonical.Status {
	return canonical.Status{State: state, At: p.service.Deps.Now(), Message: &canonical.Content{
		ID: p.service.Deps.NewID(), Role: canonical.RoleAgent, Parts: []canonical.Part{{Kind: canonical.KindText, Text: text}},
	}}
}

// Parking is the part of a service that has to do with tasks that wait for approvals.
type Parking struct{ service *Service }

// Parking is that part.
func (s *Service) Parking() Parking { return Parking{s} }

// Parked is the record of a task that waits for an approval; nil: it does not any more. Its errors are those of
// Load.
func (p Parking) Parked(ctx context.Context, key store.EntryKey, approval string) (*store.Record, error) {
	rec, err := p.service.Load(ctx, key)
	if err != nil || rec == nil || rec.Resume != store.ResumeApproval || rec.State != approval {
		return nil, err
	}
	return rec, nil
}

// Release seals the message of a task that waits for an approval, which consumes that, and sends it. What comes
// of it is on record. Its error is a *[problem.RecordingError] if the message may have been sent.
func (p Parking) Release(ctx context.Context, x Exchange, rec *store.Record) error {
	x.Answer(store.NewClaim(rec))
	sealed, err := p.service.sealAndClaim(ctx, x)
	if err != nil {
		return err
	}
	e := x.Start(ctx, sealed, canonical.OpInvoke)
	if err := e.Save(ctx); err != nil {
		e.Abort()
		p.service.ReopenInput(ctx, x.Claim())
		return &problem.RecordingError{Err: err}
	}
	e.Detach(ctx)
	return nil
}

// EndParked ends a task that waits for an approval, says why, and posts that. A task that does not wait for it
// stays as it is. Its errors are those of the store.
func (p Parking) EndParked(ctx context.Context, key store.EntryKey, approval string, state canonical.State, why string) error {
	rec, err := p.Parked(ctx, key, approval)
	if err != nil || rec == nil {
		return err
	}
	return p.endAs(ctx, rec, state, why)
}

// EndReleased ends a task whose call was released by a replica that was lost, unless a replica or its agent has the
// task, or it waits for its caller. own: this replica has released it and could not send it, so it has no task
// although the record may say so. Its errors are those of the store.
func (p Parking) EndReleased(ctx context.Context, key store.EntryKey, approval, why string, own bool) error {
	rec, err := p.service.Load(ctx, key)
	if err != nil || rec == nil || rec.Task.Status.State.Terminal() {
		return err
	}
	parked := rec.Resume == store.ResumeApproval && rec.State == approval
	unowned := rec.Resume == store.ResumeNone && rec.TaskID == "" && rec.Runner == "" && rec.Follower == ""
	if !parked && !unowned && !own {
		return nil
	}
	rec.Runner, rec.Follower = "", ""
	return p.endAs(ctx, rec, canonical.StateFailed, why)
}

// endAs ends a task, and posts that.
func (p Parking) endAs(ctx context.Context, rec *store.Record, state canonical.State, why string) error {
	before := *rec
	rec.Task.Status, rec.Resume, rec.State = p.statusOf(state, why), store.ResumeNone, ""
	rec.Task.Failure = &canonical.Error{Code: canonical.CodeForbidden, Message: why}
	ok, err := p.service.Save(ctx, rec)
	if err == nil && !ok {
		return store.Conflict()
	}
	if err == nil {
		p.service.PostChange(ctx, &before, rec)
	}
	return err
}
