package gateway

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/stream"
)

// telling is a run as its caller is told of it, event by event: one ECT opens
// the stream and one closes it (architecture section 5).
type telling struct {
	callerStream

	run   *run
	waits *asked
}

var _ transport.Events = (*telling)(nil)

// tell begins the caller's stream. What fails at once is no stream but a refusal.
func (r *run) tell(ctx context.Context) (transport.Answer, error) {
	patience := grace
	if r.x.hearer != nil {
		patience = 0 // it is known what the stream begins with
	}
	first, err := r.step(ctx, patience)
	if err != nil && !errors.Is(err, errPatience) && !errors.Is(err, io.EOF) {
		r.abort()
		return transport.Answer{}, err
	}
	return r.tellFrom(ctx, first, err)
}

// tellFrom is tell with the first step taken already: err is nil, errPatience or io.EOF.
func (r *run) tellFrom(ctx context.Context, first step, err error) (transport.Answer, error) {
	x := r.x
	if r.settled() && r.single() && (x.mode.Relay && !r.asksInStream() || r.failure != nil) {
		return r.close(ctx) // the agent has answered without a stream, and so do we
	}
	t := &telling{run: r, callerStream: callerStream{g: r.g, x: x}}
	t.shape = stream.NewShaper(stream.Shape{
		From: x.mode.AgentStreams, To: x.mode.CallerStreams,
		TaskID: r.own.TaskID, ContextID: r.own.ContextID, Token: x.message.Correlation.Progress,
		Relay: x.mode.Relay && !x.mode.Converts, // of a task that its caller knows in another way, or not at all, he hears what he has words for
	})
	opens := t.begin(ctx)
	if opens == nil {
		opens = t.greet()
	}
	if opens != nil {
		if r.keeping && !r.guest { // it was on record, and its caller hears of no task
			r.mark(context.WithoutCancel(ctx), canonical.StateFailed, problem.Native(opens).Message)
		}
		r.abort()
		return transport.Answer{}, opens
	}
	answer, unsealed := x.answerStream(t.opening, t)
	if unsealed != nil {
		return transport.Answer{}, unsealed
	}
	switch {
	case err == nil:
		err = t.take(ctx, first)
	case errors.Is(err, errPatience):
		err = t.say(t.shape.Begin())
	default:
		err = nil
	}
	if err != nil {
		t.fail(ctx, err)
	}
	return answer, nil
}

// asksInStream: the agent asks, and its caller answers while it hears the stream.
func (r *run) asksInStream() bool { return r.asked() && r.x.mode.Asking == translators.AskStream }

// single: what ended the work was one reply in the words of the caller's protocol.
func (r *run) single() bool { return r.said.Count() == 1 && r.whole != nil }

// begin puts the work on record, and opens the stream.
func (t *telling) begin(ctx context.Context) error {
	if err := t.run.enroll(ctx); err != nil {
		return err
	}
	return t.open(ctx, t.run.parents)
}

// enroll puts the work on record as soon as it has a name: before its caller
// hears that, and may ask about it.
func (r *run) enroll(ctx context.Context) error {
	if r.guest || r.keeping || r.own.TaskID == "" || r.x.mode.CallerStreams != translators.StreamsTask {
		return nil
	}
	if err := r.keep(ctx, true); err != nil {
		return err
	}
	return r.registerNew(ctx)
}

// Next is the caller's next event.
func (t *telling) Next(ctx context.Context) (transport.Event, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(t.left, cancel)() //nolint:contextcheck // a signal
	// The last event waits for the token that closes the stream, where its caller has tokens inside.
	for len(t.queue) == 0 || !t.over && len(t.queue) == 1 && t.run.complete() && t.run.x.callerInside() {
		if t.over {
			return transport.Event{}, io.EOF
		}
		if err := t.more(within, ctx); err != nil {
			return transport.Event{}, err
		}
	}
	return t.next(), nil
}

