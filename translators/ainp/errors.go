package ainp

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/envelope"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// nativeCode says a code in AINP's words (draft-ainp-protocol-00; NOT_IMPLEMENTED
// and VALIDATION_ERROR are the SDK's).
func nativeCode(code canonical.Code) string {
	switch code {
	case canonical.CodeUnauthenticated:
		return "INVALID_SIGNATURE"
	case canonical.CodeForbidden:
		return "UNAUTHORIZED"
	case canonical.CodeUnsupportedMedia, canonical.CodeUnsupportedVersion:
		return "UNSUPPORTED_SCHEMA"
	case canonical.CodeTimeout:
		return "TIMEOUT"
	case canonical.CodeRateLimited:
		return "RATE_LIMIT_EXCEEDED"
	case canonical.CodeUnavailable:
		return "AGENT_OFFLINE"
	case canonical.CodeParse, canonical.CodeInvalidRequest, canonical.CodeBadParams, canonical.CodeHeaderMismatch:
		return "VALIDATION_ERROR"
	case canonical.CodeNoMethod, canonical.CodeUnsupportedOp, canonical.CodePushUnsupported, canonical.CodeCapabilityRequired:
		return "NOT_IMPLEMENTED"
	default:
		return "INTERNAL_ERROR"
	}
}

func codeOf(native string) canonical.Code {
	switch native {
	case "INVALID_SIGNATURE":
		return canonical.CodeUnauthenticated
	case "UNAUTHORIZED":
		return canonical.CodeForbidden
	case "UNSUPPORTED_SCHEMA":
		return canonical.CodeUnsupportedMedia
	case "TIMEOUT":
		return canonical.CodeTimeout
	case "RATE_LIMIT_EXCEEDED":
		return canonical.CodeRateLimited
	case "AGENT_OFFLINE":
		return canonical.CodeUnavailable
	case "VALIDATION_ERROR":
		return canonical.CodeBadParams
	case "DUPLICATE_INTENT":
		return canonical.CodeInvalidRequest
	case "NOT_IMPLEMENTED":
		return canonical.CodeUnsupportedOp
	case "INTERNAL_ERROR":
		return canonical.CodeInternal
	default:
		return canonical.CodeOther
	}
}

func (l letter) failed(m *canonical.Message, p *rawjson.Object) error {
	m.Phase = canonical.PhaseError
	l.answers(m, p)
	native := p.Required("error_code")
	body := &canonical.Error{Code: codeOf(native)}
	body.Message = takeText(p, "error_message")
	body.Native = &canonical.NativeError{Binding: Binding, Data: rawjson.Quote(native)}
	if n, ok := milliseconds(p.Peek("retry_after_ms")); ok && n > 0 {
		p.Take("retry_after_ms")
		body.RetryAfter = time.Duration(n) * time.Millisecond
	}
	body.Extensions = extended(nil, p.Rest())
	m.Body = body
	return p.Err()
}

func (e *encoder) failure(body *canonical.Error) json.RawMessage {
	b := rawjson.NewBuilder()
	e.answers(b)
	return e.refusal(b, body)
}

func (e *encoder) refusal(b *rawjson.Builder, body *canonical.Error) json.RawMessage {
	native := nativeCode(body.Code)
	if n := body.Native; n != nil && n.Binding == Binding {
		if said, ok := rawjson.Unquote(n.Data); ok && codeOf(said) == body.Code {
			native = said
		}
	}
	b.String("error_code", native)
	b.Optional("error_message", body.Message)
	if ms := body.RetryAfter.Milliseconds(); ms > 0 {
		b.Raw("retry_after_ms", json.RawMessage(strconv.FormatInt(ms, 10)))
	}
	left := rest(body.Extensions[Binding], "intent_id", "error_code", envelope.Key)
	if body.Message != "" {
		left = rest(left, "error_message")
	}
	if body.RetryAfter > 0 {
		left = rest(left, "retry_after_ms")
	}
	return b.Merge(left).Bytes()
}
