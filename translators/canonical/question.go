package canonical

import "encoding/json"

// Mode is how a question is asked.
type Mode string

// The modes of a question.
const (
	ModeText   Mode = "text"   // free text in, free text out
	ModeForm   Mode = "form"   // the answer matches Input.Schema (MCP elicitation, form mode)
	ModeURL    Mode = "url"    // the user acts at Input.URL; nothing secret passes here
	ModeNative Mode = "native" // a request that only one protocol has (MCP sampling, roots)
)

// What a sender can be asked of [ModeNative], each said apart (MCP, client capabilities).
// They stand in Preferences.CanAnswer alone: a question itself has ModeNative.
const (
	ModeSampling Mode = "sampling"
	ModeRoots    Mode = "roots"
)

// Input is one question of an agent.
type Input struct {
	Key        string // names it among the questions asked at once
	Mode       Mode
	Prompt     []Part
	Schema     json.RawMessage `json:",omitempty"` // ModeForm: a flat object schema, raw
	URL        string          // ModeURL
	Native     *Native         // ModeNative
	Extensions Extensions
}

// Action is what became of a question.
type Action string

// The actions of an answer.
const (
	Accept  Action = "accept"
	Decline Action = "decline" // the user said no
	Cancel  Action = "cancel"  // the user did not say anything
)

// Answer is the answer to one question.
type Answer struct {
	Key        string
	Action     Action
	Implied    bool            `json:",omitempty"` // the message gives values and no action: they accept what requires some
	Value      json.RawMessage `json:",omitempty"` // ModeForm: an object; ModeNative: the result
	Parts      []Part          // ModeText
	Extensions Extensions
}

// Pending is what stands between a call and its result.
type Pending struct {
	Inputs []Input
	State  string // opaque; comes back as Invoke.State
}

// Ask is a question in the middle of a stream, which stays open for the answer
// (a request of a legacy MCP server).
type Ask struct {
	ID    json.RawMessage `json:",omitempty"` // under which the answer is awaited, raw
	Input Input
}

// Reply answers an Ask.
type Reply struct {
	ID         json.RawMessage `json:",omitempty"` // Ask.ID
	Answer     Answer
	Failure    *Error // in place of an answer
	Extensions Extensions
}
