package gateway

import (
	"cmp"
	"context"
	"strconv"
	"strings"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/task/execution"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/policy/membership"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/inbody"
)

// translate encodes, judges, signs and records one translation. Nothing may be
// forwarded or answered without what it returns (AEPB, Gateway Requirements item 3).
func (g *Gateway) translate(ctx context.Context, x *request, tr attest.Translation) (transport.Attested, error) {
	out, err := g.attest.Translate(ctx, x.trail, g.prepared(x, tr))
	if err == nil && !tr.Internal {
		g.saveArtifacts(ctx, x)
	}
	return out, err
}

// prepared is a translation with what the exchange knows of it.
func (g *Gateway) prepared(x *request, tr attest.Translation) attest.Translation {
	tr.Subject, tr.Lineage.Workflow = x.subject(), x.lineage.Workflow
	if tr.Verbatim == nil {
		tr.Target.Stamp = g.stamp(x, &tr)
		tr.Framer = g.Network.Framer(tr.Pair.To)
		if tr.Direction == attest.Request {
			tr.Message = x.thread.ToAgent(x.parties(), tr.Message, x.recordedNames())
		} else {
			tr.Message = x.thread.ToCaller(x.parties(), tr.Message, x.recordedNames())
		}
	}
	return tr
}

// subject is for whom the exchange is.
func (x *request) subject() attest.Subject {
	return attest.Subject{
		Caller: x.in.Call.Caller, Holder: x.in.Holder, Entrance: x.in.Call.Entrance, Version: x.settings.Version, Permit: x.in.Permit,
		Unattested: len(x.in.Evidence.Sources) == 0 && !x.attested, ByRole: x.in.ByRole, Gateway: x.in.Evidence.Path.Hops() > 0,
	}
}

// stream is the caller's stream, for its evidence.
func (x *request) stream() attest.Stream {
	return attest.Stream{Subject: x.subject(), Workflow: x.lineage.Workflow, Pair: x.pairBack()}
}

// pair is the protocols of the way to the agent, and pairBack of that to the caller.
func (x *request) pair() attest.Pair {
	return attest.Pair{From: x.in.Source.Info().Binding, To: x.to.Codec.Info().Binding, HashForm: hashForm(x)}
}

func (x *request) pairBack() attest.Pair {
	p := x.pair()
	p.From, p.To = p.To, p.From
	return p
}

// stamp is what only we know of a message: the name of its evidence and, in a
// protocol that says so, who sends it to whom, and when.
func (g *Gateway) stamp(x *request, tr *attest.Translation) translators.Stamp {
	stamper := g.Network.Stamper(tr.Pair.To)
	if stamper == nil {
		return translators.Stamp{Token: string(tr.ID), At: execution.Milliseconds(g.Now())}
	}
	out := translators.Stamp{From: stamper.Self(), To: x.in.Call.Sender, At: g.Now(), Token: string(tr.ID)}
	if tr.Direction == attest.Request {
		out.To = stamper.Receiver(x.to.Agent.Name)
	}
	return out
}

// afterRequest is what a message of the same execution comes after: the latest request,
// else what its caller sent.
func (x *request) afterRequest() []ect.ID {
	if id := x.trail.Request(); id != "" {
		return []ect.ID{id}
	}
	return x.lineage.Parents
}

// received is the tokens that came with what the agent said.
func (x *request) received(tokens []string, own ect.Check) attest.Received {
	reply := membership.Reply{Workflow: x.lineage.Workflow, Agent: x.to.Agent.ID, Gateway: x.settings.rules.IsGateway}
	if x.to.Via != nil {
		reply.Agent = x.to.Via.Peer.ID
	}
	return attest.Received{Subject: x.subject(), Tokens: tokens, Check: own, Reply: reply, Agent: x.to.Agent.Name, Replier: x.replier(), Requests: x.keptRequests()}
}

// requests are the ids of the request tokens of this execution, also of the time before
// it was taken up from its record.
func (x *request) requests() []ect.ID { return x.trail.Requests(x.keptRequests()) }

func (x *request) keptRequests() []ect.ID {
	switch {
	case x.record == nil:
		return nil
	case len(x.record.Requests) == 0 && x.record.Last != "":
		return []ect.ID{x.record.Last}
	default:
		return x.record.Requests
	}
}

// replier is in whose share the tokens of a reply count: that of the agent or gateway
// that sent them. Their issuers may know nothing of it.
func (x *request) replier() string {
	switch {
	case x.to.Via != nil:
		return limit.Identity(string(x.to.Via.Peer.ID))
	case x.to.Agent.ID != "":
		return limit.Identity(string(x.to.Agent.ID))
	default:
		return limit.Identity("agent " + label(x.to.Agent)) // no identity has a space
	}
}

