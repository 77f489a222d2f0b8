package ainp

import (
	"encoding/json"
	"time"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/envelope"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// Decode reads one envelope: a request, or with Wire.Re the answer to one. When
// the envelope could be read, a refusal comes with a message that holds the
// wire id. The signature is the transport's business and not looked at.
func (t *Translator) Decode(w translators.Wire) (*canonical.Message, error) {
	if err := rawjson.Check(w.Body, t.cfg.BodyLimit, t.cfg.Depth); err != nil {
		return nil, err
	}
	l, err := open(w.Body)
	if err != nil {
		return nil, err
	}
	l.beside, l.event, l.socket = t.beside, w.Event, w.Form == FormSocket
	m, err := l.message(w.Re, w.Body)
	if err != nil {
		blank := &canonical.Message{Correlation: canonical.Correlation{WireID: wireID(l.id, true, l.trace, l.traced)}}
		blank.Origin = canonical.Origin{Binding: Binding, Version: Version, Raw: w.Body}
		return blank, err
	}
	return m, nil
}

// message is the whole reading: the native members, and over them what a
// gateway said beside them, if it fits.
func (l wireMessage) message(re canonical.Op, raw []byte) (*canonical.Message, error) {
	m, err := l.native(re)
	if err != nil {
		return nil, err
	}
	object := l.aepb
	if l.op() != "" {
		o := rawjson.Parse(object, "")
		o.Take(opMember)
		object = o.Rest()
	}
	object, stored := l.preferences(object, re)
	if object != nil {
		if m, stored, err = l.overlaid(m, re, object, stored); err != nil {
			return nil, err
		}
	}
	if stored != nil {
		left := rawjson.NewBuilder().Merge(m.Extensions[Binding]).Raw(envelope.Key, stored).Bytes()
		m.Extensions = extended(m.Extensions, left)
	}
	m.Origin.Raw = raw
	return m, nil
}

// preferences takes out of a request's object what its sender cannot have: without a
// connection that stays open there is no stream and no input request.
func (l wireMessage) preferences(object json.RawMessage, re canonical.Op) (left, preferred json.RawMessage) {
	if object == nil || l.socket || re != "" || object[0] != '{' {
		return object, nil
	}
	o, b := rawjson.Parse(object, ""), rawjson.NewBuilder()
	for _, name := range []string{"streaming", "can_answer"} {
		b.Raw(name, o.Take(name))
	}
	return o.Rest(), b.Object()
}

// overlaid lays an aepb object over the message. It is kept and not believed
// when the message then says natively something else than what arrived.
func (l wireMessage) overlaid(m *canonical.Message, re canonical.Op, object, preferred json.RawMessage) (*canonical.Message, json.RawMessage, error) {
	known := m.Correlation.WireID
	rest, ok := l.beside.Read(object, m)
	m.Correlation.WireID = known // an answer must name the id that is on the wire
	if ok {
		e := &encoder{m: m}
		again, err := e.envelope()
		ok = err == nil && again.kind == l.kind && again.id == l.id && again.trace == l.trace &&
			again.traced == l.traced && rawjson.Equal(again.payload, l.payload)
	}
	if !ok {
		var err error
		if m, err = l.native(re); err != nil {
			return nil, nil, err
		}
		rest = object
	}
	return m, envelope.Join(preferred, rest), nil
}

// opMember is the member of an aepb object that tells who-are-you from
// what-can-you-do: AINP has one DISCOVER for both.
const (
	opMember   = "op"
	opDescribe = "describe"
)

func (l wireMessage) op() string {
	if l.aepb == nil {
		return ""
	}
	if rawjson.Parse(l.aepb, "").PeekText(opMember) != opDescribe {
		return ""
	}
	return opDescribe
}

// native reads what AINP's own members say.
func (l wireMessage) native(re canonical.Op) (*canonical.Message, error) {
	m := &canonical.Message{Origin: canonical.Origin{Binding: Binding, Version: Version}}
	m.Extensions = extended(nil, l.rest)
	if re == "" {
		return m, l.request(m)
	}
	return m, l.reply(m, re)
}

// extended sets the binding's own extension, if there is one.
func extended(ext canonical.Extensions, own json.RawMessage) canonical.Extensions {
	return ext.With(Binding, own)
}

func (l wireMessage) request(m *canonical.Message) error {
	m.Phase = canonical.PhaseRequest
	m.Correlation.WireID = wireID(l.id, true, l.trace, l.traced)
	m.Callback = l.callback
	switch l.kind {
	case TypeIntent:
		return l.intent(m)
	case TypeDiscover:
		l.discover(m)
		return nil
	case TypeNegotiate:
		_, err := ParseNegotiation(l.payload)
		m.Op, m.Body = canonical.OpNative, &canonical.Native{Method: TypeNegotiate, Params: l.payload}
		return err
	case TypeAdvertise, TypeAck:
		l.notice(m)
		return nil
	case TypeResult, TypeError:
		return l.replied(m)
	case TypeDiscoverResult:
		return refuse(canonical.CodeInvalidRequest, "an answer, expected a request")
	default:
		return refuse(canonical.CodeNoMethod, "no such message type")
	}
}

// notice keeps a message as it came, since it has no answer and no counterpart in
// other protocols.
func (l wireMessage) notice(m *canonical.Message) {
	m.Op, m.Correlation.WireID = canonical.OpNotice, nil
	b := rawjson.NewBuilder().Merge(l.rest).String("msg_type", l.kind).String("id", l.id)
	if l.traced {
		b.String("trace_id", l.trace)
	}
	m.Extensions = extended(nil, b.Raw("payload", l.payload).Bytes())
}

func (l wireMessage) reply(m *canonical.Message, re canonical.Op) error {
	m.Op, m.Phase = re, canonical.PhaseResponse
	if l.id != "" {
		left := rawjson.NewBuilder().Merge(l.rest).String("id", l.id).Bytes()
		m.Extensions = extended(m.Extensions, left)
	}
	p := rawjson.Parse(l.payloadOrEmpty(), "/payload")
	if l.event {
		if found, err := l.happened(m, p); found || err != nil {
			return err
		}
	}
	switch {
	case l.kind == TypeError:
		return l.failed(m, p)
	case l.kind == TypeResult:
		return l.outcome(m, p, re)
	case l.kind == TypeIntent && re == canonical.OpInvoke && kindOf(p) == intentApproval:
		return l.pending(m, p)
	case l.kind == TypeDiscoverResult && re == canonical.OpCapabilities:
		return l.found(m, p)
	case l.kind == TypeAdvertise && re == canonical.OpDescribe:
		return l.advertised(m, p)
	case l.kind == TypeNegotiate && re == canonical.OpNative:
		_, err := ParseNegotiation(l.payload)
		m.Correlation.WireID = wireID("", false, l.trace, l.traced)
		m.Body = &canonical.Native{Method: TypeNegotiate, Result: l.payload}
		return err
	default:
		return refuse(canonical.CodeInvalidRequest, "not an answer to that request")
	}
}

// outcome reads a RESULT by what it answers.
func (l wireMessage) outcome(m *canonical.Message, p *rawjson.Object, re canonical.Op) error {
	switch re {
	case canonical.OpTaskAnswer, canonical.OpDecision, canonical.OpAbort:
		return l.done(m, p)
	case canonical.OpRollback:
		return l.undone(m, p)
	case canonical.OpTaskList:
		return l.listed(m, p)
	case canonical.OpTaskCancel:
		if status := p.PeekText("status"); status == statusSuccess && !p.Has("result") && !envelope.HasKind(l.aepb) {
			return l.done(m, p)
		}
		return l.result(m, p)
	case canonical.OpInvoke, canonical.OpTaskGet:
		return l.result(m, p)
	default:
		return refuse(canonical.CodeInvalidRequest, "not an answer to that request")
	}
}

func (l wireMessage) payloadOrEmpty() json.RawMessage {
	return rawjson.OrEmpty(l.payload)
}

// answers takes what a reply says about its request.
func (l wireMessage) answers(m *canonical.Message, p *rawjson.Object) {
	id, has := p.String("intent_id")
	m.Correlation.WireID = wireID(id, has, l.trace, l.traced)
}

// budgeted is the deadline that an intent's budget and timestamp set; zero: none.
func (l wireMessage) budgeted(budget json.RawMessage) time.Time {
	if len(budget) == 0 || budget[0] != '{' {
		return time.Time{}
	}
	n, ok := milliseconds(rawjson.Parse(budget, "").Peek("timeout_ms"))
	if !ok || n == 0 {
		return time.Time{}
	}
	return time.UnixMilli(l.at + n).UTC()
}