// more queues what comes next. An error is the caller's own: it does not wait. Where
// the end of its context ends its request too, either may be noticed first.
func (t *telling) more(ctx, caller context.Context) error {
	s, err := t.run.stepOr(ctx)
	whole := context.WithoutCancel(ctx) // what was heard is told, or fails, as a whole
	switch {
	case errors.Is(err, io.EOF) && t.run.asksInStream():
		err = t.inquire(ctx)
	case errors.Is(err, io.EOF), errors.Is(err, errStopped) && t.leave():
		err = t.end(whole)
	case err == nil:
		err = t.take(whole, s)
	}
	if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return err
	}
	if errors.Is(err, errCanceled) && caller.Err() != nil {
		return caller.Err()
	}
	if err != nil {
		t.fail(whole, err)
	}
	return nil
}

// take tells what the agent said.
func (t *telling) take(ctx context.Context, s step) error {
	r := t.run
	if err := r.enroll(ctx); err != nil {
		return err
	}
	r.note(ctx, s)
	if r.x.verbatim() {
		if s.wire != nil {
			t.queued(*s.wire)
		}
		t.losses = canonical.MergeLosses(t.losses, r.untold)
		return nil
	}
	if t.losses = canonical.MergeLosses(t.losses, s.losses); r.x.mode.CallerStreams == translators.StreamsTask {
		r.unheard(s)
	}
	for i := range s.events {
		if s.events[i].Ask != nil || !r.x.retell(&s.events[i]) {
			continue // asked at the end of what is there
		}
		events, losses := t.shape.Event(&s.events[i])
		t.losses = canonical.MergeLosses(t.losses, losses)
		if err := t.say(events); err != nil {
			return err
		}
	}
	return nil
}

// say encodes events for the caller.
func (t *telling) say(events []canonical.Event) error {
	x := t.run.x
	for i := range events {
		t.run.complement(&events[i])
		m := &canonical.Message{
			Op: canonical.OpInvoke, Phase: canonical.PhaseEvent, Body: &events[i],
			Correlation: canonical.Correlation{WireID: x.in.WireID}, Conversation: t.run.own, Origin: x.from(),
		}
		if events[i].Log != nil {
			m.Preferences.LogLevel = x.message.Preferences.LogLevel
		}
		if err := t.sayOr(m, &events[i]); err != nil {
			return err
		}
	}
	return nil
}

// unsayable: the caller's protocol has no words for an event. It is lost, and the
// stream goes on; but not without a question, or the end.
func unsayable(event *canonical.Event, err error) bool {
	said, ok := errors.AsType[*canonical.Error](err)
	return ok && said.Code == canonical.CodeUnsupportedOp && event.Ask == nil && (event.Status == nil || !stream.Settled(event.Status.State))
}

// unworded is the loss of an event that the caller's protocol has no words for.
func unworded(event *canonical.Event) []canonical.Loss {
	loss := canonical.Loss{Code: canonical.LossStatusUpdates, Path: "/body/event", Fate: canonical.Dropped}
	if event.Log != nil {
		loss.Code, loss.Path = canonical.LossProgress, "/body/log"
	}
	return []canonical.Loss{loss}
}

// from is where what the caller is told came from.
func (x *request) from() canonical.Origin {
	return canonical.Origin{Binding: x.to.Codec.Info().Binding, Version: x.route.Endpoint.Version}
}

// end tells how the work is settled.
func (t *telling) end(ctx context.Context) error {
	r := t.run
	r.note(ctx, step{})
	if !r.x.verbatim() {
		m, err := r.outcome(ctx)
		if err == nil {
			err = t.last(m)
		}
		if err != nil {
			return err
		}
	}
	t.finish(ctx, nil)
	if r.ask != nil {
		r.handOver(ctx) // the agent's stream waits for the answer
	} else {
		r.stop()
	}
	return nil
}

// last tells the reply, in the caller's way of streaming.
func (t *telling) last(m *canonical.Message) error {
	r := t.run
	m.Correlation.WireID = r.x.in.WireID
	result, ok := m.Body.(*canonical.Result)
	if !ok {
		return t.encode(m)
	}
	if r.x.mode.CallerStreams == translators.StreamsTask {
		var events []canonical.Event
		if r.told(result) {
			events = t.unsaid()
		} else {
			events, _ = t.shape.End(result)
		}
		if t.sent.Count() == 0 && result.Output != nil && len(events) > 0 && events[0].Task == nil { // a stream begins with the task (A2A 1.0, 3.1.2)
			begun := &canonical.Task{ID: r.own.TaskID, ContextID: r.own.ContextID, Status: canonical.Status{State: canonical.StateWorking}}
			events = append([]canonical.Event{{Task: begun}}, events...)
		}
		return t.say(events)
	}
	m.Conversation, m.Origin = r.own, r.x.from()
	return t.encode(m)
}

