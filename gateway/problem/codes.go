package problem

import (
	"maps"
	"net/http"
	"slices"

	"github.com/aepb/aepb-gateway/translators/canonical"
)

// The wire codes. Those of the drafts (AEPB and CPAT, error handling) first,
// then ours, for refusals the drafts leave open.
const (
	CodeNoPath          = "no_translation_path"
	CodeSemanticLoss    = "semantic_loss"
	CodeTimeout         = "timeout"
	CodePolicyViolation = "policy_violation"
	CodeInternal        = "internal_error"

	CodeMalformed       = "malformed_message"
	CodeIdentityInvalid = "identity_invalid"
	CodeUnauthenticated = "unauthenticated"
	CodeForbidden       = "forbidden"
	CodeECTRequired     = "ect_required"
	CodeECTInvalid      = "ect_invalid"
	CodeUnknownAgent    = "unknown_agent"
	CodeNoMethod        = "method_not_found"
	CodeNotAllowed      = "method_not_allowed"
	CodeNotFound        = "not_found"
	CodeConflict        = "conflict"
	CodeInProgress      = "in_progress"
	CodeMediaType       = "unsupported_media_type"
	CodeTooLarge        = "too_large"
	CodeRateLimited     = "rate_limited"
	CodeDraining        = "draining"
	CodeRetired         = "retired"
	CodeBadReply        = "bad_upstream_reply"
	CodeUnreachable     = "upstream_unreachable"
	CodeCircuitOpen     = "circuit_open"
	CodeUnavailable     = "unavailable"

	CodeApprovalRequired = "approval_required"
	CodeApprovalRefused  = "approval_refused"
	CodePaused           = "paused"
	CodeStopped          = "stopped"
)

// The values of aepb.error in an error ECT: these four and nothing else, ever
// (AEPB, Translation Failure Handling).
const (
	ECTSemanticLoss    = "semantic_loss"
	ECTTimeout         = "timeout"
	ECTPolicyViolation = "policy_violation"
	ECTInternal        = "internal_error"
)

// kind is what all problems of one code have in common.
type kind struct {
	status int
	title  string
	native canonical.Code // what a native endpoint says instead
}

var kinds = map[string]kind{
	CodeNoPath:          {http.StatusNotFound, "There is no translation path", canonical.CodeUnsupportedOp},
	CodeSemanticLoss:    {http.StatusUnprocessableEntity, "The translation would change what the message means", canonical.CodeBadParams},
	CodeTimeout:         {http.StatusGatewayTimeout, "The work did not end in time", canonical.CodeTimeout},
	CodePolicyViolation: {http.StatusForbidden, "Policy does not allow this", canonical.CodeForbidden},
	CodeInternal:        {http.StatusInternalServerError, "The gateway failed", canonical.CodeInternal},
	CodeUnavailable:     {http.StatusServiceUnavailable, "The gateway cannot keep state or evidence now", canonical.CodeUnavailable},

	CodeMalformed:       {http.StatusBadRequest, "The message is malformed", canonical.CodeInvalidRequest},
	CodeIdentityInvalid: {http.StatusBadRequest, "The workload identity is invalid", canonical.CodeUnauthenticated},
	CodeUnauthenticated: {http.StatusUnauthorized, "The caller must authenticate", canonical.CodeUnauthenticated},
	CodeForbidden:       {http.StatusForbidden, "The caller may not do this", canonical.CodeForbidden},
	CodeECTRequired:     {http.StatusForbidden, "An execution context token is required", canonical.CodeForbidden},
	CodeECTInvalid:      {http.StatusForbidden, "The execution context is not acceptable", canonical.CodeForbidden},
	CodeUnknownAgent:    {http.StatusNotFound, "No such agent", canonical.CodeSkillNotFound},
	CodeNoMethod:        {http.StatusUnprocessableEntity, "There is no such method", canonical.CodeNoMethod},
	CodeNotAllowed:      {http.StatusMethodNotAllowed, "The HTTP method is not allowed here", canonical.CodeInvalidRequest},
	CodeNotFound:        {http.StatusNotFound, "Not found", canonical.CodeResourceNotFound},
	CodeConflict:        {http.StatusConflict, "This conflicts with what is there", canonical.CodeInvalidRequest},
	CodeInProgress:      {http.StatusConflict, "The same message is still being worked on", canonical.CodeUnavailable},
	CodeMediaType:       {http.StatusUnsupportedMediaType, "The media type is not supported", canonical.CodeUnsupportedMedia},
	CodeTooLarge:        {http.StatusRequestEntityTooLarge, "The message is too large", canonical.CodeInvalidRequest},
	CodeRateLimited:     {http.StatusTooManyRequests, "Too many requests", canonical.CodeRateLimited},
	CodeDraining:        {http.StatusServiceUnavailable, "No new work is taken", canonical.CodeUnavailable},
	CodeRetired:         {http.StatusGone, "The agent is retired", canonical.CodeUnavailable},
	CodeBadReply:        {http.StatusBadGateway, "The agent answered with something that is no reply", canonical.CodeBadUpstream},
	CodeCircuitOpen:     {http.StatusServiceUnavailable, "The agent has failed too often", canonical.CodeUnavailable},
	CodeUnreachable:     {http.StatusBadGateway, "The agent cannot be reached", canonical.CodeUnavailable},

	CodeApprovalRequired: {http.StatusConflict, "A human has to approve this first", canonical.CodeUnavailable},
	CodePaused:           {http.StatusConflict, "The workflow is paused", canonical.CodeUnavailable},
	CodeStopped:          {http.StatusForbidden, "The workflow is stopped", canonical.CodeForbidden},
	CodeApprovalRefused:  {http.StatusForbidden, "This was not approved", canonical.CodeForbidden},
}

// Codes lists every wire code, sorted. The set is closed, and so fit for a
// metric label.
func Codes() []string { return slices.Sorted(maps.Keys(kinds)) }

// ectError is the value of aepb.error for a code (architecture section 7).
func ectError(code string) string {
	switch code {
	case CodeSemanticLoss, CodeTimeout, CodePolicyViolation:
		return code
	case CodeApprovalRequired, CodeApprovalRefused, CodePaused, CodeStopped:
		return ECTPolicyViolation
	case CodeNoMethod: // a message without a counterpart (R7)
		return ECTSemanticLoss
	default:
		return ECTInternal
	}
}
