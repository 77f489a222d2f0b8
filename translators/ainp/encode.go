package ainp

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/envelope"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// encoder writes one message.
type encoder struct {
	beside     *envelope.Codec
	m          *canonical.Message
	capability *canonical.Capability
	stamp      translators.Addressing
	socket     bool // to a connection that stays open
	losses     []canonical.Loss
}

// home reports whether the message came from AINP, so that nothing is added to it.
func (e *encoder) home() bool { return e.m.Origin.Binding == Binding }

// Encode writes one envelope, unsigned unless it goes home unstamped. A message
// of another protocol needs Target.Addressing with From and At: the envelope is
// signed, hashed and judged by them.
func (t *Translator) Encode(m *canonical.Message, target translators.Target) (translators.Wire, []canonical.Loss, error) {
	if target.Version != "" && target.Version != Version {
		return translators.Wire{}, nil, refuse(canonical.CodeUnsupportedVersion, "only AINP "+Version+" is spoken here")
	}
	e := &encoder{beside: t.beside, m: answered(m), capability: target.Capability, stamp: target.Stamp, socket: target.Form == FormSocket}
	if err := e.fit(); err != nil {
		return translators.Wire{}, nil, err
	}
	body, err := e.encode()
	if err != nil {
		return translators.Wire{}, nil, err
	}
	if len(body) > t.cfg.BodyLimit {
		return translators.Wire{}, nil, &translators.TooLongError{Reason: "the message does not fit an AINP envelope"}
	}
	wire := translators.Wire{
		Binding: Binding, Version: Version, Form: target.Form, Media: Media, Body: body, Event: m.Phase == canonical.PhaseEvent,
	}
	if m.Phase != canonical.PhaseRequest {
		wire.Re = m.Op
	}
	return wire, e.losses, nil
}

func (e *encoder) encode() (json.RawMessage, error) {
	l, err := e.envelope()
	if err != nil || e.m.Op == canonical.OpNotice {
		return l.bytes(nil), err
	}
	if len(l.payload) > PayloadLimit {
		return nil, &translators.TooLongError{Reason: "the message does not fit an AINP payload of 1 MiB"}
	}
	// The view is read from bytes, as a peer reads them.
	seen, err := open(l.bytes(e.op()))
	if err != nil {
		return nil, refuse(canonical.CodeInternal, "the message has no form in AINP")
	}
	seen.event, seen.socket = e.m.Phase == canonical.PhaseEvent, e.socket
	seen.aepb = e.op()
	re := e.m.Op
	if e.m.Phase == canonical.PhaseRequest {
		re = ""
	}
	view, err := seen.native(re)
	if err != nil {
		return nil, err
	}
	envelope.Unnative(e.m, view)
	e.alias(view)
	d := e.beside.Write(e.m, view)
	e.declare(d.Losses)
	if e.short() { // which has no payload, hence no place for an aepb object
		for _, loss := range d.Losses {
			e.losses = append(e.losses, canonical.Loss{Code: loss.Code, Path: loss.Path, Fate: canonical.Dropped})
		}
	}
	object := envelope.Join(e.op(), d.Members, e.callback(), rawjson.Open(e.m.Extensions[Binding]).RawObject(envelope.Key))
	return l.bytes(object), nil
}

// alias declares an id that AINP cannot say. It is not carried: an answer must
// name the id that was on the wire, and only this hop knows both.
func (e *encoder) alias(view *canonical.Message) {
	if string(view.Correlation.WireID) != string(e.m.Correlation.WireID) {
		e.losses = append(e.losses, canonical.Loss{Code: canonical.LossIDs, Path: "/correlation/wireId", Fate: canonical.Dropped})
		view.Correlation.WireID = e.m.Correlation.WireID
	}
}

func (e *encoder) op() json.RawMessage {
	if e.m.Op == canonical.OpDescribe && e.m.Phase == canonical.PhaseRequest {
		return rawjson.NewBuilder().String(opMember, opDescribe).Bytes()
	}
	return e.ends()
}

// declare takes over what became carried. A message that was born here carries
// nothing that it did not carry before.
func (e *encoder) declare(losses []canonical.Loss) {
	for _, loss := range losses {
		if !e.home() || loss.Fate == canonical.Dropped {
			e.losses = append(e.losses, loss)
		}
	}
}

