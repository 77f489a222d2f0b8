package a2a

import (
	"github.com/aepb/aepb-gateway/translators/a2a/internal/a2a03"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// operation is one thing that a peer can be asked, with its names in both
// versions (A2A 5.3). One without a name does not exist in that version.
type operation struct {
	op        canonical.Op
	verb      canonical.Verb // of OpPush
	stream    bool           // it is answered with a stream
	name, old string
	members   []string // of its request
	read      func(*decoder, *canonical.Message, *reader)
	params    a2a03.Words // that it is asked in
}

// The names of the operations, in 1.0 and in 0.3.
const (
	methodSend      = "SendMessage"
	methodSend03    = "message/send"
	methodCard      = "GetExtendedAgentCard"
	methodCard03    = "agent/getAuthenticatedExtendedCard"
	methodList      = "ListTasks"
	methodSubscribe = "SubscribeToTask"
)

// operationTable lists all that there is.
var operationTable = [...]operation{
	{canonical.OpInvoke, "", false, methodSend, methodSend03, requestMembers, readSend, a2a03.Sending},
	{canonical.OpInvoke, "", true, "SendStreamingMessage", "message/stream", requestMembers, readSend, a2a03.Sending},
	{canonical.OpTaskGet, "", false, "GetTask", "tasks/get", queryMembers, readQuery, a2a03.TaskQuery},
	{canonical.OpTaskList, "", false, methodList, "", filterMembers, readFilter, a2a03.TaskQuery},
	{canonical.OpTaskCancel, "", false, "CancelTask", "tasks/cancel", queryMembers, readQuery, a2a03.TaskQuery},
	{canonical.OpTaskSubscribe, "", true, methodSubscribe, "tasks/resubscribe", queryMembers, readQuery, a2a03.TaskQuery},
	{canonical.OpPush, canonical.VerbCreate, false, "CreateTaskPushNotificationConfig", "tasks/pushNotificationConfig/set", pushMembers, readPushCreate, a2a03.Setting},
	{canonical.OpPush, canonical.VerbGet, false, "GetTaskPushNotificationConfig", "tasks/pushNotificationConfig/get", pushMembers, readPushOne(canonical.VerbGet), a2a03.Finding},
	{canonical.OpPush, canonical.VerbList, false, "ListTaskPushNotificationConfigs", "tasks/pushNotificationConfig/list", pushListMembers, readPushList, a2a03.Finding},
	{canonical.OpPush, canonical.VerbDelete, false, "DeleteTaskPushNotificationConfig", "tasks/pushNotificationConfig/delete", pushMembers, readPushOne(canonical.VerbDelete), a2a03.Finding},
	{canonical.OpNative, "", false, methodCard, methodCard03, nil, nil, a2a03.TaskQuery},
}

// nameIn is the operation's name in a version; "": it has none there.
func (o operation) nameIn(version string) string {
	if version == Version03 {
		return o.old
	}
	return o.name
}

// operationOf finds an operation by its name in a version; nil: there is none.
func operationOf(method, version string) *operation {
	for i := range operationTable {
		if o := operationTable[i]; method != "" && o.nameIn(version) == method {
			return new(o)
		}
	}
	return nil
}

// asks finds the operation that a message asks for; nil: A2A has none.
func asks(m *canonical.Message, stream bool) *operation {
	push, _ := m.Body.(*canonical.PushRequest)
	for i := range operationTable {
		if o := operationTable[i]; o.op == m.Op && (o.op != canonical.OpInvoke || o.stream == stream) && (push == nil || o.verb == push.Verb) {
			return new(o)
		}
	}
	return nil
}

// answers is how the reply to an operation differs between the versions.
func answers(re canonical.Op, event bool) a2a03.Words {
	switch {
	case event:
		return a2a03.Streamed
	case re == canonical.OpTaskGet, re == canonical.OpTaskCancel, re == canonical.OpTaskResult:
		return a2a03.Tasked
	case re == canonical.OpTaskList:
		return a2a03.Listed
	case re == canonical.OpPush:
		return a2a03.Pushed
	default:
		return a2a03.Sent
	}
}

func noCounterpart(m *canonical.Message) error {
	return &canonical.Error{Code: canonical.CodeUnsupportedOp, Message: "A2A has no counterpart of " + string(m.Op)}
}
