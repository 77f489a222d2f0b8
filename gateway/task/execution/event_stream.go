package execution

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/stream"
)

// Source is where the events of a stream come from: an execution, or a record.
type Source interface {
	// Advance waits for what comes next and queues it in the stream, or finishes that. An error ends
	// the stream, but the context's, or [ErrCanceled] of a caller who has left: those are the caller's own.
	Advance(ctx context.Context) error
	// Complete reports whether the last event is queued.
	Complete() bool
	// Fail finishes the stream with an error.
	Fail(ctx context.Context, cause error)
	// Leave ends what is done for a caller who has left before the end.
	Leave()
}

// EventStream is a stream of events to a caller, of an execution or of a record: one ECT opens it and
// one closes it, which covers all events (architecture section 5).
type EventStream struct {
	Shape *stream.Shaper // puts events into the caller's way of streaming; its user sets it

	to      Outlet
	source  Source
	sent    ect.StreamHash
	queue   []transport.Event
	opening transport.Opened
	losses  []canonical.Loss
	over    bool // nothing more will be queued

	mu     sync.Mutex
	left   context.Context    //nolint:containedctx // a signal: the caller has left
	depart context.CancelFunc // gives it
}

var _ transport.Events = (*EventStream)(nil)

// NewEventStream makes a stream from a source to a caller. It has to be opened.
func NewEventStream(to Outlet, from Source) *EventStream { return &EventStream{to: to, source: from} }

// Begin signs the ECT that opens the stream.
func (s *EventStream) Begin(ctx context.Context, parents []ect.ID) (err error) {
	s.left, s.depart = context.WithCancel(context.Background())
	s.opening, err = s.to.Open(ctx, parents)
	return err
}

// Answered is the stream as an answer.
func (s *EventStream) Answered() (transport.Answer, error) { return s.to.Answer(s.opening, s) }

// Next is the caller's next event.
func (s *EventStream) Next(ctx context.Context) (transport.Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.left, cancel)() //nolint:contextcheck // a signal
	// The last event waits for the token that closes the stream, where its caller has tokens inside.
	for len(s.queue) == 0 || !s.over && len(s.queue) == 1 && s.source.Complete() && s.to.EmbedsECTs() {
		if s.over {
			return transport.Event{}, io.EOF
		}
		if err := s.fill(within, ctx); err != nil {
			return transport.Event{}, err
		}
	}
	return s.take(), nil
}

// fill queues what comes next. An error is the caller's own: it does not wait. Where the end of its
// context ends its request too, either may be noticed first.
func (s *EventStream) fill(ctx, caller context.Context) error {
	err := s.source.Advance(ctx)
	switch {
	case err == nil:
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return err
	case errors.Is(err, ErrCanceled) && caller.Err() != nil:
		return caller.Err()
	default:
		s.source.Fail(context.WithoutCancel(ctx), err)
	}
	return nil
}

// take takes an event from the queue. What closes the stream comes with the last one for a caller
// that has it inside.
func (s *EventStream) take() transport.Event {
	event := s.queue[0]
	s.queue = s.queue[1:]
	if len(event.Wire.Body) > 0 && len(s.queue) == 1 && len(s.queue[0].Wire.Body) == 0 && s.to.EmbedsECTs() {
		event.Evidence, s.queue = s.queue[0].Evidence, nil
	}
	return event
}

// Close ends the stream for a caller who has left.
func (s *EventStream) Close() error {
	s.depart()
	s.mu.Lock() // Next has noticed
	defer s.mu.Unlock()
	if open := !s.over; open {
		s.over, s.queue = true, nil
		s.source.Leave()
	}
	s.queue = nil
	return nil
}

// AddLosses declares what is not told.
func (s *EventStream) AddLosses(losses []canonical.Loss) {
	s.losses = canonical.MergeLosses(s.losses, losses)
}

// Queue queues a wire message.
func (s *EventStream) Queue(wire translators.Wire) {
	s.sent.Add(wire.HashInput())
	s.queue = append(s.queue, transport.Event{Wire: wire})
}

// Encode queues a message in the caller's words.
func (s *EventStream) Encode(m *canonical.Message) error {
	wire, losses, err := s.to.Event(m)
	if err != nil {
		return err
	}
	s.AddLosses(losses)
	s.Queue(wire)
	return nil
}

// EncodeEvent queues a message with an event. One that the caller's protocol has no words for is
// lost, and the stream goes on; but not without a question, or the end.
func (s *EventStream) EncodeEvent(m *canonical.Message, event *canonical.Event) error {
	err := s.Encode(m)
	refusal, ok := errors.AsType[*canonical.Error](err)
	if !ok || refusal.Code != canonical.CodeUnsupportedOp || event.Ask != nil || event.Status != nil && stream.Settled(event.Status.State) {
		return err
	}
	loss := canonical.Loss{Code: canonical.LossStatusUpdates, Path: "/body/event", Fate: canonical.Dropped}
	if event.Log != nil {
		loss.Code, loss.Path = canonical.LossProgress, "/body/log"
	}
	s.AddLosses([]canonical.Loss{loss})
	return nil
}

// Refuse queues an error in the caller's words.
func (s *EventStream) Refuse(cause error) {
	if wire, ok := s.to.EncodeRefusal(cause); ok {
		s.Queue(wire)
	}
}

// Seal signs the ECT that closes the stream, whose events it covers.
func (s *EventStream) Seal(ctx context.Context, end attest.End) error {
	end.Parents = append([]ect.ID{s.opening.ID()}, end.Parents...)
	end.Output, end.Out = s.sent.Sum(), s.sent.Count()
	end.Losses = canonical.MergeLosses(s.losses, end.Losses)
	tokens, err := s.to.Close(ctx, end)
	if err == nil {
		s.over, s.queue = true, append(s.queue, transport.Event{Evidence: tokens})
	}
	return err
}

// Break signs that the stream failed, and settles the books.
func (s *EventStream) Break(ctx context.Context, cause error) {
	s.over, s.queue = true, append(s.queue, transport.Event{Evidence: s.to.Fail(ctx, cause)})
	s.to.FinishRequest(ctx, cause)
}
