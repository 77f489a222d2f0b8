package gateway

import (
	"context"
	"io"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/stream"
)

// watch tells a caller of work that goes on elsewhere: in another process, or
// behind another connection. It is told from its record, which may have heard of
// the end from somebody who asked, before whoever follows the work has.
func (g *Gateway) watch(ctx context.Context, x *request, rec *store.Record, streaming bool) (transport.Answer, error) {
	if streaming && x.mode.CallerStreams == translators.StreamsTask { // others have no words for a task in a stream
		return g.tellRecord(ctx, x, rec, true)
	}
	if rec.Converted && x.message.Op == canonical.OpTaskResult {
		return g.outcomeOf(ctx, x, rec)
	}
	answered, round := rec.Resume == store.ResumeStream && (x.message.Op == canonical.OpInvoke || rec.Method != ""), rec.Round
	end := time.Now().Add(x.timeout())
	for rec.IsActive() && time.Until(end) > 0 {
		next, err := g.changed(ctx, x, rec, time.Until(end))
		if err != nil {
			return transport.Answer{}, err
		}
		if next == nil {
			break
		}
		if rec = next; rec.Resume != store.ResumeNone && !(answered && rec.Round == round) {
			break
		}
	}
	return g.tellRecord(ctx, x, rec, false)
}

// timeout is how long a caller waits for what does not come.
func (x *request) timeout() time.Duration {
	if x.route.Endpoint.Timeout > 0 {
		return x.route.Endpoint.Timeout
	}
	return x.settings.Timeout
}

// changed waits for the next change of a record, but not for ever; nil: there
// was none. Work whose process is gone is settled on the way, and an agent's own
// task that nobody follows is followed, so that there is something to wait for.
func (g *Gateway) changed(ctx context.Context, x *request, rec *store.Record, limit time.Duration) (*store.Record, error) {
	revision := rec.Revision
	if err := g.tasks.EndLost(ctx, rec); err != nil || rec.Revision != revision {
		return rec, err
	}
	g.attend(ctx, x, rec)
	return g.tasks.Wait(ctx, rec, limit)
}

// tellRecord answers with how work stands on record: as one reply, or as a
// stream of what changes.
func (g *Gateway) tellRecord(ctx context.Context, x *request, rec *store.Record, streaming bool) (transport.Answer, error) {
	if !streaming {
		m, err := g.answerOf(x, rec)
		if err != nil {
			return transport.Answer{}, err
		}
		m.Conversation, m.Correlation.WireID = rec.CallerNames(), x.in.WireID
		tr := g.toCaller(x, m, x.since(rec))
		tr.Input = rec.Input
		out, err := g.translate(ctx, x, tr)
		return x.answer(out), g.unsaid(ctx, x, m, err)
	}
	w := &watching{callerStream: callerStream{g: g, x: x}, rec: rec}
	return w.begin(ctx, func(context.Context) error { return w.first() })
}

// since is what testifies to work on record, else what its caller sent.
func (x *request) since(rec *store.Record) []ect.ID {
	if parents := x.behind(rec); len(parents) > 0 {
		return parents
	}
	return x.lineage.Parents
}

// answerOf is what a record says, or why the work failed: whoever asks for the
// outcome of a call has what the call would have been answered with (MCP
// 2025-11-25, tasks/result).
func (g *Gateway) answerOf(x *request, rec *store.Record) (*canonical.Message, error) {
	result, err := g.resultOf(x, rec)
	if err != nil {
		return nil, err
	}
	m := &canonical.Message{Op: x.message.Op, Phase: canonical.PhaseResponse, Body: result, Losses: rec.Losses}
	t := result.Task
	switch {
	case t == nil:
	case rec.Native != nil && x.message.Op == canonical.OpNative:
		m.Origin, m.Body = x.from(), &canonical.Native{Method: rec.Method, Result: rec.Native}
	case t.Failure != nil && (x.message.Op == canonical.OpTaskResult || x.message.Op == canonical.OpNative):
		m.Phase, m.Body = canonical.PhaseError, t.Failure
	case x.message.Op == canonical.OpNative && t.Status.State.Terminal():
		return nil, lostWork(t)
	case x.message.Op == canonical.OpNative:
		return nil, &transport.TimeoutError{Agent: x.to.Agent.Name, After: x.timeout()}
	}
	return m, nil
}

// lostWork says why work ended without an answer of the agent's.
func lostWork(t *canonical.Task) error {
	why := "the request was canceled"
	if m := t.Status.Message; m != nil && len(m.Parts) > 0 {
		why = m.Parts[0].Text
	}
	return &canonical.Error{Code: canonical.CodeUnavailable, Message: why}
}

