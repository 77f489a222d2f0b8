package approval

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/policy/hitl"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Message is one on its way to an agent, whose route is chosen.
type Message struct {
	Call       hitl.Call                // without the digest
	Content    *canonical.Message       // which invokes something
	Extensions canonical.Extensions     // of Content, without what its sender puts into each message anew
	Losses     func() ([]string, error) // codes of what the translation will lose; it is called where a rule asks for them
	Subject    attest.Subject
	Lineage    attest.Lineage
	Input      string         // hash of the message as it came
	Work       attest.Work    // what the intent says that its caller wants
	Sources    []ect.Verified // the caller's own tokens
	Workflow   string         // that the caller names; empty: none
	Parks      bool           // its caller is told by a task that it waits
	Gates      []string       // roles that the plan of the workflow demands of approvers
	Released   string         // the approval by which it is sent; empty: it came from its caller just now
}

// Gated is how a message goes on.
type Gated struct {
	Lineage  attest.Lineage // with the decisions of its approval
	Intended bool           // the gateway signed an intent for it
}

// parkedError is a message that waits for humans, whose caller is to be told so by a task.
type parkedError struct{ request Request }

func (*parkedError) Error() string { return "a human decides about this call" }

// Parked is what a message waits for that [Service.Gate] parked; false: the error is another one.
func Parked(err error) (Request, bool) {
	parked, ok := errors.AsType[*parkedError](err)
	if !ok {
		return Request{}, false
	}
	return parked.request, true
}

// Gate judges whether humans have to approve a message. Its errors are *[problem.ApprovalError], one that
// [Parked] knows, those of [Service.Pass] and [Service.Consume], and that of Message.Losses.
func (s *Service) Gate(ctx context.Context, rules hitl.Rules, m Message) (Gated, error) {
	gated := Gated{Lineage: m.Lineage}
	invoke, ok := m.Content.Body.(*canonical.Invoke)
	if !ok || rules.Empty() && m.Released == "" && len(m.Gates) == 0 {
		return gated, nil
	}
	facts, err := m.complete(rules, invoke)
	if err != nil {
		return gated, err
	}
	demand, needed := m.demand(rules, facts)
	switch {
	case m.Released != "":
		a, err := s.Consume(ctx, m.Released, m.Call, demand.Hash)
		gated.Lineage.Parents = behind(gated.Lineage.Parents, a)
		return gated, err
	case !needed:
		return gated, nil
	}
	r := m.request(demand)
	r.Text, r.Whole = hitl.Show(hitl.Shown{
		Call: m.Call, Args: facts.Args, Words: m.words(invoke), Demand: demand, Losses: facts.Losses, Workflow: m.Workflow, Until: s.deps.Now().Add(demand.Wait),
	})
	r.Sign = func(ctx context.Context) (string, ect.ID, error) { return s.gate(ctx, &m, &gated) }
	if m.Parks {
		return gated, s.parked(ctx, r)
	}
	a, err := s.Pass(ctx, r)
	if err != nil {
		return gated, err
	}
	return s.behind(ctx, m, a)
}

// demand is what rules and the plan of the workflow demand; false: nothing.
func (m *Message) demand(rules hitl.Rules, facts hitl.Facts) (hitl.Demand, bool) {
	demand, needed := rules.Match(facts)
	if len(m.Gates) == 0 {
		return demand, needed
	}
	return demand.And(hitl.Gate(m.Gates)), true
}

// complete adds the digest to the call, and returns what rules are matched against.
func (m *Message) complete(rules hitl.Rules, invoke *canonical.Invoke) (f hitl.Facts, err error) {
	if m.Call.Digest, err = m.digest(invoke); err != nil {
		return f, err
	}
	f = hitl.Facts{Caller: m.Call.Caller, Agent: m.Call.Agent, Operation: m.Call.Operation, Tool: m.Call.Tool, Words: invoke.Call == nil}
	if invoke.Call != nil {
		f.Args = invoke.Call.Args
	}
	if rules.NeedsLosses(f) {
		f.Losses, err = m.Losses()
	}
	return f, err
}

