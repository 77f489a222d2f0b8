package a2a

import (
	"strings"

	form "github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// routeSend is the place of the one operation that is served over HTTP (A2A 5.3).
const routeSend = "/message:send"

// old is where 0.3 has the places of its own HTTP form.
const old = "/v1"

// unserved says what an operation is that has a place in the HTTP form and is
// not served there. Any other place is none.
func unserved(rest string) *canonical.Error {
	say := func(code canonical.Code, message string) *canonical.Error {
		return &canonical.Error{Code: code, Message: message}
	}
	route, versioned := strings.CutPrefix(rest, old)
	task, isTask := strings.CutPrefix(route, "/tasks")
	switch {
	case versioned && strings.HasPrefix(route, "/"):
		return say(canonical.CodeUnsupportedVersion, "this agent speaks A2A "+form.Version03+" over JSON-RPC only")
	case isTask && strings.Contains(task, "/pushNotificationConfigs"):
		return say(canonical.CodePushUnsupported, "this agent sends no push notifications")
	case isTask && (task == "" || task[0] == '/'), rest == "/message:stream":
		return say(canonical.CodeUnsupportedOp, "this agent does not serve that operation")
	case rest == "/extendedAgentCard":
		return say(canonical.CodeCardUnavailable, "this agent has no other card")
	default:
		return say(canonical.CodeNoMethod, "no such operation")
	}
}
