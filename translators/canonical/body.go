package canonical

import (
	"encoding/json"
	"time"
)

// Body is exactly one of the types below, by operation and phase:
//
//	OpInvoke       request *Invoke           response *Result
//	OpDescribe     request *DescribeRequest  response *Description
//	OpCapabilities request *Page             response *CapabilityList
//	OpTaskGet, OpTaskCancel, OpTaskResult
//	               request *TaskQuery        response *Result, or *Done where the protocol only acknowledges
//	OpTaskSubscribe request *TaskQuery       response none, or *Result
//	OpTaskAnswer   request *TaskQuery        response *Done
//	OpTaskList     request *TaskFilter       response *TaskList
//	OpPush         request *PushRequest      response *PushConfig, *PushList or *Done
//	OpAnswer       request *Reply            no response
//	OpAbort        request *Abort            no response
//	OpNative       request *Native           response *Native
//	OpRollback     request *Signal           response *Signal
//	OpDecision     request *Signal           response *Done
//	any            event   *Event
//	any            error   *Error
type Body interface{ extensions() *Extensions }

// ExtensionsOf is what a body holds beside its members for each protocol, to be
// read and set; nil: it holds nothing beside them, or there is no body.
func ExtensionsOf(b Body) *Extensions {
	if b == nil {
		return nil
	}
	return b.extensions()
}

func (b *Invoke) extensions() *Extensions          { return &b.Extensions }
func (b *Result) extensions() *Extensions          { return &b.Extensions }
func (b *DescribeRequest) extensions() *Extensions { return &b.Extensions }
func (b *Description) extensions() *Extensions     { return &b.Extensions }
func (b *Page) extensions() *Extensions            { return &b.Extensions }
func (b *CapabilityList) extensions() *Extensions  { return &b.Extensions }
func (e *Error) extensions() *Extensions           { return &e.Extensions }
func (b *TaskQuery) extensions() *Extensions       { return &b.Extensions }
func (b *TaskFilter) extensions() *Extensions      { return &b.Extensions }
func (b *TaskList) extensions() *Extensions        { return &b.Extensions }
func (b *Done) extensions() *Extensions            { return &b.Extensions }
func (b *Reply) extensions() *Extensions           { return &b.Extensions }
func (b *Abort) extensions() *Extensions           { return &b.Extensions }
func (b *Event) extensions() *Extensions           { return &b.Extensions }
func (b *Signal) extensions() *Extensions          { return &b.Extensions }
func (*PushRequest) extensions() *Extensions       { return nil }
func (*PushConfig) extensions() *Extensions        { return nil }
func (*PushList) extensions() *Extensions          { return nil }
func (*Native) extensions() *Extensions            { return nil }

// Invoke asks an agent to do something: a turn of content, a structured call,
// or both views of the same thing.
//
// A protocol of messages (A2A) always fills Turn, and fills Call as well when
// the turn is a typed invocation (profile P2). A protocol of calls (MCP) fills
// Call and leaves Turn empty (no parts). An encoder prefers its native view.
type Invoke struct {
	Turn       Content
	Call       *Call
	Answers    []Answer       // to what an earlier Result with Pending asked (MCP inputResponses)
	State      string         // Pending.State, echoed (MCP requestState)
	Push       *PushConfig    // settings that come with the request
	TTL        *time.Duration // how long a task that may come of it should be kept; nil: not said
	Extensions Extensions     // request-level leftovers, distinct from the turn's
}

// Call is a structured invocation.
type Call struct {
	Name string
	Args json.RawMessage `json:",omitempty"` // a JSON object; nil: absent, which is not {}
}

// Result answers an Invoke. Exactly one of Turn, Task, Output and Pending is set.
type Result struct {
	Turn       *Content // a direct reply without a task (A2A Message)
	Task       *Task    // a task snapshot (A2A Task, MCP CreateTaskResult)
	Output     *Output  // a call's direct output (MCP CallToolResult)
	Pending    *Pending // questions to answer first, where there is no task (MCP input_required)
	Extensions Extensions
}

// Output is what a tool returned.
type Output struct {
	Parts      []Part
	Structured json.RawMessage `json:",omitempty"` // any JSON value; nil: absent, which is not null
	Failed     bool            // MCP isError
	At         time.Time       `json:",omitzero"` // when it was returned; zero: not said
}

// State is the state of a task.
type State string

// The states of A2A; every other protocol's map into them.
const (
	StateUnknown       State = "unknown"
	StateSubmitted     State = "submitted"
	StateWorking       State = "working"
	StateInputRequired State = "input-required"
	StateAuthRequired  State = "auth-required"
	StateCompleted     State = "completed"
	StateFailed        State = "failed"
	StateRejected      State = "rejected"
	StateCanceled      State = "canceled"
)

