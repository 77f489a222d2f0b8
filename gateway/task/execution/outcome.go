package execution

import (
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/stream"
)

// outcome is what came so far, and what ended it.
type outcome struct {
	fold      stream.Folder
	over      bool               // verbatim: the agent has ended its stream, and properly
	asTask    bool               // it became a task of the agent's that the caller knows in another way, or not at all
	result    *canonical.Result  // the reply that ended it
	other     *canonical.Message // the reply that ended it, if it was no result
	replyWire *translators.Wire  // the reply itself, if it was one message and no stream
	message   *canonical.Message // the last message
	failure   *canonical.Message // the error that ended it
	status    canonical.Status   // the one under way that was given its time here last
	last      canonical.Status   // and the one with which the work ended
	losses    []canonical.Loss   // of events that have no place in the one answer to the caller
}

// endWith makes a message of ours the reply that ended the work.
func (o *outcome) endWith(m *canonical.Message) { o.other = m }

// resultIs makes a result the reply that ended the work; nil: it goes on.
func (o *outcome) resultIs(result *canonical.Result) { o.result = result }

// accumulate adds up what a message says.
func (e *Execution) accumulate(m *canonical.Message) ([]canonical.Event, error) {
	e.learnNames(m)
	switch body := m.Body.(type) {
	case *canonical.Event:
		if body.Ask != nil && !e.req.Handling.Verbatim {
			if err := e.queueInput(body.Ask); err != nil {
				return nil, err
			}
		}
		e.rename(body.Task)
		before := e.fold.Task()
		if err := e.fold.Add(body, e.callerNames); err != nil || body.Task == nil || before == nil {
			return []canonical.Event{*body}, err
		}
		return stream.Diff(before, e.fold.Task()), nil // how things stood was told before
	case *canonical.Result:
		return e.applyResult(body)
	case *canonical.Error:
		e.applyError(m, body)
	default:
		e.other = m
	}
	return nil, nil
}

// applyError takes an error. One that answers a question of ours about the work is not the end
// of the work itself.
func (e *Execution) applyError(m *canonical.Message, refusal *canonical.Error) {
	switch {
	case e.op == canonical.OpTaskSubscribe && !e.req.Handling.Verbatim:
		e.noStream = true // then it is asked again and again
		e.on(Refused)
	case (e.op == canonical.OpTaskGet || e.op == canonical.OpTaskResult) && e.op != e.req.Message.Op && IsPassing(refusal.Code) && e.broken < maxBroken:
		e.broken++
	default:
		e.failure = m
	}
}

// IsPassing reports whether what is refused with this code may be granted later.
func IsPassing(code canonical.Code) bool {
	return slices.Contains([]canonical.Code{
		canonical.CodeRateLimited, canonical.CodeUnavailable, canonical.CodeTimeout, canonical.CodeInternal, canonical.CodeBadUpstream,
	}, code)
}

// learnNames takes over the agent's names for the work.
func (e *Execution) learnNames(m *canonical.Message) {
	at := m.Conversation
	switch body := m.Body.(type) {
	case *canonical.Event:
		if body.Task != nil {
			at.TaskID, at.ContextID = body.Task.ID, body.Task.ContextID
		}
	case *canonical.Result:
		if body.Task != nil {
			at.TaskID, at.ContextID = body.Task.ID, body.Task.ContextID
		}
	}
	if at.TaskID != "" {
		e.agentNames.TaskID = at.TaskID
	}
	if at.ContextID != "" {
		e.agentNames.ContextID = at.ContextID
	}
	if e.callerNames.TaskID == "" {
		e.callerNames.TaskID = e.agentNames.TaskID
	}
	if e.callerNames.ContextID == "" {
		e.callerNames.ContextID = e.agentNames.ContextID
	}
	if e.callerNames.ContextID == "" && !e.req.Mode.Relay { // agents that know no dialogues answer in their caller's
		e.callerNames.ContextID = e.req.Message.Conversation.ContextID
	}
	if e.callerNames.TaskID == "" && e.needsTask(m) {
		e.callerNames.TaskID = e.deps.NewID()
		if e.callerNames.ContextID == "" {
			e.callerNames.ContextID = e.deps.NewID()
		}
	}
	m.Conversation.TaskID, m.Conversation.ContextID = e.callerNames.TaskID, e.callerNames.ContextID
}

// needsTask reports whether the caller needs a task for this result, and the agent made none.
func (e *Execution) needsTask(m *canonical.Message) bool {
	if e.req.Mode.Relay || e.req.Message.Op != canonical.OpInvoke || e.req.Mode.CallerStreams != translators.StreamsTask {
		return false
	}
	switch body := m.Body.(type) {
	case *canonical.Result:
		return body.Output != nil
	case *canonical.Event:
		return body.Status != nil || body.Artifact != nil
	default:
		return false
	}
}

