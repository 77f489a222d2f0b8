package execution

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/stream"
)

// saveInterval is how often what is no change of state is saved.
const saveInterval = 250 * time.Millisecond

// recorder keeps the record of the work.
type recorder struct {
	record      *store.Record       // of the task; nil: it is not known yet, or none is kept
	recording   bool                // the record follows the work
	reused      bool                // the agent gave its task the id of one that has ended
	saved       time.Time           // when it was written last
	changed     time.Time           // when the agent's task was last seen to change
	log         store.EventLog      // of what the agent said, for the record
	savedEvents int                 // how many of its events are on record
	posted      *canonical.Task     // as those who have changes posted to them know it
	progress    *canonical.Progress // the last one that is still to be posted; nil: none is
	control     *store.ControlQueue // what other requests want of it; nil: no record names it
}

// save writes the record, so that the caller can ask about the work from now on. durable: it must
// be on record before the caller hears of it. Its errors are those of [store.Store.SaveMerged], of
// [store.Store.OpenQueue], *[problem.RecordingError], a *[translators.TooLongError] (there is a
// question, and the request is too large to be kept) and a *[transport.BadReplyError].
func (e *Execution) save(ctx context.Context, durable bool) error {
	task := e.snapshot()
	rec := e.recordFor(task)
	rec.Task, rec.Saved, rec.Re, rec.Native = *task, nil, "", e.native()
	rec.TaskID, rec.Context = e.agentNames.TaskID, e.agentNames.ContextID
	rec.Input = e.proof().Input
	if rec.Round != e.round {
		rec.Round, rec.Again = e.round, 0
	}
	rec.Converted = rec.Converted || e.converted
	rec.Losses, rec.Log, rec.Released = canonical.MergeLosses(canonical.MergeLosses(rec.Losses, chunkLosses(e.fold.Joined())), e.losses), e.log, 0
	rec.Runner, rec.Resume, rec.State, rec.Writer = e.runner(), e.resumeKind(), "", e.deps.Replica
	if rec.Follower = e.deps.Replica; e.machine.State() == Released || e.settled() && !e.answersHere() {
		rec.Follower = ""
	}
	if rec.Resume == store.ResumeState {
		rec.State = e.result.Pending.State
	}
	if rec.Resume == store.ResumeState || rec.Resume != store.ResumeNone && e.req.Mode.Asking == translators.AskReply {
		if err := e.req.Caller.SaveRequest(rec); err != nil {
			return err
		}
	}
	if rec.Runner != "" || rec.Follower != "" {
		if err := e.deps.Tasks.StartHeartbeat(ctx); err != nil && durable {
			return err
		}
	}
	if rec.Runner != "" {
		if err := e.openControl(ctx); err != nil {
			return err
		}
	}
	if !e.recording {
		e.req.Caller.Remember(ctx, rec.Task.ContextID)
	}
	err := e.deps.Tasks.SaveMerged(ctx, rec)
	if _, ended := store.EndedAs(err); ended && !e.recording {
		e.reused = true
		return e.badReply(ReusedID)
	}
	e.recording, e.saved, e.savedEvents = true, e.now(), e.log.Count
	if e.posted == nil {
		e.posted = task
	}
	return err
}

// ReusedID says why a task is refused that goes on under the id of one that has ended: who asks
// about the one would be told of the other (A2A 1.0, 3.4.2).
const ReusedID = "its task has the id of one that has ended: each task needs an id of its own"

// recordFor is the record of the work, which begins with this task.
func (e *Execution) recordFor(task *canonical.Task) *store.Record {
	if e.record == nil {
		e.record = e.req.Caller.Record(task)
	}
	return e.record
}

// openControl begins to read what other requests want of the work. The name of the queue has to
// be saved then.
func (e *Execution) openControl(ctx context.Context) error {
	if e.control != nil {
		return nil
	}
	e.record.Queue = e.deps.NewID()
	return e.evictor.Take(ctx, e.req.Holder, func() (err error) { //nolint:contextcheck // the queue lives as long as the execution
		e.control, err = e.deps.Tasks.OpenQueue(e.record.ControlKey())
		return err
	})
}

