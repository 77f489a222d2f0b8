package gateway

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/task/execution"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/gateway/worker"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/stream"
)

const (
	saveEvery = 250 * time.Millisecond // of what is no change of state

	longestSilence = time.Hour // of a stream of news
)

// keep writes the run's record, so that its caller can ask about it from now
// on. durable: it must be on record before the caller hears of it.
func (r *run) keep(ctx context.Context, durable bool) error {
	g, x := r.g, r.x
	task := r.snapshot()
	rec := x.recordFor(task)
	rec.Task, rec.Saved, rec.Re, rec.Native = *task, nil, "", r.native()
	rec.TaskID, rec.Context = r.agent.TaskID, r.agent.ContextID
	rec.Input, _ = r.input()
	rec.Round, rec.Converted = r.round, rec.Converted || r.held
	rec.Losses, rec.Log, rec.Released = canonical.MergeLosses(canonical.MergeLosses(rec.Losses, chunksJoined(r.fold.Joined())), r.untold), r.log, 0
	rec.Runner, rec.Resume, rec.State, rec.Writer = r.replica(), r.waits(), "", g.instance
	if rec.Follower = g.instance; r.machine.State() == execution.Released || r.settled() && !r.open() {
		rec.Follower = ""
	}
	if rec.Resume == store.ResumeState {
		rec.State = r.result.Pending.State
	}
	if rec.Resume == store.ResumeState || rec.Resume != store.ResumeNone && x.mode.Asking == translators.AskReply {
		if err := x.saveRequest(rec); err != nil {
			return err
		}
	}
	if rec.Runner != "" || rec.Follower != "" {
		if err := g.tasks.StartHeartbeat(ctx); err != nil && durable {
			return err
		}
	}
	if rec.Runner != "" {
		if err := r.listen(); err != nil { //nolint:contextcheck // it lives as long as the run
			return err
		}
	}
	if !r.keeping {
		g.Conversations.Remember(ctx, x.dialogueKey(rec.Task.ContextID), x.lineage.Workflow, x.trail.Request())
	}
	err := g.tasks.SaveMerged(ctx, rec)
	if _, ended := store.EndedAs(err); ended && !r.keeping {
		r.reused = true
		return x.sameID()
	}
	r.keeping, r.saved, r.onLog = true, g.Now(), r.log.Count
	if r.posted == nil {
		r.posted = task
	}
	return err
}

// listen opens the mailbox of a run that others may want something of. Its
// name has to be kept then.
func (r *run) listen() error {
	if r.mail != nil {
		return nil
	}
	r.x.record.Queue = r.g.NewID()
	box, err := r.g.tasks.OpenQueue(r.x.record.ControlKey())
	r.mail = box
	return err
}

// replica is which replica must be alive for the work to go on: this process, unless the
// work is settled or the agent has a task of its own.
func (r *run) replica() string {
	if !r.open() && (r.complete() || r.agent.TaskID != "") {
		return ""
	}
	return r.g.instance
}

// open: the run itself is answered what is asked.
func (r *run) open() bool { return r.ask != nil || r.held && r.asked() }

// waits says what it takes to go on.
func (r *run) waits() store.ResumeKind {
	switch {
	case r.open():
		return store.ResumeStream
	case r.result != nil && r.result.Pending != nil:
		return store.ResumeState
	case r.asked():
		return store.ResumeTask
	default:
		return store.ResumeNone
	}
}

// note keeps up with what happened, if the run is on record: every change of
// state, each status that is posted, and what the agent calls its task, at once; other
// changes after saveEvery.
// An agent that says again how its task stands changes nothing: the task keeps its
// place on lists (A2A 1.0, ListTasks: what changed last comes first), and its record
// is written only to let it live on.
func (r *run) note(ctx context.Context, s step) {
	if !r.keeping || r.x.record == nil {
		return
	}
	urgent := r.complete() || r.waits() != r.x.record.Resume || r.agent.TaskID != r.x.record.TaskID // by its name it can be asked about
	for i := range s.events {
		status := s.events[i].Status
		urgent = urgent || status != nil && (r.x.record.Pushes || status.State != r.x.record.Task.Status.State)
	}
	age := r.g.Now().Sub(r.saved)
	switch {
	case urgent, age >= saveEvery && !r.changed.Before(r.saved), r.log.MustSave(r.onLog):
		r.keepUp(ctx)
	case age >= store.RecordLife/4:
		r.prolong(ctx)
	}
}

