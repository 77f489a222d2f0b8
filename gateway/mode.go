package gateway

import (
	"reflect"
	"strconv"
	"time"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/stream"
)

// A caller of A2A is answered with a task where the agent's protocol has calls alone
// (MCP, µACP, AINP). What such a task has beside the outcome of the call is given to it
// here: the time of each status (A2A 1.0, 4.1.2, TaskStatus.timestamp), and the history,
// which is told where historyLength asks for it (A2A 1.0, 3.2.4).

// now is the time in milliseconds, as A2A writes it (A2A 1.0, 5.6.1).
func (g *Gateway) now() time.Time { return g.Now().UTC().Truncate(time.Millisecond) }

// history is what is kept of the talk about a task that is made here: the caller's
// messages, and what was asked in between. Empty: the task is not made here.
func (x *request) history() []canonical.Content {
	if !x.mode.MakesTask {
		return nil
	}
	var history []canonical.Content
	if x.record != nil {
		history = append(history, x.record.Task.History...)
	}
	if x.prior != nil {
		history = append(history, question(x.prior.Task.ID, x.prior.Round, stream.Inputs(&x.prior.Task)))
	}
	if turn := x.turn(); turn != nil {
		history = append(history, *turn)
	}
	return newest(history)
}

// turn is the caller's message as it stands in a history; nil: it stands in none.
func (x *request) turn() *canonical.Content {
	invoke, ok := x.asked.(*canonical.Invoke)
	if !ok || !x.mode.MakesTask || len(invoke.Turn.Parts) == 0 || len(x.in.Call.Wire.Body) > maxAsked {
		return nil
	}
	return &invoke.Turn
}

// question is what was asked about a task, after so many rounds, as its history has it.
func question(task string, round int, inputs []canonical.Input) canonical.Content {
	content := canonical.Content{ID: task + "/asked/" + strconv.Itoa(round+1), Role: canonical.RoleAgent}
	for i := range inputs {
		content.Parts = append(content.Parts, inputs[i].Prompt...)
	}
	return content
}

// maxHistory bounds the messages in the history of a task that is made here; maxAsked
// bounds their content.
const maxHistory = 16

// newest is the end of a history, within the bounds of what is kept.
func newest(history []canonical.Content) []canonical.Content {
	size := 0
	for first := len(history); first > 0; first-- {
		size += extended(history[first-1].Extensions)
		for _, p := range history[first-1].Parts {
			size += len(p.Text) + len(p.Data) + len(p.Bytes) + len(p.URI) + extended(p.Extensions)
		}
		if size > maxAsked || len(history)-first >= maxHistory {
			return history[first:]
		}
	}
	return history
}

// extended is how many bytes extensions have.
func extended(e canonical.Extensions) (size int) {
	for _, raw := range e {
		size += len(raw)
	}
	return size
}

// shortened is the end of a history that a caller is told: as much as it asks for, and of
// a task that is made here nothing where it does not say (A2A 1.0, 3.2.4).
func (x *request) shortened(history []canonical.Content) []canonical.Content {
	most := len(history)
	switch length := x.message.Preferences.HistoryLength; {
	case length != nil && *length >= 0:
		most = min(most, *length)
	case x.mode.MakesTask:
		return nil
	}
	return history[len(history)-most:]
}

// dated is a status with the time at which the run first saw it. A last one is the same
// whatever words its record and its caller have for it.
func (r *run) dated(s canonical.Status) canonical.Status {
	if !s.At.IsZero() || !r.x.mode.MakesTask {
		return s
	}
	seen := &r.status
	if s.State.Terminal() {
		seen = &r.last
	}
	same := seen.State == s.State && (s.State.Terminal() || reflect.DeepEqual(seen.Message, s.Message))
	if seen.At.IsZero() || !same {
		*seen = s
		seen.At = r.g.now()
	}
	s.At = seen.At
	return s
}

// made is the task with what a task that is made here has beside.
func (r *run) made(t *canonical.Task) *canonical.Task {
	if !r.x.mode.MakesTask {
		return t
	}
	made := *t
	if made.Status = r.dated(made.Status); made.History == nil {
		made.History = r.history
	}
	return &made
}

// complement gives an event what a task that is made here has beside.
func (r *run) complement(e *canonical.Event) {
	switch {
	case !r.x.mode.MakesTask:
	case e.Status != nil:
		status := r.dated(*e.Status)
		e.Status = &status
	case e.Task != nil:
		e.Task = r.made(e.Task)
	}
}

// completeTask does so with a reply. One whose history is asked for becomes a task here
// rather than in the codec, which knows the outcome alone.
func (g *Gateway) completeTask(x *request, m *canonical.Message) {
	result, ok := m.Body.(*canonical.Result)
	if !ok || !x.mode.MakesTask {
		return
	}
	said := *result
	var history []canonical.Content
	if x.message.Preferences.HistoryLength != nil {
		history = x.shortened(x.history())
	}
	switch {
	case said.Output != nil:
		output := *said.Output
		if output.At.IsZero() {
			output.At = g.now()
		}
		said.Output = &output
		if len(history) > 0 {
			said.Task, said.Output = madeOf(m.Conversation, output, history), nil
		}
	case said.Task != nil:
		task := *said.Task
		if task.Status.At.IsZero() {
			task.Status.At = g.now()
		}
		if task.History == nil {
			task.History = history
		}
		said.Task = &task
	}
	m.Body = &said
}

