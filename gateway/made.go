package gateway

import (
	"reflect"
	"strconv"
	"time"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/stream"
)

// A caller of A2A is answered with a task where the agent's protocol has calls alone
// (MCP, µACP, AINP). What such a task has beside the outcome of the call is given to it
// here: the time of each status (A2A 1.0, 4.1.2, TaskStatus.timestamp), and the history,
// which is told where historyLength asks for it (A2A 1.0, 3.2.4).

// now is the time in milliseconds, as A2A writes it (A2A 1.0, 5.6.1).
func (g *Gateway) now() time.Time { return g.Now().UTC().Truncate(time.Millisecond) }

// makesTask: the tasks of the caller's protocol have these, and the agent's words are
// another's.
func (x *exchange) makesTask() bool {
	historian := x.in.Features.Historian
	return historian != nil && historian.TellsHistory(x.message.Origin.Version) && x.in.Call.Agent != "" && !x.relay() && !x.kin()
}

// history is what is kept of the talk about a task that is made here: the caller's
// messages, and what was asked in between. Empty: the task is not made here.
func (x *exchange) history() []canonical.Content {
	if !x.makesTask() {
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
func (x *exchange) turn() *canonical.Content {
	invoke, ok := x.asked.(*canonical.Invoke)
	if !ok || !x.makesTask() || len(invoke.Turn.Parts) == 0 || len(x.in.Call.Wire.Body) > maxAsked {
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
func (x *exchange) shortened(history []canonical.Content) []canonical.Content {
	most := len(history)
	switch length := x.message.Preferences.HistoryLength; {
	case length != nil && *length >= 0:
		most = min(most, *length)
	case x.makesTask():
		return nil
	}
	return history[len(history)-most:]
}

// dated is a status with the time at which the run first saw it. A last one is the same
// whatever words its record and its caller have for it.
func (r *run) dated(s canonical.Status) canonical.Status {
	if !s.At.IsZero() || !r.x.makesTask() {
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
	if !r.x.makesTask() {
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
	case !r.x.makesTask():
	case e.Status != nil:
		status := r.dated(*e.Status)
		e.Status = &status
	case e.Task != nil:
		e.Task = r.made(e.Task)
	}
}

// tellProgress puts progress in the status of a task that is posted as a whole: the
// task on record does not hold it.
func (g *Gateway) tellProgress(t *canonical.Task, p *canonical.Progress) {
	t.Status.At, t.Status.Message = g.now(), &canonical.Content{
		ID: t.ID + "/progress", Role: canonical.RoleAgent, Parts: []canonical.Part{{Kind: canonical.KindText, Text: p.Message}},
	}
}

// completeTask does so with a reply. One whose history is asked for becomes a task here
// rather than in the codec, which knows the outcome alone.
func (g *Gateway) completeTask(x *exchange, m *canonical.Message) {
	result, ok := m.Body.(*canonical.Result)
	if !ok || !x.makesTask() {
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
