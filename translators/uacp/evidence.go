package uacp

import (
	"bytes"
	"encoding/json"
	"errors"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/internal/envelope"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// ErrBare: a bare frame has no place for evidence; it goes by reference.
var ErrBare = errors.New("a bare µACP frame has no place for evidence")

// FormOf tells in which form of carriage a frame came; a frame that cannot be
// read is bare.
func FormOf(body []byte) string {
	if _, e, err := unwrap(body); err == nil && e != nil {
		return FormEnveloped
	}
	return FormBare
}

// wrapped is an enveloped payload taken apart.
type wrapped struct{ body, object json.RawMessage }

// unwrap reads a frame; the second answer is nil for a bare one.
func unwrap(data []byte) (Frame, *wrapped, error) {
	f, err := ParseFrame(data)
	if err != nil || f.contentType() != contentJSON || len(f.Payload) == 0 {
		return f, nil, err
	}
	if err := rawjson.Check(f.Payload, MaxFrame, translators.DefaultDepth); err != nil {
		return f, nil, err
	}
	payload := trimmed(f.Payload)
	if payload[0] != '{' {
		return f, nil, nil
	}
	o := rawjson.Parse(payload, "")
	w := wrapped{o.Take(bodyMember), o.Take(envelope.Key)}
	if len(o.Members()) > 0 || len(w.object) == 0 || w.object[0] != '{' {
		return f, nil, nil
	}
	return f, &w, nil
}

// payload puts the envelope together again around another object.
func (w *wrapped) payload(object json.RawMessage) json.RawMessage {
	if object == nil {
		object = json.RawMessage("{}")
	}
	return rawjson.NewBuilder().Raw(bodyMember, w.body).Raw(envelope.Key, object).Bytes()
}

// HashInput is the form whose SHA-256 is a frame's inp_hash or out_hash: the
// payload of a bare one; RFC 8785 of an envelope without its evidence (R5,
// aepb.hash_form "jcs-without-ect"). Header and options may change at every
// hop and are not covered; neither are digits that a double cannot hold.
func HashInput(data []byte) ([]byte, error) {
	f, w, err := unwrap(data)
	if err != nil {
		return nil, err
	}
	if w == nil {
		return f.Payload, nil
	}
	o := rawjson.Parse(w.object, "")
	o.Take(envelope.SlotECT)
	value := jsontext.Value(bytes.Clone(w.payload(o.Rest())))
	if err := value.Canonicalize(); err != nil {
		return nil, malformed("no canonical form")
	}
	return value, nil
}

// Evidence lists the tokens in a frame, newest first; a bare frame has none. A
// slot of another shape is a *translators.MalformedError.
func Evidence(data []byte) ([]string, error) {
	_, w, err := unwrap(data)
	if err != nil || w == nil {
		return nil, err
	}
	o := rawjson.Parse(w.object, "/"+envelope.Key)
	tokens, _ := o.Strings(envelope.SlotECT)
	return tokens, o.Err()
}

// WithEvidence puts tokens into an enveloped frame, in place of those that were
// there. It fails with ErrBare for a bare frame, and with a
// *translators.MalformedError (ErrTooLarge) where they do not fit.
func WithEvidence(data []byte, tokens []string) ([]byte, error) {
	f, w, err := unwrap(data)
	if err != nil {
		return nil, err
	}
	if w == nil {
		return nil, ErrBare
	}
	o := rawjson.Parse(w.object, "")
	o.Take(envelope.SlotECT)
	f.Payload = w.payload(rawjson.NewBuilder().Merge(o.Rest()).Strings(envelope.SlotECT, tokens, true).Bytes())
	return f.Bytes()
}