// envelope says the message natively.
func (e *encoder) envelope() (wireMessage, error) {
	if e.m.Op == canonical.OpNotice {
		return e.notice()
	}
	l := wireMessage{}
	var err error
	switch body := e.m.Body.(type) {
	case *canonical.Invoke:
		l.kind = TypeIntent
		l.payload, err = e.intent(body)
	case *canonical.DescribeRequest:
		l.kind, l.payload = TypeDiscover, rawjson.Without(body.Extensions[Binding], envelope.Key)
		l.payload = same(l.payload, body.Extensions[Binding])
	case *canonical.Page:
		l.kind, l.payload = TypeDiscover, rawjson.Without(body.Extensions[Binding], envelope.Key)
		l.payload = same(l.payload, body.Extensions[Binding])
	case *canonical.Result:
		if own := rawjson.Open(body.Extensions[Binding]); e.home() && body.Pending != nil && len(body.Pending.Inputs) == 1 && kindOf(own) == intentApproval {
			l.kind, l.payload = TypeIntent, e.question(&body.Pending.Inputs[0], own)
			break
		}
		l.kind = TypeResult
		l.payload, err = e.result(body)
	case *canonical.CapabilityList:
		l.kind, l.payload = TypeDiscoverResult, e.found(body)
	case *canonical.Description:
		l.kind, l.payload = TypeAdvertise, e.advertised(body)
	case *canonical.Error:
		l.kind, l.payload = TypeError, e.refusal(e.answers(rawjson.NewBuilder()), body)
	case *canonical.Event:
		l, err = e.event(body)
	default:
		l, err = e.work()
	}
	if err == nil {
		err = e.phase()
	}
	if err != nil {
		return l, err
	}
	return l, e.head(&l)
}

// work says what is about work that an earlier message began, and what only
// AINP has.
func (e *encoder) work() (l wireMessage, err error) {
	l.kind = TypeIntent
	switch body := e.m.Body.(type) {
	case *canonical.TaskQuery:
		l.payload, err = e.query(body)
	case *canonical.TaskFilter:
		l.payload = e.filter(body)
	case *canonical.Abort:
		l.payload = e.abort(body)
	case *canonical.Reply:
		l = e.reply(body)
	case *canonical.Signal:
		l, err = e.signal(body)
	case *canonical.TaskList:
		l.kind, l.payload = TypeResult, e.list(body)
	case *canonical.Done:
		l.kind, l.payload = TypeResult, e.done(body)
	case *canonical.Native:
		if l.kind = TypeNegotiate; body.Method != TypeNegotiate || e.m.Origin.Binding != Binding {
			return l, refuse(canonical.CodeUnsupportedOp, "AINP has no such method")
		}
		if l.payload = body.Params; e.m.Phase == canonical.PhaseResponse {
			l.payload = body.Result
		}
	default:
		err = refuse(canonical.CodeUnsupportedOp, "AINP has no counterpart of "+string(e.m.Op))
	}
	return l, err
}

// same keeps an empty payload apart from none.
func same(payload, was json.RawMessage) json.RawMessage {
	if payload == nil && len(was) > 0 && was[0] == '{' {
		return json.RawMessage("{}")
	}
	return payload
}

