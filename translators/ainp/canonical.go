package ainp

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
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

// Canonical is an envelope in the form of RFC 8785, without its signature. It
// fails with a *translators.MalformedError.
//
// RFC 8785 says numbers as doubles: digits that a double cannot hold are not
// covered, neither by a signature nor by a hash. The message keeps them.
func Canonical(body []byte) ([]byte, error) {
	o, err := parse(body)
	if err != nil {
		return nil, err
	}
	o.Take("sig")
	return canonicalise(o)
}

// SigningInput is what Ed25519 signs under a profile.
func SigningInput(body []byte, profile SigProfile) ([]byte, error) {
	text, err := Canonical(body)
	if err != nil || profile == SigRaw {
		return text, err
	}
	sum := sha256.Sum256(text)
	return sum[:], nil
}

// HashInput is the form whose SHA-256 is a message's inp_hash or out_hash: the
// canonical envelope without signature and without evidence (R5,
// aepb.hash_form "jcs-without-ect"). It is the same before the evidence is
// inserted and after.
func HashInput(body []byte) ([]byte, error) {
	o, err := parse(body)
	if err != nil {
		return nil, err
	}
	o.Take("sig")
	if payload := o.Peek("payload"); len(payload) > 0 && payload[0] == '{' {
		o.Take("payload")
		if bare := withoutEvidence(payload); bare != nil {
			o.Put("payload", bare)
		}
	}
	return canonicalise(o)
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
			p.Put(envelope.Key, rest)
		}
	}
	if attested, ok := rawjson.Elements(p.Peek("attestations")); ok {
		p.Take("attestations")
		if kept := without(attested, tokens); len(kept) > 0 {
			p.Put("attestations", envelope.Array(kept))
		}
	}
	return p.Rest()
}

// Evidence lists the tokens in an envelope, newest first. A slot of another
// shape is a *translators.MalformedError.
func Evidence(body []byte) ([]string, error) {
	o, err := parse(body)
	if err != nil {
		return nil, err
	}
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
// replaced. The signature is taken out, because it no longer holds.
func WithEvidence(body []byte, tokens []string) ([]byte, error) {
	o, err := parse(body)
	if err != nil {
		return nil, err
	}
	o.Take("sig")
	payload := o.RawObject("payload")
	if payload == nil {
		payload = json.RawMessage("{}")
	}
	if payload = withoutEvidence(payload); payload == nil {
		payload = json.RawMessage("{}")
	}
	p := rawjson.Parse(payload, "/payload")
	object := rawjson.NewBuilder().Merge(p.RawObject(envelope.Key)).Strings(envelope.SlotECT, tokens, true).Bytes()
	p.Put(envelope.Key, object)
	attested, _ := p.Array("attestations")
	for _, token := range tokens {
		attested = append(attested, rawjson.Quote(token))
	}
	p.Put("attestations", envelope.Array(attested))
	o.Put("payload", p.Rest())
	if err := p.Err(); err != nil {
		return nil, err
	}
	return o.Rest(), o.Err()
}

// WithSignature puts a signature, in base64, into an envelope.
func WithSignature(body []byte, sig string) ([]byte, error) {
	o, err := parse(body)
	if err != nil {
		return nil, err
	}
	o.Take("sig")
	o.Put("sig", rawjson.Quote(sig))
	return o.Rest(), o.Err()
}

func parse(body []byte) (*rawjson.Object, error) {
	if err := rawjson.Check(body, translators.DefaultBodyLimit, translators.DefaultDepth); err != nil {
		return nil, err
	}
	o := rawjson.Parse(body, "")
	return o, o.Err()
}

func canonicalise(o *rawjson.Object) ([]byte, error) {
	value := jsontext.Value(bytes.Clone(o.Rest()))
	if len(value) == 0 {
		value = jsontext.Value("{}")
	}
	if err := value.Canonicalize(); err != nil {
		return nil, &translators.MalformedError{Reason: "no canonical form"}
	}
	return value, nil
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

// ReadHead reads the members of a Head, and those only, by their exact names. A
// member of another type is a *translators.MalformedError.
func ReadHead(body []byte) (Head, error) {
	o, err := parse(body)
	if err != nil {
		return Head{}, err
	}
	h := Head{}
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
	if to := o.Take("to_did"); to != nil && string(to) != "null" {
		h.To, _ = rawjson.Unquote(to)
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