// prolong lets the record of work that has not changed live on, at its place on lists.
func (r *run) prolong(ctx context.Context) {
	ok, err := r.g.tasks.Extend(context.WithoutCancel(ctx), r.x.record)
	switch {
	case err != nil:
		r.unkept(ctx, err)
	case ok:
		r.saved = r.g.Now()
	default: // another has written to it
		r.keepUp(ctx)
	}
}

// keepUp writes how things stand, and posts what has changed. What cannot be
// kept is logged: the work goes on. False: it may be kept later.
func (r *run) keepUp(ctx context.Context) bool {
	ctx = context.WithoutCancel(ctx)
	err := r.keep(ctx, false)
	if large, ok := errors.AsType[*translators.TooLongError](err); ok { // the question cannot be asked
		r.mark(ctx, canonical.StateFailed, large.Reason)
		r.abort()
		return true
	}
	if err != nil {
		return r.unkept(ctx, err)
	}
	if r.complete() && !r.asked() {
		r.on(execution.Saved)
	}
	r.tellOthers(ctx)
	return true
}

// unkept deals with what could not be kept. What this process has done with is, as
// soon as that can be: else the record would say that the work goes on for as long
// as the process lives. An end that somebody else was told of first is posted here.
func (r *run) unkept(ctx context.Context, err error) bool {
	if before, ok := store.EndedAs(err); ok {
		if r.on(execution.EndedElsewhere); before == r.x.record.Task.Status.State {
			r.tellOthers(ctx)
		}
		return true
	}
	r.g.Logger.WarnContext(ctx, "the state of a task is not kept", slog.String("task", r.own.TaskID), slog.Any("error", err))
	if !store.CanRetry(err) {
		return true
	}
	if rec := r.x.record; rec.Task.Status.State.Terminal() || rec.Runner == "" && rec.Follower == "" {
		r.g.saveUntilDone(ctx, *rec, r.posted)
		task := rec.Task
		r.posted = &task // or will be
	}
	return false
}

// tellOthers posts what has changed since it was last told. Progress is an update of
// the status, as in streams (A2A 1.0, 3.5.2 and 4.3.3); of several since then, the last
// one is posted.
func (r *run) tellOthers(ctx context.Context) {
	task := r.x.record.Task
	var events []canonical.Event
	if r.progress != nil {
		events, r.progress = []canonical.Event{{Progress: r.progress}}, nil
	}
	if !sameWork(r.posted, &task) { // another time of the same status is no change
		events = append(events, stream.Diff(r.posted, &task)...)
	}
	r.g.hooks.Post(ctx, r.x.record, events)
	r.posted = &task
}

// registerNew registers the webhook of the message that began the work, and posts the
// progress that is no part of the task.
func (r *run) registerNew(ctx context.Context) error {
	err := r.g.registerNew(ctx, r.x, r.x.record)
	if err == nil && r.x.webhook != nil {
		r.tellOthers(ctx)
	}
	return err
}

// handOver lets the work go on without its caller. If there is no room for it,
// it ends, and its record says so.
func (r *run) handOver(ctx context.Context) {
	r.x.scope.stopped = nil // from now on only control messages say so
	grant := r.x.scope.takeWorker()
	var err error
	if grant == nil {
		grant, err = r.g.workers.Reserve(r.x.owner(), len(r.x.in.Call.Wire.Body))
	}
	if err == nil {
		exit := r.g.Lifecycle.Enter(r.x.to.Agent.Name)
		err = r.g.workers.GoGranted(grant, func(ctx context.Context) {
			defer exit()
			r.drive(ctx)
		})
		if err != nil {
			exit()
		}
	}
	if err != nil {
		r.lose(context.WithoutCancel(ctx), "the gateway could not go on with it; whether the agent has finished is not known")
		r.abort()
	}
}

// drive does the work until it is settled, and answers what it asks with what
// the caller sends later.
func (r *run) drive(ctx context.Context) {
	defer r.stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for {
		for !r.settled() {
			s, err := r.stepOr(ctx)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				r.ended(ctx, err)
				return
			}
			r.unheard(s)
			r.note(ctx, s)
		}
		for !r.keepUp(ctx) && r.open() && worker.Pause(ctx, saveEvery) {
			continue // until then nobody is asked
		}
		if !r.open() || r.machine.State() == execution.Overtaken || !r.answered(ctx) { // an answer after the end has no effect
			return
		}
	}
}

// errCanceled: the caller wants the work ended.
var errCanceled = &problem.CanceledError{}

// errStopped: this process ends.
var errStopped = &problem.StoppedError{}