// runner is which replica must be alive for the work to go on: this process, unless the work is
// settled or the agent has a task of its own.
func (e *Execution) runner() string {
	if !e.answersHere() && (e.complete() || e.agentNames.TaskID != "") {
		return ""
	}
	return e.deps.Replica
}

// answersHere reports whether the execution itself takes the answers.
func (e *Execution) answersHere() bool { return e.ask != nil || e.converted && e.waitsForAnswer() }

// resumeKind says what it takes to go on.
func (e *Execution) resumeKind() store.ResumeKind {
	switch {
	case e.answersHere():
		return store.ResumeStream
	case e.result != nil && e.result.Pending != nil:
		return store.ResumeState
	case e.waitsForAnswer():
		return store.ResumeTask
	default:
		return store.ResumeNone
	}
}

// saveIfChanged keeps the record up with what happened, if there is one: every change of state,
// each status that is posted, and what the agent calls its task, at once; other changes after
// saveInterval.
// An agent that says again how its task stands changes nothing: the task keeps its place on lists
// (A2A 1.0, ListTasks: what changed last comes first), and its record is written only to let it
// live on.
func (e *Execution) saveIfChanged(ctx context.Context, u update) {
	if !e.recording || e.record == nil {
		return
	}
	urgent := e.complete() || e.resumeKind() != e.record.Resume || e.agentNames.TaskID != e.record.TaskID // by its name it can be asked about
	for i := range u.events {
		status := u.events[i].Status
		urgent = urgent || status != nil && (e.record.Pushes || status.State != e.record.Task.Status.State)
	}
	age := e.now().Sub(e.saved)
	switch {
	case urgent, age >= saveInterval && !e.changed.Before(e.saved), e.log.MustSave(e.savedEvents):
		e.trySave(ctx)
	case age >= store.RecordLife/4:
		e.extend(ctx)
	}
}

// extend lets the record of work that has not changed live on, at its place on lists.
func (e *Execution) extend(ctx context.Context) {
	ok, err := e.deps.Tasks.Extend(context.WithoutCancel(ctx), e.record)
	switch {
	case err != nil:
		e.saveFailed(ctx, err)
	case ok:
		e.saved = e.now()
	default: // another has written to it
		e.trySave(ctx)
	}
}

// trySave writes how things stand, and posts what has changed. What cannot be saved is logged: the
// work goes on. False: it may be saved later.
func (e *Execution) trySave(ctx context.Context) bool {
	ctx = context.WithoutCancel(ctx)
	err := e.save(ctx, false)
	if large, ok := errors.AsType[*translators.TooLongError](err); ok { // the question cannot be asked
		e.saveEnd(ctx, canonical.StateFailed, large.Reason)
		e.Abort()
		return true
	}
	if err != nil {
		return e.saveFailed(ctx, err)
	}
	if e.complete() && !e.waitsForAnswer() {
		e.on(Saved)
	}
	e.notifyObservers(ctx)
	return true
}

// saveFailed deals with what could not be saved. What this process has done with is, as soon as
// that can be: else the record would say that the work goes on for as long as the process lives.
// An end that another party was told of first is posted here.
func (e *Execution) saveFailed(ctx context.Context, err error) bool {
	if before, ok := store.EndedAs(err); ok {
		if e.on(EndedElsewhere); before == e.record.Task.Status.State {
			e.notifyObservers(ctx)
		}
		return true
	}
	e.deps.Logger.WarnContext(ctx, "task not saved", slog.String("task", e.callerNames.TaskID), slog.Any("error", err))
	if !store.CanRetry(err) {
		return true
	}
	if rec := e.record; rec.Task.Status.State.Terminal() || rec.Runner == "" && rec.Follower == "" {
		e.SaveUntilDone(ctx, *rec, e.posted)
		task := rec.Task
		e.posted = &task // or will be
	}
	return false
}

