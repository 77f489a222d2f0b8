package uacp

import (
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/envelope"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// about is what a topic of decisions is about; false: it is no such topic.
func about(topic string) (string, bool) {
	approval, ok := strings.CutPrefix(topic, TopicDecision)
	return approval, ok && approval != "" && utf8.ValidString(approval)
}

// signal reads a payload that is a token.
func signal(c content, m *canonical.Message, op canonical.Op, approval string) error {
	m.Op = op
	statement := &canonical.Signal{Approval: approval}
	m.Body = statement
	if c.kind != contentText || !canonical.IsToken(c.text) {
		return refuse(canonical.CodeBadParams, "the payload is not an execution context token")
	}
	statement.Token = c.text
	return nil
}

// decision reads a TELL with a human's decision, which has no answer.
func decision(f Frame, c content, m *canonical.Message, approval string, left *rawjson.Builder) error {
	m.Correlation.WireID = nil
	left.Raw(leftVerb, number(uint32(Tell)))
	left.Raw(leftID, number(f.ID))
	return signal(c, m, canonical.OpDecision, approval)
}

// signalled reads the answer to a signal.
func signalled(c content, m *canonical.Message, re canonical.Op) error {
	if re == canonical.OpDecision {
		m.Body = &canonical.Done{Extensions: extensionsOf(c)}
		return nil
	}
	return signal(c, m, re, "")
}

// saySignal writes a token as the payload, and names the topic of a request.
func (e *encoder) saySignal(b *built, body *canonical.Signal) (string, error) {
	if !canonical.IsToken(body.Token) {
		return "", refuse(canonical.CodeBadParams, "no execution context token: a signal needs one")
	}
	b.c = content{kind: contentText, text: body.Token}
	switch {
	case e.m.Phase == canonical.PhaseResponse:
		return "", nil
	case e.m.Op == canonical.OpRollback:
		return TopicRollback, nil
	}
	if _, ok := about(TopicDecision + body.Approval); !ok {
		return "", refuse(canonical.CodeBadParams, "the decision names no approval: expected its id")
	}
	if e.encodeSignal() {
		b.f.Verb = Tell
		b.f.ID, _ = small(e.left.Peek(leftID), maxID)
	}
	return TopicDecision + body.Approval, nil
}

// encodeSignal reports whether a decision leaves as the TELL that it came as.
func (e *encoder) encodeSignal() bool {
	return e.is(canonical.OpDecision, canonical.PhaseRequest) && string(e.left.Peek(leftVerb)) == string(number(uint32(Tell)))
}

// callback is the member that names the callback of a request.
func (e *encoder) callback() json.RawMessage {
	if e.m.Callback == "" {
		return nil
	}
	if e.form == FormBare {
		e.losses = append(e.losses, canonical.Loss{Code: canonical.LossCallback, Path: "/callback", Fate: canonical.Dropped})
		return nil
	}
	return rawjson.NewBuilder().String(envelope.SlotHITL, e.m.Callback).Bytes()
}