// digest is a hash of all that the call says. What numbers and names a message is no part of it, since a caller that
// sends its call again numbers it anew.
func (m *Message) digest(invoke *canonical.Invoke) (string, error) {
	content := *invoke
	content.Turn.ID, content.Push, content.TTL = "", nil, nil
	text, err := json.Marshal(struct {
		Skill        string
		Content      canonical.Invoke
		Conversation canonical.Conversation
		Extensions   canonical.Extensions
	}{m.Content.To.Skill, content, m.Content.Conversation, m.Extensions})
	return ect.Hash(text), err
}

func (m *Message) request(demand hitl.Demand) Request {
	r := Request{Call: m.Call, Demand: demand, Input: m.Input, Workflow: m.Workflow}
	if len(m.Sources) > 0 {
		r.Input, r.Attested = m.Sources[0].Claims().InputHash, true
	}
	return r
}

// words are what a message says beside the arguments of its call, in JSON; text alone is as it is.
func (m *Message) words(invoke *canonical.Invoke) string {
	words := struct {
		Parts      []canonical.Part
		Extensions []canonical.Extensions `json:",omitempty"`
	}{Parts: slices.DeleteFunc(slices.Clone(invoke.Turn.Parts), func(p canonical.Part) bool { return isCall(p, invoke.Call) })}
	for _, more := range []canonical.Extensions{m.Extensions, invoke.Extensions, invoke.Turn.Extensions} {
		if len(more) > 0 {
			words.Extensions = append(words.Extensions, more)
		}
	}
	switch {
	case len(words.Parts) == 0 && len(words.Extensions) == 0:
		return ""
	case len(words.Parts) == 1 && words.Parts[0].Kind == canonical.KindText && len(words.Extensions) == 0 && len(words.Parts[0].Extensions) == 0:
		return words.Parts[0].Text
	}
	text, err := json.Marshal(words)
	if err != nil {
		return "" // it was decoded from JSON
	}
	return string(text)
}

// isCall reports whether a part is nothing but the call, whose arguments are shown.
func isCall(p canonical.Part, call *canonical.Call) bool {
	more := p.Name != "" || p.Title != "" || p.Description != "" || len(p.Annotations) > 0 || len(p.Extensions) > 0
	var members map[string]json.RawMessage
	if call == nil || p.Kind != canonical.KindData || more || json.Unmarshal(p.Data, &members) != nil || len(members) != 2 || members["skill"] == nil {
		return false
	}
	return bytes.Equal(members["input"], call.Args)
}

// gate records what is to be approved: the caller's own token, or an intent that the gateway signs for it (R28).
func (s *Service) gate(ctx context.Context, m *Message, gated *Gated) (workflow string, id ect.ID, err error) {
	if len(m.Sources) > 0 {
		return gated.Lineage.Workflow, m.Sources[0].ID(), nil
	}
	id, err = s.deps.Evidence.Intent(ctx, attest.Intent{Subject: m.Subject, Lineage: gated.Lineage, Input: m.Input, Work: m.Work})
	if err == nil {
		gated.Lineage.Parents, gated.Intended = []ect.ID{id}, true
	}
	return gated.Lineage.Workflow, id, err
}

// parked signs what a task waits for. The task's record names the token.
func (s *Service) parked(ctx context.Context, r Request) error {
	workflow, id, err := r.Sign(ctx)
	if err != nil {
		return err
	}
	r.Sign = func(context.Context) (string, ect.ID, error) { return workflow, id, nil }
	return &parkedError{r}
}

// behind puts a message that was sent again behind its approval. One without a token gets an intent of its own,
// because its bytes may be others than those of the message that was approved.
func (s *Service) behind(ctx context.Context, m Message, a hitl.Approval) (Gated, error) {
	gated := Gated{Lineage: m.Lineage}
	if len(m.Sources) > 0 {
		if gated.Lineage.Workflow == a.Origin.Workflow {
			gated.Lineage.Parents = behind(gated.Lineage.Parents, a)
		}
		return gated, nil
	}
	gated.Lineage = attest.Lineage{Workflow: a.Origin.Workflow, Parents: behind([]ect.ID{a.Origin.Gated}, a)}
	_, _, err := s.gate(ctx, &m, &gated)
	return gated, err
}

// behind adds the decisions that an approval rests on.
func behind(parents []ect.ID, a hitl.Approval) []ect.ID {
	parents = slices.Clip(parents)
	for _, d := range a.Decisions {
		if d.Granted && d.Token != "" && !slices.Contains(parents, d.Token) {
			parents = append(parents, d.Token)
		}
	}
	return parents
}
