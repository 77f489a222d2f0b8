package gateway

import (
	"time"

	"github.com/aepb/aepb-gateway/gateway/task/execution"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/stream"
)

// A caller of A2A is answered with a task where the agent's protocol has calls alone
// (MCP, µACP, AINP). What such a task has beside the outcome of the call is given to it
// here: the time of each status (A2A 1.0, 4.1.2, TaskStatus.timestamp), and the history,
// which is told where historyLength asks for it (A2A 1.0, 3.2.4).

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
		history = append(history, execution.Question(x.prior.Task.ID, x.prior.Round, stream.Inputs(&x.prior.Task)))
	}
	if turn := x.turn(); turn != nil {
		history = append(history, *turn)
	}
	return execution.Newest(history)
}

// turn is the caller's message as it stands in a history; nil: it stands in none.
func (x *request) turn() *canonical.Content {
	invoke, ok := x.asked.(*canonical.Invoke)
	if !ok || !x.mode.MakesTask || len(invoke.Turn.Parts) == 0 || len(x.in.Call.Wire.Body) > execution.MaxRequest {
		return nil
	}
	return &invoke.Turn
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
			output.At = execution.Milliseconds(g.Now())
		}
		said.Output = &output
		if len(history) > 0 {
			said.Task, said.Output = madeOf(m.Conversation, output, history), nil
		}
	case said.Task != nil:
		task := *said.Task
		if task.Status.At.IsZero() {
			task.Status.At = execution.Milliseconds(g.Now())
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
func (x *request) wantsTask(reply *canonical.Message) bool {
	return x.message.Op == canonical.OpInvoke && !x.tasking() && x.mode.DemandsTask(reply)
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
	case x.mode.Promises(result.Task):
		return false
	case result.Task.Status.State.Terminal():
		return true
	default:
		return stream.Settled(result.Task.Status.State) && (x.mode.Asking == translators.AskNone || x.mode.Asking == translators.AskTask)
	}
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
