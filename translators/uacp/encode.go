package uacp

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/envelope"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// encoder writes one message.
type encoder struct {
	t          *Translator
	m          *canonical.Message
	form       string
	capability *canonical.Capability
	stream     bool            // the agent is to be observed
	token      string          // jti of the message's evidence; empty: it has none
	tagged     bool            // an option says it
	left       *rawjson.Object // message-level leftovers; empty unless born here
	losses     []canonical.Loss
}

// built is a frame and what its payload says.
type built struct {
	f       Frame
	c       content
	options []Option // as they stood there; nil: to be written
}

// home reports whether the message came from µACP, so that nothing is added to it.
func (e *encoder) home() bool { return e.m.Origin.Binding == Binding }

// Encode writes one frame, in the form of carriage that the target names. It
// fails with a *canonical.Error where the message cannot be said in 64 KiB, or
// a bare peer cannot be told what was said.
func (t *Translator) Encode(m *canonical.Message, target translators.Target) (translators.Wire, []canonical.Loss, error) {
	if target.Version != "" && target.Version != Profile {
		return translators.Wire{}, nil, refuse(canonical.CodeUnsupportedVersion, "unknown µACP profile")
	}
	e := &encoder{t: t, m: m, form: target.Form, capability: target.Capability, stream: target.Stream, token: target.Stamp.Token}
	if e.form == FormTagged {
		e.form, e.tagged = FormBare, m.Phase == canonical.PhaseRequest
	}
	body, err := e.encode()
	if err != nil {
		return translators.Wire{}, nil, err
	}
	wire := translators.Wire{Binding: Binding, Version: Profile, Form: e.form, Media: Media, Body: body}
	if m.Phase != canonical.PhaseRequest {
		wire.Re, wire.Event = m.Op, m.Phase == canonical.PhaseEvent
	}
	return wire, e.losses, nil
}

func (e *encoder) encode() ([]byte, error) {
	if err := e.choose(); err != nil {
		return nil, err
	}
	e.unstream()
	if e.m.Op == canonical.OpNotice {
		return e.notice()
	}
	b, err := e.frame()
	if err != nil {
		return nil, err
	}
	data, err := e.bytes(b)
	if err != nil {
		return nil, err
	}
	view, err := e.view(data)
	if err != nil {
		return nil, err
	}
	message, seen := e.compared(b, view)
	d := e.t.beside.Write(message, seen)
	e.declare(ofEvent(e.m, d.Losses))
	callback := e.callback()
	if !b.c.enveloped {
		return e.tag(b, data)
	}
	b.c.aepb = envelope.Join(b.c.aepb, d.Members, e.streaming(), callback, e.left.Peek(envelope.Key))
	if data, err = e.bytes(b); err != nil || len(data) <= roomy || e.token == "" {
		return data, err
	}
	b.c.aepb = envelope.Join(rawjson.NewBuilder().String(envelope.SlotParent, e.token).Bytes(), b.c.aepb)
	return e.bytes(b)
}

// tag names a bare frame's evidence in it, if its peer reads that. Options are not
// hashed, so the name may stand in what it testifies to.
func (e *encoder) tag(b built, data []byte) ([]byte, error) {
	encoded := bytesOfID(e.token)
	if !e.tagged || encoded == nil {
		return data, nil
	}
	named := append(slices.Clip(b.f.Options), Option{OptParent, encoded})
	if b.f.Options = named; b.options != nil {
		b.options = named
	}
	return e.bytes(b)
}

// roomy bounds, in bytes, a frame that can hold its evidence: half of the shortest frame
// that transports carry, since a token takes the other half (R11). A longer frame names
// its token.
const roomy = 8 << 10

// unstream makes the stream preference fit the verb. An agent that gets an ASK answers once,
// so the preference is lost. An OBSERVE implies it.
func (e *encoder) unstream() {
	if !e.is(canonical.OpInvoke, canonical.PhaseRequest) || e.m.Preferences.Stream == e.observes() {
		return
	}
	copied := *e.m
	copied.Preferences.Stream = !copied.Preferences.Stream
	if e.m = &copied; copied.Preferences.Stream {
		return
	}
	e.losses = append(e.losses, canonical.Loss{Code: canonical.LossStatusUpdates, Path: "/preferences/stream", Fate: canonical.Dropped})
}

// streaming returns the stream preference that an ASK of µACP itself had.
func (e *encoder) streaming() json.RawMessage {
	if string(e.left.Peek(leftStreaming)) != "true" {
		return nil
	}
	return rawjson.NewBuilder().Bool(leftStreaming, true).Bytes()
}

