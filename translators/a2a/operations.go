package a2a

import (
	"encoding/json"

	"github.com/aepb/aepb-gateway/translators"
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
	params    words // that it is asked in
}

// bridge turns what a peer says between the versions; each way has its own for
// the HTTP form of 0.3.
type bridge struct {
	up, upHTTP     func(json.RawMessage, string) (json.RawMessage, []canonical.Loss, error)
	down, downHTTP func(json.RawMessage) (json.RawMessage, []canonical.Loss)
}

// words are what is said differently in the versions.
type words int

const (
	sending words = iota // a message
	asked                // a question about tasks
	setting              // settings to keep
	finding              // which settings
	sent                 // the reply to a message
	told                 // an event
	tasked               // a task that stands alone
	listed               // a page of tasks
	pushed               // what was answered about settings
)

// bridges is how words are turned.
var bridges = [...]bridge{
	sending: {a2a03.RaiseRequest, a2a03.RaiseRequestHTTP, a2a03.LowerRequest, a2a03.LowerRequestHTTP},
	asked:   {a2a03.RaiseParams, a2a03.RaiseParams, a2a03.LowerParams, a2a03.LowerParamsHTTP},
	setting: {a2a03.RaisePush, a2a03.RaisePushHTTP, a2a03.LowerPush, a2a03.LowerPushHTTP},
	finding: {a2a03.RaisePushQuery, a2a03.RaisePushQuery, a2a03.LowerPushQuery, a2a03.LowerPushQueryHTTP},
	told:    {a2a03.RaiseEvent, a2a03.RaiseEventHTTP, a2a03.LowerEvent, a2a03.LowerEventHTTP},
	tasked:  {a2a03.RaiseTask, a2a03.RaiseTaskHTTP, a2a03.LowerTask, a2a03.LowerTaskHTTP},
	listed:  {a2a03.RaiseTasks, a2a03.RaiseTasksHTTP, a2a03.LowerTasks, a2a03.LowerTasksHTTP},
	pushed:  {a2a03.RaisePushResult, a2a03.RaisePushResultHTTP, a2a03.LowerPushResult, a2a03.LowerPushResultHTTP},
	sent:    {a2a03.RaiseResult, a2a03.RaiseResultHTTP, a2a03.LowerResult, a2a03.LowerResultHTTP},
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
	{canonical.OpInvoke, "", false, methodSend, methodSend03, requestMembers, readSend, sending},
	{canonical.OpInvoke, "", true, "SendStreamingMessage", "message/stream", requestMembers, readSend, sending},
	{canonical.OpTaskGet, "", false, "GetTask", "tasks/get", queryMembers, readQuery, asked},
	{canonical.OpTaskList, "", false, methodList, "", filterMembers, readFilter, asked},
	{canonical.OpTaskCancel, "", false, "CancelTask", "tasks/cancel", queryMembers, readQuery, asked},
	{canonical.OpTaskSubscribe, "", true, methodSubscribe, "tasks/resubscribe", queryMembers, readQuery, asked},
	{canonical.OpPush, canonical.VerbCreate, false, "CreateTaskPushNotificationConfig", "tasks/pushNotificationConfig/set", pushMembers, readPushCreate, setting},
	{canonical.OpPush, canonical.VerbGet, false, "GetTaskPushNotificationConfig", "tasks/pushNotificationConfig/get", pushMembers, readPushGet, finding},
	{canonical.OpPush, canonical.VerbList, false, "ListTaskPushNotificationConfigs", "tasks/pushNotificationConfig/list", pushListMembers, readPushList, finding},
	{canonical.OpPush, canonical.VerbDelete, false, "DeleteTaskPushNotificationConfig", "tasks/pushNotificationConfig/delete", pushMembers, readPushDelete, finding},
	{canonical.OpNative, "", false, methodCard, methodCard03, nil, nil, asked},
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

// raiser of a form.
func (b bridge) raiser(form string) func(json.RawMessage, string) (json.RawMessage, []canonical.Loss, error) {
	return inForm(form, b.up, b.upHTTP)
}

// lowerer of a form.
func (b bridge) lowerer(form string) func(json.RawMessage) (json.RawMessage, []canonical.Loss) {
	return inForm(form, b.down, b.downHTTP)
}

// answers is how the reply to an operation differs between the versions.
func answers(re canonical.Op, event bool) words {
	switch {
	case event:
		return told
	case re == canonical.OpTaskGet, re == canonical.OpTaskCancel, re == canonical.OpTaskResult:
		return tasked
	case re == canonical.OpTaskList:
		return listed
	case re == canonical.OpPush:
		return pushed
	default:
		return sent
	}
}

func noCounterpart(m *canonical.Message) error {
	return &canonical.Error{Code: canonical.CodeUnsupportedOp, Message: "A2A has no counterpart of " + string(m.Op)}
}

func unsaid(what string) error {
	return &translators.MalformedError{Path: "/result", Reason: what}
}
