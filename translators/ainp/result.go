package ainp

import (
	"encoding/json"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/envelope"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// The statuses of a RESULT; the draft knows only the first, its code all three.
const (
	statusSuccess = "success"
	statusPartial = "partial"
	statusFailed  = "failed"
)

func (l wireMessage) result(m *canonical.Message, p *rawjson.Object) error {
	l.answers(m, p)
	status := p.Required("status")
	value := p.Take("result")
	if err := p.Err(); err != nil {
		return err
	}
	out := &canonical.Output{}
	if text, ok := rawjson.Unquote(value); ok {
		out.Parts = []canonical.Part{{Kind: canonical.KindText, Text: text}}
	} else {
		out.Structured = value
	}
	body := &canonical.Result{Extensions: extended(nil, p.Rest())}
	m.Body = body
	switch status {
	case statusSuccess:
		body.Output = out
	case statusFailed:
		out.Failed = true
		body.Output = out
	case statusPartial:
		body.Task = partial(out)
	default:
		p.Fail("status", "no such status")
	}
	return p.Err()
}

// partial is work that is not finished, with what there is of it.
func partial(out *canonical.Output) *canonical.Task {
	parts := out.Parts
	if out.Structured != nil {
		parts = []canonical.Part{{Kind: canonical.KindData, Data: out.Structured}}
	}
	return envelope.TaskOf(parts, canonical.StateWorking)
}

// result writes what came of an intent.
func (e *encoder) result(r *canonical.Result) (json.RawMessage, error) {
	if r.Task == nil && r.Turn == nil && r.Output == nil && r.Pending == nil {
		return nil, refuse(canonical.CodeInternal, "the result is empty")
	}
	parts, state := envelope.Words(r)
	b := e.answers(rawjson.NewBuilder()).String("status", statusOf(state)).Raw("result", native(r, parts))
	return b.Merge(rawjson.Without(r.Extensions[Binding], "intent_id", "status", "result", envelope.Key)).Bytes(), nil
}

// answers writes which intent is answered.
func (e *encoder) answers(b *rawjson.Builder) *rawjson.Builder {
	if e.m.Correlation.WireID == nil {
		return b
	}
	if to := refer(e.m.Correlation.WireID); to.has {
		b.String("intent_id", to.id)
	}
	return b
}

// statusOf returns the status of a state: only a completed task is a success.
func statusOf(state canonical.State) string {
	switch {
	case state == canonical.StateCompleted:
		return statusSuccess
	case state.Terminal():
		return statusFailed
	default:
		return statusPartial
	}
}

// native is the value that a peer reads which knows nothing of parts: the
// structured output, the only data there is, else all words.
func native(r *canonical.Result, parts []canonical.Part) json.RawMessage {
	if r.Output != nil && r.Output.Structured != nil {
		return r.Output.Structured
	}
	return value(parts)
}

// value is all words of a list of parts, or the only data there is; nil: neither.
func value(parts []canonical.Part) json.RawMessage {
	if text, ok := canonical.TextOf(parts, "\n\n"); ok {
		return rawjson.Quote(text)
	}
	var data []json.RawMessage
	for i := range parts { // files and references have no place in a value
		if parts[i].Kind == canonical.KindData {
			data = append(data, parts[i].Data)
		}
	}
	if len(data) == 1 && len(data[0]) > 0 {
		return data[0]
	}
	return nil
}