func (e *Execution) rename(t *canonical.Task) {
	if t != nil {
		t.ID, t.ContextID = e.callerNames.TaskID, e.callerNames.ContextID
	}
}

// applyResult takes a reply. One with a task that is still at work is not the end.
func (e *Execution) applyResult(result *canonical.Result) ([]canonical.Event, error) {
	mode := &e.req.Mode
	if result.Task == nil || mode.Relay && e.op == canonical.OpInvoke && !e.asTask {
		e.result = result
		return nil, nil
	}
	if e.op == canonical.OpTaskGet && mode.OutcomeApart && result.Task.Status.State != canonical.StateCanceled && stream.Settled(result.Task.Status.State) && e.op != e.req.Message.Op {
		e.on(ResultApart)
		return nil, nil
	}
	if t := result.Task; t.Status.State.Terminal() && e.asTask && !e.req.Message.Preferences.TaskOK {
		e.finishHidden(t)
		return nil, nil
	}
	if result.Task.Output != nil && !mode.Relay { // within one protocol it stays where it is
		result = &canonical.Result{Task: stream.Settle(result.Task)}
	}
	if e.op == canonical.OpInvoke && mode.Promises(result.Task) {
		begun := *result.Task
		begun.Status = canonical.Status{State: canonical.StateWorking, At: begun.Status.At}
		result = &canonical.Result{Task: &begun}
	}
	e.rename(result.Task)
	event := canonical.Event{Task: result.Task}
	before := e.fold.Task()
	if err := e.fold.Add(&event, e.callerNames); err != nil {
		return nil, err
	}
	if before == nil {
		return []canonical.Event{event}, nil
	}
	return stream.Diff(before, e.fold.Task()), nil
}

// errAgentCanceled: the agent canceled a task that the caller did not cancel.
var errAgentCanceled = &canonical.Error{Code: canonical.CodeInternal, Message: "the agent has canceled what it did"}

// finishHidden makes the end of a task that the caller knows nothing of the answer to its call.
func (e *Execution) finishHidden(t *canonical.Task) {
	fail := func(why *canonical.Error) {
		e.failure = &canonical.Message{Op: e.req.Message.Op, Phase: canonical.PhaseError, Body: why}
	}
	switch {
	case t.Output != nil:
		e.result = &canonical.Result{Output: t.Output}
	case t.Failure != nil:
		fail(t.Failure)
	case t.Status.State == canonical.StateCanceled:
		fail(errAgentCanceled)
	default:
		e.result = &canonical.Result{Task: t}
	}
}

// waitsForAnswer reports whether the work waits for an answer of the caller.
func (e *Execution) waitsForAnswer() bool {
	if e.req.Handling.Verbatim {
		return false
	}
	if e.ask != nil || e.result != nil && e.result.Pending != nil {
		return true
	}
	task := e.fold.Task()
	if e.result != nil {
		task = e.result.Task
	}
	return task != nil && stream.Settled(task.Status.State) && !task.Status.State.Terminal()
}

// final is the reply to a caller who waited, as far as it has come.
func (e *Execution) final() *canonical.Result {
	if e.result != nil {
		return e.result
	}
	if result := e.fold.Result(); result != nil {
		return result
	}
	return &canonical.Result{Task: e.workingTask()}
}

// workingTask is the work as a task of which no more is known than that it goes on.
func (e *Execution) workingTask() *canonical.Task {
	return &canonical.Task{
		ID: e.callerNames.TaskID, ContextID: e.callerNames.ContextID, Status: canonical.Status{State: canonical.StateWorking},
	}
}

// native is the result of a request that only one protocol has; nil: there is none.
func (e *Execution) native() json.RawMessage {
	if e.other == nil {
		return nil
	}
	if body, ok := e.other.Body.(*canonical.Native); ok {
		return body.Result
	}
	return nil
}

// snapshot is the work as a task.
func (e *Execution) snapshot() *canonical.Task {
	var task *canonical.Task
	switch {
	case e.failure != nil:
		failed, _ := e.failure.Body.(*canonical.Error)
		task = stream.Failed(e.callerNames, failed)
	case e.native() != nil:
		task = e.workingTask()
		task.Status.State = canonical.StateCompleted
	case e.result != nil && e.result.Task == nil:
		task = stream.TaskOf(e.callerNames.TaskID, e.callerNames.ContextID, e.result)
		task.Output = e.result.Output
	default:
		task = e.final().Task
		if task == nil {
			task = stream.TaskOf(e.callerNames.TaskID, e.callerNames.ContextID, e.final())
		}
	}
	if e.ask != nil {
		withInput := *task
		withInput.Status, withInput.Inputs = canonical.Status{State: canonical.StateInputRequired}, []canonical.Input{e.ask.Input}
		task = &withInput
	}
	return e.completed(e.explain(task))
}