// hashForm names how the messages of the two protocols were hashed, where it is
// not octet by octet (R5). It is said of the protocol that has evidence inside
// its messages; the other one's are hashed as they are.
// Where both have, in two ways, it is both.
func hashForm(x *request) string {
	form := ""
	if h := translators.HasherOf(x.to.Codec); h != nil {
		form = h.HashForm()
	}
	if h := translators.HasherOf(x.in.Source); h != nil {
		form = h.HashForm()
	}
	if x.callerInside() || x.agentInside() {
		form = strings.TrimSpace(form + " " + inbody.HashForm)
	}
	return form
}

// audience is who must be able to verify leg 1: the destination and we (R4).
func (g *Gateway) audience(x *request) []string {
	switch {
	case x.to.Via != nil:
		return []string{string(x.to.Via.Peer.ID), string(g.Self())}
	case x.in.Call.Agent == "":
		return []string{string(x.in.Call.Caller.ID), string(g.Self())}
	case x.to.Agent.ID != "":
		return []string{string(x.to.Agent.ID), string(g.Self())}
	default:
		return []string{x.route.Endpoint.URL, string(g.Self())}
	}
}

// negotiated records what a negotiation came to, once in a workflow (AEPB,
// Protocol Downgrade Attacks: the results are part of the workflow's graph). There
// is one where the agent's own document, a choice of endpoints or another gateway
// decided; an endpoint that is the only one was no choice. The token is not handed
// out: it says nothing of any message.
func (g *Gateway) negotiated(ctx context.Context, x *request) {
	if x.to.Via == nil && (x.in.Call.To != "" || (x.to.Agent.Capability == "" && len(x.to.Agent.Endpoints) < 2)) {
		return // the caller named it, or there was nothing to choose from
	}
	workflow := x.lineage.Workflow
	if workflow == "" {
		workflow = string(x.first())
	}
	if !g.attest.FirstNegotiation(workflow, x.to.Agent.Name) {
		return
	}
	chosen, candidates, reason := x.choice()
	g.attest.Negotiation(ctx, attest.Negotiation{
		Subject: x.subject(), Lineage: attest.Lineage{Workflow: x.lineage.Workflow, Parents: []ect.ID{x.first()}},
		From: string(x.in.Source.Info().Binding), To: chosen, Candidates: candidates, Reason: reason,
	})
}

// choice is what was chosen, of what, and why.
func (x *request) choice() (chosen string, candidates []string, reason string) {
	for _, e := range x.to.Agent.Endpoints {
		candidates = append(candidates, string(e.Binding)+" priority "+strconv.Itoa(e.Rank()))
	}
	for _, b := range x.to.Agent.Beyond {
		candidates = append(candidates, string(b))
	}
	if x.to.Via != nil {
		if len(candidates) == 0 {
			candidates = []string{string(x.to.Via.To)}
		}
		return string(x.to.Via.To), candidates, "served by " + string(x.to.Via.Peer.ID) + " as " + string(x.to.Via.From) + " to " + string(x.to.Via.To)
	}
	chosen = string(x.to.Codec.Info().Binding)
	if chosen == string(x.in.Source.Info().Binding) {
		return chosen, candidates, "the caller's own protocol"
	}
	return chosen, candidates, "the lowest priority of what both the agent and this gateway speak"
}

// first is the first ECT of the workflow, as far as it is known: the oldest that
// the caller showed, else what came before, else our own.
func (x *request) first() ect.ID {
	var oldest ect.Verified
	for _, list := range [...][]ect.Verified{x.in.Evidence.Sources, x.in.Evidence.Parents} {
		for _, v := range list {
			if oldest.ID() == "" || v.IssuedAt() < oldest.IssuedAt() || (v.IssuedAt() == oldest.IssuedAt() && len(v.Claims().Parents) == 0) {
				oldest = v
			}
		}
	}
	switch {
	case oldest.ID() != "":
		return oldest.ID()
	case len(x.lineage.Parents) > 0:
		return x.lineage.Parents[0]
	default:
		return x.trail.Request()
	}
}

// callerInside: the caller is such a peer, and its protocol has a place for them.
func (x *request) callerInside() bool {
	return x.settings.rules.Embeds(x.in.Call.Caller.ID, x.in.Source, x.in.Call.Wire.Form)
}

