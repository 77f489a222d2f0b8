package gateway

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/stream"
)

// The kinds of entry that the road keeps.
const (
	entryTask     = "task"     // a record
	entryMail     = "mail"     // what somebody else wants of whoever works on it
	entryQuestion = "question" // which work a question in a session belongs to
	entryHalt     = "halt"     // that a request of a session is to be stopped
	entryRunner   = "runner"   // who is alive
	entryPush     = "push"     // where changes are posted to
	entryCallback = "callback" // who is told what a human decides
	entryDecided  = "decided"  // what was
	entryUndone   = "undone"   // what came of a rollback
	entryShelf    = "shelf"    // what can be read of a task that was answered
)

// KindTask is the kind of the entries that hold tasks.
const KindTask = entryTask

const (
	recordLife = time.Hour // after its last change
	recordForm = 1         // of its JSON
)

// waiting says what it takes to go on with work that asks.
type waiting string

const (
	waitsNot   waiting = ""
	waitsTask  waiting = "task"  // a message to the agent's task
	waitsState waiting = "state" // the call again, with the answers
	waitsOpen  waiting = "open"  // the answers, to whoever holds the agent's stream
	waitsArgs  waiting = "args"  // arguments that the caller did not give (profile P3)
)

// record is a piece of work as it is kept for its caller, who alone may ask
// about it (R2). Its task is as the caller was told.
type record struct {
	Ended    bool `json:",omitempty"` // stands first, as state.EndedMark: where there is no space, the store drops it before its end
	Form     int
	Task     canonical.Task
	Said     *said        `json:",omitempty"` // the task as it was answered, in place of Task
	Re       canonical.Op `json:",omitempty"` // what that answered; empty: OpInvoke
	Agent    string       // directory name
	Binding  canonical.Binding
	TaskID   string `json:",omitempty"` // the agent's own, where it has one
	Context  string `json:",omitempty"`
	Workflow string
	Last     ect.ID            // of the ECT that testifies to it
	Legs     []ect.ID          `json:",omitempty"` // of the ECTs of its requests: evidence of the agent descends from one of them (R4)
	Heard    string            `json:",omitempty"` // hash of what the agent said
	Runner   string            `json:",omitempty"` // which process works on it; empty: none does
	Follower string            `json:",omitempty"` // which process hears of every change; empty: none does
	Box      string            `json:",omitempty"` // the mailbox of whoever works on it
	Waits    waiting           `json:",omitempty"`
	Round    int               `json:",omitempty"` // how many questions were answered
	State    string            `json:",omitempty"` // with waitsState: the agent's
	Call     *said             `json:",omitempty"` // the request, to be said again
	Skill    string            `json:",omitempty"` // what is called; empty: the caller's and the agent's names are the same
	Method   string            `json:",omitempty"` // of a request that only one protocol has; empty: it is a call or a message
	Native   json.RawMessage   `json:",omitempty"` // its result
	Source   canonical.Binding // the caller's protocol
	Pushes   bool              `json:",omitempty"` // somebody wants to be told of changes
	Held     bool              `json:",omitempty"` // the agent keeps its task in another way than its caller knows: it is told, and answered, here
	Lost     []canonical.Loss  `json:",omitempty"` // what the agent said that has no place in Task: log messages, chunks that are one part there
	Released time.Duration     `json:",omitempty"` // it was not followed any more after no change for so long; zero: it is, or never was
	Log      eventLog          `json:",omitzero"`  // what streams that are told from here must hear beside Task
	Changed  time.Time

	key      EntryKey
	revision uint64
}

func (r *record) saidTo() canonical.Op {
	if r.Re == "" {
		return canonical.OpInvoke
	}
	return r.Re
}

// said is a message in the caller's words, as it travelled: what is not in its
// octets is needed to read them.
type said struct {
	Version, Form string
	Media         string `json:",omitempty"` // empty: JSON
	Verb, Path    string `json:",omitempty"`
	Body          []byte
}

func saidIn(version, form string, w translators.Wire) *said {
	return &said{Version: version, Form: form, Media: w.Media, Verb: w.Verb, Path: w.Path, Body: w.Body}
}

func (s *said) wire(binding canonical.Binding, re canonical.Op) translators.Wire {
	return translators.Wire{
		Binding: binding, Version: s.Version, Form: s.Form, Media: cmp.Or(s.Media, "application/json"),
		Verb: s.Verb, Path: s.Path, Body: s.Body, Re: re,
	}
}

// brief is the task without what came of it, or what it asks.
func (r *record) brief() *canonical.Task {
	task := r.Task
	if task.Status.State.Terminal() || len(task.Inputs) > 0 {
		task.Output, task.Failure, task.Inputs, task.Artifacts = nil, nil, nil, nil
	}
	return &task
}

