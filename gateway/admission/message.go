package admission

import (
	"context"
	"errors"
	"slices"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy/membership"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Read decodes a message as it travelled. What of that its codec never sees is
// lost like what it sees and cannot say.
func (s *Service) Read(codec translators.Translator, wire translators.Wire) (*canonical.Message, error) {
	if framer := s.Network.Framer(wire.Binding); framer != nil {
		var err error
		if wire, err = framer.Unframe(wire); err != nil {
			return nil, err
		}
	}
	m, err := codec.Decode(wire)
	if m != nil && len(wire.Losses) > 0 {
		m.Losses = append(m.Losses, wire.Losses...)
	}
	return m, err
}

// decoded returns the canonical message: the codec runs at the first call. It copies a message that
// the server side has decoded, since the pipeline writes into it.
func (m *admitting) decoded() (*canonical.Message, error) {
	if m.read {
		return m.message, m.unread
	}
	m.read = true
	if m.Call.Message == nil {
		m.message, m.unread = m.Read(m.Source, m.Call.Wire)
		return m.message, m.unread
	}
	message := *m.Call.Message
	if invoke, ok := message.Body.(*canonical.Invoke); ok {
		body := *invoke
		message.Body = &body
	}
	m.message = &message
	return m.message, nil
}

// decode is step 7: it judges the form of the message. An operation that the pipeline does not
// carry has no counterpart in the other protocol: it is refused as semantic_loss (R7).
func (m *admitting) decode(context.Context) error {
	message, err := m.decoded()
	if err != nil {
		return err
	}
	if !carried(message.Op) || message.Phase != canonical.PhaseRequest || asksCard(m.Call, message) {
		loss := canonical.Loss{Code: canonical.LossOperation, Path: "/" + string(message.Op), Fate: canonical.Dropped}
		if err := m.Permit.Judge(attest.Judged([]canonical.Loss{loss})); err != nil {
			return err
		}
		return &canonical.Error{Code: canonical.CodeUnsupportedOp, Message: "the operation " + string(message.Op) + " is not carried to an agent"}
	}
	if err := perform(m, message.Op); err != nil {
		return err
	}
	m.WireID = message.Correlation.WireID
	if m.Call.Tenanted {
		message.Conversation.Tenant = ""
	}
	message.From = canonical.Party{ID: string(m.Call.Caller.ID), Name: message.From.Name, Version: message.From.Version}
	if message.Preferences.CanAnswer == nil {
		message.Preferences.CanAnswer = m.Call.CanAnswer
	}
	m.Message = message
	return nil
}

// asksCard reports whether a message asks an agent for its extended card (A2A 3.1.11) where no card of ours takes its
// place: that of the agent names its own URLs, and skills that are not offered.
func asksCard(call transport.Call, message *canonical.Message) bool {
	native, ok := message.Body.(*canonical.Native)
	return ok && call.Agent != "" && call.Card == nil && (native.Method == "GetExtendedAgentCard" || native.Method == "agent/getAuthenticatedExtendedCard")
}

// carried reports whether the pipeline carries an operation to agents. The directory answers
// discovery (R8).
func carried(op canonical.Op) bool {
	return !slices.Contains([]canonical.Op{canonical.OpDescribe, canonical.OpCapabilities, canonical.OpPing, canonical.OpNotice}, op)
}

// refuseNewWork refuses new work at a gateway that drains (R16). It runs before the message's
// tokens are used up: the caller can send the message to another replica, or again after the
// restart.
func (m *admitting) refuseNewWork(ctx context.Context) error {
	refusal := m.Gate.Draining()
	if _, over := errors.AsType[*problem.RetiredError](refusal); refusal == nil || over {
		return refusal
	}
	if begins, err := m.beginsWork(ctx); err != nil || !begins {
		return err
	}
	if drain, ok := errors.AsType[*problem.DrainingError](refusal); ok {
		if goesOn, err := m.goesOn(ctx, drain.Workflows, nil); err != nil || goesOn {
			return err
		}
	}
	return refusal
}

// leaveAlone refuses new work for an agent whose circuit breaker is open, also before tokens are
// used up. A caller that may not invoke the agent does not learn of it. A message whose token was
// used before goes on: it is under way, or answered.
func (m *admitting) leaveAlone(ctx context.Context) error {
	refusal := m.Gate.CircuitOpen(m.Call.Caller.ID, m.To)
	if refusal == nil || m.To.Draining || m.ByRole || perform(m, canonical.OpInvoke) != nil {
		return nil //nolint:nilerr // it is refused for that later
	}
	if begins, err := m.beginsWork(ctx); err != nil || !begins {
		return err
	}
	if used, err := m.used(ctx); err != nil || used {
		return err
	}
	m.OneOfManyRefusals = true
	m.Attest.Refusal(ctx, m.Holder, refusal)
	return refusal
}

// beginsWork reports whether a message would begin new work. One that cannot be read is refused
// for that later.
func (m *admitting) beginsWork(ctx context.Context) (bool, error) {
	message, err := m.decoded()
	if err != nil || message.Op != canonical.OpInvoke {
		return false, nil //nolint:nilerr // it is refused for that later
	}
	under, err := m.underWay(ctx, message)
	return !under, err
}

// used reports whether a token of the message is on record: a message with it was admitted before.
func (m *admitting) used(ctx context.Context) (bool, error) {
	for _, v := range m.own() {
		records, err := m.Deps.Evidence.Get(ctx, ect.Ref{ID: v.ID(), Issuer: v.Issuer()})
		if err != nil {
			return false, attest.Recording(err)
		}
		if len(records) > 0 && len(records[0]) > 0 {
			return true, nil
		}
	}
	return false, nil
}

// passGate is step 6. The role of an approver lets in decisions only. An agent that drains takes no
// new work; work under way goes on, with the next steps of its workflows (AEPB, Graceful Shutdown).
// New work goes to its successor, if the caller may call that.
func (m *admitting) passGate(ctx context.Context) error {
	if m.ByRole && m.Message.Op != canonical.OpDecision {
		return membership.Outsider()
	}
	if !m.To.Draining || m.Message.Op != canonical.OpInvoke {
		return nil
	}
	if under, err := m.underWay(ctx, m.Message); err != nil || under {
		return err
	}
	if names := m.audience(); len(names) > 0 {
		if goesOn, err := m.goesOn(ctx, m.To.Agent.Lifecycle.Workflows, names); err != nil || goesOn {
			return err
		}
	}
	if m.To = m.Destinations.Successor(ctx, m.query(), m.To); m.To.Unreachable != nil {
		return m.To.Unreachable
	}
	if err := m.permit(ctx); err != nil {
		return err
	}
	return perform(m, m.Message.Op)
}

// underWay reports whether a message goes on with work that the agent has begun.
func (m *admitting) underWay(ctx context.Context, message *canonical.Message) (bool, error) {
	if invoke, ok := message.Body.(*canonical.Invoke); ok && invoke.State != "" {
		return true, nil
	}
	id := message.Conversation.TaskID
	if id == "" {
		return false, nil
	}
	return m.Tasks.Knows(ctx, Owner(m.Call.Caller, m.Call.Address), m.To.Agent.Name, id)
}
