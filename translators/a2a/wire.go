package a2a

import (
	"net/http"
	"strings"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Binding is the registered identifier of A2A (AEPB, IANA Considerations).
const Binding canonical.Binding = "a2a-v1"

// Version is the protocol version that this package speaks.
const Version = "1.0"

// Media is the media type of a JSON-RPC body.
const Media = "application/json"

// The header fields of the protocol (A2A 3.2.6).
const (
	HeaderVersion    = "A2A-Version"
	HeaderExtensions = "A2A-Extensions"
)

// methodSend is the one method that this package serves.
const methodSend = "SendMessage"

// Translator is the codec. It is immutable.
type Translator struct{ cfg translators.Config }

var _ translators.Translator = (*Translator)(nil)

// New returns a codec with the given bounds.
func New(cfg translators.Config) *Translator { return &Translator{cfg: cfg.WithDefaults()} }

// Info describes the protocol.
func (t *Translator) Info() translators.Info {
	return translators.Info{
		Binding: Binding, Name: "A2A", Versions: []string{Version}, Media: []string{Media},
		BodyLimit: t.cfg.BodyLimit, Depth: t.cfg.Depth,
	}
}

// refusals are the methods that exist and are not served.
var refusals = map[string]canonical.Code{
	"SendStreamingMessage":             canonical.CodeUnsupportedOp,
	"GetTask":                          canonical.CodeUnsupportedOp,
	"ListTasks":                        canonical.CodeUnsupportedOp,
	"CancelTask":                       canonical.CodeUnsupportedOp,
	"SubscribeToTask":                  canonical.CodeUnsupportedOp,
	"CreateTaskPushNotificationConfig": canonical.CodePushUnsupported,
	"GetTaskPushNotificationConfig":    canonical.CodePushUnsupported,
	"ListTaskPushNotificationConfigs":  canonical.CodePushUnsupported,
	"DeleteTaskPushNotificationConfig": canonical.CodePushUnsupported,
	"GetExtendedAgentCard":             canonical.CodeCardUnavailable,
	// A2A 0.3
	"message/send":                        canonical.CodeUnsupportedVersion,
	"message/stream":                      canonical.CodeUnsupportedVersion,
	"tasks/get":                           canonical.CodeUnsupportedVersion,
	"tasks/cancel":                        canonical.CodeUnsupportedVersion,
	"tasks/resubscribe":                   canonical.CodeUnsupportedVersion,
	"tasks/pushNotificationConfig/set":    canonical.CodeUnsupportedVersion,
	"tasks/pushNotificationConfig/get":    canonical.CodeUnsupportedVersion,
	"tasks/pushNotificationConfig/list":   canonical.CodeUnsupportedVersion,
	"tasks/pushNotificationConfig/delete": canonical.CodeUnsupportedVersion,
	"agent/getAuthenticatedExtendedCard":  canonical.CodeUnsupportedVersion,
}

// The members of each object (specification/a2a.proto of 1.0).
var (
	requestMembers   = []string{"tenant", "message", "configuration", "metadata"}
	configMembers    = []string{"acceptedOutputModes", "historyLength", "returnImmediately", "taskPushNotificationConfig"}
	messageMembers   = []string{"messageId", "role", "parts", "metadata", "extensions", "contextId", "taskId", "referenceTaskIds"}
	partMembers      = []string{"text", "raw", "url", "data", "metadata", "filename", "mediaType"}
	responseMembers  = []string{"task", "message"}
	taskMembers      = []string{"id", "contextId", "status", "artifacts", "history", "metadata"}
	statusMembers    = []string{"state", "message", "timestamp"}
	artifactMembers  = []string{"artifactId", "name", "description", "parts", "metadata", "extensions"}
	errorMembers     = []string{"code", "message", "data"}
	cardMembers      = []string{"name", "description", "supportedInterfaces", "provider", "version", "documentationUrl", "capabilities", "securitySchemes", "securityRequirements", "defaultInputModes", "defaultOutputModes", "skills", "signatures", "iconUrl"}
	skillMembers     = []string{"id", "name", "description", "tags", "examples", "inputModes", "outputModes", "securityRequirements"}
	interfaceMembers = []string{"url", "protocolBinding", "tenant", "protocolVersion"}
	providerMembers  = []string{"organization", "url"}
)

// enum is a canonical value with its name and number in the protocol.
type enum struct {
	value, name, number string
}

var roles = []enum{
	{string(canonical.RoleCaller), "ROLE_USER", "1"},
	{string(canonical.RoleAgent), "ROLE_AGENT", "2"},
}

var states = []enum{
	{string(canonical.StateUnknown), "TASK_STATE_UNSPECIFIED", "0"},
	{string(canonical.StateSubmitted), "TASK_STATE_SUBMITTED", "1"},
	{string(canonical.StateWorking), "TASK_STATE_WORKING", "2"},
	{string(canonical.StateCompleted), "TASK_STATE_COMPLETED", "3"},
	{string(canonical.StateFailed), "TASK_STATE_FAILED", "4"},
	{string(canonical.StateCanceled), "TASK_STATE_CANCELED", "5"},
	{string(canonical.StateInputRequired), "TASK_STATE_INPUT_REQUIRED", "6"},
	{string(canonical.StateRejected), "TASK_STATE_REJECTED", "7"},
	{string(canonical.StateAuthRequired), "TASK_STATE_AUTH_REQUIRED", "8"},
}

// traceFields are the W3C headers that go along with a message.
func traceFields(t *canonical.Trace) []struct {
	name string
	at   *string
} {
	return []struct {
		name string
		at   *string
	}{{"Traceparent", &t.Parent}, {"Tracestate", &t.State}, {"Baggage", &t.Baggage}}
}

// joined is a field's value with its lines put together (RFC 9110 5.3).
func joined(h http.Header, name string) string { return strings.Join(h.Values(name), ", ") }

// sayable reports whether text may stand in a header field.
func sayable(text string) bool {
	for i := 0; i < len(text); i++ {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return text != ""
}
