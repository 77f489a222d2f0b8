package problem

import (
	"cmp"
	"encoding/json"
	"errors"

	"github.com/aepb/aepb-gateway/translators/canonical"
)

// codesOfNative says what a canonical error is at a translate endpoint, where
// there is no native error to give.
var codesOfNative = map[canonical.Code]string{
	canonical.CodeParse:              CodeMalformed,
	canonical.CodeInvalidRequest:     CodeMalformed,
	canonical.CodeBadParams:          CodeMalformed,
	canonical.CodeHeaderMismatch:     CodeMalformed,
	canonical.CodeNoMethod:           CodeNoMethod,
	canonical.CodeUnsupportedOp:      CodeSemanticLoss, // a message without a counterpart (R7)
	canonical.CodePushUnsupported:    CodeSemanticLoss,
	canonical.CodeCardUnavailable:    CodeSemanticLoss,
	canonical.CodeCapabilityRequired: CodeSemanticLoss,
	canonical.CodeUnsupportedVersion: CodeNoPath,
	canonical.CodeUnauthenticated:    CodeUnauthenticated,
	canonical.CodeForbidden:          CodeForbidden,
	canonical.CodeTaskNotFound:       CodeNotFound,
	canonical.CodeSkillNotFound:      CodeNotFound,
	canonical.CodeResourceNotFound:   CodeNotFound,
	canonical.CodeNotCancelable:      CodeConflict,
	canonical.CodeUnsupportedMedia:   CodeMediaType,
	canonical.CodeBadUpstream:        CodeBadReply,
	canonical.CodeTimeout:            CodeTimeout,
	canonical.CodeRateLimited:        CodeRateLimited,
	canonical.CodeUnavailable:        CodeUnreachable,
	canonical.CodeInternal:           CodeInternal,
	canonical.CodeOther:              CodeInternal,
}

// native describes an error that a codec found. Its text is the codec's, which
// quotes nothing.
func native(e *canonical.Error) Problem {
	code, ok := codesOfNative[e.Code]
	if !ok || code == CodeInternal {
		p := of(CodeInternal, "")
		p.Native = e.Code
		return p
	}
	p := of(code, e.Message)
	p.Native, p.RetryAfter = e.Code, e.RetryAfter
	if code == CodeUnauthenticated {
		p.Challenge = challenge("")
	}
	return p
}

// Native is an error in the words of a native endpoint: a message like any other,
// which the endpoint's codec writes in its protocol. An error that already is one
// passes through; it is not to be changed.
func Native(err error) *canonical.Error { return NativeFor(false, err) }

// NativeFor is Native for a caller who may know why an agent failed ([Knows]).
func NativeFor(knows bool, err error) *canonical.Error {
	p := From(err)
	if own, ok := errors.AsType[*canonical.Error](err); ok && own.Code == p.Native {
		return own
	}
	message := p.Title
	if detail := p.explained(knows); detail != p.Title {
		message += ": " + detail
	}
	return &canonical.Error{Code: p.Native, Message: message, RetryAfter: p.RetryAfter, Details: details(p, p.shown(knows))}
}

// details names our own code, for clients that look.
func details(p Problem, why Reason) []json.RawMessage {
	raw, err := json.Marshal(struct {
		Type   string `json:"@type"`
		Code   string `json:"code"`
		Status int    `json:"status"`
		Next   string `json:"successor,omitempty"` // URL of what takes its place
		Reason Reason `json:"reason,omitempty"`    // for operators alone
		Refuse string `json:"next_gateway,omitempty"`
		Waiting
	}{typePrefix + p.Code, p.Code, p.Status, cmp.Or(p.Location, p.Successor), why, p.NextGateway, p.Where.Approval})
	if err != nil {
		return nil
	}
	return []json.RawMessage{raw}
}
