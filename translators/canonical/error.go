package canonical

import (
	"encoding/json"
	"time"
)

// Code is a protocol-neutral error code.
type Code string

// The codes; each codec has a table from and to its native ones.
const (
	CodeParse              Code = "parse"
	CodeInvalidRequest     Code = "invalid_request"
	CodeNoMethod           Code = "no_method"
	CodeBadParams          Code = "bad_params"
	CodeInternal           Code = "internal"
	CodeHeaderMismatch     Code = "header_mismatch"
	CodeUnsupportedVersion Code = "unsupported_version"
	CodeCapabilityRequired Code = "capability_required"
	CodeUnauthenticated    Code = "unauthenticated"
	CodeForbidden          Code = "forbidden"
	CodeTaskNotFound       Code = "task_not_found"
	CodeSkillNotFound      Code = "skill_not_found"
	CodeResourceNotFound   Code = "resource_not_found"
	CodeNotCancelable      Code = "not_cancelable"
	CodeUnsupportedOp      Code = "unsupported_op"
	CodeUnsupportedMedia   Code = "unsupported_media"
	CodePushUnsupported    Code = "push_unsupported"
	CodeCardUnavailable    Code = "card_unavailable"
	CodeBadUpstream        Code = "bad_upstream"
	CodeTimeout            Code = "timeout"
	CodeRateLimited        Code = "rate_limited"
	CodeUnavailable        Code = "unavailable"
	CodeOther              Code = "other" // only Native says what it was
)

// Codes lists every code. A codec's table has a row for each of them.
func Codes() []Code {
	return []Code{
		CodeParse, CodeInvalidRequest, CodeNoMethod, CodeBadParams, CodeInternal,
		CodeHeaderMismatch, CodeUnsupportedVersion, CodeCapabilityRequired,
		CodeUnauthenticated, CodeForbidden,
		CodeTaskNotFound, CodeSkillNotFound, CodeResourceNotFound,
		CodeNotCancelable, CodeUnsupportedOp, CodeUnsupportedMedia,
		CodePushUnsupported, CodeCardUnavailable,
		CodeBadUpstream, CodeTimeout, CodeRateLimited, CodeUnavailable, CodeOther,
	}
}

// Error is an error as a message: said by an agent, or by the gateway to a
// caller at a native endpoint. It travels like any reply.
type Error struct {
	Code       Code
	Message    string
	RetryAfter time.Duration     // zero: no advice
	Details    []json.RawMessage // typed objects (google.rpc style), raw
	Schema     json.RawMessage   `json:",omitempty"` // with CodeBadParams: the schema that was missed
	Native     *NativeError      // what it was in the protocol it came from
	Extensions Extensions
}

// Error lets a decoder return an Error as a Go error.
func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

// NativeError is an error in the words of the protocol it came from. Foreign
// numbers are never copied across: the same number means different things.
type NativeError struct {
	Binding Binding
	Code    int64
	Data    json.RawMessage `json:",omitempty"` // nil: absent, which is not null
}
