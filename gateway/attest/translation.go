package attest

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Direction is the value of aepb.leg (R1).
type Direction string

// The directions of a translation.
const (
	Request Direction = "request" // to the agent
	Reply   Direction = "reply"   // to the caller
)

// Bounds of a token's lists, in bytes.
const (
	maxUnbound = 512 // of unbound tokens in a reply's token
	listNames  = 300 // what the names of both lists take, with the counts and hashes of what is left out
)

// Pair is the protocols of an execution.
type Pair struct {
	From, To canonical.Binding
	HashForm string // how messages are hashed, where that is not as they are (R5)
}

// Translation is one message to be translated, and for whom its evidence is.
type Translation struct {
	Subject   Subject
	Lineage   Lineage
	Direction Direction
	ID        ect.ID // of the token
	Message   *canonical.Message
	Input     string            // hash of what was decoded; empty: nothing was, the message is the gateway's own
	Verbatim  *translators.Wire // goes on as it came: nothing is encoded; nil: it is encoded
	Codec     translators.Translator
	Target    translators.Target
	Framer    transport.WireFormat // what travels is other than what the codec writes; nil: it is not
	Pair      Pair
	Audience  []string
	Reader    ect.Identity // in whose dialect the token is written
	Ext       ect.Ext      // what else the token says
	Internal  bool         // a message of the gateway's own about the work: its caller is not told of its token
	Again     bool         // it may have been sent before: the token on record with its ID covers it then
}

// Translate encodes a message, judges what that loses, signs and records. Its errors are
// the codec's, the permit's, and those of [Recording].
func (s *Service) Translate(ctx context.Context, t *Trail, tr Translation) (transport.Attested, error) {
	wire, losses, err := s.encode(&tr)
	if err != nil {
		return transport.Attested{}, err
	}
	words, dialect := wordsOf(tr.Subject.EntryPoint), s.deps.Dialects.For(tr.Reader)
	if tr.Again {
		if out, found, err := s.sentBefore(ctx, t, &tr, wire); found || err != nil {
			return out, err
		}
	}
	token, receipt, err := s.sign(ctx, dialect, ect.Claims{
		ID: tr.ID, Act: words.act, Audience: tr.Audience, Workflow: tr.Lineage.Workflow, Parents: tr.Lineage.Parents,
		InputHash: tr.Input, OutputHash: ect.Hash(wire.HashInput()), Ext: s.translationExt(t, words, dialect, &tr, losses),
	}, tr.Subject.Permit, s.filing(tr.Subject, tr.Audience))
	if _, taken := errors.AsType[*ect.ConflictError](err); taken && tr.Again { // another replica was first with it
		out, _, err := s.sentBefore(ctx, t, &tr, wire)
		return out, err
	}
	if err != nil {
		return transport.Attested{}, err
	}
	if tr.Direction == Request {
		t.requested(tr.ID)
	}
	if !tr.Internal {
		t.translated(tr.Direction, tr.ID)
		t.issued(token.Compact(), token.ID(), losses)
	}
	return transport.Attest(receipt, wire)
}

// sentBefore is a message with the receipt of the token that was signed for it before; false: there is no such token. Its recording is
// completed first: what is sent is in its workflow.
func (s *Service) sentBefore(ctx context.Context, t *Trail, tr *Translation, wire translators.Wire) (out transport.Attested, found bool, err error) {
	receipt, found, err := s.deps.Recorder.Find(ctx, ect.Ref{ID: tr.ID, Workflow: tr.Lineage.Workflow, Issuer: s.self()})
	if err != nil {
		return out, false, Recording(err)
	}
	if !found {
		return out, false, nil
	}
	if err := s.deps.Recorder.Complete(ctx, receipt, s.filing(tr.Subject, tr.Audience)); err != nil {
		return out, true, Recording(err)
	}
	t.requested(tr.ID)
	out, err = transport.Attest(receipt, wire)
	return out, true, err
}

