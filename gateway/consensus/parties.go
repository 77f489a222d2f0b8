package consensus

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/approval"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Parties are the listed agents and the approvers of a gateway (R24).
type Parties struct {
	Directory interface{ List() []directory.Agent }
	// Errand sends a message of the gateway's own to a listed agent, and returns what it answers.
	Errand    func(ctx context.Context, o Order, m *canonical.Message) (*canonical.Message, error)
	Approvals *approval.Service
}

// Find implements [Agents].
func (p Parties) Find(id ect.Identity) (string, bool) {
	list := p.Directory.List()
	i := slices.IndexFunc(list, func(a directory.Agent) bool { return a.ID == id })
	if i < 0 {
		return "", false
	}
	return list[i].Name, true
}

// Send implements [Agents].
func (p Parties) Send(ctx context.Context, o Order) error {
	m, err := messageOf(o.Action)
	if err != nil {
		return err
	}
	answer, err := p.Errand(ctx, o, m)
	if err != nil {
		return err
	}
	if failure := canonical.FailureOf(answer); failure != "" {
		return &transport.BadReplyError{Agent: o.Agent, Reason: failure}
	}
	return nil
}

// messageOf is what an action says to an agent: it names a tool and its arguments, or a text; any other is sent as data.
func messageOf(raw json.RawMessage) (*canonical.Message, error) {
	var action struct {
		Tool      string          `json:"tool"`
		Arguments json.RawMessage `json:"arguments"`
		Text      string          `json:"text"`
	}
	if err := json.Unmarshal(raw, &action); err != nil {
		return nil, err
	}
	invoke := &canonical.Invoke{Turn: canonical.Content{Role: canonical.RoleCaller}}
	switch {
	case action.Tool != "":
		invoke = &canonical.Invoke{Call: &canonical.Call{Name: action.Tool, Args: action.Arguments}}
	case action.Text != "":
		invoke.Turn.Parts = []canonical.Part{{Kind: canonical.KindText, Text: action.Text}}
	default:
		invoke.Turn.Parts = []canonical.Part{{Kind: canonical.KindData, Data: raw}}
	}
	return &canonical.Message{Op: canonical.OpInvoke, Phase: canonical.PhaseRequest, Body: invoke}, nil
}

// Ask implements [Humans].
func (p Parties) Ask(ctx context.Context, q approval.Question) error {
	return approval.Ask(ctx, p.Approvals, q)
}

// Answer implements [Humans].
func (p Parties) Answer(ctx context.Context, id string) (granted, over bool, err error) {
	return approval.Answer(ctx, p.Approvals, id)
}
