package ainp

import (
	"encoding/json"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/envelope"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// tokenMember holds the token of a signal: in the semantics of a rollback
// request, and in the result of what answers it or of a decision.
const tokenMember = "ect"

// intentRollback is the custom intent that asks to undo something.
const intentRollback = "AtdRollbackRequest"

var _ translators.Signaler = (*Translator)(nil)

// Signals reports that AINP has messages for rollbacks and decisions. A request can name
// a callback.
func (t *Translator) Signals(op canonical.Op, _ translators.Target) bool {
	return op == canonical.OpRollback || op == canonical.OpDecision || op == canonical.OpInvoke
}

// rollback reads a request to undo something.
func rollback(m *canonical.Message, p *rawjson.Object) error {
	semantics := p.Object("semantics")
	if semantics == nil {
		return badParams()
	}
	text, _ := semantics.String(tokenMember)
	if !canonical.IsToken(text) || semantics.Err() != nil {
		return badParams()
	}
	p.PutSet("semantics", semantics.Rest())
	m.Op, m.Body = canonical.OpRollback, &canonical.Signal{Token: text, Extensions: extended(nil, p.Rest())}
	return p.Err()
}

// tokenIn finds the token that is all of a value.
func tokenIn(value json.RawMessage) (string, bool) {
	if len(value) == 0 || value[0] != '{' {
		return "", false
	}
	o := rawjson.Parse(value, "")
	text, ok := o.String(tokenMember)
	return text, ok && o.Err() == nil && len(o.Members()) == 0 && canonical.IsToken(text)
}

// decided reads a RESULT that tells what a human decided about an approval.
func decided(m *canonical.Message, p *rawjson.Object) bool {
	text, ok := tokenIn(p.Peek("result"))
	approval := p.PeekText("intent_id")
	if status := p.PeekText("status"); !ok || approval == "" || status != statusSuccess {
		return false
	}
	for _, name := range []string{"result", "intent_id", "status"} {
		p.Take(name)
	}
	m.Op, m.Body = canonical.OpDecision, &canonical.Signal{Token: text, Approval: approval, Extensions: extended(nil, p.Rest())}
	return true
}

// undone reads what became of a rollback.
func (l wireMessage) undone(m *canonical.Message, p *rawjson.Object) error {
	l.answers(m, p)
	text, ok := tokenIn(p.Take("result"))
	if status := p.Required("status"); !ok || status != statusSuccess {
		p.Fail("result", "no execution context token")
	}
	m.Body = &canonical.Signal{Token: text, Extensions: extended(nil, p.Rest())}
	return p.Err()
}

// signal writes a token: a rollback request, what became of it, or a decision.
func (e *encoder) signal(body *canonical.Signal) (wireMessage, error) {
	if !canonical.IsToken(body.Token) {
		return wireMessage{}, refuse(canonical.CodeBadParams, "no execution context token: a signal needs one")
	}
	own, result := body.Extensions[Binding], rawjson.NewBuilder().String(tokenMember, body.Token)
	if e.m.Op == canonical.OpRollback && e.m.Phase == canonical.PhaseRequest {
		return wireMessage{kind: TypeIntent, payload: e.about(intentRollback, own, result)}, nil
	}
	b := rawjson.NewBuilder()
	if e.m.Op == canonical.OpRollback {
		b = e.answers(rawjson.NewBuilder())
	} else if body.Approval == "" {
		return wireMessage{}, refuse(canonical.CodeBadParams, "the decision names no approval: expected its id")
	} else {
		b.String("intent_id", body.Approval)
	}
	b.String("status", statusSuccess).Raw("result", result.Bytes())
	return wireMessage{kind: TypeResult, payload: b.Merge(rawjson.Without(own, "intent_id", "status", "result", envelope.Key)).Bytes()}, nil
}

// callback is the member that names the callback of a request.
func (e *encoder) callback() json.RawMessage {
	if e.m.Callback == "" || e.m.Phase != canonical.PhaseRequest {
		return nil
	}
	return rawjson.NewBuilder().String(envelope.SlotHITL, e.m.Callback).Bytes()
}
