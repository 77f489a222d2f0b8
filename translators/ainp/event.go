package ainp

import (
	"encoding/json"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/envelope"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// An event of a stream is a RESULT that is partial, a NOTIFICATION or, where it
// asks, an ApprovalRequest. The RESULT that is not partial ends the stream.

// happened reads one message of a stream; false: it is a reply that ends it.
func (l wireMessage) happened(m *canonical.Message, p *rawjson.Object) (bool, error) {
	switch {
	case l.kind == TypeResult:
		if p.PeekText("status") != statusPartial && !envelope.HasEvent(l.aepb) {
			return false, nil
		}
		return true, l.changed(m, p)
	case l.kind == TypeIntent && kindOf(p) == intentNotice:
		return true, l.notified(m, p)
	case l.kind == TypeIntent && kindOf(p) == intentApproval:
		in, err := readQuestion(p)
		m.Phase, m.Correlation.WireID = canonical.PhaseEvent, nil
		if id, ok := p.String("intent_id"); ok {
			m.Correlation.WireID = rawjson.Quote(id)
		}
		ask := &canonical.Ask{ID: wireID(l.id, true, l.trace, l.traced), Input: in}
		m.Body = &canonical.Event{Ask: ask, Extensions: extended(nil, p.Rest())}
		return true, err
	}
	return false, nil
}

func kindOf(p *rawjson.Object) string {
	return p.PeekText(typeMember)
}

// Final reports whether a message in answer to an intent is the last one: an
// ERROR, or a RESULT that is neither partial nor said to be an event.
func Final(body []byte) bool {
	if _, err := Open(body); err != nil {
		return false
	}
	o := rawjson.Parse(body, "")
	kind, p := o.PeekText("msg_type"), o.Object("payload")
	if kind != TypeResult || p == nil {
		return kind == TypeError
	}
	return p.PeekText("status") != statusPartial && !envelope.HasEvent(p.Peek(envelope.Key))
}

// changed reads the state of the work. Its text becomes the message of that state.
// The value that counts comes with the end.
func (l wireMessage) changed(m *canonical.Message, p *rawjson.Object) error {
	l.answers(m, p)
	m.Phase = canonical.PhaseEvent
	status := &canonical.Status{}
	switch p.Required("status") {
	case statusPartial:
		status.State = canonical.StateWorking
	case statusSuccess:
		status.State = canonical.StateCompleted
	case statusFailed:
		status.State = canonical.StateFailed
	default:
		p.Fail("status", "no such status")
	}
	if value := p.Take("result"); value != nil {
		part := canonical.Part{Kind: canonical.KindData, Data: value}
		if text, ok := rawjson.Unquote(value); ok {
			part = canonical.Part{Kind: canonical.KindText, Text: text}
		}
		status.Message = &canonical.Content{Role: canonical.RoleAgent, Parts: []canonical.Part{part}}
	}
	m.Body = &canonical.Event{Status: status, Extensions: extended(nil, p.Rest())}
	return p.Err()
}

// notified reads a NOTIFICATION about the work.
func (l wireMessage) notified(m *canonical.Message, p *rawjson.Object) error {
	m.Phase = canonical.PhaseEvent
	l.answers(m, p)
	status := &canonical.Status{State: canonical.StateWorking}
	if semantics := p.Object("semantics"); semantics != nil {
		if text, ok := semantics.String("content"); ok {
			status.Message = &canonical.Content{Role: canonical.RoleAgent, Parts: []canonical.Part{{Kind: canonical.KindText, Text: text}}}
		}
		p.Put("semantics", rawjson.OrEmpty(semantics.Rest()))
		if semantics.Err() != nil {
			return badParams()
		}
	}
	m.Body = &canonical.Event{Status: status, Extensions: extended(nil, p.Rest())}
	return p.Err()
}

// event writes one message of a stream.
func (e *encoder) event(body *canonical.Event) (wireMessage, error) {
	own := rawjson.Open(body.Extensions[Binding])
	switch {
	case body.Native != nil:
		return wireMessage{}, refuse(canonical.CodeUnsupportedOp, "AINP has no such notification")
	case body.Ask != nil && body.Ask.Input.Mode == canonical.ModeNative:
		return wireMessage{}, refuse(canonical.CodeUnsupportedOp, "the agent's input request has no form in AINP")
	case body.Ask != nil:
		return wireMessage{kind: TypeIntent, payload: e.question(&body.Ask.Input, own)}, nil
	case body.Log != nil || e.home() && kindOf(own) == intentNotice:
		return wireMessage{kind: TypeIntent, payload: e.notification(body, own)}, nil
	}
	parts, state := envelope.EventWords(body)
	b := e.answers(rawjson.NewBuilder()).String("status", statusOf(state)).Raw("result", value(parts))
	return wireMessage{kind: TypeResult, payload: b.Merge(rawjson.Without(body.Extensions[Binding], "intent_id", "status", "result", envelope.Key)).Bytes()}, nil
}

// notification is a line for the records.
func (e *encoder) notification(body *canonical.Event, own *rawjson.Object) json.RawMessage {
	parts, _ := envelope.EventWords(body)
	b := rawjson.NewBuilder()
	if raw := value(parts); raw != nil {
		text, ok := rawjson.Unquote(raw)
		if !ok {
			text = string(raw)
		}
		b.String("content", text)
	}
	left := own.Peek("semantics")
	own.Take(envelope.Key)
	e.concern(own)
	if e.home() && left == nil && b.Empty() {
		return e.payload(own, intentNotice, contextOther, nil)
	}
	return e.payload(own, intentNotice, contextOther, b.Merge(rawjson.Without(left, "content")).Bytes())
}

// concern says which intent it is about.
func (e *encoder) concern(own *rawjson.Object) {
	own.Take("intent_id")
	if e.m.Correlation.WireID == nil {
		return
	}
	if of := refer(e.m.Correlation.WireID); of.has {
		own.Put("intent_id", rawjson.Quote(of.id))
	}
}

// ends returns a mark for an event that reads natively as the reply that ends a stream. The
// mark says that it is none.
func (e *encoder) ends() json.RawMessage {
	body, ok := e.m.Body.(*canonical.Event)
	if !ok || body.Ask != nil || body.Log != nil {
		return nil
	}
	if _, state := envelope.EventWords(body); statusOf(state) == statusPartial {
		return nil
	}
	return rawjson.NewBuilder().String(envelope.EventMember, envelope.KindOfEvent(body)).Bytes()
}
