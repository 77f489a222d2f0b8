package ainp

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"time"

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

// Envelope is an envelope that was checked to be JSON within bounds. Code that reads,
// verifies or signs it need not check that again.
type Envelope struct{ body []byte }

// Open checks an envelope. It fails with a *translators.MalformedError.
func Open(body []byte) (Envelope, error) {
	if err := rawjson.Check(body, translators.DefaultBodyLimit, translators.DefaultDepth); err != nil {
		return Envelope{}, err
	}
	if text := bytes.TrimLeft(body, " \t\r\n"); text[0] != '{' {
		return Envelope{}, &translators.MalformedError{Reason: "not an object"}
	}
	return Envelope{body}, nil
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
	text, err := rawjson.Canonical(rawjson.ObjectOr(o.Rest()))
	if err != nil {
		return nil, &translators.MalformedError{Reason: "no canonical form"}
	}
	return Text(text), nil
}

// WithSignature is the bytes of an envelope that says no more than its text, with
// a signature, in base64. The text is done after it.
func (t Text) WithSignature(sig string) []byte {
	out := t[:len(t)-1]
	if len(out) > 1 {
		out = append(out, ',')
	}
	return append(append(append(out, `"sig":"`...), sig...), `"}`...)
}

// Exact reports whether the text says all that the envelope does: no digit of its
// numbers is lost there.
func (e Envelope) Exact() bool { return rawjson.Exact(e.body) }

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
	if len(payload) == 0 || payload[0] != '{' || bare(payload) {
		return t
	}
	o.Take("payload")
	if bare := withoutEvidence(payload); bare != nil {
		o.Insert("payload", bare)
	}
	return rawjson.ObjectOr(o.Rest())
}

// WithEvidence is the text of the envelope with tokens in it. A text and its
// HashInput have the same.
func (t Text) WithEvidence(tokens []string) (Text, error) {
	text, err := evidenced(t, tokens, "")
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
	if attested, ok := rawjson.Elements(p.Peek(slotAttestations)); ok {
		p.Take(slotAttestations)
		if remaining := without(attested, tokens); len(remaining) > 0 {
			p.Insert(slotAttestations, rawjson.ArrayOf(remaining))
		}
	}
	return p.Rest()
}

// bare reports whether the payload of a text holds nothing that withoutEvidence removes. In
// such a text each name has one spelling.
func bare(payload json.RawMessage) bool {
	present := false
	whole := rawjson.Walk(payload, func(name, value json.RawMessage) bool {
		present = true
		switch string(name) {
		case `"` + envelope.Key + `"`:
			object := rawjson.Parse(value, "")
			return len(object.Members()) > 0 && !object.Has(envelope.SlotECT)
		case `"` + slotAttestations + `"`:
			return false
		}
		return true
	})
	return whole && present
}

// evidenced writes an envelope with tokens in it, and with a signature unless
// that is empty; others are taken out. Members that are in order stay in order,
// so that what is canonical without a signature stays canonical.
func evidenced(body []byte, tokens []string, sig string) ([]byte, error) {
	o := rawjson.Parse(body, "")
	o.Take("sig")
	p := rawjson.Parse(rawjson.ObjectOr(withoutEvidence(rawjson.ObjectOr(o.RawObject("payload")))), "/payload")
	object := rawjson.Open(p.RawObject(envelope.Key))
	object.Take(envelope.SlotECT)
	attested, _ := p.Array(slotAttestations)
	if err := cmp.Or(o.Err(), p.Err(), object.Err()); err != nil {
		return nil, err
	}
	// Their values are written where they stand.
	o.Insert("payload", nil)
	p.Insert(envelope.Key, nil)
	p.Insert(slotAttestations, nil)
	object.Insert(envelope.SlotECT, nil)

	size, newest := len(body)+len(sig)+128, tokens[:min(1, len(tokens))]
	for _, token := range slices.Concat(tokens, newest) {
		size += len(token) + len(`"",`)
	}
	for _, token := range newest {
		attested = append(attested, rawjson.Quote(token))
	}
	b := rawjson.NewBuilderOf(size)
	members(b, o, func(string) {
		b.Begin("payload")
		members(b, p, func(name string) {
			if name == slotAttestations {
				b.Array(name, attested)
				return
			}
			b.Begin(name)
			members(b, object, func(name string) { b.Strings(name, tokens, true) })
			b.End()
		})
		b.End()
	})
	return b.Optional("sig", sig).Bytes(), nil
}

// members adds those of an object; write adds each that has no value there.
func members(b *rawjson.Builder, o *rawjson.Object, write func(name string)) {
	for _, m := range o.Members() {
		if m.Value == nil {
			write(m.Name)
		} else {
			b.Raw(m.Name, m.Value)
		}
	}
}

// Evidence lists the tokens in an envelope, newest first. A slot of another
// shape is a *translators.MalformedError.
func (e Envelope) Evidence() ([]string, error) {
	object, err := e.beside()
	if object == nil {
		return nil, err
	}
	tokens, _ := object.Strings(envelope.SlotECT)
	return tokens, object.Err()
}

// Parent is the jti of the token that an envelope came of, where it names one;
// else empty. A slot of another shape is a *translators.MalformedError.
func (e Envelope) Parent() (string, error) {
	object, err := e.beside()
	if object == nil {
		return "", err
	}
	id, _ := object.String(envelope.SlotParent)
	return id, object.Err()
}

// beside is the object of the gateways' members; nil: there is none.
func (e Envelope) beside() (*rawjson.Object, error) {
	o := rawjson.Parse(e.body, "")
	payload := o.Object("payload")
	if payload == nil {
		return nil, o.Err()
	}
	return payload.Object(envelope.Key), payload.Err()
}

// WithEvidence is the bytes of the envelope with tokens and a signature, in
// base64. The tokens stand in payload.aepb.ect, newest first, and the newest in
// attestations too, for peers that look only there. What stood in the slot is
// replaced. It fails with a *translators.MalformedError.
func (e Envelope) WithEvidence(tokens []string, sig string) ([]byte, error) {
	return evidenced(e.body, tokens, sig)
}

// WithSignature is the bytes of the envelope with a signature, in base64.
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
