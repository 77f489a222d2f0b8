package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"strconv"
	"time"

	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/stream"
)

const (
	saveEvery   = 250 * time.Millisecond // of what is no change of state
	runnerLife  = 15 * time.Second
	runnerBeats = 5 * time.Second
	answerLimit = 10 * time.Minute // for a question to be answered
)

func counts(in, out int) json.RawMessage {
	return json.RawMessage("[" + strconv.Itoa(in) + "," + strconv.Itoa(out) + "]")
}

// keep writes the run's record, so that its caller can ask about it from now
// on. durable: it must be on record before the caller hears of it.
func (r *run) keep(ctx context.Context, durable bool) error {
	g, x := r.g, r.x
	task := r.snapshot()
	if x.record == nil {
		x.record = g.newRecord(x, task)
	}
	rec := x.record
	rec.Task, rec.Said = *task, nil
	rec.TaskID, rec.Context = r.agent.TaskID, r.agent.ContextID
	rec.Heard, _ = r.input()
	rec.Runner, rec.Waits, rec.State = g.runnerOf(r), r.waits(), ""
	if rec.Waits == waitsState {
		rec.State = r.result.Pending.State
	}
	if rec.Runner != "" {
		if err := g.alive(ctx); err != nil && durable {
			return err
		}
	}
	ok, err := g.save(ctx, rec)
	if err == nil && !ok {
		err = &problem.ConflictError{Reason: "the task was changed by somebody else"}
	}
	r.keeping, r.saved = err == nil, g.Now()
	return err
}

// runnerOf is who must be alive for the work to go on: this process, unless the
// work is settled or the agent has a task of its own.
func (g *Gateway) runnerOf(r *run) string {
	if r.ask == nil && (r.complete() || r.agent.TaskID != "") {
		return ""
	}
	return g.instance
}

// waits says what it takes to go on.
func (r *run) waits() waiting {
	switch {
	case r.ask != nil:
		return waitsOpen
	case r.result != nil && r.result.Pending != nil:
		return waitsState
	case r.asked():
		return waitsTask
	default:
		return waitsNot
	}
}

// note keeps up with what happened, if the run is on record: every change of
// state, and else now and then. What cannot be kept is logged: the work goes on.
func (r *run) note(ctx context.Context, s step) {
	if !r.keeping || r.x.record == nil {
		return
	}
	urgent := r.settled()
	for i := range s.events {
		urgent = urgent || s.events[i].Status != nil
	}
	if !urgent && r.g.Now().Sub(r.saved) < saveEvery {
		return
	}
	if err := r.keep(context.WithoutCancel(ctx), false); err != nil {
		r.g.Logger.WarnContext(ctx, "the state of a task is not kept", slog.String("task", r.own.TaskID), slog.Any("error", err))
		return
	}
	r.g.pushes(ctx, r.x.record, s.events)
}

// handOver lets the work go on without its caller. If there is no room for it,
// it ends, and its record says so.
func (r *run) handOver(ctx context.Context) {
	r.x.stopped = nil // from now on only letters say so
	if err := r.g.crew.run(r.drive); err != nil {
		r.fail(context.WithoutCancel(ctx), "the gateway is too busy to go on with it")
		r.abort()
	}
}

// drive does the work until it is settled, and answers what it asks with what
// the caller sends later.
func (r *run) drive(ctx context.Context) {
	defer r.stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	mail := r.g.mailbox(ctx, r.x.record.key)
	for {
		for !r.settled() {
			s, err := r.stepOr(ctx, mail)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				r.ended(ctx, err)
				return
			}
			r.note(ctx, s)
		}
		r.note(ctx, step{})
		if r.ask == nil || !r.answered(ctx, mail) {
			return
		}
	}
}

// errCanceled: the caller wants the work ended.
var errCanceled = errors.New("gateway: the work was canceled by its caller")