// Terminal reports whether no further change can come.
func (s State) Terminal() bool {
	return s == StateCompleted || s == StateFailed || s == StateRejected || s == StateCanceled
}

// Task is a snapshot of a piece of work.
type Task struct {
	ID, ContextID string
	Status        Status
	Artifacts     []Artifact
	History       []Content
	Inputs        []Input        // what it asks, in StateInputRequired and StateAuthRequired
	Output        *Output        // its result, where the protocol keeps results of calls (MCP tasks); then there are no Artifacts
	Failure       *Error         // why it failed, where the protocol keeps an error (MCP tasks)
	Created       time.Time      // zero: not said
	TTL           *time.Duration // how long it is kept; nil: not said
	Poll          time.Duration  // how long to wait between two looks; zero: not said
	Extensions    Extensions
}

// Status is where a task stands.
type Status struct {
	State   State
	Message *Content
	At      time.Time // zero: not said
}

// Artifact is one result of a task.
type Artifact struct {
	ID, Name, Description string     `json:",omitzero"`
	Parts                 []Part     `json:",omitzero"`
	ExtensionURIs         []string   `json:",omitzero"`
	Extensions            Extensions `json:",omitzero"`
}

// DescribeRequest asks who a peer is: initialize, server/discover, a card.
type DescribeRequest struct {
	Versions   []string // the protocol versions that the asker offers, best first
	Client     Party
	Extensions Extensions
}

// Description is who an agent is and what it can do.
type Description struct {
	Name, Title, Version, Description, Instructions string
	DocumentationURL, IconURL                       string
	Provider                                        *Provider
	Interfaces                                      []Interface // where it is reached; stamped by the gateway when we answer for it
	Versions                                        []string    // protocol versions it speaks, best first
	InputModes, OutputModes                         []string
	Capabilities                                    []Capability
	Omitted                                         []Omission `json:",omitzero"` // what it lists and cannot be used
	Streams, Pushes, Tasks                          bool       // it can stream its work, push changes, and answer a call with a task
	Extended                                        bool       `json:",omitzero"` // it has a longer description for authenticated callers (A2A 3.1.11)
	Extensions                                      Extensions
}

// Provider is the organisation behind an agent.
type Provider struct{ Organization, URL string }

// Interface is one way to reach an agent.
type Interface struct {
	URL, Transport, Version, Tenant string // Transport: JSONRPC, GRPC, HTTP+JSON, or a binding URI
}

// Page asks for one page of a list.
type Page struct {
	Cursor     string
	Extensions Extensions
}

// CapabilityList is one page of tools or skills.
type CapabilityList struct {
	Capabilities []Capability
	Omitted      []Omission // what stands in the list and cannot be used
	Next         string     // cursor of the next page; empty: this was the last
	Extensions   Extensions
}

// Omission is a capability that an agent lists and that cannot be used as it is listed.
type Omission struct {
	Name   string // empty: it has none
	Reason string // where it is wrong, and what was expected there; never quotes the list
}

// Profile is the way a capability is invoked (reference: invocation profiles).
type Profile string

const (
	// ProfileMessage (P1) takes a message with files and data and answers with text and artifacts.
	ProfileMessage Profile = "message"
	// ProfileTyped (P2) takes arguments that match the capability's own schema.
	ProfileTyped Profile = "typed"
	// ProfilePrompt takes arguments that are texts and answers with messages (MCP prompts/get).
	ProfilePrompt Profile = "prompt"
	// ProfileResource takes a URI and answers with what is there (MCP resources/read).
	ProfileResource Profile = "resource"
	// ProfileResources answers with what can be read there (MCP resources/list).
	ProfileResources Profile = "resources"
)

// Content reports whether what is called is no skill of its owner, but content
// that it hands out.
func (p Profile) Content() bool {
	return p == ProfilePrompt || p == ProfileResource || p == ProfileResources
}

// Capability is one tool or skill.
type Capability struct {
	ID                 string // the owner's own name for it: tool name or skill id
	Title, Description string
	Profile            Profile
	InputSchema        json.RawMessage `json:",omitempty"` // nil: none declared
	OutputSchema       json.RawMessage `json:",omitempty"` // nil: none declared
	Annotations        json.RawMessage `json:",omitempty"` // MCP tool annotations: hints, never trusted
	Tags, Examples     []string
	InputModes         []string
	OutputModes        []string
	Extensions         Extensions
}

// Size is about how many bytes a capability takes in a list, without its extensions.
func (c *Capability) Size() int {
	size := 128 + len(c.ID) + len(c.Title) + len(c.Description) + len(c.InputSchema) + len(c.OutputSchema) + len(c.Annotations)
	for _, list := range [][]string{c.Tags, c.Examples, c.InputModes, c.OutputModes} {
		for _, text := range list {
			size += len(text)
		}
	}
	return size
}