// needsTask: its caller can only be told of this as of a task, and the agent has
// named none.
func (r *run) needsTask(m *canonical.Message) bool {
	if r.x.mode.Relay || r.x.message.Op != canonical.OpInvoke || r.x.mode.CallerStreams != translators.StreamsTask {
		return false
	}
	switch body := m.Body.(type) {
	case *canonical.Result:
		return body.Output != nil
	case *canonical.Event:
		return body.Status != nil || body.Artifact != nil
	default:
		return false
	}
}

// told: the result is no more than what the events have said.
func (r *run) told(result *canonical.Result) bool { return r.result == nil && result.Pending == nil }

// unsaid is the question of an open stream, which is no change of the agent's.
func (t *telling) unsaid() []canonical.Event {
	if t.run.ask == nil {
		return nil
	}
	events, _ := t.shape.Event(&canonical.Event{Ask: t.run.ask})
	return events
}

// finish signs the ECT that closes the stream and settles the books.
func (t *telling) finish(ctx context.Context, cause error) {
	r := t.run
	ctx = context.WithoutCancel(ctx)
	if cause != nil {
		t.broken(ctx, cause)
		return
	}
	input, _ := r.input()
	id, err := t.closed(ctx, attest.End{Parents: r.parents, Losses: t.losses, Input: input, In: r.said.Count()})
	if err != nil {
		t.fail(ctx, err)
		return
	}
	r.x.trail.Replied(id)
	r.g.remember(ctx, r.x, r.own.ContextID)
	r.g.saveArtifacts(ctx, r.x)
	r.g.finish(ctx, r.x, nil)
}

// fail ends the stream with an error in the caller's words: never silently.
func (t *telling) fail(ctx context.Context, cause error) {
	r := t.run
	ctx = context.WithoutCancel(ctx)
	canceled := errors.Is(cause, errCanceled)
	r.forsake(ctx, cause)
	if canceled && t.canceled() == nil {
		cause = nil // it is what its caller wanted
	} else {
		t.refuse(cause)
	}
	t.finish(ctx, cause)
	if r.keeping && isUnchanged(cause) { // its caller may ask about the task, or cancel it
		r.stop()
		return
	}
	r.abort()
}

// canceled ends a stream of tasks as its caller wanted.
func (t *telling) canceled() error {
	if t.run.x.mode.CallerStreams != translators.StreamsTask {
		return errCanceled
	}
	status := canonical.Status{State: canonical.StateCanceled, At: t.run.g.Now()}
	return t.say(append(t.shape.Begin(), canonical.Event{Status: &status}))
}

// Close ends the telling. Work that does not belong to the connection goes on.
func (t *telling) Close() error {
	open := t.endLocked()
	defer t.mu.Unlock()
	if !open {
		return nil
	}
	r := t.run
	ctx := context.Background() // the caller's has ended
	if r.x.message.Op == canonical.OpNative && t.sent.Count() > 0 {
		t.finish(ctx, nil) // whoever listens ends like this, and what was heard is on record
	} else {
		r.g.finish(ctx, r.x, context.Canceled)
	}
	switch {
	case r.x.in.Call.Detached && r.keeping:
		r.handOver(ctx)
		return nil
	case r.keeping && r.guest:
		r.lose(ctx, "")
	case r.keeping:
		r.mark(ctx, canonical.StateCanceled, "")
	}
	r.abort()
	return nil
}

// callerStream is a stream to a caller: its events, and what its closing ECT says of them.
type callerStream struct {
	g       *Gateway
	x       *request
	shape   *stream.Shaper
	sent    ect.StreamHash
	queue   []transport.Event
	opening transport.Opened
	losses  []canonical.Loss
	over    bool // nothing more will be queued

	mu     sync.Mutex
	left   context.Context    //nolint:containedctx // a signal: the caller has left
	depart context.CancelFunc // gives it
}

