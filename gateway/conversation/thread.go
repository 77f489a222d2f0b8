package conversation

import (
	"cmp"
	"context"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Names are the ids of the dialogue in which a task on record was begun; they are empty if
// the task is not on record.
type Names struct {
	Agent  string // the agent's
	Caller string // the caller's
}

func (n Names) has(id string) bool { return n.Agent != "" && (id == n.Agent || id == n.Caller) }

// Thread is where the dialogue of one message stands. It is a value: its methods return
// a new one.
type Thread struct {
	id       string // in the caller's message
	known    bool   // the agent has named the dialogue so to this caller
	found    bool
	workflow string
	last     ect.ID
	renamed  bool

	first, latest string // what the agent names the dialogue while it answers
}

// Resolve finds where the dialogue of a message stands, and whether the agent has given
// its id to this caller. Its error is a *[problem.RecordingError].
func (t Thread) Resolve(ctx context.Context, store Store, p Parties, id string, recorded Names) (Thread, error) {
	if id == "" || p.Agent == "" {
		return t, nil
	}
	t = Thread{id: id, first: t.first, latest: t.latest}
	if !recorded.has(id) {
		known, err := t.load(ctx, store, p.Key(id))
		if err == nil && !known {
			_, err = t.load(ctx, store, p.Key(t.AgentID(p, id, recorded)))
		}
		if err != nil {
			return t, err
		}
		t.known = known
	}
	t.renamed = t.AgentID(p, id, recorded) != id
	return t, nil
}

// load reads where the dialogue with this key stands.
func (t *Thread) load(ctx context.Context, store Store, key string) (bool, error) {
	var err error
	t.workflow, t.last, t.found, err = store.Last(ctx, key)
	if err != nil {
		return false, &problem.RecordingError{Err: err}
	}
	return t.found, nil
}

// Last is the workflow and the last ECT of the dialogue; false: none is remembered.
func (t Thread) Last() (workflow string, last ect.ID, ok bool) { return t.workflow, t.last, t.found }

// Renamed reports whether the agent knows the dialogue under another id than its caller.
func (t Thread) Renamed() bool { return t.renamed }

// WithAgentID returns the thread after the agent has named the dialogue so.
func (t Thread) WithAgentID(id string) Thread {
	if id == "" {
		return t
	}
	t.first = cmp.Or(t.first, id)
	t.latest = id
	return t
}

// NamedByAgent reports whether the agent has named the dialogue so while it answered.
func (t Thread) NamedByAgent(id string) bool { return id == t.first || id == t.latest }

// AgentID is the id that the agent knows a dialogue by.
func (t Thread) AgentID(p Parties, id string, recorded Names) string {
	switch {
	case id == "" || p.Agent == "", t.NamedByAgent(id), t.known && id == t.id:
		return id
	case recorded.has(id):
		return recorded.Agent
	}
	return p.BoundID(id)
}

// ToAgent is a message with the agent's id of its dialogue.
func (t Thread) ToAgent(p Parties, m *canonical.Message, recorded Names) *canonical.Message {
	id := t.AgentID(p, m.Conversation.ContextID, recorded)
	if id == m.Conversation.ContextID {
		return m
	}
	out := *m
	out.Conversation.ContextID = id
	return &out
}

// ToCaller is a message with the caller's id of its dialogue, where that was renamed
// toward the agent.
func (t Thread) ToCaller(p Parties, m *canonical.Message, recorded Names) *canonical.Message {
	if !t.renamed {
		return m
	}
	agentID := t.AgentID(p, t.id, recorded)
	restored := func(task *canonical.Task) *canonical.Task {
		if task == nil || task.ContextID != agentID {
			return task
		}
		own := *task
		own.ContextID = t.id
		return &own
	}
	out := *m
	if out.Conversation.ContextID == agentID {
		out.Conversation.ContextID = t.id
	}
	switch body := m.Body.(type) {
	case *canonical.Result:
		own := *body
		own.Task, out.Body = restored(body.Task), &own
	case *canonical.Event:
		own := *body
		own.Task, out.Body = restored(body.Task), &own
	}
	return &out
}
