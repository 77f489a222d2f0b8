package ainp

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/envelope"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// The message types (draft-ainp-protocol-00; ACK is the reference code's).
const (
	TypeAdvertise      = "ADVERTISE"
	TypeDiscover       = "DISCOVER"
	TypeDiscoverResult = "DISCOVER_RESULT"
	TypeNegotiate      = "NEGOTIATE"
	TypeIntent         = "INTENT"
	TypeResult         = "RESULT"
	TypeError          = "ERROR"
	TypeAck            = "ACK"
)

// envelope is one envelope taken apart.
type wireMessage struct {
	kind     string // msg_type
	id       string
	trace    string
	traced   bool            // trace_id stands there
	payload  json.RawMessage // without aepb; nil: absent
	aepb     json.RawMessage // without the gateway's slots; nil: nothing
	rest     json.RawMessage // every other member
	at       int64           // timestamp, Unix milliseconds
	event    bool            // of a stream
	callback string          // URL to which a human's decision is posted
	socket   bool            // of a connection that stays open
	beside   *envelope.Codec
}

// maxDigits keeps times and durations in milliseconds far from overflow.
const maxDigits = 15

// open takes an envelope apart that has passed rawjson.Check.
func open(body []byte) (wireMessage, error) {
	o := rawjson.Parse(body, "")
	l := wireMessage{kind: o.Required("msg_type")}
	if l.kind == TypeError && !o.Has("payload") {
		return openShort(o, l)
	}
	if version := o.PeekText("version"); o.Err() == nil && version != Version {
		return l, unsupported(o)
	}
	l.id = o.Required("id")
	l.trace, l.traced = o.String("trace_id")
	for _, name := range []string{"timestamp", "ttl"} {
		n, ok := milliseconds(o.Peek(name))
		if !ok {
			o.Fail(name, "not an integer of milliseconds")
		}
		if name == "timestamp" {
			l.at = n
		}
	}
	if from := o.PeekText("from_did"); !strings.HasPrefix(from, "did:") {
		o.Fail("from_did", "not a DID")
	}
	l.payload = o.RawObject("payload")
	if len(l.payload) > PayloadLimit {
		return l, &translators.MalformedError{Path: "/payload", Reason: "longer than 1 MiB", Large: true}
	}
	if err := o.Err(); err != nil {
		return l, err
	}
	l.rest = o.Rest()
	if !isUUID4(l.id) {
		return l, refuse(canonical.CodeInvalidRequest, "the id is no UUID of version 4")
	}
	return l, l.unpack()
}

// openShort reads an ERROR in the shortened form of the draft's examples: its
// members stand at the top, and most of the envelope is missing.
func openShort(o *rawjson.Object, l wireMessage) (wireMessage, error) {
	l.trace, l.traced = o.String("trace_id")
	b := rawjson.NewBuilder().Bool(shortMark, true)
	for _, name := range []string{"error_code", "error_message", "intent_id", "retry_after_ms", "queued", "expires_at"} {
		b.Raw(name, o.Take(name))
	}
	l.payload, l.rest = b.Bytes(), o.Rest()
	return l, o.Err()
}

// shortMark is the leftover that says: this error came in the shortened form.
const shortMark = "@short"

func unsupported(o *rawjson.Object) error {
	if !o.Has("version") {
		return &translators.MalformedError{Path: "/version", Reason: "required"}
	}
	return refuse(canonical.CodeUnsupportedVersion, "only AINP "+Version+" is spoken here")
}

// slotAttestations is where a payload names what vouches for it.
const slotAttestations = "attestations"

// unpack takes the aepb object, without the gateway's slots, out of the payload.
func (l *wireMessage) unpack() error {
	if l.payload == nil {
		return nil
	}
	p := rawjson.Parse(l.payload, "/payload")
	object := p.RawObject(envelope.Key)
	if object == nil {
		return p.Err()
	}
	tokens := evidence(object)
	if len(object) > 0 && object[0] == '{' {
		slots := rawjson.Parse(object, "/payload/"+envelope.Key)
		l.callback, _ = slots.String(envelope.SlotHITL)
		if _, _ = slots.String(envelope.SlotParent); slots.Err() != nil {
			return slots.Err()
		}
	}
	if attested, ok := rawjson.Elements(p.Peek(slotAttestations)); ok && len(tokens) > 0 {
		p.Take(slotAttestations)
		if remaining := without(attested, tokens); len(remaining) > 0 {
			p.Put(slotAttestations, rawjson.ArrayOf(remaining))
		}
	}
	l.aepb = envelope.Strip(object)
	if l.payload = p.Rest(); l.payload == nil {
		l.payload = json.RawMessage("{}")
	}
	return p.Err()
}

