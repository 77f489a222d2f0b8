package ainp

import (
	"encoding/json"
	"strings"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/envelope"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// An agent asks with an ApprovalRequest, in the middle of a stream or as its
// answer; the decision comes back as a RESULT that names it.

const intentApproval = "ApprovalRequest"

// requestInput is the request_type of a question that is no request for approval.
const requestInput = "input"

// approvalKey names the only question of an ApprovalRequest.
const approvalKey = "approval"

// approvalForm is what a decision looks like.
const approvalForm = `{"type":"object","properties":{"decision":{"type":"string","enum":["approve","reject"]},"comment":{"type":"string"}},"required":["decision"]}`

var _ translators.InputStyler = (*Translator)(nil)

// Asks says that a peer is asked in the middle of its stream. One without a
// connection that stays open cannot be asked: its messages do not say that it can.
func (t *Translator) Asks(string, string) translators.Asking { return translators.AskStream }

// readQuestion reads the payload of an ApprovalRequest as a question: what it
// describes, and everything else that it says as data beside it.
func readQuestion(p *rawjson.Object) (canonical.Input, error) {
	in := canonical.Input{Key: approvalKey, Mode: canonical.ModeForm, Schema: json.RawMessage(approvalForm)}
	semantics := p.Object("semantics")
	if semantics == nil {
		return in, badParams()
	}
	if text, ok := semantics.String("description"); ok {
		in.Prompt = append(in.Prompt, canonical.Part{Kind: canonical.KindText, Text: text})
	}
	p.Take("semantics")
	if kind := semantics.PeekText("request_type"); kind == requestInput {
		p.Put("semantics", rawjson.NewBuilder().Raw("request_type", semantics.Take("request_type")).Bytes())
	}
	if left := semantics.Rest(); left != nil {
		in.Prompt = append(in.Prompt, canonical.Part{Kind: canonical.KindData, Data: left})
	}
	if semantics.Err() != nil || len(in.Prompt) == 0 {
		return in, badParams()
	}
	return in, p.Err()
}

// question writes a question as an ApprovalRequest.
func (e *encoder) question(in *canonical.Input, own *rawjson.Object) json.RawMessage {
	b := rawjson.NewBuilder()
	var left json.RawMessage
	for i := range in.Prompt {
		if p := &in.Prompt[i]; p.Kind == canonical.KindData && left == nil {
			left = rawjson.Without(p.Data, "description")
		}
	}
	if raw := rawjson.Open(own.Peek("semantics")).Peek("request_type"); raw != nil {
		b.Raw("request_type", raw)
	} else if !e.home() && rawjson.Open(left).Peek("request_type") == nil {
		b.String("request_type", requestInput)
	}
	if text, ok := canonical.TextOf(in.Prompt, "\n\n"); ok {
		b.String("description", text)
	}
	if in.Mode == canonical.ModeURL {
		b.Optional("url", in.URL)
		left = rawjson.Without(left, "url")
	}
	own.Take(envelope.Key)
	if e.m.Phase == canonical.PhaseEvent {
		e.concern(own)
	}
	return e.payload(own, intentApproval, contextApproval, b.Merge(left).Bytes())
}

// pending reads a question that stands in place of a reply: the answer goes back
// as a message of its own.
func (l wireMessage) pending(m *canonical.Message, p *rawjson.Object) error {
	m.Correlation.WireID = wireID("", false, l.trace, l.traced)
	in, err := readQuestion(p)
	if err != nil {
		return err
	}
	left := rawjson.NewBuilder().Rest(p).Bytes()
	m.Body = &canonical.Result{
		Pending:    &canonical.Pending{Inputs: []canonical.Input{in}, State: stateOf(l.id, l.trace)},
		Extensions: extended(nil, left),
	}
	return nil
}

// stateOf is what the answer to a question must bring back: its id, and behind a
// space its trace.
func stateOf(id, trace string) string {
	if trace == "" {
		return id
	}
	return id + " " + trace
}

// readState reads what stateOf wrote; false: it is another protocol's.
func readState(state string) (id, trace string, ok bool) {
	id, trace, _ = strings.Cut(state, " ")
	return id, trace, isUUID4(id)
}

// answered is an invocation that brings an answer back, as AINP says it: a
// RESULT. The call itself is not said again: the agent has it.
func answered(m *canonical.Message) *canonical.Message {
	invoke, ok := m.Body.(*canonical.Invoke)
	if !ok || m.Phase != canonical.PhaseRequest || len(invoke.Answers) != 1 || m.Origin.Binding == Binding {
		return m
	}
	id, trace, ok := readState(invoke.State)
	if !ok {
		return m
	}
	out := *m
	out.Op = canonical.OpAnswer
	out.Body = &canonical.Reply{ID: wireID(id, true, trace, trace != ""), Answer: invoke.Answers[0]}
	return &out
}

// replied reads a RESULT or an ERROR that answers a question of ours.
func (l wireMessage) replied(m *canonical.Message) error {
	p := rawjson.Parse(l.payloadOrEmpty(), "/payload")
	if l.kind == TypeResult && decided(m, p) {
		return p.Err()
	}
	m.Op = canonical.OpAnswer
	body := &canonical.Reply{}
	m.Body = body
	id, found := p.String("intent_id")
	switch {
	case found && id != "":
		body.ID = rawjson.Quote(id)
	case l.traced:
		body.ID = rawjson.Quote(l.trace)
	default:
		return refuse(canonical.CodeInvalidRequest, "the answer names no intent: expected intent_id")
	}
	if l.kind == TypeError {
		inner := &canonical.Message{}
		if err := l.failed(inner, p); err != nil {
			return err
		}
		body.Failure, _ = inner.Body.(*canonical.Error)
		left := body.Failure.Extensions[Binding]
		body.Failure.Extensions, body.Extensions = nil, extended(nil, untold(left, found, id))
		return p.Err()
	}
	status, value := p.Required("status"), p.Take("result")
	if status == statusPartial {
		return refuse(canonical.CodeBadParams, "the decision is partial, expected a final one")
	}
	body.Answer.Action = canonical.Accept
	switch {
	case p.Err() != nil:
		return p.Err()
	case status == statusFailed:
		body.Answer.Action = canonical.Decline
	case status != statusSuccess:
		p.Fail("status", "no such status")
	}
	if text, ok := rawjson.Unquote(value); ok {
		body.Answer.Parts = []canonical.Part{{Kind: canonical.KindText, Text: text}}
	} else {
		body.Answer.Value = value
	}
	body.Extensions = extended(nil, untold(p.Rest(), found, id))
	return p.Err()
}

// untold keeps apart an intent_id that is missing, one that is empty and one
// that names a question.
func untold(left json.RawMessage, found bool, id string) json.RawMessage {
	if found && id != "" {
		return left
	}
	b := rawjson.NewBuilder().Merge(left)
	if found {
		return b.String("intent_id", "").Bytes()
	}
	return b.Raw("intent_id", json.RawMessage("null")).Bytes()
}

// reply writes the answer to a question.
func (e *encoder) reply(body *canonical.Reply) wireMessage {
	own, b := body.Extensions[Binding], rawjson.NewBuilder()
	switch raw := rawjson.Open(own).Peek("intent_id"); {
	case raw == nil:
		b.String("intent_id", e.known(body.ID))
	case string(raw) != "null":
		b.Raw("intent_id", raw)
	}
	if body.Failure != nil {
		encoded := rawjson.NewBuilder().Merge(rawjson.Without(own, "intent_id")).Bytes()
		failed := *body.Failure
		failed.Extensions = extended(nil, encoded)
		return wireMessage{kind: TypeError, payload: e.refusal(b, &failed)}
	}
	status := statusSuccess
	if body.Answer.Action != canonical.Accept {
		status = statusFailed
	}
	b.String("status", status)
	if body.Answer.Value != nil {
		b.Raw("result", body.Answer.Value)
	} else {
		b.Raw("result", value(body.Answer.Parts))
	}
	return wireMessage{kind: TypeResult, payload: b.Merge(rawjson.Without(own, "intent_id", "status", "result", envelope.Key)).Bytes()}
}

// known is the id under which a message of ours, or of the agent's, is known in AINP.
func (e *encoder) known(raw json.RawMessage) string {
	if of := refer(raw); isUUID4(of.id) || e.home() {
		return of.id
	}
	return deriveUUID(raw)
}
