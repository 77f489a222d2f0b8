package canonical

import (
	"encoding/json"
	"time"
)

// TaskQuery asks something about one piece of work.
type TaskQuery struct {
	ID         string
	Answers    []Answer // OpTaskAnswer only
	Extensions Extensions
}

// TaskFilter asks for the pieces of work that match.
type TaskFilter struct {
	ContextID        string    // empty: of any dialogue
	State            State     // empty: in any state
	After            time.Time // zero: changed at any time
	Cursor           string
	Size             int   // of the page; zero: not said
	IncludeArtifacts *bool // nil: not said
	Extensions       Extensions
}

// TaskList is one page of tasks.
type TaskList struct {
	Tasks      []Task
	Next       string // cursor of the next page; empty: this was the last
	Size       int    // of the page, as the lister counts
	Total      int    // of all pages; zero: not said
	Extensions Extensions
}

// Done is an answer that says nothing but that it was done.
type Done struct{ Extensions Extensions }

// Abort stops one request.
type Abort struct {
	Request    json.RawMessage `json:",omitempty"` // its id on the wire, raw
	Reason     string
	Extensions Extensions
}

// Verb is what an OpPush does.
type Verb string

// The verbs of push notification settings.
const (
	VerbCreate Verb = "create"
	VerbGet    Verb = "get"
	VerbList   Verb = "list"
	VerbDelete Verb = "delete"
)

// PushRequest handles the push notification settings of a task.
type PushRequest struct {
	Verb       Verb
	Config     PushConfig // TaskID always; ID for get and delete; all of it for create
	Cursor     string     // of a list
	Size       int        // of a page; zero: not said
	Extensions Extensions
}

// PushConfig says where the changes of a task are posted to. The credentials
// are the webhook's, given by the caller for that very purpose; they never go
// to an agent.
type PushConfig struct {
	ID, TaskID  string
	URL         string
	Token       string // sent along with each notification
	Scheme      string // of the Authorization field: Bearer, Basic, …
	Credentials string
	Extensions  Extensions
}

// PushList is one page of settings.
type PushList struct {
	Configs    []PushConfig
	Next       string
	Extensions Extensions
}

// Native is something that only one protocol has, in its own words. In a
// request Params is set, in a response Result, in a notification Method and Params.
type Native struct {
	Method string
	Params json.RawMessage `json:",omitempty"` // nil: absent
	Result json.RawMessage `json:",omitempty"`

	Answers []Answer `json:",omitempty"` // to what the agent asked about the request, which this one repeats
	State   string   `json:",omitempty"` // what the agent gave its caller to bring back with them
}

// Method is the method of a request that only one protocol has; empty: it is none.
func (m *Message) Method() string {
	if n, ok := m.Body.(*Native); ok {
		return n.Method
	}
	return ""
}

// Over reports whether the work is over with m, a reply or an event: it has an outcome, and not only a task that goes on.
func (m *Message) Over() bool {
	switch body := m.Body.(type) {
	case *Result:
		return body.Task == nil || body.Task.Status.State.Terminal()
	case *Event:
		return body.Turn != nil || body.Status != nil && body.Status.State.Terminal() || body.Task != nil && body.Task.Status.State.Terminal()
	}
	return true
}
