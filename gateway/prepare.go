package gateway

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/admission"
	"github.com/aepb/aepb-gateway/gateway/approval"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/mcpbridge"
	"github.com/aepb/aepb-gateway/gateway/routing"
	"github.com/aepb/aepb-gateway/gateway/task/execution"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy/hitl"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/embedded"
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

// stamp returns what only the gateway knows of a message: the id of its ECT and, in protocols that
// have them, sender, receiver and time.
func (g *Gateway) stamp(x *request, tr *attest.Translation) translators.Addressing {
	stamper := g.Network.Stamper(tr.Pair.To)
	if stamper == nil {
		return translators.Addressing{Token: string(tr.ID), At: execution.Milliseconds(x.sentAt(g.Now()))}
	}
	out := translators.Addressing{From: stamper.Self(), To: x.in.Call.Program.Sender, At: x.sentAt(g.Now()), Token: string(tr.ID)}
	if tr.Direction == attest.Request {
		out.To = stamper.Receiver(x.to.Agent.Name)
	}
	return out
}

// audience returns the verifiers of the request's ECT: the destination and this gateway (R4).
func (g *Gateway) audience(x *request) []string {
	switch {
	case x.to.Via != nil:
		return []string{string(x.to.Via.Peer.ID), string(g.Signer.Issuer())}
	case x.in.Call.Agent == "":
		return []string{string(x.in.Call.Caller.ID), string(g.Signer.Issuer())}
	case x.to.Agent.ID != "":
		return []string{string(x.to.Agent.ID), string(g.Signer.Issuer())}
	default:
		at := directory.Endpoint{URL: x.route.Endpoint.URL}
		return []string{at.Audience(x.to.Agent.Name), string(g.Signer.Issuer())}
	}
}

// negotiated records the result of a negotiation, once in a workflow (AEPB, Protocol Downgrade
// Attacks: results are part of the workflow's graph). There is a negotiation if the agent's
// document, several endpoints or a peer left a choice. No caller gets the token: it is about no
// message.
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

// seal binds a message to its receipt, with the tokens inside for an agent that
// wants them there.
func (x *request) seal(out transport.Attested, ancestors ...string) (transport.Sealed, error) {
	if x.agentInside() {
		wire, _ := embedded.Insert(x.to.Codec, out.Wire(), append([]string{out.Token()}, ancestors...))
		var err error
		if out, err = out.Carrying(wire); err != nil {
			return transport.Sealed{}, err
		}
	}
	return out.Seal(ancestors...)
}

