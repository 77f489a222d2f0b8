package a2a

import (
	"strings"

	form "github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// routeSend is the place of the one operation that is served over HTTP (A2A
// 5.3); in 0.3 all places are below another.
const (
	routeSend = "/message:send"
	places03  = "/v1"
)

// place tells the versions of the HTTP form apart by where a request goes.
// version is empty for 1.0, which a header may say as well.
func place(rest string) (route, version string) {
	if route, old := strings.CutPrefix(rest, places03); old && strings.HasPrefix(route, "/") {
		return route, form.Version03
	}
	return rest, ""
}

// unserved says what an operation is that has a place in the HTTP form and is
// not served there. Any other place is none.
func unserved(route, version string) *canonical.Error {
	say := func(code canonical.Code, message string) *canonical.Error {
		return &canonical.Error{Code: code, Message: message}
	}
	another := "/extendedAgentCard"
	if version == form.Version03 {
		another = "/card"
	}
	task, isTask := strings.CutPrefix(route, "/tasks")
	switch {
	case isTask && strings.Contains(task, "/pushNotificationConfigs"):
		return say(canonical.CodePushUnsupported, "this agent sends no push notifications")
	case isTask && (task == "" || task[0] == '/'), route == "/message:stream":
		return say(canonical.CodeUnsupportedOp, "this agent does not serve that operation")
	case route == another:
		return say(canonical.CodeCardUnavailable, "this agent has no other card")
	default:
		return say(canonical.CodeNoMethod, "no such operation")
	}
}