// choose settles the form: the target's, else the one it came in, else the first.
func (e *encoder) choose() error {
	e.leftovers()
	switch {
	case e.form == FormEnveloped || e.form == FormBare:
	case e.form != "":
		return refuse(canonical.CodeUnsupportedMedia, "unknown form of µACP")
	case e.home() && string(e.left.Peek(leftEnveloped)) != "true":
		e.form = FormBare
	default:
		e.form = FormEnveloped
	}
	if e.m.Op == canonical.OpPing {
		e.form = FormBare // a PING has no payload
	}
	return nil
}

func (e *encoder) leftovers() {
	raw := e.m.Extensions[Binding]
	if !e.home() || len(raw) == 0 || raw[0] != '{' {
		if raw != nil && !e.home() {
			e.losses = append(e.losses, canonical.Loss{Code: canonical.LossExtension, Path: "/extensions/" + string(Binding), Fate: canonical.Dropped})
		}
		raw = json.RawMessage("{}")
	}
	e.left = rawjson.Parse(raw, "")
}

// view reads a frame back as a peer would that knows of no gateways.
func (e *encoder) view(data []byte) (*canonical.Message, error) {
	f, err := ParseFrame(data)
	if err != nil {
		return nil, refuse(canonical.CodeInternal, "the message has no form in µACP")
	}
	c, err := e.t.readContent(f)
	if err != nil {
		return nil, refuse(canonical.CodeInternal, "the message has no form in µACP")
	}
	re := e.m.Op
	if e.m.Phase == canonical.PhaseRequest {
		re = ""
	}
	view, err := e.t.native(f, c, re, e.m.Phase == canonical.PhaseEvent)
	if err != nil {
		return nil, err
	}
	envelope.Unnative(e.m, view)
	return view, nil
}

// declare takes over what is carried, or dropped where there is no envelope.
func (e *encoder) declare(losses []canonical.Loss) {
	for _, loss := range losses {
		if e.form == FormBare {
			loss.Fate = canonical.Dropped
		} else if e.home() {
			continue
		}
		e.losses = append(e.losses, loss)
	}
}

func (e *encoder) bytes(b built) ([]byte, error) {
	payload, kind := b.c.payload()
	if len(payload) > MaxPayload {
		return nil, &translators.TooLongError{Reason: "the message does not fit a µACP payload of 65527 bytes"}
	}
	b.f.Payload = payload
	if came := string(e.left.Peek(leftEnveloped)) == "true"; b.options != nil && came != b.c.enveloped {
		b.f.Options = retyped(b.options, kind)
	} else if b.options != nil {
		b.f.Options = b.options
	} else if kind != contentNone {
		b.f.Options = append(b.f.Options, Option{OptContentType, quad(kind)})
	}
	data, err := b.f.Bytes()
	if err != nil {
		return nil, &translators.TooLongError{Reason: "the message does not fit a µACP frame"}
	}
	return data, nil
}

// retyped are the options of a message that goes on in another form of carriage:
// what they said of its payload is so no more.
func retyped(options []Option, kind uint32) []Option {
	out := slices.DeleteFunc(slices.Clone(options), func(o Option) bool { return o.Type == OptContentType })
	if kind != contentNone {
		out = append(out, Option{OptContentType, quad(kind)})
	}
	return out
}

func quad(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }

// notice writes a notification of µACP as it came. Those of other protocols are refused.
func (e *encoder) notice() ([]byte, error) {
	data, err := hex.DecodeString(e.left.PeekText(leftFrame))
	if err == nil && len(data) > 0 {
		_, err = ParseFrame(data)
	}
	if err != nil || len(data) == 0 {
		return nil, refuse(canonical.CodeUnsupportedOp, "µACP has no such notification")
	}
	return data, nil
}

// frame says the message natively.
func (e *encoder) frame() (built, error) {
	if e.left == nil {
		e.leftovers()
	}
	b := built{f: Frame{QoS: 1}}
	if raw := e.left.Peek(leftQoS); string(raw) == "0" {
		b.f.QoS = 0
	}
	if e.m.Correlation.WireID == nil && !e.encodeSignal() {
		return b, refuse(canonical.CodeInternal, "the message id was not stamped")
	}
	ref := refer(e.m.Correlation.WireID)
	b.f.ID = ref.id
	topic, err := e.say(&b, ref)
	if err != nil {
		return b, err
	}
	b.c.enveloped = e.form == FormEnveloped
	if len(topic) > maxOption {
		return b, refuse(canonical.CodeBadParams, "the topic is longer than 255 bytes")
	}
	b.options = e.cameWith()
	if b.options == nil {
		b.f.Options = e.options(topic, ref)
	} else {
		b.f.Options = b.options
	}
	e.replyHead(&b)
	return b, nil
}