// stampRequest gives a message bound for an agent what only the pipeline can make:
// its id on the wire is the id of the ECT that testifies to it, and so is the
// name of its progress. A relay within one protocol has every other id that it needs.
func (x *request) stampRequest(id ect.ID) {
	m := x.message
	m.Correlation.WireID = canonical.TextID(string(id))
	if x.in.Call.Agent != "" {
		m.Preferences.CanAnswer = x.sides().Answerable(m.Preferences.CanAnswer, x.mode.AgentVersion)
	}
	if m.Preferences.CanAnswer == nil {
		m.Preferences.CanAnswer = x.route.Endpoint.AnswerModes // in a protocol where every request says so
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
	if x.mode.AgentStreams == translators.StreamsReply && x.in.Call.Agent != "" && m.Correlation.Progress == nil && x.longRunning() {
		m.Correlation.Progress = m.Correlation.WireID
	}
}

// tasked sets whether an agent may answer the message with a task: that depends on whether the
// agent has tasks, and not on what the caller prefers, since the gateway waits for the result or
// makes a task itself.
func (x *request) tasked(m *canonical.Message) *canonical.Message {
	if m.Op != canonical.OpInvoke || x.in.Call.Agent == "" || x.route.Description == nil || m.Preferences.TaskOK == x.route.Description.Tasks ||
		x.mode.AgentStreams == translators.StreamsTask || x.mode.Relay && (m.Preferences.TaskOK || !x.tasking()) {
		return m
	}
	out := *m
	out.Preferences.TaskOK = x.route.Description.Tasks
	return &out
}

// choose finds the route of the message: where the agent is, and what is called there.
func (g *Gateway) choose(ctx context.Context, x *request) error {
	q := routing.Query{
		Sides: x.sides(), Body: x.original, Header: x.in.Call.Wire.Header, Version: x.route.Endpoint.Version, Timeout: x.settings.Timeout,
	}
	if x.hearer != nil {
		q.Alone = x.hearer.session
	}
	if x.record != nil {
		q.Skill = x.record.Skill
	}
	route, err := routing.Router{Directory: g.Directory}.Resolve(ctx, q)
	route.Renamed = route.Renamed || x.route.Renamed
	x.route, x.message, x.in.Call.Wire.Header = route, route.Message, route.Header
	x.mode = execution.NewMode(x.sides(), route)
	return err
}

// approach finds the way of a message, and judges whether it may go there: what goes along with it. A
// *[routing.UnnamedError] is told last: its caller may be asked, like one whose arguments are missing.
func approach(ctx context.Context, g *Gateway, x *request) (along []string, err error) {
	unnamed := g.choose(ctx, x)
	if _, asks := errors.AsType[*routing.UnnamedError](unnamed); unnamed != nil && !asks {
		return nil, unnamed
	}
	if err := x.in.Permit.Carry(x.route.Security(x.in.Call.Agent != "")); err != nil {
		admission.CountDenied(g.Metrics, err)
		return nil, err
	}
	if along, err = g.along(x); err != nil {
		return nil, err
	}
	thread, err := x.thread.Resolve(ctx, g.Conversations, x.parties(), x.message.Conversation.ContextID, x.recordedNames())
	if err != nil {
		return nil, err
	}
	x.thread = thread
	fresh := g.lineage(x)
	if fresh {
		found, err := g.goOnAfterState(ctx, x)
		if err != nil {
			return nil, err
		}
		fresh = !found
	}
	if err := g.goOnAfterReply(ctx, x); err != nil {
		return nil, err
	}
	if !fresh {
		if _, x.started, err = g.parts.Workflows.Started(ctx, x.lineage.Workflow); err != nil {
			return nil, attest.Recording(err)
		}
	}
	if err := x.understood(); err != nil {
		return nil, err
	}
	return along, unnamed
}

// intend signs what a caller without a token wants of a workflow that has a start: its message is consequential
// unless the operator says otherwise (R22, R28). The token is the parent of the request.
func (g *Gateway) intend(ctx context.Context, x *request) error {
	if !x.started || x.intended || x.approval != "" || len(x.in.Evidence.Sources) > 0 || x.in.Call.Agent == "" {
		return nil
	}
	id, err := g.attest.Statements().Intent(ctx, attest.Intent{Subject: x.subject(), Lineage: x.lineage, Input: x.in.Input, Work: x.wanted(g.audience(x))})
	if err == nil {
		x.lineage.Parents = []ect.ID{id}
	}
	return err
}

// beginWork signs what the caller wants, and then waits until the agent has a place for it.
func (g *Gateway) beginWork(ctx context.Context, x *request) error {
	if err := g.intend(ctx, x); err != nil {
		return err
	}
	return g.place(ctx, x)
}

// judgeLevel refuses new work of a workflow that humans hold. Admission has judged messages whose tokens name their
// workflow; this is for those that a dialogue leads there, and for calls that were approved meanwhile.
func (g *Gateway) judgeLevel(ctx context.Context, x *request) error {
	if x.message.Op != canonical.OpInvoke || x.in.Call.Agent == "" {
		return nil
	}
	return g.parts.Levels.Refusal(ctx, x.lineage.Workflow, string(x.message.Op), x.record == nil || x.approval != "")
}

// approve judges whether humans have to approve the message, whose route is chosen. A call that is made once more with
// what its agent asked for was approved when it was made first. Its errors are those of [approval.Service.Gate].
func (g *Gateway) approve(ctx context.Context, x *request) error {
	repeats := x.claim != nil && x.claim.Prior.Resume == store.ResumeState
	if x.message.Op != canonical.OpInvoke || x.in.Call.Agent == "" || repeats {
		return nil
	}
	gates, err := gates(ctx, g, x)
	if err != nil || x.settings.Approvals.Empty() && x.approval == "" && len(gates) == 0 {
		return err
	}
	m := approval.Message{
		Call:    hitl.Call{Caller: x.in.Call.Caller.ID, Agent: x.to.Agent.Name, Operation: string(x.message.Op), Tool: x.route.Called(x.message)},
		Content: x.message, Extensions: x.message.Extensions, Losses: x.foreseen, Subject: x.subject(), Lineage: x.lineage, Input: x.in.Input,
		Sources: x.in.Evidence.Sources, Gates: gates, Released: x.approval, Work: x.wanted(g.audience(x)),
		Parks: x.record == nil && !x.mode.Relay && (x.mode.Asking == translators.AskTask || x.mode.Insists) && len(x.in.Call.Wire.Body) <= execution.MaxRequest,
	}
	if x.in.Call.Caller.Anonymous {
		m.Call.Address = x.in.Call.Address
	}
	if x.in.Features.Stamper != nil {
		m.Extensions = x.in.Features.Stamper.Unstamped(m.Extensions)
	}
	m.Workflow, _ = x.in.Evidence.Origins()
	gated, err := g.parts.Approvals.Gate(ctx, x.settings.Approvals, m)
	x.lineage, x.intended = gated.Lineage, gated.Intended
	return err
}

// request translates, signs and seals the caller's message for the destination.
func (g *Gateway) request(ctx context.Context, x *request) (transport.Sealed, transport.Attested, error) {
	along, err := approach(ctx, g, x)
	if err != nil {
		return transport.Sealed{}, transport.Attested{}, err
	}
	if err := g.judgeLevel(ctx, x); err != nil {
		return transport.Sealed{}, transport.Attested{}, err
	}
	if x.message, err = g.await(ctx, x); err != nil {
		return transport.Sealed{}, transport.Attested{}, err
	}
	if err := g.approve(ctx, x); err != nil {
		return transport.Sealed{}, transport.Attested{}, err
	}
	if x.message, err = g.level(ctx, x); err != nil {
		return transport.Sealed{}, transport.Attested{}, err
	}
	if err := g.beginWork(ctx, x); err != nil {
		return transport.Sealed{}, transport.Attested{}, err
	}
	id := attest.NewID(x.to.Codec)
	tr := attest.Translation{
		Direction: attest.Request, ID: id, Message: x.message, Input: x.in.Input,
		Codec: x.to.Codec, Pair: x.pair(),
		Target:  x.target(x.streams()),
		Lineage: attest.Lineage{Parents: x.lineage.Parents}, Audience: g.audience(x), Reader: x.reader(), Ext: x.oneWay(),
	}
	x.message.Conversation.Tenant = cmp.Or(x.route.Endpoint.Tenant, x.message.Conversation.Tenant)
	switch {
	case x.in.Call.Agent != "" && x.verbatim() && x.route.Renamed: // all but one name stays as it is
	case x.in.Call.Agent != "" && x.verbatim():
		wire := x.in.Call.Wire
		wire.Version = x.message.Origin.Version
		tr.Verbatim = &wire
	default:
		x.stampRequest(id)
		tr.Message = x.tasked(x.message)
	}
	out, err := g.translate(ctx, x, tr)
	if err != nil || x.in.Call.Agent == "" && x.to.Via == nil {
		return transport.Sealed{}, out, err
	}
	sealed, err := g.leave(ctx, x, out, along)
	return sealed, out, err
}

// leave makes what has to be on record before a request leaves, and seals it.
func (g *Gateway) leave(ctx context.Context, x *request, out transport.Attested, along []string) (transport.Sealed, error) {
	if err := g.protect(ctx, x, g.audience(x)[0]); err != nil {
		return transport.Sealed{}, err
	}
	g.negotiated(ctx, x)
	if len(x.in.Evidence.Sources) > 0 || x.in.Call.Agent == "" {
		return x.seal(out, along...)
	}
	own, err := g.ownTokens(ctx, x, x.lineage.Parents)
	if err != nil {
		return transport.Sealed{}, err
	}
	return x.seal(out, append(along, own...)...)
}

// lineage decides workflow and parents of leg 1 (R3, R4): the source's, or those
// of the token that the message names, else the conversation's, else a root of a
// fresh workflow.
func (g *Gateway) lineage(x *request) (fresh bool) {
	if workflow, ids := x.in.Evidence.Origins(); len(ids) > 0 {
		x.lineage.Workflow, x.lineage.Parents = workflow, ids
		return false
	}
	if x.record != nil { // more about the same work
		x.lineage.Workflow, x.lineage.Parents = x.record.Workflow, x.parentsOf(x.record)
		return false
	}
	if workflow, last, ok := x.thread.Last(); ok {
		x.lineage.Workflow, x.lineage.Parents = workflow, []ect.ID{last}
		return false
	}
	x.lineage.Workflow = string(ect.NewID())
	return true
}

// level sees to it that the caller hears the agent's log from the level on that it
// wants, where one side says that once, and the other with every request.
func (g *Gateway) level(ctx context.Context, x *request) (*canonical.Message, error) {
	notifier := x.notifier()
	if notifier == nil || x.message.Origin.Version == x.route.Endpoint.Version || x.route.Description == nil || !notifier.Offers(x.route.Description).Log {
		return x.message, nil
	}
	wanted := translators.NotificationFilter{Verb: translators.FilterLevel, Level: x.message.Preferences.LogLevel}
	callers, agents := notifier.Ask(x.message.Origin.Version, wanted), notifier.Ask(x.route.Endpoint.Version, wanted)
	switch {
	case callers != nil && agents == nil && wanted.Level == "" && x.in.Call.Session != "":
		w, err := sessionsOf(g).Load(ctx, x.sessionKey())
		if err != nil || w.Level == "" {
			return x.message, err
		}
		louder := *x.message
		louder.Preferences.LogLevel = w.Level
		return &louder, nil
	case callers == nil && agents != nil && wanted.Level != "":
		return x.message, g.turnUp(ctx, x, agents)
	}
	return x.message, nil
}

// turnUp sets the log level of an agent before the request that wants it. If the agent refuses,
// only its log is missing. Of concurrent requests of one caller the level of the last one holds.
func (g *Gateway) turnUp(ctx context.Context, x *request, asking *canonical.Native) error {
	m := *x.message
	m.Op, m.Body, m.Preferences = canonical.OpNative, asking, canonical.Preferences{CanAnswer: x.route.Endpoint.AnswerModes}
	own := x.derive(&m)
	sealed, err := g.agent(own).Seal(ctx, &m)
	if err == nil {
		_, _, _, err = g.agent(own).acknowledged(ctx, sealed)
	}
	if _, refused := errors.AsType[*canonical.Error](err); refused {
		return nil
	}
	return err
}

// Seal implements [execution.Agent]: a message that the caller did not send in these words.
func (a agent) Seal(ctx context.Context, m *canonical.Message) (transport.Sealed, error) {
	x := a.x
	tr := attest.Translation{Direction: attest.Request, ID: cmp.Or(x.errand.ID, attest.NewID(x.to.Codec)), Internal: true, Again: x.errand.ID != ""}
	tr.Codec, tr.Pair = x.to.Codec, x.pair()
	tr.Target = x.target(m.Op == canonical.OpTaskSubscribe || m.Op == canonical.OpInvoke && x.streams())
	questions, err := a.g.question(ctx, x, m)
	if err != nil {
		return transport.Sealed{}, err
	}
	tr.Lineage.Parents = append(x.afterRequest(), questions...)
	tr.Audience, tr.Reader = a.g.audience(x), x.reader()
	m.Correlation.WireID = canonical.TextID(string(tr.ID))
	if x.route.Endpoint.Tenant != "" {
		m.Conversation.Tenant = x.route.Endpoint.Tenant
	}
	tr.Message = x.tasked(m)
	out, err := a.g.translate(ctx, x, tr)
	if err != nil {
		return transport.Sealed{}, err
	}
	own, err := a.g.ownTokens(ctx, x, questions)
	if err != nil {
		return transport.Sealed{}, err
	}
	return x.seal(out, own...)
}

// SealAsTask implements [execution.Agent].
func (a agent) SealAsTask(ctx context.Context) (transport.Sealed, error) {
	a.x.forced = true
	again := *a.x.message
	return a.Seal(ctx, &again)
}

// Inquire seals a message of ours about the work: an evidence of its own, behind that of the
// request.
func (a agent) Inquire(ctx context.Context, op canonical.Op, body canonical.Body) (transport.Sealed, error) {
	m := &canonical.Message{Op: op, Phase: canonical.PhaseRequest, Body: body, Trace: a.x.message.Trace}
	m.Preferences.CanAnswer = a.x.route.Endpoint.AnswerModes
	return a.Seal(ctx, m)
}

// saveArtifacts keeps what the reply that was signed last brought.
func (g *Gateway) saveArtifacts(ctx context.Context, x *request) {
	brought := x.snapshot
	if brought == nil || x.trail.Reply() == "" {
		return
	}
	x.snapshot = nil
	g.tasks.SaveArtifacts(context.WithoutCancel(ctx), x.keyOf(brought.task), store.Snapshot{
		Workflow: x.lineage.Workflow, Last: x.trail.Reply(), Artifacts: brought.artifacts,
	})
}

// snapshot holds the artifacts of a reply that the caller can read later.
type snapshot struct {
	task      string // by which it is known to its caller
	artifacts []canonical.Artifact
}

// label gives the artifacts of a task the URIs at which its caller can read them later, and makes
// the snapshot of them.
func (x *request) label(m *canonical.Message) {
	librarian := x.in.Features.Librarian
	result, answers := m.Body.(*canonical.Result)
	if librarian == nil || !answers || result.Task == nil || len(result.Task.Artifacts) == 0 || x.mode.Relay || x.in.Call.Agent == "" || !x.in.Call.EntryPoint.Native() {
		return
	}
	named, task := *result, *result.Task
	id := task.ID
	if x.record != nil {
		id = x.record.Task.ID // by which it is known to its caller
	}
	if id == "" || len(id) > store.MaxTaskID {
		return
	}
	task.Artifacts = slices.Clone(task.Artifacts)
	for i := range task.Artifacts {
		a := &task.Artifacts[i]
		a.Parts = slices.Clone(a.Parts)
		for n := range a.Parts {
			if a.ID != "" && librarian.Embeds(&a.Parts[n]) {
				a.Parts[n].URI, a.Parts[n].Form = mcpbridge.ArtifactURI(x.to.Agent.Name, id, a.ID, n), canonical.FormEmbedded
			}
		}
	}
	named.Task, m.Body = &task, &named
	x.snapshot = &snapshot{id, result.Task.Artifacts}
}