// open signs the ECT that opens the stream.
func (s *callerStream) open(ctx context.Context, parents []ect.ID) (err error) {
	s.left, s.depart = context.WithCancel(context.Background())
	s.opening, err = s.g.attest.OpenStream(ctx, s.x.trail, s.x.stream(), parents)
	return err
}

// encode queues a message in the caller's words.
func (s *callerStream) encode(m *canonical.Message) error {
	tr := s.g.toCaller(s.x, m, nil)
	tr.Target.Stream = true
	wire, losses, err := s.g.attest.Event(s.g.prepared(s.x, tr))
	if errors.Is(err, translators.ErrTooLarge) {
		return &problem.AnswerTooLargeError{Err: err}
	}
	if err != nil {
		return err
	}
	s.losses = canonical.MergeLosses(s.losses, losses)
	s.queued(wire)
	return nil
}

// sayOr queues a message with an event. One that the caller's protocol has no words for is
// lost, and the stream goes on.
func (s *callerStream) sayOr(m *canonical.Message, event *canonical.Event) error {
	err := s.encode(m)
	if !unsayable(event, err) {
		return err
	}
	s.losses = canonical.MergeLosses(s.losses, unworded(event))
	return nil
}

// next takes an event from those that wait to be told. What closes the stream comes
// with the last one for a caller that has it inside.
func (s *callerStream) next() transport.Event {
	event := s.queue[0]
	s.queue = s.queue[1:]
	if len(event.Wire.Body) > 0 && len(s.queue) == 1 && len(s.queue[0].Wire.Body) == 0 && s.x.callerInside() {
		event.Evidence, s.queue = s.queue[0].Evidence, nil
	}
	return event
}

// endLocked ends the stream for a caller who has left. It reports whether it was open until then.
// The lock is held from then on.
func (s *callerStream) endLocked() (open bool) {
	s.depart()
	s.mu.Lock() // Next has noticed
	open = !s.over
	s.over, s.queue = true, nil
	return open
}

func (s *callerStream) queued(wire translators.Wire) {
	s.sent.Add(wire.Octets())
	s.queue = append(s.queue, transport.Event{Wire: wire})
}

// refuse queues an error in the caller's words.
func (s *callerStream) refuse(cause error) {
	m := &canonical.Message{
		Op: s.x.message.Op, Phase: canonical.PhaseError, Body: problem.Native(cause),
		Correlation: canonical.Correlation{WireID: s.x.in.WireID},
	}
	tr := s.g.toCaller(s.x, m, nil)
	tr.Target.Stream, tr.Target.Stamp = true, s.g.stamp(s.x, &tr)
	wire, _, err := tr.Codec.Encode(m, tr.Target)
	if framer := s.g.Network.Framer(tr.Pair.To); framer != nil && err == nil {
		wire, _, err = framer.Frame(wire)
	}
	if err == nil {
		s.queued(wire)
	}
}

// closed signs the ECT that closes the stream, whose events it covers.
func (s *callerStream) closed(ctx context.Context, end attest.End) (ect.ID, error) {
	before := s.x.trail.Count()
	end.Parents = append([]ect.ID{s.opening.ID()}, end.Parents...)
	end.Output, end.Out = s.sent.Sum(), s.sent.Count()
	id, err := s.g.attest.CloseStream(ctx, s.x.trail, s.x.stream(), end)
	if err == nil {
		s.over, s.queue = true, append(s.queue, transport.Event{Evidence: s.x.trail.Tokens()[before:]})
	}
	return id, err
}

// broken signs that the stream failed, and settles the books.
func (s *callerStream) broken(ctx context.Context, cause error) {
	before := s.x.trail.Count()
	evidence := s.g.fail(ctx, s.x, transport.Answer{}, cause).Evidence
	s.over, s.queue = true, append(s.queue, transport.Event{Evidence: evidence[min(before, len(evidence)):]})
	s.g.finish(ctx, s.x, cause)
}
