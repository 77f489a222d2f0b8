package ainp

import (
	"cmp"
	"encoding/json"
	"strconv"
	"time"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/envelope"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// nativeCodes says codes in AINP's words (draft-ainp-protocol-00; NOT_IMPLEMENTED
// and VALIDATION_ERROR are the SDK's).
var nativeCodes = map[canonical.Code]string{
	canonical.CodeUnauthenticated:  "INVALID_SIGNATURE",
	canonical.CodeForbidden:        "UNAUTHORIZED",
	canonical.CodeUnsupportedMedia: "UNSUPPORTED_SCHEMA", canonical.CodeUnsupportedVersion: "UNSUPPORTED_SCHEMA",
	canonical.CodeTimeout:     "TIMEOUT",
	canonical.CodeRateLimited: "RATE_LIMIT_EXCEEDED",
	canonical.CodeUnavailable: "AGENT_OFFLINE",
	canonical.CodeParse:       "VALIDATION_ERROR", canonical.CodeInvalidRequest: "VALIDATION_ERROR", canonical.CodeBadParams: "VALIDATION_ERROR", canonical.CodeHeaderMismatch: "VALIDATION_ERROR",
	canonical.CodeNoMethod: "NOT_IMPLEMENTED", canonical.CodeUnsupportedOp: "NOT_IMPLEMENTED", canonical.CodePushUnsupported: "NOT_IMPLEMENTED", canonical.CodeCapabilityRequired: "NOT_IMPLEMENTED",
}

// codes reads AINP's words.
var codes = map[string]canonical.Code{
	"INVALID_SIGNATURE":   canonical.CodeUnauthenticated,
	"UNAUTHORIZED":        canonical.CodeForbidden,
	"UNSUPPORTED_SCHEMA":  canonical.CodeUnsupportedMedia,
	"TIMEOUT":             canonical.CodeTimeout,
	"RATE_LIMIT_EXCEEDED": canonical.CodeRateLimited,
	"AGENT_OFFLINE":       canonical.CodeUnavailable,
	"VALIDATION_ERROR":    canonical.CodeBadParams,
	"DUPLICATE_INTENT":    canonical.CodeInvalidRequest,
	"NOT_IMPLEMENTED":     canonical.CodeUnsupportedOp,
	"INTERNAL_ERROR":      canonical.CodeInternal,
}

func codeOf(native string) canonical.Code { return cmp.Or(codes[native], canonical.CodeOther) }

func (l wireMessage) failed(m *canonical.Message, p *rawjson.Object) error {
	m.Phase = canonical.PhaseError
	l.answers(m, p)
	native := p.Required("error_code")
	body := &canonical.Error{Code: codeOf(native)}
	body.Message = p.TakeText("error_message")
	body.Native = &canonical.NativeError{Binding: Binding, Data: rawjson.Quote(native)}
	if n, ok := milliseconds(p.Peek("retry_after_ms")); ok && n > 0 {
		p.Take("retry_after_ms")
		body.RetryAfter = time.Duration(n) * time.Millisecond
	}
	body.Extensions = extended(nil, p.Rest())
	m.Body = body
	return p.Err()
}

func (e *encoder) refusal(b *rawjson.Builder, body *canonical.Error) json.RawMessage {
	native := cmp.Or(nativeCodes[body.Code], "INTERNAL_ERROR")
	if n := body.Native; n != nil && n.Binding == Binding {
		if text, ok := rawjson.Unquote(n.Data); ok && codeOf(text) == body.Code {
			native = text
		}
	}
	b.String("error_code", native)
	b.Optional("error_message", body.Message)
	if ms := body.RetryAfter.Milliseconds(); ms > 0 {
		b.Raw("retry_after_ms", json.RawMessage(strconv.FormatInt(ms, 10)))
	}
	left := rawjson.Without(body.Extensions[Binding], "intent_id", "error_code", envelope.Key)
	if body.RetryAfter > 0 {
		left = rawjson.Without(left, "retry_after_ms")
	}
	return b.Over(left, "error_message").Bytes()
}
