package slim

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/aepb/aepb-gateway/gateway/transport/slim/rpc"
)

// jsonError is an error of A2A in JSON-RPC.
type jsonError struct {
	Code    int64           `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// lastStatus is the highest status of SLIMRPC; those of HTTP begin above it.
const lastStatus = 16

// failure is one error in both words (A2A over SLIMRPC, error mapping): the
// reason that JSON-RPC gives, SLIMRPC's status, and the name before its text.
type failure struct {
	reason, domain string
	number         int64
	status         rpc.Code
	name           string
}

const (
	domainA2A  = "a2a-protocol.org"
	domainOurs = "urn:aepb:translation:1"
	typeInfo   = "type.googleapis.com/google.rpc.ErrorInfo"
)

// failures lists the errors of A2A. The first one of a status is the meaning of that status alone.
var failures = [...]failure{
	{"INVALID_PARAMS", domainA2A, -32602, rpc.InvalidArgument, "InvalidParamsError"},
	{"INVALID_REQUEST", domainOurs, -32600, rpc.InvalidArgument, "InvalidRequestError"},
	{"HEADER_MISMATCH", domainOurs, -32600, rpc.InvalidArgument, "HeaderMismatchError"},
	{"SKILL_NOT_FOUND", domainOurs, -32602, rpc.NotFound, "SkillNotFoundError"},
	{"RESOURCE_NOT_FOUND", domainOurs, -32602, rpc.NotFound, "ResourceNotFoundError"},
	{"TASK_NOT_FOUND", domainA2A, -32001, rpc.NotFound, "TaskNotFoundError"},
	{"TASK_NOT_CANCELABLE", domainA2A, -32002, 9, "TaskNotCancelableError"},
	{"METHOD_NOT_FOUND", domainOurs, -32601, rpc.Unimplemented, "MethodNotFoundError"},
	{"PUSH_NOTIFICATION_NOT_SUPPORTED", domainA2A, -32003, rpc.Unimplemented, "PushNotificationNotSupportedError"},
	{"UNSUPPORTED_OPERATION", domainA2A, -32004, rpc.Unimplemented, "UnsupportedOperationError"},
	{"CONTENT_TYPE_NOT_SUPPORTED", domainA2A, -32005, rpc.Unimplemented, "ContentTypeNotSupportedError"},
	{"VERSION_NOT_SUPPORTED", domainA2A, -32009, rpc.Unimplemented, "VersionNotSupportedError"},
	{"EXTENDED_AGENT_CARD_NOT_CONFIGURED", domainA2A, -32007, 9, "ExtendedAgentCardNotConfiguredError"},
	{"EXTENSION_SUPPORT_REQUIRED", domainA2A, -32008, 9, "ExtensionSupportRequiredError"},
	{"INTERNAL", domainOurs, -32603, rpc.Internal, "InternalError"},
	{"INVALID_AGENT_RESPONSE", domainA2A, -32006, rpc.Internal, "InvalidAgentResponseError"},
	{"PARSE", domainOurs, -32700, rpc.Internal, "JSONParseError"},
	{"TIMEOUT", domainOurs, -32603, rpc.DeadlineExceeded, "TimeoutError"},
	{"RATE_LIMITED", domainOurs, -32603, rpc.ResourceExhausted, "RateLimitedError"},
	{"UNAVAILABLE", domainOurs, -32603, rpc.Unavailable, "UnavailableError"},
	{"UNAUTHENTICATED", domainOurs, -31401, 16, "UnauthenticatedError"},
	{"FORBIDDEN", domainOurs, -31403, 7, "ForbiddenError"},
	{"OTHER", domainOurs, -32603, rpc.Unknown, "UnknownError"},
}

// statusOf is status of an error that is JSON still.
func statusOf(raw json.RawMessage) (int, []byte, error) {
	var e jsonError
	err := json.Unmarshal(raw, &e)
	status, text := e.status()
	return status, text, err
}

// status is how SLIMRPC says an error.
func (e *jsonError) status() (int, []byte) {
	var details []struct {
		Reason string `json:"reason"`
	}
	reason := ""
	if json.Unmarshal(e.Data, &details) == nil && len(details) > 0 {
		reason = details[0].Reason
	}
	found := failures[len(failures)-1]
	for _, f := range failures {
		if f.reason == reason || reason == "" && f.number == e.Code {
			found = f
			break
		}
	}
	return int(found.status), []byte(found.name + ": " + e.Message)
}

// failureOf reads what SLIMRPC says: by the name, which A2A puts before the
// text, else by the status.
func failureOf(status int, text string) *jsonError {
	name, rest, named := strings.Cut(text, ":")
	found := failures[len(failures)-1]
	for _, f := range failures {
		if named && f.name == name && int(f.status) == status {
			found, text = f, strings.TrimPrefix(rest, " ")
			break
		}
		if int(f.status) == status && int(found.status) != status {
			found = f
		}
	}
	data, err := json.Marshal([]map[string]string{{"@type": typeInfo, "reason": found.reason, "domain": found.domain}})
	if err != nil {
		data = nil
	}
	if strings.ToValidUTF8(text, "") != text {
		text = "the agent failed"
	}
	return &jsonError{found.number, text, data}
}

// inWords reports whether the text of a status begins with the name of an error of A2A: then
// the agent wrote it, and not the server that takes its calls.
func inWords(text string) bool {
	name, _, named := strings.Cut(text, ":")
	return named && slices.ContainsFunc(failures[:], func(f failure) bool { return f.name == name })
}
