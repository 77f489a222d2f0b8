package uacp

import (
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

// nativeCode says a code as µACP's status.
func nativeCode(code canonical.Code) uint8 {
	switch code {
	case canonical.CodeParse, canonical.CodeInvalidRequest, canonical.CodeBadParams, canonical.CodeHeaderMismatch:
		return 0x40
	case canonical.CodeUnauthenticated:
		return 0x41
	case canonical.CodeForbidden:
		return 0x42
	case canonical.CodeTaskNotFound, canonical.CodeSkillNotFound, canonical.CodeResourceNotFound, canonical.CodeCardUnavailable:
		return 0x43
	case canonical.CodeNoMethod:
		return 0x44
	case canonical.CodeNotCancelable:
		return 0x47
	case canonical.CodeUnsupportedMedia:
		return 0x4C
	case canonical.CodeUnsupportedOp, canonical.CodePushUnsupported:
		return 0x81
	case canonical.CodeBadUpstream:
		return 0x82
	case canonical.CodeRateLimited, canonical.CodeUnavailable:
		return 0x83
	case canonical.CodeTimeout:
		return 0x84
	case canonical.CodeUnsupportedVersion:
		return 0x85
	case canonical.CodeCapabilityRequired:
		return 0xC1
	default:
		return codeInternal
	}
}

// problemTooLarge is the type of the detail by which a gateway says that a message,
// or its answer, is too large: the protocols between which it translates have no
// common code for that, and µACP has one.
const problemTooLarge = "urn:aepb:problem:too_large"

func tooLarge(e *canonical.Error) bool {
	return slices.ContainsFunc(e.Details, func(detail json.RawMessage) bool {
		kind, _ := rawjson.Unquote(rawjson.Parse(detail, "").Peek("@type"))
		return kind == problemTooLarge
	})
}

// codeOf reads µACP's status.
func codeOf(native uint8) canonical.Code {
	switch native {
	case 0x40, 0x49: // BAD_REQUEST, LENGTH_REQUIRED
		return canonical.CodeInvalidRequest
	case 0x41, 0xC2: // UNAUTHORIZED, AUTH_METHOD
		return canonical.CodeUnauthenticated
	case 0x42, 0xC3, 0xC6: // FORBIDDEN, SECURITY_LEVEL, SECURITY_NEG_FAILED
		return canonical.CodeForbidden
	case 0x43, 0x48: // NOT_FOUND, GONE
		return canonical.CodeResourceNotFound
	case 0x44: // METHOD_NOT_ALLOWED
		return canonical.CodeNoMethod
	case 0x45, 0x4C: // NOT_ACCEPTABLE, UNSUPPORTED_CONTENT_TYPE
		return canonical.CodeUnsupportedMedia
	case 0x46, 0x84: // REQUEST_TIMEOUT, GATEWAY_TIMEOUT
		return canonical.CodeTimeout
	case 0x47: // CONFLICT
		return canonical.CodeNotCancelable
	case 0x4A, 0x4B, 0x4F: // PAYLOAD_TOO_LARGE, URI_TOO_LONG, INVALID_OPTION
		return canonical.CodeBadParams
	case 0x4D, 0x4E, 0x81: // UNSUPPORTED_QOS, UNSUPPORTED_VERB, NOT_IMPLEMENTED
		return canonical.CodeUnsupportedOp
	case 0x80, 0x86: // INTERNAL, STORAGE
		return canonical.CodeInternal
	case 0x82: // BAD_GATEWAY
		return canonical.CodeBadUpstream
	case 0x83: // UNAVAILABLE
		return canonical.CodeUnavailable
	case 0x85, 0xC7: // VERSION, VERSION_MISMATCH
		return canonical.CodeUnsupportedVersion
	case 0xC0, 0xC1, 0xC4, 0xC5: // negotiation required, capability, transport, feature
		return canonical.CodeCapabilityRequired
	default:
		return canonical.CodeOther
	}
}
