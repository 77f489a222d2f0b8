package task

import (
	"context"
	"time"

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
// the end from a caller who asked, before the replica that follows the work has.
func (s *Service) watch(ctx context.Context, x Exchange, rec *store.Record, streaming bool) (transport.Answer, error) {
	work := x.Work()
	if streaming && work.Mode.CallerStreams == translators.StreamsTask { // others have no words for a task in a stream
		return s.tellRecord(ctx, x, rec, true)
	}
	if work.Message.Op == canonical.OpTaskResult && (rec.Converted || isUnsent(rec)) {
		return s.outcomeOf(ctx, x, rec)
	}
	answered, round := rec.Resume == store.ResumeStream && (work.Message.Op == canonical.OpInvoke || rec.Method != ""), rec.Round
	end := time.Now().Add(work.Limits.Timeout)
	for rec.IsActive() && time.Until(end) > 0 {
		next, err := s.changed(ctx, x, rec, time.Until(end))
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
	return s.tellRecord(ctx, x, rec, false)
}

// changed waits for the next change of a record, but not for ever; nil: there
// was none. Work whose process is gone is settled on the way, and an agent's own
// task that no replica follows is followed, so that there is something to wait for.
func (s *Service) changed(ctx context.Context, x Exchange, rec *store.Record, limit time.Duration) (*store.Record, error) {
	revision := rec.Revision
	if err := s.EndLost(ctx, rec); err != nil || rec.Revision != revision {
		return rec, err
	}
	x.Work().Caller.FollowTask(ctx, rec)
	return s.Wait(ctx, rec, limit)
}

// tellRecord answers with how work stands on record: as one reply, or as a
// stream of what changes.
func (s *Service) tellRecord(ctx context.Context, x Exchange, rec *store.Record, streaming bool) (transport.Answer, error) {
	if !streaming {
		m, err := s.answerOf(x, rec)
		if err != nil {
			return transport.Answer{}, err
		}
		return reply(ctx, x, rec, m)
	}
	return newSubscription(s, x, rec).begin(ctx, true)
}

// reply answers with a message about the work of a record.
func reply(ctx context.Context, x Exchange, rec *store.Record, m *canonical.Message) (transport.Answer, error) {
	m.Conversation, m.Correlation.WireID = rec.CallerNames(), x.Work().WireID
	return x.Tell(ctx, m, execution.Proof{Parents: x.ParentsOf(rec), Input: rec.Input})
}

// answerOf is what a record says, or why the work failed: a caller who asks for the
// outcome of a call has what the call would have been answered with (MCP
// 2025-11-25, tasks/result).
func (r Reader) answerOf(x Exchange, rec *store.Record) (*canonical.Message, error) {
	work := x.Work()
	result, err := r.resultOf(x, rec)
	if err != nil {
		return nil, err
	}
	m := &canonical.Message{Op: work.Message.Op, Phase: canonical.PhaseResponse, Body: result, Losses: rec.Losses}
	t := result.Task
	switch {
	case t == nil:
	case rec.Native != nil && work.Message.Op == canonical.OpNative:
		m.Origin, m.Body = work.Origin, &canonical.Native{Method: rec.Method, Result: rec.Native}
	case t.Failure != nil && (work.Message.Op == canonical.OpTaskResult || work.Message.Op == canonical.OpNative):
		m.Phase, m.Body = canonical.PhaseError, t.Failure
	case work.Message.Op == canonical.OpNative && t.Status.State.Terminal():
		return nil, lostWork(t)
	case work.Message.Op == canonical.OpNative:
		return nil, &transport.TimeoutError{Agent: work.AgentName, After: work.Limits.Timeout}
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
func (r Reader) resultOf(x Exchange, rec *store.Record) (*canonical.Result, error) {
	work := x.Work()
	task, err := r.Present(rec)
	if err != nil {
		return nil, err
	}
	switch {
	case work.Mode.CallerStreams == translators.StreamsTask:
		task.Output = nil
		return &canonical.Result{Task: task}, nil
	case work.Message.Op == canonical.OpInvoke || work.Message.Op == canonical.OpNative || work.Message.Op == canonical.OpTaskResult:
		if task.Output != nil && task.Status.State.Terminal() {
			return &canonical.Result{Output: task.Output}, nil
		}
		if stream.Settled(task.Status.State) && !task.Status.State.Terminal() && work.Mode.Asking == translators.AskReply {
			return &canonical.Result{Pending: &canonical.Pending{Inputs: stream.Forms(stream.Inputs(task)), State: execution.StateOf(rec.Round, rec.Task.ID)}}, nil
		}
	}
	return &canonical.Result{Task: task}, nil
}

// subscription is a record as its caller is told of it, change by change. Any number of callers may
// subscribe to one record.
type subscription struct {
	*execution.EventStream

	s      *Service
	x      Exchange
	work   execution.Request // as the subscription begins
	rec    *store.Record
	known  *canonical.Task // as its caller knows it; nil: the caller waits for the outcome, and is asked what is open
	events int             // how many events of the record's log its caller knows
	round  int             // of the question that the caller has answered; -1: none
}

var _ execution.Source = (*subscription)(nil)

func newSubscription(s *Service, x Exchange, rec *store.Record) *subscription {
	w := &subscription{s: s, x: x, work: x.Work(), rec: rec, round: -1}
	w.EventStream = execution.NewEventStream(w.work.Caller, w)
	return w
}

// begin opens the stream with the whole task, or waits for its outcome.
func (w *subscription) begin(ctx context.Context, whole bool) (answer transport.Answer, err error) {
	if err := w.Begin(ctx, w.x.ParentsOf(w.rec)); err != nil {
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
	task, err := w.s.Present(w.rec)
	if err != nil {
		return err
	}
	task.Output = nil
	if w.rec.Resume == store.ResumeStream && w.work.Message.Op == canonical.OpInvoke { // that is answered by now
		task.Status, task.Inputs, w.round = canonical.Status{State: canonical.StateWorking}, nil, w.rec.Round
	}
	w.known, w.events = task, w.rec.Log.Count
	w.Shape = stream.NewShaper(stream.Shape{From: w.work.Mode.AgentStreams, To: w.work.Mode.CallerStreams})
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
		if err := w.EncodeEvent(w.message(&canonical.Message{Op: w.work.Message.Op, Phase: canonical.PhaseEvent, Body: &events[i]}), &events[i]); err != nil {
			return err
		}
	}
	return nil
}

// message is one under the caller's names.
func (w *subscription) message(m *canonical.Message) *canonical.Message {
	m.Correlation.WireID, m.Conversation = w.work.WireID, w.rec.CallerNames()
	return m
}

// Complete implements [execution.Source]. Who subscribes to a task that waits for an approval waits for what comes of it.
func (w *subscription) Complete() bool {
	waits := w.rec.Resume == store.ResumeApproval && w.work.Message.Op == canonical.OpTaskSubscribe
	return w.known != nil && stream.Settled(w.known.Status.State) && !waits
}

// Advance implements [execution.Source].
func (w *subscription) Advance(ctx context.Context) error {
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	ends := w.s.Deps.Workers.Context()
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
	rec, err := w.s.changed(ctx, w.x, w.rec, 2*store.LeaseTTL)
	if err != nil || rec == nil {
		return err
	}
	w.rec = rec
	if rec.Resume == store.ResumeStream && rec.Round == w.round {
		return nil // the answer is on its way
	}
	task, err := w.s.Present(rec)
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
	events, missed := rec.Log.Since(w.events)
	if w.events = rec.Log.Count; missed {
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
	err := w.Seal(ctx, attest.End{Losses: w.rec.Losses})
	if err == nil {
		w.work.Caller.FinishRequest(ctx, nil)
	}
	return err
}

// Fail implements [execution.Source]. The work goes on.
func (w *subscription) Fail(ctx context.Context, cause error) {
	w.Refuse(cause)
	w.Break(ctx, cause)
}

// Leave implements [execution.Source]; the work goes on.
func (w *subscription) Leave() {
	w.work.Caller.FinishRequest(context.Background(), context.Canceled)
}

// outcomeOf answers a caller who waits for what comes of held work. What the work
// asks meanwhile, the caller is asked on the stream of this answer (MCP
// 2025-11-25, tasks/result); the replica that holds the work takes the answer.
func (s *Service) outcomeOf(ctx context.Context, x Exchange, rec *store.Record) (transport.Answer, error) {
	work := x.Work()
	asks := work.Mode.Asking == translators.AskStream && work.Handling.Session
	for end := time.Now().Add(work.Limits.Timeout); !rec.Task.Status.State.Terminal() && (!asks || rec.Resume != store.ResumeStream); {
		next, err := s.changed(ctx, x, rec, time.Until(end))
		if err != nil {
			return transport.Answer{}, err
		}
		if next == nil {
			return transport.Answer{}, &transport.TimeoutError{Agent: work.AgentName, After: work.Limits.Timeout}
		}
		if rec = next; rec.Released > 0 {
			return transport.Answer{}, execution.ReleasedError(rec)
		}
	}
	if rec.Task.Status.State.Terminal() {
		return s.tellRecord(ctx, x, rec, false)
	}
	return newSubscription(s, x, rec).begin(ctx, false)
}

// isUnsent tells whether the work waits for an approval, or was approved and did not yet reach the agent.
func isUnsent(rec *store.Record) bool {
	return rec.Resume == store.ResumeApproval || rec.Resume == store.ResumeNone && rec.TaskID == "" && !rec.IsActive()
}

// interview asks what is open and was not asked yet, else waits for what happens;
// the outcome ends it.
func (w *subscription) interview(ctx context.Context) error {
	switch {
	case w.rec.Task.Status.State.Terminal():
		m, err := w.s.answerOf(w.x, w.rec)
		if err == nil {
			err = w.Encode(w.message(m))
		}
		if err != nil {
			return err
		}
		return w.end(ctx)
	case w.rec.Resume == store.ResumeStream && w.rec.Round != w.round:
		w.round = w.rec.Round
		w.x.About(w.rec)
		return w.s.Deps.Executions.AskInSession(ctx, &w.work, w.rec, stream.Inputs(&w.rec.Task), func(ask *canonical.Ask) error {
			event := &canonical.Event{Ask: ask}
			return w.Encode(w.message(&canonical.Message{Op: w.work.Message.Op, Phase: canonical.PhaseEvent, Body: event}))
		})
	default:
		next, err := w.s.changed(ctx, w.x, w.rec, 2*store.LeaseTTL)
		if err != nil || next == nil {
			return err
		}
		w.rec = next
		return execution.ReleasedError(next)
	}
}
