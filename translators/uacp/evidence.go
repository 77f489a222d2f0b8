package uacp

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/internal/envelope"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// ErrBare: a bare frame has no place for evidence; it goes by reference.
var ErrBare = errors.New("a bare µACP frame has no place for evidence")

// Opened is a frame with a parsed payload, so that its form, its evidence and its hash
// are found without parsing it again.
type Opened struct {
	frame Frame
	in    *wrapped // nil: the frame is a bare one
}

// wrapped is an enveloped payload taken apart.
type wrapped struct{ body, object json.RawMessage }

// Open reads a frame. It fails with a *translators.MalformedError.
func Open(data []byte) (Opened, error) {
	f, err := ParseFrame(data)
	out := Opened{frame: f}
	if err != nil || f.contentType() != contentJSON || len(f.Payload) == 0 {
		return out, err
	}
	if err := rawjson.Check(f.Payload, MaxFrame, translators.DefaultDepth); err != nil {
		return out, err
	}
	payload := trimmed(f.Payload)
	if payload[0] != '{' {
		return out, nil
	}
	if w, ok := unwrapped(payload); ok {
		out.in = &w
	}
	return out, nil
}

// unwrapped takes an enveloped payload apart; false: it is none.
func unwrapped(payload json.RawMessage) (wrapped, bool) {
	o := rawjson.Parse(payload, "")
	w := wrapped{o.Take(bodyMember), o.Take(envelope.Key)}
	return w, len(o.Members()) == 0 && rawjson.IsObject(w.object)
}

// Form is the form of carriage in which the frame came.
func (o Opened) Form() string {
	if o.in == nil {
		return FormBare
	}
	return FormEnveloped
}

// HashInput is the form whose SHA-256 is a frame's inp_hash or out_hash: the
// payload of a bare one; RFC 8785 of an envelope without its evidence (R5,
// aepb.hash_form "jcs-without-ect"). Header and options may change at every
// hop and are not covered; neither are digits that a double cannot hold. It fails
// with a *translators.MalformedError.
func (o Opened) HashInput() ([]byte, error) {
	if o.in == nil {
		return o.frame.Payload, nil
	}
	object := rawjson.Parse(o.in.object, "")
	object.Take(envelope.SlotECT)
	b := rawjson.NewBuilderOf(len(o.in.body) + len(o.in.object) + 64).Begin(envelope.Key) // which precedes the body in RFC 8785
	for _, m := range object.Members() {
		b.Raw(m.Name, m.Value)
	}
	text, err := rawjson.Canonical(b.End().Raw(bodyMember, o.in.body).Bytes())
	if err != nil {
		return nil, malformed("no canonical form")
	}
	return text, nil
}

// Evidence lists the tokens in a frame, newest first; a bare frame has none. A
// slot of another shape is a *translators.MalformedError.
func (o Opened) Evidence() ([]string, error) {
	if o.in == nil {
		return nil, nil
	}
	object := rawjson.Parse(o.in.object, "/"+envelope.Key)
	tokens, _ := object.Strings(envelope.SlotECT)
	return tokens, object.Err()
}

// Parent is the jti of the token that a frame came of, where it names one: in its
// envelope, or in OptParent; else empty. Two that differ are joined by a comma,
// and name nothing. A slot of another shape is a *translators.MalformedError.
func (o Opened) Parent() (string, error) {
	inside := ""
	if o.in != nil {
		object := rawjson.Parse(o.in.object, "/"+envelope.Key)
		inside, _ = object.String(envelope.SlotParent)
		if err := object.Err(); err != nil {
			return "", err
		}
	}
	beside := uuidOf(o.frame.Option(OptParent))
	if inside != "" && beside != "" && inside != beside {
		return inside + "," + beside, nil
	}
	return cmp.Or(inside, beside), nil
}

// uuidOf is the text form of a UUID in bytes; empty: they are none, so another
// vendor means something else.
func uuidOf(data []byte) string {
	if len(data) != uuidSize {
		return ""
	}
	digits := hex.EncodeToString(data)
	return strings.Join([]string{digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]}, "-")
}

// bytesOfID is its inverse; nil: the text is no UUID in lower case.
func bytesOfID(id string) []byte {
	data, err := hex.DecodeString(strings.ReplaceAll(id, "-", ""))
	if err != nil || id == "" || uuidOf(data) != id {
		return nil
	}
	return data
}

const uuidSize = 16 // bytes

// WithEvidence puts tokens into an enveloped frame, in place of those that were
// there. It fails with ErrBare for a bare frame, and with a
// *translators.MalformedError (ErrTooLarge) where they do not fit.
func (o Opened) WithEvidence(tokens []string) ([]byte, error) {
	if o.in == nil {
		return nil, ErrBare
	}
	object, f := rawjson.Parse(o.in.object, ""), o.frame
	object.Take(envelope.SlotECT)
	size := len(o.in.body) + len(o.in.object) + 64
	for _, token := range tokens {
		size += len(token) + len(`"",`)
	}
	b := rawjson.NewBuilderOf(size).Raw(bodyMember, o.in.body).Begin(envelope.Key)
	for _, m := range object.Members() {
		b.Raw(m.Name, m.Value)
	}
	f.Payload = b.Strings(envelope.SlotECT, tokens, true).End().Bytes()
	return f.Bytes()
}

// FormOf tells in which form of carriage a frame came; a frame that cannot be
// read is bare.
func FormOf(data []byte) string {
	o, err := Open(data)
	if err != nil {
		return FormBare
	}
	return o.Form()
}

// HashInput is Opened.HashInput of a frame's bytes.
func HashInput(data []byte) ([]byte, error) {
	o, err := Open(data)
	if err != nil {
		return nil, err
	}
	return o.HashInput()
}