// evidence lists the tokens in an aepb object; what is no list of strings is none.
func evidence(object json.RawMessage) []string {
	if len(object) == 0 || object[0] != '{' {
		return nil
	}
	o := rawjson.Parse(object, "")
	tokens, _ := o.Strings(envelope.SlotECT)
	if o.Err() != nil {
		return nil
	}
	return tokens
}

func without(list []json.RawMessage, tokens []string) []json.RawMessage {
	var remaining []json.RawMessage
	for _, raw := range list {
		text, ok := rawjson.Unquote(raw)
		ours := false
		for _, token := range tokens {
			ours = ours || ok && text == token
		}
		if !ours {
			remaining = append(remaining, raw)
		}
	}
	return remaining
}

// milliseconds reads a non-negative integer.
func milliseconds(raw json.RawMessage) (int64, bool) {
	text := string(raw)
	if text == "" || len(text) > maxDigits || strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil
}

// isUUID4 reports whether text is a UUID of version 4 (RFC 9562).
func isUUID4(text string) bool {
	const length = 36
	if len(text) != length {
		return false
	}
	for i := range len(text) {
		c := text[i] | 0x20
		switch i {
		case 8, 13, 18, 23:
			if text[i] != '-' {
				return false
			}
		case 14:
			if c != '4' {
				return false
			}
		case 19:
			if !strings.ContainsRune("89ab", rune(c)) {
				return false
			}
		default:
			if !strings.ContainsRune("0123456789abcdef", rune(c)) {
				return false
			}
		}
	}
	return true
}

// deriveUUID gives anything an id that AINP can say: the same for the same, and
// another for anything else. It hides nothing and proves nothing.
func deriveUUID(seed ...[]byte) string {
	h := sha256.New()
	_, _ = h.Write([]byte("aepb ainp id"))
	for _, s := range seed {
		_, _ = h.Write([]byte{0})
		_, _ = h.Write(s)
	}
	id := h.Sum(nil)[:16]
	id[6] = id[6]&0x0f | 0x40
	id[8] = id[8]&0x3f | 0x80
	text := hex.EncodeToString(id)
	return strings.Join([]string{text[:8], text[8:12], text[12:16], text[16:20], text[20:]}, "-")
}

// wireID is how a request is known to the one who asked, id and trace: the id
// alone if both are the same; else a list, whose first element is null when
// there is no id. Nil: neither.
func wireID(id string, has bool, trace string, traced bool) json.RawMessage {
	first := json.RawMessage("null")
	if has {
		first = rawjson.Quote(id)
	}
	switch {
	case !has && !traced:
		return nil
	case has && traced && id == trace:
		return first
	case !traced:
		return rawjson.ArrayOf([]json.RawMessage{first})
	default:
		return rawjson.ArrayOf([]json.RawMessage{first, rawjson.Quote(trace)})
	}
}

// reference is a wire id taken apart.
type reference struct {
	id, trace   string
	has, traced bool
}

// refer is the inverse of wireID. An id of another protocol is both.
func refer(raw json.RawMessage) reference {
	if text, ok := rawjson.Unquote(raw); ok && text != "" {
		return reference{text, text, true, true}
	}
	elements, ok := rawjson.Elements(raw)
	if ok && len(elements) > 0 && len(elements) <= 2 {
		r := reference{}
		r.id, r.has = rawjson.Unquote(elements[0])
		if len(elements) == 2 {
			r.trace, r.traced = rawjson.Unquote(elements[1])
		}
		if string(wireID(r.id, r.has, r.trace, r.traced)) == string(raw) {
			return r
		}
	}
	id := deriveUUID(raw)
	return reference{id, id, true, true}
}
