package mcp

// The methods of servers and clients beside those in mcp.go.
const (
	methodPromptsGet    = "prompts/get"
	methodPrompts       = "prompts/list"
	methodResources     = "resources/list"
	methodTemplates     = "resources/templates/list"
	methodResourcesRead = "resources/read"
	methodTaskGet       = "tasks/get"
	methodTaskList      = "tasks/list"
	methodTaskCancel    = "tasks/cancel"
	methodTaskResult    = "tasks/result"
	methodTaskUpdate    = "tasks/update"
	methodElicit        = "elicitation/create"

	noticeProgress  = "notifications/progress"
	noticeMessage   = "notifications/message"
	noticeCancelled = "notifications/cancelled"
)

// methods lists what a client may ask a server, by revision, from the official
// schemas; since and until are the first and the last revision that have it. A
// server asks its client the last three.
var methods = [...]struct{ name, since, until string }{
	{MethodCall, LegacyFirst, Modern},
	{MethodList, LegacyFirst, Modern},
	{MethodDiscover, Modern, Modern},
	{MethodInitialize, LegacyFirst, Legacy},
	{MethodPing, LegacyFirst, Legacy},
	{methodPrompts, LegacyFirst, Modern},
	{methodPromptsGet, LegacyFirst, Modern},
	{methodResources, LegacyFirst, Modern},
	{methodTemplates, LegacyFirst, Modern},
	{methodResourcesRead, LegacyFirst, Modern},
	{"completion/complete", LegacyFirst, Modern},
	{methodSetLevel, LegacyFirst, Legacy},
	{methodSubscribe, LegacyFirst, Legacy},
	{methodUnsubscribe, LegacyFirst, Legacy},
	{methodSubscriptions, Modern, Modern},
	{methodTaskGet, Legacy, Modern},
	{methodTaskCancel, Legacy, Modern},
	{methodTaskList, Legacy, Legacy},
	{methodTaskResult, Legacy, Legacy},
	{methodTaskUpdate, Modern, Modern},
	{methodElicit, "", ""},
	{"sampling/createMessage", "", ""},
	{"roots/list", "", ""},
}

// serves reports whether a revision has a method. One that no revision knows is
// somebody's own, and may be known to the agent.
func serves(version, method string) bool {
	for _, m := range methods {
		if m.name == method {
			return m.since != "" && m.since <= version && version <= m.until
		}
	}
	return method != ""
}

// notices lists the notifications of a server that not every revision has.
var notices = [...]struct{ name, since, until string }{
	{"notifications/elicitation/complete", Legacy, Legacy},
	{"notifications/tasks/status", Legacy, Legacy},
	{"notifications/tasks", Modern, Modern},
	{noticeAgreed, Modern, Modern},
}

func notifies(version, method string) bool {
	for _, n := range notices {
		if n.name == method {
			return n.since <= version && version <= n.until
		}
	}
	return true
}

// nameMember is the parameter that a modern request repeats in Mcp-Name; empty: none.
func nameMember(method string) string {
	switch method {
	case MethodCall, methodPromptsGet:
		return "name"
	case methodResourcesRead:
		return "uri"
	case methodTaskGet, methodTaskCancel, methodTaskUpdate:
		return "taskId"
	default:
		return ""
	}
}