// agentInside is the same of the agent that is asked.
func (x *request) agentInside() bool {
	return x.settings.rules.Embeds(x.reader(), x.to.Codec, x.route.Endpoint.Form)
}

// heardInside takes an agent's tokens out of its reply.
func (x *request) heardInside(reply transport.Reply) (transport.Reply, error) {
	if reply.Events != nil || !x.agentInside() {
		return reply, nil
	}
	wire := reply.Wire
	wire.Re = cmp.Or(wire.Re, canonical.OpInvoke)
	wire, tokens, err := attest.TakeTokens(x.to.Codec, wire, reply.Evidence)
	if err != nil {
		return reply, &transport.BadReplyError{Agent: x.to.Agent.Name, Reason: "the ECTs in its body are malformed, or not those in its header"}
	}
	if len(tokens) > 0 {
		reply.Wire.Body, reply.Evidence = wire.Body, tokens
	}
	return reply, nil
}

// heardEvent takes an agent's tokens out of an event.
func (x *request) heardEvent(wire translators.Wire) (translators.Wire, []string, error) {
	if !x.agentInside() {
		return wire, nil, nil
	}
	like := wire
	like.Re = cmp.Or(like.Re, canonical.OpInvoke)
	like, tokens, err := attest.TakeTokens(x.to.Codec, like, nil)
	if err != nil {
		return wire, nil, &transport.BadReplyError{Agent: x.to.Agent.Name, Reason: "the ECTs in an event of its stream are malformed"}
	}
	if len(tokens) > 0 {
		wire.Body = like.Body
	}
	return wire, tokens, nil
}

// seal binds a message to its receipt, with the tokens inside for an agent that
// wants them there.
func (x *request) seal(out transport.Attested, ancestors ...string) (transport.Sealed, error) {
	if x.agentInside() {
		wire, _ := inbody.Insert(x.to.Codec, out.Wire(), append([]string{out.Token()}, ancestors...))
		var err error
		if out, err = out.Carrying(wire); err != nil {
			return transport.Sealed{}, err
		}
	}
	return out.Seal(ancestors...)
}

// inside puts the evidence of an answer into its body, for a caller that wants it
// there. Its door says what is no answer, and so puts it in.
func (g *Gateway) inside(x *request, answer transport.Answer) transport.Answer {
	if x.in.Source == nil || !x.callerInside() {
		return answer
	}
	form, _ := g.Registry.Translator(answer.Wire().Binding)
	if answer.Events() != nil {
		form = x.in.Source
	}
	if x.in.Call.Agent == "" {
		return attest.Embed(form, answer, "")
	}
	return attest.Embed(form, answer, canonical.OpInvoke)
}

// stampRequest gives a message bound for an agent what only the roof can mint:
// its id on the wire is the id of the ECT that testifies to it, and so is the
// name of its progress. A relay within one protocol has every other id that it needs.
func (x *request) stampRequest(id ect.ID) {
	m := x.message
	m.Correlation.WireID = canonical.TextID(string(id))
	if x.in.Call.Agent != "" {
		m.Preferences.CanAnswer = x.sides().Answerable(m.Preferences.CanAnswer, x.mode.AgentVersion)
	}
	if m.Preferences.CanAnswer == nil {
		m.Preferences.CanAnswer = x.route.Endpoint.Asked // in a protocol where every request says so
	}
	if x.mode.Relay || m.Op != canonical.OpInvoke {
		return
	}
	if m.Correlation.MessageID == "" {
		m.Correlation.MessageID = string(id)
	}
	if invoke, ok := m.Body.(*canonical.Invoke); ok && invoke.Turn.ID == "" {
		invoke.Turn.ID = m.Correlation.MessageID
	}
	if x.mode.AgentStreams == translators.StreamsReply && x.in.Call.Agent != "" && m.Correlation.Progress == nil && x.lasts() {
		m.Correlation.Progress = m.Correlation.WireID
	}
}

// tasked is a message as an agent hears it that may answer a call with a task:
// that its caller would rather wait is our business and not the agent's, and so is
// that its caller would take a task, where the agent has not said that it has any.
func (x *request) tasked(m *canonical.Message) *canonical.Message {
	if m.Op != canonical.OpInvoke || x.in.Call.Agent == "" || x.route.Description == nil || m.Preferences.TaskOK == x.route.Description.Tasks ||
		x.mode.AgentStreams == translators.StreamsTask || x.mode.Relay && (m.Preferences.TaskOK || !x.tasking()) {
		return m
	}
	out := *m
	out.Preferences.TaskOK = x.route.Description.Tasks
	return &out
}