// canceledTask is the work as a task that was canceled just now.
func (e *Execution) canceledTask() *canonical.Task {
	task := *e.snapshot()
	task.Status, task.Inputs = canonical.Status{State: canonical.StateCanceled, At: e.now()}, nil
	return &task
}

// addLosses takes note of what an update loses for a caller who is not told it as it comes.
func (e *Execution) addLosses(u update) {
	e.losses = canonical.MergeLosses(e.losses, logLosses(u.events))
}

// logLosses declares the log messages among the events: a caller who gets one answer, or a task,
// gets none of them.
func logLosses(events []canonical.Event) []canonical.Loss {
	if !slices.ContainsFunc(events, func(e canonical.Event) bool { return e.Log != nil }) {
		return nil
	}
	return []canonical.Loss{{Code: canonical.LossProgress, Path: "/body/log", Fate: canonical.Dropped}}
}

// chunkLosses is what is lost where appended chunks of an artifact are told as one part.
func chunkLosses(joined bool) []canonical.Loss {
	if !joined {
		return nil
	}
	return []canonical.Loss{{Code: canonical.LossChunks, Path: "/body/artifact", Fate: canonical.Dropped}}
}

// lastProgress is the last progress among events, else the one before them.
func lastProgress(before *canonical.Progress, events []canonical.Event) *canonical.Progress {
	for i := range events {
		if p := events[i].Progress; p != nil {
			before = &canonical.Progress{Value: p.Value, Total: p.Total, Message: p.Message}
		}
	}
	return before
}

// A caller of A2A is answered with a task where the agent's protocol has calls alone (MCP, µACP,
// AINP). What such a task has beside the outcome of the call is given to it here: the time of each
// status (A2A 1.0, 4.1.2, TaskStatus.timestamp), and the history, which is told where historyLength
// asks for it (A2A 1.0, 3.2.4).

// MaxRequest bounds, in bytes, what is kept of a request: for the history of a task that is made
// here, and until a question about it is answered.
const MaxRequest = 64 << 10

// maxHistory bounds the messages in the history of a task that is made here; MaxRequest bounds their
// content.
const maxHistory = 16

// Milliseconds is a time as A2A writes it (A2A 1.0, 5.6.1).
func Milliseconds(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

// Question is what was asked about a task, after so many rounds, as its history has it.
func Question(task string, round int, inputs []canonical.Input) canonical.Content {
	content := canonical.Content{ID: task + "/asked/" + strconv.Itoa(round+1), Role: canonical.RoleAgent}
	for i := range inputs {
		content.Parts = append(content.Parts, inputs[i].Prompt...)
	}
	return content
}

// Newest is the end of a history, within the bounds of what is kept.
func Newest(history []canonical.Content) []canonical.Content {
	size := 0
	for first := len(history); first > 0; first-- {
		size += sizeOf(history[first-1].Extensions)
		for _, p := range history[first-1].Parts {
			size += len(p.Text) + len(p.Data) + len(p.Bytes) + len(p.URI) + sizeOf(p.Extensions)
		}
		if size > MaxRequest || len(history)-first >= maxHistory {
			return history[first:]
		}
	}
	return history
}

// sizeOf is how many bytes extensions have.
func sizeOf(e canonical.Extensions) (size int) {
	for _, raw := range e {
		size += len(raw)
	}
	return size
}

// dated is a status with the time at which the execution first saw it. A last one is the same
// whatever words its record and its caller have for it.
func (e *Execution) dated(s canonical.Status) canonical.Status {
	if !s.At.IsZero() || !e.req.Mode.MakesTask {
		return s
	}
	seen := &e.status
	if s.State.Terminal() {
		seen = &e.last
	}
	same := seen.State == s.State && (s.State.Terminal() || reflect.DeepEqual(seen.Message, s.Message))
	if seen.At.IsZero() || !same {
		*seen = s
		seen.At = Milliseconds(e.now())
	}
	s.At = seen.At
	return s
}

// completed is the task with what a task that is made here has beside.
func (e *Execution) completed(t *canonical.Task) *canonical.Task {
	if !e.req.Mode.MakesTask {
		return t
	}
	full := *t
	if full.Status = e.dated(full.Status); full.History == nil {
		full.History = e.history
	}
	return &full
}

// complement gives an event what a task that is made here has beside.
func (e *Execution) complement(event *canonical.Event) {
	switch {
	case !e.req.Mode.MakesTask:
	case event.Status != nil:
		status := e.dated(*event.Status)
		event.Status = &status
	case event.Task != nil:
		event.Task = e.completed(event.Task)
	}
}