// phase checks that body, operation and phase belong together.
func (e *encoder) phase() error {
	phase, ops := canonical.PhaseResponse, []canonical.Op{canonical.OpInvoke, canonical.OpTaskGet, canonical.OpTaskCancel}
	switch e.m.Body.(type) {
	case *canonical.Invoke:
		phase, ops = canonical.PhaseRequest, ops[:1]
	case *canonical.DescribeRequest:
		phase, ops = canonical.PhaseRequest, []canonical.Op{canonical.OpDescribe}
	case *canonical.Page:
		phase, ops = canonical.PhaseRequest, []canonical.Op{canonical.OpCapabilities}
	case *canonical.TaskQuery:
		phase, ops = canonical.PhaseRequest, []canonical.Op{canonical.OpTaskGet, canonical.OpTaskCancel, canonical.OpTaskAnswer}
	case *canonical.TaskFilter:
		phase, ops = canonical.PhaseRequest, []canonical.Op{canonical.OpTaskList}
	case *canonical.Abort:
		phase, ops = canonical.PhaseRequest, []canonical.Op{canonical.OpAbort}
	case *canonical.Reply:
		phase, ops = canonical.PhaseRequest, []canonical.Op{canonical.OpAnswer}
	case *canonical.CapabilityList:
		ops = []canonical.Op{canonical.OpCapabilities}
	case *canonical.Description:
		ops = []canonical.Op{canonical.OpDescribe}
	case *canonical.TaskList:
		ops = []canonical.Op{canonical.OpTaskList}
	case *canonical.Done:
		ops = []canonical.Op{canonical.OpTaskCancel, canonical.OpTaskAnswer, canonical.OpDecision, canonical.OpAbort}
	case *canonical.Signal:
		if ops = []canonical.Op{canonical.OpRollback}; e.m.Phase == canonical.PhaseRequest {
			phase, ops = canonical.PhaseRequest, []canonical.Op{canonical.OpRollback, canonical.OpDecision}
		}
	case *canonical.Event:
		phase, ops = canonical.PhaseEvent, ops[:1]
	case *canonical.Native:
		if ops = []canonical.Op{canonical.OpNative}; e.m.Phase == canonical.PhaseRequest {
			phase = canonical.PhaseRequest
		}
	case *canonical.Error:
		phase, ops = canonical.PhaseError, []canonical.Op{e.m.Op}
	}
	if e.m.Phase != phase || !slices.Contains(ops, e.m.Op) {
		return refuse(canonical.CodeUnsupportedOp, "AINP has no such message")
	}
	return nil
}

// notice writes a notification of AINP as it came. Those of other protocols are refused.
func (e *encoder) notice() (wireMessage, error) {
	o := rawjson.Open(e.m.Extensions[Binding])
	l := wireMessage{kind: o.Required("msg_type"), id: o.Required("id")}
	l.trace, l.traced = o.String("trace_id")
	l.payload = o.RawObject("payload")
	if o.Err() != nil {
		return l, refuse(canonical.CodeUnsupportedOp, "AINP has no such notification")
	}
	l.rest = e.stamped(o)
	return l, nil
}

// head writes what stands around the payload.
func (e *encoder) head(l *wireMessage) error {
	o := rawjson.Open(e.m.Extensions[Binding])
	own, hasOwn := o.String("id")
	short := e.short()
	ref := reference{}
	if e.m.Correlation.WireID != nil {
		ref = refer(e.m.Correlation.WireID)
	}
	l.trace, l.traced = ref.trace, ref.traced
	switch {
	case e.m.Phase == canonical.PhaseRequest:
		if e.m.Correlation.WireID == nil {
			return unstamped("id")
		}
		if l.id = ref.id; !isUUID4(l.id) {
			l.id = deriveUUID(e.m.Correlation.WireID)
		}
		if l.traced && ref.trace == ref.id {
			l.trace = l.id
		}
		if body, ok := e.m.Body.(*canonical.Reply); ok && len(body.ID) > 0 && body.ID[0] == '[' {
			l.trace, l.traced = refer(body.ID).trace, refer(body.ID).traced
		}
	case e.asks() != nil:
		if target := refer(e.asks().ID); target.id != "" {
			l.id, l.trace, l.traced = e.known(e.asks().ID), target.trace, target.traced
			if target.traced && target.trace == target.id {
				l.trace = l.id
			}
		}
	case hasOwn && e.stamp.At.IsZero():
		l.id = own
	case !short:
		seed := [][]byte{[]byte(l.kind), e.m.Correlation.WireID, []byte(e.m.Correlation.MessageID), l.payload}
		if e.m.Phase == canonical.PhaseEvent { // the same may happen twice
			seed = append(seed, []byte(e.stamp.At.UTC().Format(time.RFC3339Nano)))
		}
		l.id = deriveUUID(seed...)
	}
	o.Take("msg_type")
	o.Take("trace_id")
	o.Take("payload")
	o.Take(envelope.Key)
	known := short || o.Has("timestamp") && o.Has("from_did")
	if e.stamp.At.IsZero() && !known || !e.stamp.At.IsZero() && e.stamp.From == "" {
		return unstamped("sender or time")
	}
	l.rest = e.stamped(o)
	return nil
}