// Event encodes an event of a stream and judges what that loses. The token that closes the
// stream covers it: it has none of its own.
func (s *Service) Event(tr Translation) (translators.Wire, []canonical.Loss, error) {
	return s.encode(&tr)
}

// encode makes what travels, and judges what that loses.
func (s *Service) encode(tr *Translation) (translators.Wire, []canonical.Loss, error) {
	if tr.Verbatim != nil {
		return *tr.Verbatim, nil, tr.Subject.Permit.Judge(nil) // nothing is lost, and it needs a permit all the same
	}
	wire, losses, err := tr.Codec.Encode(tr.Message, tr.Target)
	if err != nil {
		return translators.Wire{}, nil, err
	}
	var unframed []canonical.Loss
	if tr.Framer != nil {
		if wire, unframed, err = tr.Framer.Frame(wire); err != nil {
			return translators.Wire{}, nil, err
		}
	}
	losses = slices.Concat(tr.Message.Losses, losses, unframed)
	for _, loss := range losses {
		s.deps.Metrics.CountLoss(string(tr.Pair.From), string(tr.Pair.To), string(loss.Code), string(loss.Fate))
	}
	if err := tr.Subject.Permit.Judge(Judged(losses)); err != nil {
		return translators.Wire{}, nil, err
	}
	wire.Hasher = translators.HasherOf(tr.Codec)
	return wire.Hashed(), losses, nil
}

// Judged is losses as a permit judges them.
func Judged(losses []canonical.Loss) []policy.Loss {
	out := make([]policy.Loss, len(losses))
	for i, loss := range losses {
		out[i] = policy.Loss{Code: string(loss.Code), Semantic: loss.Semantic(), Text: loss.String()}
	}
	return out
}

// words are the names of a translation token. They follow the endpoint that was called
// (R10): AEPB, Gateway as DAG Node; CPAT, Translation ECT Claims.
type words struct {
	act                         ect.Act
	from, to, gateway, warnings string
}

func wordsOf(entrance transport.EntryPoint) words {
	if entrance == transport.TranslateCPAT {
		return words{ect.ActCPATTranslate, ect.ExtCPATSourceProtocol, ect.ExtCPATDestProtocol, ect.ExtCPATGatewayID, ect.ExtCPATWarnings}
	}
	return words{ect.ActTranslate, ect.ExtSourceProtocol, ect.ExtDestProtocol, ect.ExtGatewayID, ect.ExtWarnings}
}

// translationExt is the ext claim of a translation token, with what R1, R3 and R10 add.
func (s *Service) translationExt(t *Trail, words words, dialect ect.Dialect, tr *Translation, losses []canonical.Loss) ect.Ext {
	warnings := make([]string, len(losses))
	for i, loss := range losses {
		warnings[i] = loss.String()
	}
	ext := s.ext(tr.Subject)
	ext.SetString(words.from, string(tr.Pair.From))
	ext.SetString(words.to, string(tr.Pair.To))
	ext.SetString(words.gateway, string(s.self()))
	ext.SetString(ect.ExtLeg, string(tr.Direction))
	if tr.Pair.HashForm != "" {
		ext.SetString(ect.ExtHashForm, tr.Pair.HashForm)
	}
	maps.Copy(ext, tr.Ext)
	left := dialect.MaxExt() - listNames // for both lists: a longer token is not signed
	for key, value := range ext {
		left -= len(key) + len(value) + len(`"":,`)
	}
	ext.SetList(words.warnings, warnings, max(1, min(ect.WarningsSize, left*3/4)))
	if unbound := t.notBound(); tr.Direction == Reply && len(unbound) > 0 {
		ext.SetList(ect.ExtUnboundEvidence, unbound, max(1, min(maxUnbound, left/4)))
	}
	return ext
}

// NewID is a fresh id of a message in a protocol, and of the token that testifies to it.
func NewID(protocol translators.Translator) ect.ID {
	if protocol.Info().RandomIDs {
		return ect.NewRandomID()
	}
	return ect.NewID()
}
