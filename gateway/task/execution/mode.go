package execution

import (
	"github.com/aepb/aepb-gateway/gateway/routing"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Mode is how work goes on between a caller and an agent: what follows from their protocols and
// versions, from the agent's description and from what the caller prefers. It does not change.
type Mode struct {
	Relay         bool                // both sides speak one protocol; SLIM is two if its agents use the words of different ones
	SameWords     bool                // both sides use the words of one protocol, over any transport
	AgentVersion  string              // in which the agent is spoken to; empty: it was not asked yet, and none is listed
	AgentStreams  translators.Streams // how the agent streams
	CallerStreams translators.Streams // how the caller reads a stream
	Asking        translators.Asking  // how this caller can be asked
	StreamsHere   bool                // the caller streams tasks, and the agent does not: they are made here
	AsksAlike     bool                // the agent's protocol is the caller's, which asks by results

	// The tasks of the caller's protocol have a time and a history, which the agent's words lack: they
	// are made here (A2A 1.0, 4.1.2 and 3.2.4).
	MakesTask bool
	// Both sides speak one protocol, and the agent keeps tasks in another way than the caller
	// knows them, or the caller knows of none.
	Converts     bool
	Insists      bool // the caller is answered with a task, whatever becomes of it (MCP 2025-11-25)
	OutcomeApart bool // what came of the agent's task, and what it asks, is heard apart from how it stands
	KeepsTasks   bool // the agent can be told to cancel what it named a task
	SeesCanceled bool // the caller's wish to cancel is answered with how the task stands
}

// NewMode is the mode of a message between two sides. Before its route is chosen, the
// route is empty, and the agent's version is the one that is listed.
func NewMode(s routing.Sides, route routing.Route) Mode {
	agent, caller := s.AgentVersion(route.Endpoint.Version), s.Message.Origin.Version
	in, out := tasksIn(s.In.Features, caller), tasksIn(s.To.Features, agent)
	m := Mode{
		Relay: s.Relay(agent), SameWords: s.SameWords(agent), AgentVersion: agent,
		AgentStreams: translators.StreamsOf(s.To.Codec, agent), CallerStreams: translators.StreamsOf(s.In.Source, caller),
		Asking: s.Asking(agent), OutcomeApart: out == translators.TaskingApart,
		Insists: s.Message.Preferences.TaskOK && in == translators.TaskingApart,
	}
	m.AsksAlike = m.SameWords && s.Way() == translators.AskReply
	m.StreamsHere = !m.Relay && m.AgentStreams != translators.StreamsTask && m.CallerStreams == translators.StreamsTask
	m.KeepsTasks = m.AgentStreams == translators.StreamsTask || out != translators.TaskingNone
	m.SeesCanceled = m.CallerStreams == translators.StreamsTask || in == translators.TaskingApart
	if s.In.Call.Agent == "" {
		return m
	}
	historian := s.In.Features.Historian
	m.MakesTask = historian != nil && historian.TellsHistory(caller) && !m.Relay && !m.SameWords
	m.Converts = m.Relay && s.To.Via == nil && route.Description != nil && route.Description.Tasks && out != translators.TaskingNone && out != in
	return m
}

// tasksIn is how a peer of a version keeps tasks.
func tasksIn(f *translators.Features, version string) translators.Tasking {
	if f.Tasker == nil {
		return translators.TaskingNone
	}
	return f.Tasker.Tasks(version)
}

// Promises reports whether a task stands in place of a result. Whatever its state, what it asks
// and what came of it the agent says when it is asked about it (MCP, CreateTaskResult).
func (m *Mode) Promises(t *canonical.Task) bool {
	return m.AgentStreams == translators.StreamsReply && t.Output == nil && t.Failure == nil && len(t.Inputs) == 0 &&
		len(t.Artifacts) == 0 && t.Status.State != canonical.StateCanceled
}

// DemandsTask reports whether the agent refuses a caller who knows of no tasks with a message, and
// has done nothing.
func (m *Mode) DemandsTask(reply *canonical.Message) bool {
	if reply == nil || !m.Converts {
		return false
	}
	refusal, ok := reply.Body.(*canonical.Error)
	return ok && refusal.Code == canonical.CodeCapabilityRequired
}
