package gateway

import (
	"context"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/task/execution"
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
		tr := g.caller(x).translation(m, x.since(rec))
		tr.Input = rec.Input
		out, err := g.translate(ctx, x, tr)
		return x.answer(out), g.caller(x).unsaid(ctx, m, err)
	}
	return g.subscription(x, rec).begin(ctx, true)
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
			return &canonical.Result{Pending: &canonical.Pending{Inputs: stream.Forms(stream.Inputs(task)), State: execution.StateOf(rec.Round, rec.Task.ID)}}, nil
		}
	}
	return &canonical.Result{Task: task}, nil
}

// subscription is a record as its caller is told of it, change by change. Any number of callers may
// subscribe to one record.
type subscription struct {
	*execution.EventStream

	g     *Gateway
	x     *request
	rec   *store.Record
	known *canonical.Task // as its caller knows it; nil: the caller waits for the outcome, and is asked what is open
	told  int             // how many events of the record's log its caller knows
	round int             // of the question that the caller has answered; -1: none
}

var _ execution.Source = (*subscription)(nil)

func (g *Gateway) subscription(x *request, rec *store.Record) *subscription {
	w := &subscription{g: g, x: x, rec: rec, round: -1}
	w.EventStream = execution.NewEventStream(g.caller(x), w)
	return w
}

// begin opens the stream with the whole task, or waits for its outcome.
func (w *subscription) begin(ctx context.Context, whole bool) (answer transport.Answer, err error) {
	if err := w.Begin(ctx, w.x.since(w.rec)); err != nil {
		return answer, err
	}
	if whole {
		err = w.first()
	} else {
		err = w.interview(ctx)
	}
	if err != nil {
		return answer, err
	}
	return w.Answered()
}

// first queues the whole task.
func (w *subscription) first() error {
	task, err := w.g.tasks.Present(w.rec)
	if err != nil {
		return err
	}
	task.Output = nil
	if w.rec.Resume == store.ResumeStream && w.x.message.Op == canonical.OpInvoke { // that is answered by now
		task.Status, task.Inputs, w.round = canonical.Status{State: canonical.StateWorking}, nil, w.rec.Round
	}
	w.known, w.told = task, w.rec.Log.Count
	w.Shape = stream.NewShaper(stream.Shape{From: w.x.mode.AgentStreams, To: w.x.mode.CallerStreams})
	return w.retell(canonical.Event{Task: task})
}

// retell says an event in the way of the caller's protocol.
func (w *subscription) retell(e canonical.Event) error {
	events, losses := w.Shape.Event(&e)
	w.AddLosses(losses)
	return w.say(events)
}

// say tells events. One that the caller's protocol has no words for is lost.
func (w *subscription) say(events []canonical.Event) error {
	for i := range events {
		if err := w.EncodeEvent(w.message(&canonical.Message{Op: w.x.message.Op, Phase: canonical.PhaseEvent, Body: &events[i]}), &events[i]); err != nil {
			return err
		}
	}
	return nil
}

// message is one under the caller's names.
func (w *subscription) message(m *canonical.Message) *canonical.Message {
	m.Correlation.WireID, m.Conversation = w.x.in.WireID, w.rec.CallerNames()
	return m
}

// Complete implements [execution.Source].
func (w *subscription) Complete() bool {
	return w.known != nil && stream.Settled(w.known.Status.State)
}

// Advance implements [execution.Source].
func (w *subscription) Advance(ctx context.Context) error {
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	ends := w.g.workers.Context()
	defer context.AfterFunc(ends, cancel)() //nolint:contextcheck // a signal
	err := w.change(within)
	switch {
	case err != nil && ends.Err() != nil:
		return execution.ErrStopped
	case err != nil && ctx.Err() != nil:
		return ctx.Err()
	}
	return err
}

func (w *subscription) change(ctx context.Context) error {
	if w.known == nil {
		return w.interview(ctx)
	}
	if w.Complete() {
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
	return execution.ReleasedError(rec)
}

// happened tells the events that the record's log has, and is how the task stood after
// them. Where the caller is too slow for the log, that it has missed some is declared.
func (w *subscription) happened(rec *store.Record) (*canonical.Task, error) {
	var fold stream.Folder
	if fold.Add(&canonical.Event{Task: w.known}, rec.CallerNames()) != nil {
		return w.known, nil //nolint:nilerr // the task as it stands now says what has changed
	}
	events, missed := rec.Log.Since(w.told)
	if w.told = rec.Log.Count; missed {
		w.AddLosses([]canonical.Loss{{Code: canonical.LossStatusUpdates, Path: "/body/status", Fate: canonical.Dropped}})
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

func (w *subscription) end(ctx context.Context) error {
	_, err := w.Seal(ctx, attest.End{Losses: w.rec.Losses})
	if err == nil {
		w.g.finish(ctx, w.x, nil)
	}
	return err
}

// Fail implements [execution.Source]. The work goes on.
func (w *subscription) Fail(ctx context.Context, cause error) {
	w.Refuse(cause)
	w.Break(ctx, cause)
}

// Leave implements [execution.Source]; the work goes on.
func (w *subscription) Leave() { w.g.finish(context.Background(), w.x, context.Canceled) }

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
			return transport.Answer{}, execution.ReleasedError(rec)
		}
	}
	if rec.Task.Status.State.Terminal() {
		return g.tellRecord(ctx, x, rec, false)
	}
	return g.subscription(x, rec).begin(ctx, false)
}

// interview asks what is open and was not asked yet, else waits for what happens;
// the outcome ends it.
func (w *subscription) interview(ctx context.Context) error {
	switch {
	case w.rec.Task.Status.State.Terminal():
		m, err := w.g.answerOf(w.x, w.rec)
		if err == nil {
			err = w.Encode(w.message(m))
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
			if err := w.g.tasks.Ask(ctx, w.g.caller(w.x).QuestionKey(id), w.x.record, in.Key, w.x.answerWait()); err != nil {
				return err
			}
			ask := &canonical.Event{Ask: &canonical.Ask{ID: canonical.TextID(id), Input: in}}
			if err := w.Encode(w.message(&canonical.Message{Op: w.x.message.Op, Phase: canonical.PhaseEvent, Body: ask})); err != nil {
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
		return execution.ReleasedError(next)
	}
}