// SaveUntilDone saves a last state in the background until it is on record, and posts then what has
// changed since posted.
func (s *Service) SaveUntilDone(ctx context.Context, rec store.Record, posted *canonical.Task) {
	err := s.deps.Workers.Go(func(ctx context.Context) {
		s.deps.Tasks.SaveUntilDone(ctx, rec, func(ctx context.Context, rec *store.Record) {
			s.deps.Webhooks.Post(ctx, rec, stream.Diff(posted, &rec.Task))
		})
	})
	if err != nil {
		s.deps.Logger.WarnContext(ctx, "last state of a task not saved", slog.String("task", rec.Task.ID), slog.Any("error", err))
	}
}

// notifyObservers posts what has changed since it was last posted. Progress is an update of the
// status, as in streams (A2A 1.0, 3.5.2 and 4.3.3); of several since then, the last one is posted.
func (e *Execution) notifyObservers(ctx context.Context) {
	task := e.record.Task
	var events []canonical.Event
	if e.progress != nil {
		events, e.progress = []canonical.Event{{Progress: e.progress}}, nil
	}
	if !sameWork(e.posted, &task) { // another time of the same status is no change
		events = append(events, stream.Diff(e.posted, &task)...)
	}
	e.deps.Webhooks.Post(ctx, e.record, events)
	e.posted = &task
}

// enroll puts the work on record as soon as it has a name: before the caller hears that, and may
// ask about it.
func (e *Execution) enroll(ctx context.Context) error {
	if e.observer || e.recording || e.callerNames.TaskID == "" || e.req.Mode.CallerStreams != translators.StreamsTask {
		return nil
	}
	if err := e.save(ctx, true); err != nil {
		return err
	}
	return e.register(ctx)
}

// register registers the webhook of the request, and posts the progress that is no part of the task.
func (e *Execution) register(ctx context.Context) error {
	err := e.req.Caller.Register(ctx, e.record)
	if err == nil && e.req.Handling.Webhook {
		e.notifyObservers(ctx)
	}
	return err
}

// saveSettled saves work that goes on, or waits for its caller, before its caller gets the reply.
// It saves work that has ended only if that is on record.
func (e *Execution) saveSettled(ctx context.Context) error {
	op := e.req.Message.Op
	lasting := op == canonical.OpInvoke && (e.waitsForAnswer() || !e.complete()) || op == canonical.OpNative && e.waitsForAnswer()
	if !lasting && !e.recording {
		return nil
	}
	err := e.save(ctx, lasting)
	if err == nil {
		e.notifyObservers(ctx)
		err = e.req.Caller.Register(ctx, e.record)
	}
	if lasting {
		return err
	}
	if err != nil {
		e.saveFailed(ctx, err)
	}
	return nil
}

// saveCause writes why the caller is told no more of the work than an error.
func (e *Execution) saveCause(ctx context.Context, cause error) {
	unchanged, stale := errors.AsType[*unchangedError](cause)
	switch {
	case !e.recording:
	case stale:
		e.release(ctx, unchanged)
	case errors.Is(cause, ErrCanceled):
		e.saveEnd(ctx, canonical.StateCanceled, "")
	default:
		e.releaseOrFail(ctx, problem.Native(cause).Message)
	}
}

// releaseOrFail writes that it is not known how the work ended. An agent that has a task of its own
// can still be asked, so the task goes on.
func (e *Execution) releaseOrFail(ctx context.Context, why string) {
	e.on(Dropped)
	if e.agentNames.TaskID == "" {
		e.saveEnd(ctx, canonical.StateFailed, why)
		return
	}
	if e.record == nil || e.record.Runner == "" && e.record.Follower == "" {
		return
	}
	e.record.Release()
	e.record.Log = e.log
	if err := e.deps.Tasks.SaveMerged(ctx, e.record); err != nil {
		e.saveFailed(ctx, err)
	}
}