// leave: nobody here works on it any more. A question that only they could have
// passed the answer to is none then: whoever goes on with the agent's task asks again.
func (r *record) leave() {
	if r.Runner, r.Follower = "", ""; r.Waits == waitsOpen {
		r.Waits, r.Said, r.Round = waitsNot, nil, r.Round+1
		r.Task.Status, r.Task.Inputs = canonical.Status{State: canonical.StateWorking}, nil
	}
}

// theirs is the task that a question is about as the agent calls it, where the
// question says that beside its body too: that it has another name is no loss.
func (r *record) theirs(m *canonical.Message) string {
	if m.Conversation.TaskID == r.Task.ID {
		return r.TaskID
	}
	return m.Conversation.TaskID
}

func (r *record) own() canonical.Conversation {
	return canonical.Conversation{TaskID: r.Task.ID, ContextID: r.Task.ContextID}
}

func (r *record) agent() canonical.Conversation {
	return canonical.Conversation{TaskID: r.TaskID, ContextID: r.Context}
}

// taskKey names a record: it belongs to its caller and its agent.
func taskKey(caller identity.Caller, address, agent, id string) EntryKey {
	return EntryKey{Kind: entryTask, Group: owner(caller, address) + "\x00" + agent, ID: id}
}

// owner is whose work it is: callers without a name are told apart by address.
func owner(caller identity.Caller, address string) string {
	if caller.Anonymous {
		return string(caller.ID) + "@" + address
	}
	return string(caller.ID)
}

// owner is whose share of the store this exchange takes.
func (x *exchange) owner() string { return owner(x.call.Caller, x.call.Address) }

func (g *Gateway) keyOf(x *exchange, id string) EntryKey {
	return taskKey(x.call.Caller, x.call.Address, x.agent.Name, id)
}

// answered: it ended with an answer, and is kept like one.
func (r *record) answered() bool {
	return r != nil && r.revision == 0 && r.Said != nil && r.Task.Status.State.Terminal()
}

// mailKey is the entry in which others say what they want of a record's runner.
func (r *record) mailKey() EntryKey {
	return EntryKey{Kind: entryMail, Group: r.key.Group, ID: r.Box}
}

// newRecord begins the record of this exchange's work.
func (g *Gateway) newRecord(x *exchange, task *canonical.Task) *record {
	rec := &record{
		Form: recordForm, Task: *task, Agent: x.agent.Name, Binding: x.dest.Info().Binding, Source: x.source.Info().Binding,
		Workflow: x.workflow, Last: x.requestID, Legs: x.requestLegs(), key: g.keyOf(x, task.ID),
	}
	if x.chosen != nil {
		rec.Skill = x.chosen.ID
	}
	rec.Method = x.message.Method()
	return rec
}

// address says of an answer what it is an answer to, which it need not say again.
func (r *record) address(x *exchange) {
	if invoke, ok := x.message.Body.(*canonical.Invoke); ok && !x.relay() && invoke.Call == nil && x.message.To.Skill == "" {
		x.message.To.Skill = r.Skill
	}
}

// maxAsked bounds, in bytes, a request that is kept until a question about it is
// answered.
const maxAsked = 64 << 10

// asksAgain keeps the caller's request, which is to be said again with what it
// answers. What it said first stays. [translators.TooLongError]: it is too large.
func (r *record) asksAgain(x *exchange) error {
	if r.Call != nil {
		return nil
	}
	if len(x.call.Wire.Body) > maxAsked {
		return &translators.TooLongError{Reason: "there is a question about the request, which would have to be kept until the answer: send a request of at most 65536 bytes"}
	}
	r.Call = saidIn(x.message.Origin.Version, x.call.Wire.Form, x.call.Wire)
	return nil
}

// load finds a record of this caller's; nil: it has none of that name.
func (g *Gateway) load(ctx context.Context, key EntryKey) (*record, error) {
	if key.ID == "" || strings.ContainsRune(key.ID, 0) || len(key.ID) > maxTaskID {
		return nil, nil
	}
	entry, ok, err := g.Entries.Get(ctx, key)
	if err != nil {
		return nil, &problem.RecordingError{Err: err}
	}
	if !ok {
		return g.loadReply(ctx, key), nil
	}
	return g.readRecord(entry)
}

// maxTaskID bounds, in octets, the id of a task that a caller may name.
const maxTaskID = 256

var errRecord = errors.New("gateway: a record of work is unreadable")