// madeOf is the task that a call's output is.
func madeOf(at canonical.Conversation, output canonical.Output, history []canonical.Content) *canonical.Task {
	status := canonical.Status{State: canonical.StateCompleted, At: output.At}
	if output.Failed {
		status.State = canonical.StateFailed
	}
	output.At = time.Time{}
	return &canonical.Task{ID: at.TaskID, ContextID: at.ContextID, Status: status, Output: &output, History: history}
}

// tasking: the message becomes a task of the agent's that its caller is told of in
// the way that it knows, or not at all.
func (x *request) tasking() bool {
	if x.message.Op != canonical.OpInvoke || !x.mode.Converts {
		return false
	}
	tasker := x.in.Features.Tasker
	only := tasker.Tasks(x.route.Endpoint.Version) == translators.TaskingApart && x.route.Marks != nil && tasker.TaskOnly(x.route.Marks)
	return x.message.Preferences.TaskOK || x.forced || only
}

// wantsTask: the agent refuses a caller who knows of no tasks, and has done nothing.
func (x *request) wantsTask(heard *canonical.Message) bool {
	if heard == nil || x.message.Op != canonical.OpInvoke || x.forced || !x.mode.Converts || x.tasking() {
		return false
	}
	refused, ok := heard.Body.(*canonical.Error)
	return ok && refused.Code == canonical.CodeCapabilityRequired
}

// lasts: the request asks for more than one answer, or not to wait for it. In a
// relay the gateway that answers decides about waiting.
func (x *request) lasts() bool {
	p := x.message.Preferences
	if x.in.Call.Agent == "" || x.mode.Relay {
		return x.in.Call.Agent != "" && (p.Stream || x.tasking() || x.posts())
	}
	return p.Stream || p.NoWait || p.TaskOK || x.posts()
}

// posts: the message brings a webhook that is told each change, so that the agent is
// heard at work whatever its caller waits for. An agent of the caller's own protocol
// that does not stream shows no more than its answer.
func (x *request) posts() bool {
	return x.webhook != nil && x.message.Op == canonical.OpInvoke && (!x.mode.Relay || x.route.Description != nil && x.route.Description.Streams)
}

// streams: the agent is asked for a stream, so that it can be seen at work, and
// stopped.
func (x *request) streams() bool {
	switch {
	case x.in.Call.Agent == "":
		return false
	case x.mode.Relay:
		return x.message.Preferences.Stream || x.posts()
	default:
		return x.route.Description != nil && x.route.Description.Streams && x.mode.AgentStreams == translators.StreamsTask
	}
}

// final: there is nothing to do with this answer but to pass it on.
func (x *request) final(m *canonical.Message) bool {
	result, ok := m.Body.(*canonical.Result)
	switch {
	case !ok || x.verbatim() || x.message.Op != canonical.OpInvoke && x.message.Op != canonical.OpNative:
		return true
	case result.Pending != nil:
		return x.mode.Relay && x.mode.Asking == translators.AskReply
	case result.Task == nil || x.mode.Relay:
		return true
	case x.promised(result.Task):
		return false
	case result.Task.Status.State.Terminal():
		return true
	default:
		return stream.Settled(result.Task.Status.State) && (x.mode.Asking == translators.AskNone || x.mode.Asking == translators.AskTask)
	}
}

// promised: the task stands in place of a result. Whatever its state, what it
// asks and what came of it the agent says when it is asked about it (MCP,
// CreateTaskResult).
func (x *request) promised(t *canonical.Task) bool {
	return x.mode.AgentStreams == translators.StreamsReply && t.Output == nil && t.Failure == nil && len(t.Inputs) == 0 &&
		len(t.Artifacts) == 0 && t.Status.State != canonical.StateCanceled
}

// verbatim: both sides speak one version of it in one form, and what one says
// goes to the other octet by octet. At the translate endpoint a message comes
// without the fields of its protocol's header, so there it is said anew.
func (x *request) verbatim() bool {
	return !x.unseen && x.in.Call.Entrance.Native() && x.mode.Relay && x.route.Endpoint.Version == x.message.Origin.Version && x.route.Endpoint.Form == x.in.Call.Wire.Form &&
		!x.route.Endpoint.Rewritten() && !x.in.Call.Tenanted && x.webhook == nil && !x.thread.Renamed() && x.in.Call.Card == nil
}

// names: the agent makes a task of the message, which goes on when the connection
// ends. Until it has named that, it cannot be told to stop.
func (x *request) names() bool {
	return x.in.Call.Agent != "" && x.message.Op == canonical.OpInvoke && x.mode.AgentStreams == translators.StreamsTask
}