// saveEnd writes a last state.
func (e *Execution) saveEnd(ctx context.Context, state canonical.State, why string) {
	rec := e.record
	if rec == nil {
		return
	}
	if state == canonical.StateCanceled {
		e.on(Cancel)
		e.on(AgentStopped)
	} else {
		e.on(Unsaid)
	}
	task := *e.snapshot()
	task.Status, task.Inputs = canonical.Status{State: state, At: e.now()}, nil
	if why != "" {
		task.Status.Message = stream.Failed(e.callerNames, &canonical.Error{Message: why}).Status.Message
	}
	rec.Task, rec.Log, rec.Saved, rec.Re, rec.Runner, rec.Follower, rec.Resume = task, e.log, nil, "", "", "", store.ResumeNone
	e.saveLast(ctx)
}

// saveLast writes the record as it stands, and posts what has changed.
func (e *Execution) saveLast(ctx context.Context) {
	if err := e.deps.Tasks.SaveMerged(ctx, e.record); err != nil {
		e.saveFailed(ctx, err)
		return
	}
	e.notifyObservers(ctx)
}

// release writes that the work is not followed any more, because it has not changed for too long.
// Its state stays what the agent said last; the words say the rest. Who asks about it has it
// followed again.
func (e *Execution) release(ctx context.Context, why *unchangedError) {
	e.on(Unchanged)
	rec := e.record
	if rec == nil {
		return
	}
	rec.Release()
	rec.Log, rec.Released = e.log, why.after
	rec.Task.Status.At = e.now()
	rec.Task.Status.Message = stream.Failed(e.callerNames, &canonical.Error{Message: why.Error()}).Status.Message
	e.saveLast(ctx)
}

// unchangedError ends the asking about an agent's task that has not changed for as long as the
// operator allows. It does not say that the task has failed: that is not known.
type unchangedError struct{ after time.Duration }

// Error says what was seen, and what the caller can do.
func (e *unchangedError) Error() string {
	return fmt.Sprintf("the agent's task has not changed for %v, and the agent is not asked about it any more; "+
		"whether it will finish is not known: ask about the task again, or cancel it", e.after)
}

// Unwrap is the error in the words of a native endpoint.
func (e *unchangedError) Unwrap() error {
	return &canonical.Error{Code: canonical.CodeTimeout, Message: e.Error()}
}

// ReleasedError is why the record's work is not followed any more; nil: it is, or has ended.
func ReleasedError(rec *store.Record) error {
	if rec.Released == 0 {
		return nil
	}
	return &unchangedError{rec.Released}
}

func isUnchanged(err error) bool {
	_, yes := errors.AsType[*unchangedError](err)
	return yes
}

// checkUnchanged judges the agent's answer to a question how its task stands: an *unchangedError
// if nothing has changed for too long. Anything else that the agent says is a change.
func (e *Execution) checkUnchanged(before *canonical.Task) error {
	after, now := e.fold.Task(), e.now()
	asks := e.op == canonical.OpTaskGet && e.op != e.req.Message.Op
	if !asks || before == nil || after == nil || e.machine.State() == Fetching || e.complete() || !sameWork(before, after) {
		e.changed = now
		return nil
	}
	if limit := e.req.Limits.Unchanged; limit > 0 && now.Sub(e.changed) >= limit {
		return &unchangedError{limit}
	}
	return nil
}

// sameWork reports whether two states of a task differ only in the time and the id of the message.
func sameWork(before, after *canonical.Task) bool {
	then := *before
	then.Status.At = after.Status.At
	if then.Status.Message != nil && after.Status.Message != nil {
		words := *then.Status.Message
		words.ID = after.Status.Message.ID
		then.Status.Message = &words
	}
	return len(stream.Diff(&then, after)) == 0
}
