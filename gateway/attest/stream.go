package attest

import (
	"context"
	"encoding/json"
	"strconv"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Stream is the answer to a caller that is a stream of events.
type Stream struct {
	Subject  Subject
	Workflow string
	Pair     Pair
}

// End is what the token says that closes a stream.
type End struct {
	Parents       []ect.ID
	Input, Output string // hashes of what was read and of what was told; empty: nothing was
	In, Out       int    // events that they cover
	Losses        []canonical.Loss
}

// OpenStream signs and records the token that opens a stream. Its errors are those of
// [Recording], and [ect.ErrUnsignable].
func (s *Service) OpenStream(ctx context.Context, t *Trail, stream Stream, parents []ect.ID) (transport.Opened, error) {
	receipt, err := s.mark(ctx, t, stream, End{Parents: parents}, ect.Ext{}, "open")
	if err != nil {
		return transport.Opened{}, err
	}
	return transport.Open(receipt)
}

// CloseStream signs and records the token that closes a stream: it covers all events. Its
// errors are those of OpenStream.
func (s *Service) CloseStream(ctx context.Context, t *Trail, stream Stream, end End) (ect.ID, error) {
	receipt, err := s.mark(ctx, t, stream, end, ect.Ext{ect.ExtEvents: Events(end.In, end.Out)}, "close")
	return receipt.ID(), err
}

// Events is how many events a token covers (aepb.events).
func Events(in, out int) json.RawMessage {
	return json.RawMessage("[" + strconv.Itoa(in) + "," + strconv.Itoa(out) + "]")
}

func (s *Service) mark(ctx context.Context, t *Trail, stream Stream, end End, ext ect.Ext, state string) (ect.Receipt, error) {
	ext.SetString(ect.ExtStream, state)
	caller := stream.Subject.Caller.ID
	words, dialect := wordsOf(stream.Subject.EntryPoint), s.deps.Dialects.For(caller)
	audience := []string{string(caller)}
	tr := Translation{Subject: stream.Subject, Direction: Reply, Pair: stream.Pair, Ext: ext}
	token, receipt, err := s.sign(ctx, dialect, ect.Claims{
		ID: ect.ID(s.deps.NewID()), Act: words.act, Audience: audience, Workflow: stream.Workflow, Parents: end.Parents,
		InputHash: end.Input, OutputHash: end.Output, Ext: s.translationExt(t, words, dialect, &tr, end.Losses),
	}, stream.Subject.Permit, s.filing(stream.Subject, audience))
	if err != nil {
		return ect.Receipt{}, err
	}
	t.issued(token.Compact(), token.ID(), end.Losses)
	return receipt, nil
}