func (g *Gateway) readRecord(entry Entry) (*record, error) {
	rec := &record{}
	if err := json.Unmarshal(entry.Value, rec); err != nil || rec.Form != recordForm {
		return nil, errRecord
	}
	rec.key, rec.revision = entry.Key, entry.Revision
	return rec, nil
}

// save writes a record; it is then known to every replica. False: somebody else
// has changed it meanwhile.
func (g *Gateway) save(ctx context.Context, rec *record) (bool, error) {
	rec.Changed, rec.Ended = g.Now(), rec.Task.Status.State.Terminal()
	if rec.Task.Status.At.IsZero() && rec.Source != rec.Binding {
		form, _ := g.Registry.Translator(rec.Source)
		if historian, ok := form.(translators.Historian); ok && historian.TellsHistory("") {
			rec.Task.Status.At = g.now()
		}
	}
	return g.write(ctx, rec)
}

// write puts a record into the store as it is, for recordLife from now.
func (g *Gateway) write(ctx context.Context, rec *record) (bool, error) {
	var value bytes.Buffer
	encoder := json.NewEncoder(&value)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(rec); err != nil {
		return false, errRecord
	}
	revision, ok, err := g.Entries.Swap(ctx, rec.key, rec.revision, value.Bytes(), g.Now().Add(recordLife))
	if err != nil {
		return false, &problem.RecordingError{Err: err}
	}
	if ok {
		rec.revision = revision
	}
	return ok, nil
}

// present is the record's task as it stands.
func (g *Gateway) present(rec *record) (*canonical.Task, error) {
	if rec.Said == nil {
		task := rec.Task
		return &task, nil
	}
	form, ok := g.Registry.Translator(rec.Source)
	if !ok {
		return nil, errRecord
	}
	m, err := g.read(form, rec.Said.wire(rec.Source, rec.saidTo()))
	if err != nil {
		return nil, errRecord
	}
	result, ok := m.Body.(*canonical.Result)
	switch {
	case !ok:
		return nil, errRecord
	case result.Task != nil:
		return result.Task, nil
	default:
		return stream.TaskOf(rec.Task.ID, rec.Task.ContextID, result), nil
	}
}

// full: there is no space for what was to be written.
func full(err error) bool {
	_, yes := errors.AsType[*state.FullError](err)
	return yes
}

// Bounds of an [eventLog]. What is larger than maxLoggedEvent is left out, and what
// does not fit any more takes the place of the oldest.
const (
	maxLogged      = 64
	maxLoggedBytes = 32 << 10
	maxLoggedEvent = 8 << 10
)

// eventLog is the newest events of work, as its record keeps them for streams that are
// told from there: all streams of a task have the same events in the same order (A2A
// 1.0 section 3.5.2). A task alone does not tell them: progress is no part of it, and
// of two messages of its status it has the second. What settles the work is not here;
// the task says that.
type eventLog struct {
	Count  int           `json:",omitempty"` // of all events so far
	Events []loggedEvent `json:",omitempty"` // the newest of them, oldest first
}

// loggedEvent is an event and its number: the first has 1.
type loggedEvent struct {
	Number int
	Event  json.RawMessage
}

// with is the log with more events. It shares no memory that either writes to.
func (l eventLog) with(events []canonical.Event) eventLog {
	kept := slices.Clone(l.Events)
	for i := range events {
		e := &events[i]
		if e.Progress == nil && e.Artifact == nil && (e.Status == nil || stream.Settled(e.Status.State)) {
			continue
		}
		raw, err := json.Marshal(e)
		small := err == nil && len(raw) <= maxLoggedEvent
		if !small && e.Artifact != nil {
			continue // the task has it
		}
		if l.Count++; small {
			kept = append(kept, loggedEvent{l.Count, raw})
		}
	}
	from, size := len(kept), 0
	for ; from > 0 && len(kept)-from < maxLogged; from-- {
		if size += len(kept[from-1].Event); size > maxLoggedBytes {
			break
		}
	}
	l.Events = slices.Clone(kept[from:])
	return l
}

// since is the events after one with this number; missed: that is not all of them.
func (l eventLog) since(number int) (events []canonical.Event, missed bool) {
	for _, logged := range l.Events {
		var e canonical.Event
		if logged.Number > number && json.Unmarshal(logged.Event, &e) == nil {
			events = append(events, e)
		}
	}
	return events, l.Count-number > len(events)
}

// pressing: of the events that were logged after the one with this number, so many may
// soon be replaced that they have to be put on record now.
func (l eventLog) pressing(number int) bool {
	count, size := 0, 0
	for _, logged := range l.Events {
		if logged.Number > number {
			count, size = count+1, size+len(logged.Event)
		}
	}
	return count >= maxLogged/2 || size >= maxLoggedBytes/2
}