// resultOf is what a record says, as its caller wants to hear it: the task, or
// for a caller of calls the outcome of the call.
func (g *Gateway) resultOf(x *request, rec *store.Record) (*canonical.Result, error) {
	task, err := g.tasks.Present(rec)
	if err != nil {
		return nil, err
	}
	switch {
	case x.mode.CallerStreams == translators.StreamsTask:
		task.Output = nil
		return &canonical.Result{Task: task}, nil
	case x.message.Op == canonical.OpInvoke || x.message.Op == canonical.OpNative || x.message.Op == canonical.OpTaskResult:
		if task.Output != nil && task.Status.State.Terminal() {
			return &canonical.Result{Output: task.Output}, nil
		}
		if stream.Settled(task.Status.State) && !task.Status.State.Terminal() && x.mode.Asking == translators.AskReply {
			return &canonical.Result{Pending: &canonical.Pending{Inputs: stream.Forms(stream.Inputs(task)), State: stateOf(rec.Round, rec.Task.ID)}}, nil
		}
	}
	return &canonical.Result{Task: task}, nil
}

// watching is a record as its caller is told of it, change by change. Any
// number of callers may watch one record.
type watching struct {
	callerStream

	rec   *store.Record
	known *canonical.Task
	heard int  // how many events of the record's log its caller knows
	round int  // of the question that the caller has answered; -1: none
	asks  bool // its caller waits for the outcome, and is asked what is open
}

var _ transport.Events = (*watching)(nil)

// begin opens the stream with what is queued first.
func (w *watching) begin(ctx context.Context, first func(context.Context) error) (answer transport.Answer, err error) {
	if err := w.open(ctx, w.x.since(w.rec)); err != nil {
		return answer, err
	}
	if err := first(ctx); err != nil {
		return answer, err
	}
	return w.x.answerStream(w.opening, w)
}

// first queues the whole task.
func (w *watching) first() error {
	task, err := w.g.tasks.Present(w.rec)
	if err != nil {
		return err
	}
	task.Output, w.round = nil, -1
	if w.rec.Resume == store.ResumeStream && w.x.message.Op == canonical.OpInvoke { // that is answered by now
		task.Status, task.Inputs, w.round = canonical.Status{State: canonical.StateWorking}, nil, w.rec.Round
	}
	w.known, w.heard = task, w.rec.Log.Count
	w.shape = stream.NewShaper(stream.Shape{From: w.x.mode.AgentStreams, To: w.x.mode.CallerStreams})
	return w.retell(canonical.Event{Task: task})
}

// retell says an event in the way of the caller's protocol.
func (w *watching) retell(e canonical.Event) error {
	events, losses := w.shape.Event(&e)
	w.losses = canonical.MergeLosses(w.losses, losses)
	return w.say(events)
}

// say tells events. One that the caller's protocol has no words for is lost.
func (w *watching) say(events []canonical.Event) error {
	for i := range events {
		if err := w.sayOr(w.message(&canonical.Message{Op: w.x.message.Op, Phase: canonical.PhaseEvent, Body: &events[i]}), &events[i]); err != nil {
			return err
		}
	}
	return nil
}

// message is one under the caller's names.
func (w *watching) message(m *canonical.Message) *canonical.Message {
	m.Correlation.WireID, m.Conversation = w.x.in.WireID, w.rec.CallerNames()
	return m
}

// Next is the next change.
func (w *watching) Next(ctx context.Context) (transport.Event, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(w.left, cancel)()                //nolint:contextcheck // a signal
	defer context.AfterFunc(w.g.workers.Context(), cancel)() //nolint:contextcheck // a signal
	for len(w.queue) == 0 {
		if w.over {
			return transport.Event{}, io.EOF
		}
		if err := w.more(ctx); err != nil {
			return transport.Event{}, err
		}
	}
	return w.next(), nil
}

// more queues what comes next. An error is the caller's own: it does not wait.
func (w *watching) more(ctx context.Context) error {
	err := w.change(ctx)
	switch {
	case err == nil:
	case w.g.workers.Context().Err() != nil:
		w.fail(ctx, errStopped)
	case ctx.Err() != nil:
		return ctx.Err()
	default:
		w.fail(ctx, err)
	}
	return nil
}

