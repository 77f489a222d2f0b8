package ainp

import (
	"crypto/sha256"
	"encoding/json"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/internal/envelope"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// SigProfile is what an AINP signature covers. The draft and its own code
// disagree; a peer is configured for one, and either is understood.
type SigProfile string

const (
	// SigDraft signs the SHA-256 of the canonical envelope (draft-ainp-protocol-00).
	SigDraft SigProfile = "draft"
	// SigRaw signs the canonical envelope itself, as the reference code does.
	SigRaw SigProfile = "jcs-raw"
)

// Envelope is an envelope that was found to be JSON within bounds. Whoever reads,
// judges and signs it does not look at that again.
type Envelope struct{ body []byte }

// Open checks an envelope. It fails with a *translators.MalformedError.
func Open(body []byte) (Envelope, error) {
	if err := rawjson.Check(body, translators.DefaultBodyLimit, translators.DefaultDepth); err != nil {
		return Envelope{}, err
	}
	return Envelope{body}, rawjson.Parse(body, "").Err()
}

// Text is an envelope in the form of RFC 8785, without its signature.
//
// RFC 8785 says numbers as doubles: digits that a double cannot hold are not
// covered, neither by a signature nor by a hash. The message keeps them.
type Text []byte

// Text fails with a *translators.MalformedError.
func (e Envelope) Text() (Text, error) {
	o := rawjson.Parse(e.body, "")
	o.Take("sig")
	value := jsontext.Value(objectOr(o.Rest()))
	if err := value.Canonicalize(); err != nil {
		return nil, &translators.MalformedError{Reason: "no canonical form"}
	}
	return Text(value), nil
}

// SigningInput is what Ed25519 signs under a profile.
func (t Text) SigningInput(profile SigProfile) []byte {
	if profile == SigRaw {
		return t
	}
	sum := sha256.Sum256(t)
	return sum[:]
}

// HashInput is the form whose SHA-256 is a message's inp_hash or out_hash: the
// text without evidence (R5, aepb.hash_form "jcs-without-ect"). It is the same
// before the evidence is inserted and after.
func (t Text) HashInput() []byte {
	o := rawjson.Parse(t, "")
	payload := o.Peek("payload")
	if len(payload) == 0 || payload[0] != '{' {
		return t
	}
	o.Take("payload")
	if bare := withoutEvidence(payload); bare != nil {
		o.Insert("payload", bare)
	}
	return objectOr(o.Rest())
}

// WithEvidence is the text of the envelope with tokens in it.
func (t Text) WithEvidence(tokens []string) (Text, error) {
	text, err := evidenced(t, tokens)
	return Text(text), err
}

// HashInput is Text.HashInput of a body. It fails with a *translators.MalformedError.
func HashInput(body []byte) ([]byte, error) {
	e, err := Open(body)
	if err != nil {
		return nil, err
	}
	text, err := e.Text()
	return text.HashInput(), err
}

// Evidence is Envelope.Evidence of a body. It fails with a *translators.MalformedError.
func Evidence(body []byte) ([]string, error) {
	e, err := Open(body)
	if err != nil {
		return nil, err
	}
	return e.Evidence()
}

// WithEvidence is Envelope.WithEvidence of a body. It fails with a *translators.MalformedError.
func WithEvidence(body []byte, tokens []string) ([]byte, error) {
	e, err := Open(body)
	if err != nil {
		return nil, err
	}
	return evidenced(e.body, tokens)
}

// withoutEvidence is a payload without tokens, and without the members that are
// empty then: whether they stood there before the tokens came cannot be told
// afterwards. Nil: nothing else was in it.
func withoutEvidence(payload json.RawMessage) json.RawMessage {
	p := rawjson.Parse(payload, "")
	object := p.Peek(envelope.Key)
	tokens := evidence(object)
	if len(object) > 0 && object[0] == '{' {
		p.Take(envelope.Key)
		o := rawjson.Parse(object, "")
		if len(tokens) > 0 || string(o.Peek(envelope.SlotECT)) == "[]" {
			o.Take(envelope.SlotECT)
		}
		if rest := o.Rest(); rest != nil {
			p.Insert(envelope.Key, rest)
		}
	}
	if attested, ok := rawjson.Elements(p.Peek("attestations")); ok {
		p.Take("attestations")
		if kept := without(attested, tokens); len(kept) > 0 {
			p.Insert("attestations", envelope.Array(kept))
		}
	}
	return p.Rest()
}

// evidenced puts tokens into an envelope and takes its signature out. Members
// that are in order stay in order, so that what is canonical stays canonical.
func evidenced(body []byte, tokens []string) ([]byte, error) {
	o := rawjson.Parse(body, "")
	o.Take("sig")
	p := rawjson.Parse(objectOr(withoutEvidence(objectOr(o.RawObject("payload")))), "/payload")
	object := rawjson.Parse(objectOr(p.RawObject(envelope.Key)), "")
	list := make([]json.RawMessage, len(tokens))
	for i, token := range tokens {
		list[i] = rawjson.Quote(token)
	}
	object.Take(envelope.SlotECT)
	object.Insert(envelope.SlotECT, envelope.Array(list))
	p.Insert(envelope.Key, object.Rest())
	attested, _ := p.Array("attestations")
	p.Insert("attestations", envelope.Array(slices.Concat(attested, list)))
	o.Insert("payload", p.Rest())
	if err := p.Err(); err != nil {
		return nil, err
	}
	return o.Rest(), o.Err()
}

// Evidence lists the tokens in an envelope, newest first. A slot of another
// shape is a *translators.MalformedError.
func (e Envelope) Evidence() ([]string, error) {
	o := rawjson.Parse(e.body, "")
	payload := o.Object("payload")
	if payload == nil {
		return nil, o.Err()
	}
	object := payload.Object(envelope.Key)
	if object == nil {
		return nil, payload.Err()
	}
	tokens, _ := object.Strings(envelope.SlotECT)
	return tokens, object.Err()
}

// WithEvidence puts tokens into an envelope: into payload.aepb.ect, and into
// attestations for peers that look only there. What stood in the slot is
// replaced. The signature is taken out, because it no longer holds. It fails with
// a *translators.MalformedError.
func (e Envelope) WithEvidence(tokens []string) (Envelope, error) {
	body, err := evidenced(e.body, tokens)
	return Envelope{body}, err
}

// WithSignature is the octets of the envelope with a signature, in base64.
func (e Envelope) WithSignature(sig string) []byte {
	o := rawjson.Parse(e.body, "")
	o.Take("sig")
	o.Put("sig", rawjson.Quote(sig))
	return o.Rest()
}

// Head is what a transport must know of an envelope to judge it. Members that
// are not there are empty.
type Head struct {
	Kind, ID, Trace string
	From, To        string // DIDs
	Intent          string // of an answer: the id of the intent
	Sig             string // base64
	At              time.Time
	TTL             time.Duration
}

// ReadHead is Envelope.Head of a body. It fails with a *translators.MalformedError.
func ReadHead(body []byte) (Head, error) {
	e, err := Open(body)
	if err != nil {
		return Head{}, err
	}
	return e.Head()
}

// Head reads the members of a Head, and those only, by their exact names. A
// member of another type is a *translators.MalformedError.
func (e Envelope) Head() (Head, error) {
	o, h := rawjson.Parse(e.body, ""), Head{}
	payload := o
	if p := o.Object("payload"); p != nil {
		payload = p
	}
	h.Intent, _ = payload.String("intent_id")
	for _, f := range []struct {
		name string
		at   *string
	}{{"msg_type", &h.Kind}, {"id", &h.ID}, {"trace_id", &h.Trace}, {"from_did", &h.From}, {"sig", &h.Sig}} {
		*f.at, _ = o.String(f.name)
	}
	if string(o.Peek("to_did")) != "null" {
		h.To, _ = o.String("to_did")
	}
	for _, name := range []string{"timestamp", "ttl"} {
		raw := o.Take(name)
		n, ok := milliseconds(raw)
		switch {
		case raw != nil && !ok:
			o.Fail(name, "not an integer of milliseconds")
		case name == "ttl":
			h.TTL = time.Duration(min(n, longest) * int64(time.Millisecond))
		default:
			h.At = time.UnixMilli(n)
		}
	}
	if err := payload.Err(); err != nil {
		return Head{}, err
	}
	return h, o.Err()
}

// longest is the longest ttl, in milliseconds, that a time.Duration is sure to hold.
const longest = 1 << 40