// stepOr is step, unless somebody says to stop: a letter, or the client of a
// session.
func (r *run) stepOr(ctx context.Context, mail *mailbox) (step, error) {
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	stopped := func() bool { return false }
	if mail != nil {
		defer context.AfterFunc(mail.canceled, cancel)() //nolint:contextcheck // a signal
		stopped = func() bool { return mail.canceled.Err() != nil }
	}
	byClient := r.x.stopped
	if byClient != nil {
		defer context.AfterFunc(byClient, cancel)() //nolint:contextcheck // a signal
	}
	s, err := r.step(within, r.x.endpoint.Timeout)
	if ctx.Err() == nil && (stopped() || byClient != nil && byClient.Err() != nil) {
		return s, errCanceled
	}
	return s, r.late(err)
}

// ended writes why the work ended before it was settled.
func (r *run) ended(ctx context.Context, cause error) {
	switch {
	case errors.Is(cause, errCanceled):
		r.abort()
		r.mark(ctx, canonical.StateCanceled, "")
	case ctx.Err() != nil:
		r.fail(context.WithoutCancel(ctx), "the gateway was stopped; whether the agent has finished is not known")
	default:
		r.fail(ctx, problem.Native(cause).Message)
	}
	r.g.finishRun(ctx, r.x, cause)
}

func (r *run) fail(ctx context.Context, why string) { r.mark(ctx, canonical.StateFailed, why) }

// mark writes a last state.
func (r *run) mark(ctx context.Context, state canonical.State, why string) {
	if r.x.record == nil {
		return
	}
	rec := r.x.record
	task := *r.snapshot()
	task.Status, task.Inputs = canonical.Status{State: state, At: r.g.Now()}, nil
	if why != "" {
		task.Status.Message = stream.Failed(r.own, &canonical.Error{Message: why}).Status.Message
	}
	rec.Task, rec.Said, rec.Runner, rec.Waits = task, nil, "", waitsNot
	if _, err := r.g.save(ctx, rec); err != nil {
		r.g.Logger.WarnContext(ctx, "the end of a task is not kept", slog.String("task", r.own.TaskID), slog.Any("error", err))
	}
	r.g.pushes(ctx, rec, []canonical.Event{{Status: &task.Status}})
}

// alive says that this process works on something, and goes on saying it.
func (g *Gateway) alive(ctx context.Context) error {
	if err := g.beat(ctx); err != nil {
		return &problem.RecordingError{Err: err}
	}
	g.heart.Do(func() {
		_ = g.crew.run(func(ctx context.Context) {
			ticker := time.NewTicker(runnerBeats)
			defer ticker.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-ticker.C:
					if err := g.beat(ctx); err != nil {
						g.Logger.WarnContext(ctx, "this process cannot say that it is alive", slog.Any("error", err))
					}
				}
			}
		})
	})
	return nil
}

func (g *Gateway) beat(ctx context.Context) error {
	key := EntryKey{Kind: entryRunner, Group: g.instance, ID: g.instance}
	entry, _, err := g.Entries.Get(ctx, key)
	if err != nil {
		return err
	}
	_, _, err = g.Entries.Swap(ctx, key, entry.Revision, []byte("{}"), g.Now().Add(runnerLife))
	return err
}

// lost: the process that worked on it is gone, and nobody knows how it ended.
func (g *Gateway) lost(ctx context.Context, rec *record) (bool, error) {
	if rec.Runner == "" || rec.Runner == g.instance {
		return false, nil
	}
	_, ok, err := g.Entries.Get(ctx, EntryKey{Kind: entryRunner, Group: rec.Runner, ID: rec.Runner})
	return !ok && err == nil, err
}

// settleLost says of work whose process is gone that it is lost: exactly once,
// whichever replica notices first.
func (g *Gateway) settleLost(ctx context.Context, rec *record) error {
	gone, err := g.lost(ctx, rec)
	if err != nil || !gone {
		return err
	}
	why := &canonical.Error{Message: "the gateway that worked on it was lost; whether the agent has finished is not known"}
	rec.Task.Status, rec.Task.Inputs = stream.Failed(rec.own(), why).Status, nil
	rec.Said, rec.Runner, rec.Waits = nil, "", waitsNot
	_, err = g.save(ctx, rec)
	return err
}