func (w *watching) change(ctx context.Context) error {
	if w.asks {
		return w.interview(ctx)
	}
	if stream.Settled(w.known.Status.State) {
		return w.end(ctx)
	}
	rec, err := w.g.changed(ctx, w.x, w.rec, 2*store.LeaseTTL)
	if err != nil || rec == nil {
		return err
	}
	w.rec = rec
	if rec.Resume == store.ResumeStream && rec.Round == w.round {
		return nil // the answer is on its way
	}
	task, err := w.g.tasks.Present(rec)
	if err != nil {
		return err
	}
	task.Output = nil
	before, err := w.happened(rec)
	if err != nil {
		return err
	}
	events := stream.Diff(before, task)
	w.known = task
	if err := w.say(events); err != nil {
		return err
	}
	return released(rec)
}

// happened tells the events that the record's log has, and is how the task stood after
// them. Where the caller is too slow for the log, that it has missed some is declared.
func (w *watching) happened(rec *store.Record) (*canonical.Task, error) {
	var fold stream.Folder
	if fold.Add(&canonical.Event{Task: w.known}, rec.CallerNames()) != nil {
		return w.known, nil //nolint:nilerr // the task as it stands now says what has changed
	}
	events, missed := rec.Log.Since(w.heard)
	if w.heard = rec.Log.Count; missed {
		w.losses = canonical.MergeLosses(w.losses, []canonical.Loss{{Code: canonical.LossStatusUpdates, Path: "/body/status", Fate: canonical.Dropped}})
	}
	for i := range events {
		if err := fold.Add(&events[i], rec.CallerNames()); err != nil {
			continue
		}
		if err := w.retell(events[i]); err != nil {
			return nil, err
		}
	}
	return fold.Task(), nil
}

func (w *watching) end(ctx context.Context) error {
	_, err := w.closed(ctx, attest.End{Losses: canonical.MergeLosses(w.losses, w.rec.Losses)})
	if err == nil {
		w.g.finish(ctx, w.x, nil)
	}
	return err
}

// fail ends the stream with an error in the caller's words. The work goes on.
func (w *watching) fail(ctx context.Context, cause error) {
	w.refuse(cause)
	w.broken(context.WithoutCancel(ctx), cause)
}

// Close ends the watching; the work goes on.
func (w *watching) Close() error {
	_ = w.endLocked()
	defer w.mu.Unlock()
	w.g.finish(context.Background(), w.x, context.Canceled)
	return nil
}

// outcomeOf answers a caller who waits for what comes of held work. What the work
// asks meanwhile, the caller is asked on the stream of this answer (MCP
// 2025-11-25, tasks/result); whoever holds the work hears the answer.
func (g *Gateway) outcomeOf(ctx context.Context, x *request, rec *store.Record) (transport.Answer, error) {
	asks := x.mode.Asking == translators.AskStream && x.in.Call.Session != ""
	for end := time.Now().Add(x.timeout()); !rec.Task.Status.State.Terminal() && (!asks || rec.Resume != store.ResumeStream); {
		next, err := g.changed(ctx, x, rec, time.Until(end))
		if err != nil {
			return transport.Answer{}, err
		}
		if next == nil {
			return transport.Answer{}, &transport.TimeoutError{Agent: x.to.Agent.Name, After: x.timeout()}
		}
		if rec = next; rec.Released > 0 {
			return transport.Answer{}, released(rec)
		}
	}
	if rec.Task.Status.State.Terminal() {
		return g.tellRecord(ctx, x, rec, false)
	}
	w := &watching{callerStream: callerStream{g: g, x: x}, rec: rec, round: -1, asks: true}
	return w.begin(ctx, w.interview)
}

// interview asks what is open and was not asked yet, else waits for what happens;
// the outcome ends it.
func (w *watching) interview(ctx context.Context) error {
	switch {
	case w.rec.Task.Status.State.Terminal():
		m, err := w.g.answerOf(w.x, w.rec)
		if err == nil {
			err = w.encode(w.message(m))
		}
		if err != nil {
			return err
		}
		return w.end(ctx)
	case w.rec.Resume == store.ResumeStream && w.rec.Round != w.round:
		w.round = w.rec.Round
		w.x.about(w.rec)
		for _, in := range stream.Forms(stream.Inputs(&w.rec.Task)) {
			id := w.g.NewID()
			if err := w.g.tasks.Ask(ctx, w.x.questionKey(id), w.x.record, in.Key, w.x.answerWait()); err != nil {
				return err
			}
			ask := &canonical.Event{Ask: &canonical.Ask{ID: quoted(id), Input: in}}
			if err := w.encode(w.message(&canonical.Message{Op: w.x.message.Op, Phase: canonical.PhaseEvent, Body: ask})); err != nil {
				return err
			}
		}
		return nil
	default:
		next, err := w.g.changed(ctx, w.x, w.rec, 2*store.LeaseTTL)
		if err != nil || next == nil {
			return err
		}
		w.rec = next
		return released(next)
	}
}
