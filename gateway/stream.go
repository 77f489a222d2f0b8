package gateway

import (
	"context"
	"errors"
	"sync"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/stream"
)

// callerStream is a stream to a caller: its events, and what its closing ECT says of them.
type callerStream struct {
	g       *Gateway
	x       *exchange
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
	s.left, s.depart = context.WithCancel(context.Background()) //nolint:contextcheck // a signal
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
	s.losses = merge(s.losses, losses)
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
	s.losses = merge(s.losses, unworded(event))
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
	s.g.finishRun(ctx, s.x, cause)
}