// asks is the question that the message asks; nil: it asks none.
func (e *encoder) asks() *canonical.Ask {
	if body, ok := e.m.Body.(*canonical.Event); ok {
		return body.Ask
	}
	return nil
}

// short reports whether an error came in the shortened form, in which it is then sent.
func (e *encoder) short() bool {
	body, ok := e.m.Body.(*canonical.Error)
	return ok && e.stamp.At.IsZero() && string(rawjson.Open(body.Extensions[Binding]).Peek(shortMark)) == "true"
}

// defaultTTL is how long a message of ours may be under way, in milliseconds.
const defaultTTL = 60_000

// stamped writes the members of the head that the gateway knows over what was
// there. A signature over something else is gone.
func (e *encoder) stamped(o *rawjson.Object) json.RawMessage {
	if e.stamp.At.IsZero() {
		return o.Rest()
	}
	b := rawjson.NewBuilder().String("version", Version).
		Raw("timestamp", integer(e.stamp.At.UnixMilli())).Raw("ttl", integer(e.ttl())).
		String("from_did", e.stamp.From).Optional("to_did", e.stamp.To)
	names := []string{"version", "timestamp", "ttl", "from_did", "id"}
	if e.stamp.To != "" {
		names = append(names, "to_did")
	}
	if o.Has("sig") {
		names = append(names, "sig")
		e.losses = append(e.losses, canonical.Loss{
			Code: canonical.LossSignature, Path: "/extensions/" + string(Binding) + "/sig", Fate: canonical.Dropped,
		})
	}
	for _, name := range names {
		o.Take(name)
	}
	if !e.home() && !o.Has("schema") {
		b.String("schema", schemaOf(e.m))
	}
	if !e.home() && !o.Has("qos") {
		b.Raw("qos", json.RawMessage(neutral))
	}
	return b.Rest(o).Bytes()
}

// neutral is the quality of service of a message whose sender did not ask for any.
const neutral = `{"bid":0,"ethicalWeight":0.5,"importance":0.5,"novelty":0.5,"urgency":0.5}`

func schemaOf(m *canonical.Message) string {
	const base = "https://ainp.dev/schemas/"
	switch body := m.Body.(type) {
	case *canonical.Invoke:
		if body.Call != nil {
			return base + "intents/request-service/v1"
		}
		return base + "intents/freeform-note/v1"
	case *canonical.Error:
		return base + "messages/error/v1"
	case *canonical.Signal:
		return "urn:aepb:ainp:signal:1"
	case *canonical.TaskQuery, *canonical.TaskFilter, *canonical.Abort:
		return "urn:aepb:ainp:task:1"
	case *canonical.Result, *canonical.Event, *canonical.Reply, *canonical.TaskList, *canonical.Done:
		return base + "messages/result/v1"
	default:
		return base + "messages/discover/v1"
	}
}

func (e *encoder) ttl() int64 {
	if e.m.Deadline.IsZero() {
		return defaultTTL
	}
	return min(defaultTTL, e.remaining())
}

func integer(n int64) json.RawMessage { return json.RawMessage(strconv.FormatInt(n, 10)) }

// bytes puts an envelope together, with an aepb object in its payload.
func (l wireMessage) bytes(object json.RawMessage) json.RawMessage {
	const frame = 128 // names, id and trace_id
	b := rawjson.NewBuilderOf(frame+len(l.rest)+len(l.payload)+len(object)).String("msg_type", l.kind)
	if l.id != "" {
		b.String("id", l.id)
	}
	if l.traced {
		b.String("trace_id", l.trace)
	}
	b.Merge(l.rest)
	payload := l.payload
	if l.kind == TypeError && payload != nil {
		if o := rawjson.Parse(payload, ""); o.Has(shortMark) {
			o.Take(shortMark)
			return b.Rest(o).Bytes()
		}
	}
	if object != nil {
		payload = rawjson.NewBuilderOf(len(payload)+len(object)+len(`,"aepb":`)).Merge(payload).Raw(envelope.Key, object).Bytes()
	}
	return b.Raw("payload", payload).Bytes()
}
