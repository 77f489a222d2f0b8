package uacp

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// The status codes that the codec itself needs.
const (
	codeOK        = 0x00
	codeAccepted  = 0x02
	codeNoContent = 0x03
	codeErrors    = 0x40 // the first that is an error
	codeTooLarge  = 0x4A
	codeInternal  = 0x80
)

// nativeCodes says codes as µACP's status; others are codeInternal.
var nativeCodes = map[canonical.Code]uint8{
	canonical.CodeParse: 0x40, canonical.CodeInvalidRequest: 0x40, canonical.CodeBadParams: 0x40, canonical.CodeHeaderMismatch: 0x40,
	canonical.CodeUnauthenticated: 0x41,
	canonical.CodeForbidden:       0x42,
	canonical.CodeTaskNotFound:    0x43, canonical.CodeSkillNotFound: 0x43, canonical.CodeResourceNotFound: 0x43, canonical.CodeCardUnavailable: 0x43,
	canonical.CodeNoMethod:         0x44,
	canonical.CodeNotCancelable:    0x47,
	canonical.CodeUnsupportedMedia: 0x4C,
	canonical.CodeUnsupportedOp:    0x81, canonical.CodePushUnsupported: 0x81,
	canonical.CodeBadUpstream: 0x82,
	canonical.CodeRateLimited: 0x83, canonical.CodeUnavailable: 0x83,
	canonical.CodeTimeout:            0x84,
	canonical.CodeUnsupportedVersion: 0x85,
	canonical.CodeCapabilityRequired: 0xC1,
}

// problemTooLarge is the type of the detail by which a gateway says that a message,
// or its answer, is too large: the protocols between which it translates have no
// common code for that, and µACP has one.
const problemTooLarge = "urn:aepb:problem:too_large"

func tooLarge(e *canonical.Error) bool {
	return slices.ContainsFunc(e.Details, func(detail json.RawMessage) bool {
		return rawjson.Parse(detail, "").PeekText("@type") == problemTooLarge
	})
}

// codes are µACP's statuses; others are CodeOther.
var codes = map[uint8]canonical.Code{
	0x40: canonical.CodeInvalidRequest, 0x49: canonical.CodeInvalidRequest, // BAD_REQUEST, LENGTH_REQUIRED
	0x41: canonical.CodeUnauthenticated, 0xC2: canonical.CodeUnauthenticated, // UNAUTHORIZED, AUTH_METHOD
	0x42: canonical.CodeForbidden, 0xC3: canonical.CodeForbidden, 0xC6: canonical.CodeForbidden, // FORBIDDEN, SECURITY_LEVEL, SECURITY_NEG_FAILED
	0x43: canonical.CodeResourceNotFound, 0x48: canonical.CodeResourceNotFound, // NOT_FOUND, GONE
	0x44: canonical.CodeNoMethod,                                               // METHOD_NOT_ALLOWED
	0x45: canonical.CodeUnsupportedMedia, 0x4C: canonical.CodeUnsupportedMedia, // NOT_ACCEPTABLE, UNSUPPORTED_CONTENT_TYPE
	0x46: canonical.CodeTimeout, 0x84: canonical.CodeTimeout, // REQUEST_TIMEOUT, GATEWAY_TIMEOUT
	0x47: canonical.CodeNotCancelable,                                                           // CONFLICT
	0x4A: canonical.CodeBadParams, 0x4B: canonical.CodeBadParams, 0x4F: canonical.CodeBadParams, // PAYLOAD_TOO_LARGE, URI_TOO_LONG, INVALID_OPTION
	0x4D: canonical.CodeUnsupportedOp, 0x4E: canonical.CodeUnsupportedOp, 0x81: canonical.CodeUnsupportedOp, // UNSUPPORTED_QOS, UNSUPPORTED_VERB, NOT_IMPLEMENTED
	0x80: canonical.CodeInternal, 0x86: canonical.CodeInternal, // INTERNAL, STORAGE
	0x82: canonical.CodeBadUpstream,                                                // BAD_GATEWAY
	0x83: canonical.CodeUnavailable,                                                // UNAVAILABLE
	0x85: canonical.CodeUnsupportedVersion, 0xC7: canonical.CodeUnsupportedVersion, // VERSION, VERSION_MISMATCH
	0xC0: canonical.CodeCapabilityRequired, 0xC1: canonical.CodeCapabilityRequired, 0xC4: canonical.CodeCapabilityRequired, 0xC5: canonical.CodeCapabilityRequired, // negotiation required, capability, transport, feature
}

// codeOf reads µACP's status.
func codeOf(native uint8) canonical.Code { return cmp.Or(codes[native], canonical.CodeOther) }
