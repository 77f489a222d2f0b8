package store

import (
	"cmp"
	"encoding/json"
	"errors"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// RecordForm is the version of the JSON of stored values.
const RecordForm = 1

// RecordLife is how long a record is kept after its last change.
const RecordLife = time.Hour

// approvalLife is how long the record of a call is kept that waits for humans: they have a day, and once more as
// long where operators are told again; what they granted holds for a day.
const approvalLife = 3*24*time.Hour + RecordLife

// life is how long the record is kept from now.
func (r *Record) life() time.Duration {
	if r.Resume == ResumeApproval {
		return approvalLife
	}
	return RecordLife
}

// ErrUnreadable: a stored record is not what this version writes.
var ErrUnreadable = errors.New("task: a record of work is unreadable")

// Record is a piece of work as it is kept for its caller, who alone may ask about it
// (R2). The order of the fields is the order of the stored JSON.
type Record struct {
	AsTold
	AgentSide
	Proof
	Ownership
	OpenInput
	Origin

	Pushes    bool             `json:",omitempty"`     // changes of the task are posted
	Converted bool             `json:"Held,omitempty"` // the agent keeps its task in another way than its caller knows: the record tells it, and takes answers
	Losses    []canonical.Loss `json:"Lost,omitempty"` // what the agent said that has no place in Task: log messages, chunks that are one part there
	Released  time.Duration    `json:",omitempty"`     // the work was not followed any more after no change for so long; zero: it is, or never was
	Log       EventLog         `json:",omitzero"`      // what streams that are told from the record must hear beside Task
	Changed   time.Time

	Key      EntryKey `json:"-"`
	Revision uint64   `json:"-"` // in the store; 0: not saved yet, or kept like a reply
}

// AsTold is the task as its caller was told.
type AsTold struct {
	Ended bool `json:",omitempty"` // stands first, as state.EndedMark: where there is no space, the store evicts it before its end
	Form  int
	Task  canonical.Task
	Saved *SavedMessage `json:"Said,omitempty"` // the task as it was answered, in place of Task
	Re    canonical.Op  `json:",omitempty"`     // what that answered; empty: OpInvoke
}

// AgentSide is the work as the agent knows it.
type AgentSide struct {
	Agent   string // name in the directory
	Binding canonical.Binding
	TaskID  string `json:",omitempty"` // the agent's own, where it has one
	Context string `json:",omitempty"` // the agent's name of the dialogue
}

// Proof is the evidence of the work.
type Proof struct {
	Workflow string
	Last     ect.ID   // of the ECT that testifies to the record
	Requests []ect.ID `json:"Legs,omitempty"`  // of the ECTs of its requests: evidence of the agent descends from one of them (R4)
	Input    string   `json:"Heard,omitempty"` // hash of what the agent said
}

// Ownership says which replicas work on it.
type Ownership struct {
	Runner   string `json:",omitempty"`    // the replica that works on it; empty: none does
	Follower string `json:",omitempty"`    // the replica that hears of every change; empty: none does
	Queue    string `json:"Box,omitempty"` // id of the queue of control messages of that replica
	Writer   string `json:",omitempty"`    // the replica that wrote its state last, and posts that; empty: not known
}

// Origin is the request that began the work.
type Origin struct {
	Skill  string            `json:",omitempty"` // what is called; empty: the caller's and the agent's names are the same
	Method string            `json:",omitempty"` // of a request that only one protocol has; empty: it is a call or a message
	Native json.RawMessage   `json:",omitempty"` // its result
	Source canonical.Binding // the caller's protocol
}

// AnswersTo is the operation that the saved message answered.
func (r *Record) AnswersTo() canonical.Op { return cmp.Or(r.Re, canonical.OpInvoke) }

// Brief is the task without its result, and without what it asks.
func (r *Record) Brief() *canonical.Task {
	task := r.Task
	if task.Status.State.Terminal() || len(task.Inputs) > 0 {
		task.Output, task.Failure, task.Inputs, task.Artifacts = nil, nil, nil, nil
	}
	return &task
}

// Release says that no replica works on it any more. A question that only the released
// replica could have passed the answer to is dropped: whichever replica goes on with the
// agent's task asks again.
func (r *Record) Release() {
	if r.Runner, r.Follower = "", ""; r.Resume == ResumeStream {
		r.Resume, r.Saved, r.Round, r.Again = ResumeNone, nil, r.Round+1, 0
		r.Task.Status, r.Task.Inputs = canonical.Status{State: canonical.StateWorking}, nil
	}
}

// AgentTaskOf is the task that a message is about as the agent names it. A message may
// name the task beside its body too.
func (r *Record) AgentTaskOf(m *canonical.Message) string {
	if m.Conversation.TaskID == r.Task.ID {
		return r.TaskID
	}
	return m.Conversation.TaskID
}

// CallerNames are the ids of the task and its dialogue as the caller knows them.
func (r *Record) CallerNames() canonical.Conversation {
	return canonical.Conversation{TaskID: r.Task.ID, ContextID: r.Task.ContextID}
}

// AgentNames are the ids of the task and its dialogue as the agent knows them.
func (r *Record) AgentNames() canonical.Conversation {
	return canonical.Conversation{TaskID: r.TaskID, ContextID: r.Context}
}

// IsActive reports whether a replica works on it, or hears of its changes.
func (r *Record) IsActive() bool {
	return !r.Task.Status.State.Terminal() && (r.Runner != "" || r.Follower != "")
}

// IsReply reports whether the work ended with its first reply, and is kept like one.
func (r *Record) IsReply() bool {
	return r != nil && r.Revision == 0 && r.Saved != nil && r.Task.Status.State.Terminal()
}

// SavedMessage is a message in the caller's words, as it travelled. What is not in its
// bytes is needed to read them.
type SavedMessage struct {
	Version, Form string
	Media         string `json:",omitempty"` // empty: JSON
	Verb, Path    string `json:",omitempty"`
	Body          []byte
	Tenanted      bool `json:",omitempty"` // its tenant is the gateway's name for the agent
}

// SaveMessage is a wire message of a version and form as a SavedMessage.
func SaveMessage(version, form string, w translators.Wire) *SavedMessage {
	return &SavedMessage{Version: version, Form: form, Media: w.Media, Verb: w.Verb, Path: w.Path, Body: w.Body}
}

// Wire is the message as a codec reads it: of a binding, answering re.
func (s *SavedMessage) Wire(binding canonical.Binding, re canonical.Op) translators.Wire {
	return translators.Wire{
		Binding: binding, Version: s.Version, Form: s.Form, Media: cmp.Or(s.Media, "application/json"),
		Verb: s.Verb, Path: s.Path, Body: s.Body, Re: re,
	}
}

// Principal is a caller as it is remembered, for what is done for it after it was answered.
type Principal struct {
	Caller    ect.Identity
	Anonymous bool   `json:",omitempty"`
	Attested  bool   `json:",omitempty"` // it came with an ECT
	Address   string `json:",omitempty"`
	Version   string // of its protocol
	Form      string
}
