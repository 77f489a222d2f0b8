package transport_test

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators"
)

// recorded is the receipt of a token about these bytes.
func recorded(t *testing.T, body []byte) ect.Receipt {
	t.Helper()
	token, err := ecttest.NewParty(t, "spiffe://example.com/gateway").Signer(t, nil).Sign(ect.Claims{
		Act: ect.ActTranslate, Audience: []string{"spiffe://example.com/client"}, OutputHash: ect.Hash(body),
	})
	if err != nil {
		t.Fatal(err)
	}
	recorder, err := ect.NewRecorder(ect.RecorderDeps{Store: ecttest.NewStore()})
	if err != nil {
		t.Fatal(err)
	}
	receipt, err := recorder.Record(t.Context(), token, ect.Filing{})
	if err != nil {
		t.Fatal(err)
	}
	return receipt
}

// noEvents is a stream that has ended, with a name to tell it by.
type noEvents string

func (noEvents) Next(context.Context) (transport.Event, error) { return transport.Event{}, io.EOF }
func (noEvents) Close() error                                  { return nil }

// inside hashes a message without what stands behind its first bytes.
type inside int

func (inside) HashForm() string { return "inside" }

func (n inside) HashInput(body []byte) ([]byte, error) {
	if len(body) < int(n) {
		return nil, errors.New("too short")
	}
	return body[:n], nil
}

// TestAnswer_OfAnAttestedMessage: only the bytes that a recorded token covers become an
// answer's message.
func TestAnswer_OfAnAttestedMessage(t *testing.T) {
	t.Parallel()
	wire := translators.Wire{Body: []byte("answer")}
	attested, err := transport.Attest(recorded(t, wire.Body), wire)
	if err != nil {
		t.Fatal(err)
	}
	if a := attested.Answer(); string(a.Wire().Body) != "answer" || a.Events() != nil {
		t.Errorf("it is %q, with events %v", a.Wire().Body, a.Events())
	}
	if a := (transport.Attested{}).Answer(); len(a.Wire().Body) > 0 || a.Events() != nil {
		t.Errorf("of nothing it is %q, with events %v", a.Wire().Body, a.Events())
	}
}

// TestOpen_NeedsAReceipt: a stream is answered only behind a recorded token.
func TestOpen_NeedsAReceipt(t *testing.T) {
	t.Parallel()
	if opened, err := transport.Open(ect.Receipt{}); !errors.Is(err, transport.ErrUnsealed) || opened.ID() != "" {
		t.Errorf("without a receipt: %q, %v", opened.ID(), err)
	}
	if a, err := (transport.Opened{}).Answer(noEvents("")); !errors.Is(err, transport.ErrUnsealed) || a.Events() != nil {
		t.Errorf("the zero Opened is answered with %v, %v", a.Events(), err)
	}
	receipt := recorded(t, nil)
	opened, err := transport.Open(receipt)
	if err != nil || opened.ID() != receipt.ID() || opened.ID() == "" {
		t.Fatalf("opened is %q, %v, expected %q", opened.ID(), err, receipt.ID())
	}
	if a, err := opened.Answer(noEvents("a")); err != nil || a.Events() != noEvents("a") || len(a.Wire().Body) > 0 {
		t.Errorf("it is %+v, %v", a, err)
	}
}

// TestVouch_HoldsBoth: what a token on record covers is an answer as it is.
func TestVouch_HoldsBoth(t *testing.T) {
	t.Parallel()
	a := transport.Vouch(translators.Wire{Body: []byte("answer")}, noEvents("a"))
	if string(a.Wire().Body) != "answer" || a.Events() != noEvents("a") || len(a.Evidence) > 0 || a.Inside {
		t.Errorf("it is %+v", a)
	}
}

// TestCarrying_SaysTheSame: tokens may stand in the body beside what the answer's token
// covers, and nothing else may change.
func TestCarrying_SaysTheSame(t *testing.T) {
	t.Parallel()
	before := transport.Vouch(translators.Wire{Body: []byte("answer")}, nil)
	before.Evidence = []string{"token"}
	for name, c := range map[string]struct {
		wire translators.Wire
		ok   bool
	}{
		"as it was":              {translators.Wire{Body: []byte("answer")}, true},
		"with tokens":            {translators.Wire{Body: []byte("answer+tokens"), Hasher: inside(len("answer"))}, true},
		"with tokens, hashed":    {translators.Wire{Body: []byte("answer+tokens")}, false},
		"another message":        {translators.Wire{Body: []byte("refusal")}, false},
		"another, with tokens":   {translators.Wire{Body: []byte("refusal+tokens"), Hasher: inside(len("refusal"))}, false},
		"nothing":                {translators.Wire{}, false},
		"a hash that is no hash": {translators.Wire{Body: []byte("a"), Hasher: inside(9)}, false},
	} {
		after, err := before.Carrying(c.wire)
		switch {
		case c.ok && (err != nil || string(after.Wire().Body) != string(c.wire.Body) || len(after.Evidence) != 1):
			t.Errorf("%s: %+v, %v", name, after, err)
		case !c.ok && (!errors.Is(err, transport.ErrUnsealed) || len(after.Wire().Body) > 0):
			t.Errorf("%s: %+v, %v, expected %v", name, after, err, transport.ErrUnsealed)
		}
	}
	if string(before.Wire().Body) != "answer" {
		t.Errorf("the answer itself has become %q", before.Wire().Body)
	}
}

// TestThrough_WrapsStreams: a stream is wrapped, and what has none stays so.
func TestThrough_WrapsStreams(t *testing.T) {
	t.Parallel()
	wrap := func(events transport.Events) transport.Events { return "wrapped " + events.(noEvents) }
	stream := transport.Vouch(translators.Wire{}, noEvents("a"))
	if got := stream.Through(wrap).Events(); got != noEvents("wrapped a") || stream.Events() != noEvents("a") {
		t.Errorf("the stream is %v, and was %v", got, stream.Events())
	}
	message := transport.Vouch(translators.Wire{Body: []byte("answer")}, nil)
	if got := message.Through(wrap); got.Events() != nil || string(got.Wire().Body) != "answer" {
		t.Errorf("the message is %+v", got)
	}
}
