package gateway

import (
	"context"
	"strings"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// standing is where the dialogue of a message stands.
type standing struct {
	said     string // its id in the message
	known    bool   // the agent has called it so to this caller
	found    bool
	workflow string
	last     ect.ID
}

// conversation is the key of a dialogue: it belongs to its caller (R2), who is
// its part before the first NUL.
func conversation(x *exchange, contextID string) string {
	if contextID == "" {
		return ""
	}
	return strings.Join([]string{owner(x.call.Caller, x.call.Address), x.agent.Name, contextID}, "\x00")
}

// agentsName is what the agent is to call a dialogue of this caller's. The agent
// takes all of us for one caller, and would let it into any dialogue. So an id
// passes as it is only if the agent itself has told it to this caller. Any other
// may be another caller's, or one that was forgotten, or the caller's own
// invention, which A2A allows: the agent is told an id that is made of the
// caller's and this one, and so has a dialogue that no other caller can name. It is
// the same each time, after a restart and at every replica.
func (x *exchange) agentsName(id string) string {
	switch rec := x.record; {
	case id == "" || x.call.Agent == "", id == x.spoken.first, id == x.spoken.last, x.stands.known && id == x.stands.said:
		return id
	case rec != nil && rec.Context != "" && (id == rec.Context || id == rec.Task.ContextID):
		return rec.Context
	}
	return boundContext(x, id)
}

// agentNames are the names that the agent gives a dialogue while it answers.
type agentNames struct{ first, last string }

// speaksOf notes what the agent calls the dialogue.
func (x *exchange) speaksOf(id string) {
	if id == "" {
		return
	}
	if x.spoken.first == "" {
		x.spoken.first = id
	}
	x.spoken.last = id
}

// bindDialogue finds where the dialogue of a message stands, and whether the
// agent has told its id to this caller.
func (g *Gateway) bindDialogue(ctx context.Context, x *exchange) error {
	id := x.message.Conversation.ContextID
	if id == "" || x.call.Agent == "" {
		return nil
	}
	x.stands = standing{said: id}
	if rec := x.record; rec == nil || rec.Context == "" || id != rec.Context && id != rec.Task.ContextID {
		known, err := g.standing(ctx, x, id)
		if err == nil && !known {
			_, err = g.standing(ctx, x, x.agentsName(id))
		}
		if err != nil {
			return err
		}
		x.stands.known = known
	}
	x.renamed = x.agentsName(id) != id
	return nil
}

// standing finds where a dialogue of this caller's stands, by the agent's name
// for it; false: it has none of that name.
func (g *Gateway) standing(ctx context.Context, x *exchange, name string) (bool, error) {
	var err error
	x.stands.workflow, x.stands.last, x.stands.found, err = g.Conversations.Last(ctx, conversation(x, name))
	if err != nil {
		return false, &problem.RecordingError{Err: err}
	}
	return x.stands.found, nil
}

// inDialogue is a message as the agent hears it.
func (x *exchange) inDialogue(m *canonical.Message) *canonical.Message {
	name := x.agentsName(m.Conversation.ContextID)
	if name == m.Conversation.ContextID {
		return m
	}
	out := *m
	out.Conversation.ContextID = name
	return &out
}

// asSaid is a message as its caller hears it: where the caller's own id for a
// dialogue was renamed toward the agent, the answer to that message has it back.
func (x *exchange) asSaid(m *canonical.Message) *canonical.Message {
	if !x.renamed {
		return m
	}
	said, name := x.stands.said, x.agentsName(x.stands.said)
	back := func(t *canonical.Task) *canonical.Task {
		if t == nil || t.ContextID != name {
			return t
		}
		own := *t
		own.ContextID = said
		return &own
	}
	out := *m
	if out.Conversation.ContextID == name {
		out.Conversation.ContextID = said
	}
	switch body := m.Body.(type) {
	case *canonical.Result:
		own := *body
		own.Task, out.Body = back(body.Task), &own
	case *canonical.Event:
		own := *body
		own.Task, out.Body = back(body.Task), &own
	}
	return &out
}

// boundContext is a context id of one caller at one agent. It need not be
// secret: it lets only its own caller in, and no other id of any caller
// leads to it.
func boundContext(x *exchange, contextID string) string {
	return "ctx-" + ect.Hash([]byte("aepb context\x00"+conversation(x, contextID)))
}