// cameWith gives a message of our own its options back, if it had some.
func (e *encoder) cameWith() []Option {
	text, ok := rawjson.Unquote(e.left.Peek(leftOptions))
	if !ok {
		if e.home() {
			return []Option{}
		}
		return nil
	}
	raw, err := hex.DecodeString(text)
	options := []Option{}
	for err == nil && len(raw) >= 2 && len(raw) >= 2+int(raw[1]) {
		end := 2 + int(raw[1])
		options = append(options, Option{raw[0], raw[2:end]})
		raw = raw[end:]
	}
	return options
}

func (e *encoder) options(topic string, ref reference) []Option {
	var options []Option
	if id := e.m.Conversation.ContextID; id != "" {
		options = append(options, Option{OptConversation, conversationID(id)})
	}
	if e.m.Phase != canonical.PhaseRequest && e.m.Op != canonical.OpPing {
		options = append(options, Option{OptCorrelation, quad(ref.id)})
	}
	if topic != "" {
		options = append(options, Option{OptTopic, []byte(topic)})
	}
	return options
}

// conversationID says a conversation in 8 to 16 bytes: as it is where it fits
// and is ASCII, bytes that were shown in hex as bytes, anything else as the
// first 12 bytes of its SHA-256 in base64url. The Python reference refuses
// what is not UTF-8.
func conversationID(id string) []byte {
	const least, most = 8, 16
	if text, ok := strings.CutPrefix(id, hexPrefix); ok {
		raw, err := hex.DecodeString(text)
		if err == nil && len(raw) >= least && len(raw) <= most {
			return raw
		}
	}
	ascii := strings.IndexFunc(id, func(r rune) bool { return r < 0x21 || r > 0x7e }) < 0
	if ascii && len(id) >= least && len(id) <= most && !strings.HasPrefix(id, hexPrefix) {
		return []byte(id)
	}
	sum := sha256.Sum256([]byte(id))
	return []byte(base64.RawURLEncoding.EncodeToString(sum[:12]))
}

// replyHead writes verb, code and id of a reply that came from here.
func (e *encoder) replyHead(b *built) {
	if e.m.Phase == canonical.PhaseRequest {
		return
	}
	if named, ok := b.f.Correlation(); ok && named != b.f.ID {
		// Home, but to another request than the one that it came for.
		b.options = e.renamed(b.options, b.f.ID)
		b.f.Options = b.options
	} else if n, ok := small(e.left.Peek(leftID), maxID); ok {
		b.f.ID = n
	}
	if n, ok := small(e.left.Peek(leftVerb), uint32(Observe)); ok {
		b.f.Verb = Verb(n & uint32(Observe))
	}
	if n, ok := small(e.left.Peek(leftCode), 255); ok && e.m.Phase != canonical.PhaseError {
		b.f.Code = uint8(n & 255)
	}
}

// renamed is options with another request in Correlation-ID, as long as it was.
func (e *encoder) renamed(options []Option, id uint32) []Option {
	out := slices.Clone(options)
	for i := range out {
		if out[i].Type == OptCorrelation {
			value := quad(id)
			out[i].Value = value[len(value)-min(len(out[i].Value), len(value)):]
			break
		}
	}
	return out
}

func small(raw json.RawMessage, most uint32) (uint32, bool) {
	n, err := strconv.ParseUint(string(raw), 10, 32)
	return uint32(n), err == nil && uint32(n) <= most
}

// reference is a wire id taken apart.
type reference struct {
	id  uint32
	rpc json.RawMessage // the id of the JSON-RPC message inside; nil: none
}

// refer reads a wire id. An id that is no message id gets an alias: the first
// three bytes of its SHA-256. A transport may give a frame another one, which
// changes nothing that is hashed.
func refer(raw json.RawMessage) reference {
	if n, ok := small(raw, maxID); ok && string(raw) == string(number(n)) {
		return reference{id: n}
	}
	if elements, ok := rawjson.Elements(raw); ok && len(elements) == 2 {
		n, fits := small(elements[0], maxID)
		rpc := elements[1]
		if fits && len(rpc) > 0 && string(raw) == string(rpcID(n, rpc)) && isRPCID(rpc) {
			return reference{id: n, rpc: rpc}
		}
	}
	sum := sha256.Sum256(raw)
	return reference{id: bigEndian(sum[:3])}
}

// isRPCID reports whether an id is a string or an integer.
func isRPCID(raw json.RawMessage) bool {
	return raw[0] == '"' || strings.Trim(strings.TrimPrefix(string(raw), "-"), "0123456789") == "" && string(raw) != "-"
}