// stepOr is step, unless somebody says to stop: a letter, the client of a
// session, or whoever closes the gateway. An agent that has a task of its own
// may be silent: it is asked about it.
func (r *run) stepOr(ctx context.Context) (step, error) {
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.g.workers.Context(), cancel)() //nolint:contextcheck // a signal
	stops := r.stops()
	for _, stop := range stops {
		defer context.AfterFunc(stop, cancel)() //nolint:contextcheck // a signal
	}
	s, err := r.stepLong(within)
	if err == nil || errors.Is(err, io.EOF) || ctx.Err() != nil {
		return s, err
	}
	if r.g.workers.Context().Err() != nil {
		return s, errStopped
	}
	for _, stop := range stops {
		if stop.Err() != nil {
			return s, errCanceled
		}
	}
	if errors.Is(err, errPatience) && r.agent.TaskID != "" && !r.x.verbatim() {
		err = r.follow(within, err)
	}
	return s, r.late(err)
}

// stops are the signals that the caller wants the work ended.
func (r *run) stops() []context.Context {
	var stops []context.Context
	if r.mail != nil {
		stops = append(stops, r.mail.Canceled())
	}
	if r.x.scope.stopped != nil {
		stops = append(stops, r.x.scope.stopped)
	}
	return stops
}

// ended writes why the work ended before it was settled.
func (r *run) ended(ctx context.Context, cause error) {
	why := cause
	if errors.Is(cause, errCanceled) {
		r.abort()
	} else if ctx.Err() != nil && !isUnchanged(cause) {
		why = errStopped
	}
	r.forsake(context.WithoutCancel(ctx), why)
	r.g.finish(ctx, r.x, cause)
}

// forsake writes why its caller is told no more of the work than an error.
func (r *run) forsake(ctx context.Context, cause error) {
	unchanged, stale := errors.AsType[*unchangedError](cause)
	switch {
	case !r.keeping:
	case stale:
		r.release(ctx, unchanged)
	case errors.Is(cause, errCanceled):
		r.mark(ctx, canonical.StateCanceled, "")
	default:
		r.lose(ctx, problem.Native(cause).Message)
	}
}

// lose writes that it is not known how the work ended. An agent that has a task
// of its own can still be asked, so nothing is said about that.
func (r *run) lose(ctx context.Context, why string) {
	r.on(execution.Lost)
	if r.agent.TaskID == "" {
		r.fail(ctx, why)
		return
	}
	if r.x.record == nil || r.x.record.Runner == "" && r.x.record.Follower == "" {
		return
	}
	r.x.record.Release()
	r.x.record.Log = r.log
	if err := r.g.tasks.SaveMerged(ctx, r.x.record); err != nil {
		r.unkept(ctx, err)
	}
}

func (r *run) fail(ctx context.Context, why string) { r.mark(ctx, canonical.StateFailed, why) }

// mark writes a last state.
func (r *run) mark(ctx context.Context, state canonical.State, why string) {
	if r.x.record == nil {
		return
	}
	if state == canonical.StateCanceled {
		r.on(execution.Cancel)
		r.on(execution.AgentStopped)
	} else {
		r.on(execution.Unsaid)
	}
	rec := r.x.record
	task := *r.snapshot()
	task.Status, task.Inputs = canonical.Status{State: state, At: r.g.Now()}, nil
	if why != "" {
		task.Status.Message = stream.Failed(r.own, &canonical.Error{Message: why}).Status.Message
	}
	rec.Task, rec.Log, rec.Saved, rec.Re, rec.Runner, rec.Follower, rec.Resume = task, r.log, nil, "", "", "", store.ResumeNone
	r.saveLast(ctx)
}

// saveLast writes the record as it stands, and posts what has changed.
func (r *run) saveLast(ctx context.Context) {
	if err := r.g.tasks.SaveMerged(ctx, r.x.record); err != nil {
		r.unkept(ctx, err)
		return
	}
	r.tellOthers(ctx)
}

// saveUntilDone saves a last state in the background until it is on record, and posts it
// then.
func (g *Gateway) saveUntilDone(ctx context.Context, rec store.Record, posted *canonical.Task) {
	err := g.workers.Go(func(ctx context.Context) {
		g.tasks.SaveUntilDone(ctx, rec, func(ctx context.Context, rec *store.Record) {
			g.hooks.Post(ctx, rec, stream.Diff(posted, &rec.Task))
		})
	})
	if err != nil {
		g.Logger.WarnContext(ctx, "last state of a task not saved", slog.String("task", rec.Task.ID), slog.Any("error", err))
	}
}
