package gateway

import (
	"cmp"
	"context"
	"slices"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/admission"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/conversation"
	"github.com/aepb/aepb-gateway/gateway/destination"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/outbound"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/routing"
	"github.com/aepb/aepb-gateway/gateway/task/execution"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/rollback"
)

// request is one message on its way, as the values that the steps of the pipeline have made. A
// step reads what earlier steps made, and never calls one.
type request struct {
	in       admission.Admitted
	to       destination.Destination
	settings *Settings          // in force when the message came
	message  *canonical.Message // as it goes on
	mode     execution.Mode     // made anew with the route
	route    routing.Route
	thread   conversation.Thread // where its dialogue stands
	lineage  attest.Lineage      // of everything that is signed here
	trail    *attest.Trail
	hearer   *hearer // who is told news in the way of another revision; nil: there is no such caller
	scope    *scope

	work
}

// work is what a message is about.
type work struct {
	asked    canonical.Body // what its caller says, whatever becomes of the message
	record   *store.Record  // of the task; nil: it is not known yet, or none is kept
	prior    *store.Record  // as it was before this message answered what it asked; nil: it answered nothing
	webhook  *pushTarget    // who is to be told of changes of the task; nil: the message names no webhook
	snapshot *snapshot      // what the reply brings that its caller can read later; nil: nothing
	attested bool           // it began with an ECT, which is not here any more
	unseen   bool           // no caller is told: what the agent says is only saved
	forced   bool           // the agent does it as a task or not at all
}

// admit takes what admission has found out of the message.
func (x *request) admit(in admission.Admitted, to destination.Destination) {
	x.in, x.to, x.message = in, to, in.Message
	x.mode = execution.NewMode(x.sides(), x.route)
}

// saying puts another message in place of the one that goes on.
func (x *request) saying(m *canonical.Message) *request {
	x.message = m
	return x
}

// derive is another message about the same work: of the same caller to the same agent, with a trail of
// its own behind the request.
func (x *request) derive(m *canonical.Message) *request {
	own := &request{
		in: x.in, to: x.to, settings: x.settings, scope: &scope{began: x.scope.began}, mode: x.mode,
		route:   routing.Route{Endpoint: x.route.Endpoint, Description: x.route.Description, Renamed: x.route.Renamed},
		message: m, thread: x.thread, lineage: x.lineage, trail: x.trail.Again(),
		work: work{attested: x.attested, record: x.record},
	}
	own.trail.Follow(x.trail.Request())
	return own
}

// about makes the request one about the task of a record.
func (x *request) about(rec *store.Record) { x.record, x.lineage.Workflow = rec, rec.Workflow }

// apart is the request as it stands, with a record of its own.
func (x *request) apart() *request {
	own := *x
	if x.record != nil {
		rec := *x.record
		own.record = &rec
	}
	return &own
}

// choose finds the route of the message: where the agent is, and what is called there.
func (g *Gateway) choose(ctx context.Context, x *request) error {
	q := routing.Query{
		Sides: x.sides(), Body: x.asked, Header: x.in.Call.Wire.Header, Version: x.route.Endpoint.Version, Timeout: x.settings.Timeout,
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

// sides are the caller and the agent.
func (x *request) sides() routing.Sides {
	return routing.Sides{In: &x.in, To: &x.to, Message: x.message}
}

// reader is whoever leg 1 is for: the agent, else the caller who asked for a
// translation only.
func (x *request) reader() ect.Identity {
	switch {
	case x.to.Via != nil:
		return x.to.Via.Peer.ID
	case x.in.Call.Agent == "":
		return x.in.Call.Caller.ID
	}
	return x.to.Agent.ID
}

// request is leg 1: the caller's message in the destination's words.
func (g *Gateway) request(ctx context.Context, x *request) (transport.Sealed, transport.Attested, error) {
	if err := g.choose(ctx, x); err != nil {
		return transport.Sealed{}, transport.Attested{}, err
	}
	if err := x.in.Permit.Carry(x.route.Security(x.in.Call.Agent != "")); err != nil {
		admission.CountDenied(g.Metrics, err)
		return transport.Sealed{}, transport.Attested{}, err
	}
	along, err := g.along(x)
	if err != nil {
		return transport.Sealed{}, transport.Attested{}, err
	}
	thread, err := x.thread.Resolve(ctx, g.Conversations, x.parties(), x.message.Conversation.ContextID, x.recordedNames())
	if err != nil {
		return transport.Sealed{}, transport.Attested{}, err
	}
	x.thread = thread
	g.lineage(x)
	if x.message, err = g.await(ctx, x); err != nil {
		return transport.Sealed{}, transport.Attested{}, err
	}
	if x.message, err = g.level(ctx, x); err != nil {
		return transport.Sealed{}, transport.Attested{}, err
	}
	id := ect.ID(g.NewID())
	tr := attest.Translation{
		Direction: attest.Request, ID: id, Message: x.message, Input: x.in.Input,
		Codec: x.to.Codec, Pair: x.pair(),
		Target:  translators.Target{Version: x.route.Endpoint.Version, Form: x.route.Endpoint.Form, Capability: x.route.Capable(), Stream: x.streams()},
		Lineage: attest.Lineage{Parents: x.lineage.Parents}, Audience: g.audience(x), Reader: x.reader(),
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
	g.negotiated(ctx, x)
	sealed, err := x.seal(out, along...)
	return sealed, out, err
}

func (x *request) answer(out transport.Attested) transport.Answer {
	a := out.Answer()
	a.Evidence, a.Losses, a.Notice = x.trail.Proof(), x.trail.Losses(), routing.NoticeOf(x.to.Agent.Lifecycle)
	return a
}

// translated is a message that another gateway puts into the protocol that was
// asked for, for no agent in particular (AEPB, Multi-Hop Translation). What that
// gateway signed covers the message, and goes back with what we did.
func (g *Gateway) translated(ctx context.Context, x *request) (transport.Answer, error) {
	sealed, _, err := g.request(ctx, x)
	if err != nil {
		return transport.Answer{}, err
	}
	reply, err := g.agent(x).Send(ctx, sealed, x.route.Endpoint.Timeout)
	if err != nil {
		return transport.Answer{}, err
	}
	defer outbound.CloseReply(reply)
	reply.Wire.Binding = translators.ParseSide(string(x.to.Via.To)).Binding
	form, known := g.Registry.Translator(reply.Wire.Binding)
	if known {
		reply.Wire.Hasher = translators.HasherOf(form)
	}
	passed := attest.Passed{Subject: x.subject(), Workflow: x.lineage.Workflow, Wire: reply.Wire, Known: known}
	if reply.Events == nil {
		passed.Tokens = reply.Evidence
	}
	answer, reason, err := g.attest.Learn(ctx, x.trail, passed)
	if reason != "" {
		err = &transport.BadReplyError{Agent: x.route.Endpoint.Agent, Reason: reason}
	}
	if err != nil {
		return transport.Answer{}, err
	}
	answer.Evidence, answer.Losses, answer.Notice = x.trail.Proof(), x.trail.Losses(), routing.NoticeOf(x.to.Agent.Lifecycle)
	return answer, nil
}

// sends is the kind of the call that goes to where x goes.
func (x *request) sends() outbound.Kind {
	if x.to.Via != nil {
		return outbound.Peer
	}
	if _, apart := x.to.Codec.(*rollback.Form); apart {
		return outbound.Rollback
	}
	return outbound.Message
}

// whom is the agent in metrics: callers can name unknown agents without end.
func (x *request) whom() string {
	if x.to.Via != nil && x.to.Via.Unlisted {
		return "gateway"
	}
	return label(x.to.Agent)
}

// along are the ancestors of a request. A next gateway judges the message by them, so
// one that would not see all of them is not asked: what is left out, it could take for
// another token with that id.
func (g *Gateway) along(x *request) ([]string, error) {
	along, size := x.in.Evidence.Ancestors()
	if size > admission.MaxAncestors && g.toGateway(x) {
		return nil, &problem.AncestorsTooLargeError{Size: size, Limit: admission.MaxAncestors}
	}
	return along, nil
}

// toGateway reports whether a message goes on to another gateway, as far as we know.
func (g *Gateway) toGateway(x *request) bool {
	return x.to.Via != nil || x.to.Agent.ID != "" && (x.settings.rules.IsGateway(x.to.Agent.ID) ||
		slices.ContainsFunc(g.Directory.Peers(), func(p directory.Peer) bool { return p.ID == x.to.Agent.ID }))
}

// lineage decides workflow and parents of leg 1 (R3, R4): the source's, or those
// of the token that the message names, else the conversation's, else a root of a
// fresh workflow.
func (g *Gateway) lineage(x *request) {
	if workflow, ids := x.in.Evidence.Origins(); len(ids) > 0 {
		x.lineage.Workflow, x.lineage.Parents = workflow, ids
		return
	}
	if x.record != nil { // more about the same work
		x.lineage.Workflow, x.lineage.Parents = x.record.Workflow, x.behind(x.record)
		return
	}
	if workflow, last, ok := x.thread.Last(); ok {
		x.lineage.Workflow, x.lineage.Parents = workflow, []ect.ID{last}
		return
	}
	x.lineage.Workflow = g.NewID()
}

// maxReferences bounds the tasks that one message refers to.
const maxReferences = 32

// owned refuses a message that refers to work which is not its caller's (R2): the
// agent takes all of us for one caller, and would let it in. What is another's is
// not found, like what never was.
func (g *Gateway) owned(ctx context.Context, x *request) error {
	at := &x.message.Conversation
	if x.in.Call.Agent == "" {
		return nil
	}
	if len(at.ReferenceTasks) > maxReferences {
		return &canonical.Error{Code: canonical.CodeBadParams, Message: "the message refers to too many tasks"}
	}
	for i, id := range at.ReferenceTasks {
		rec, err := store.Known(g.tasks.Load(ctx, x.keyOf(id)))
		if err != nil {
			return err
		}
		if rec.TaskID != "" {
			at.ReferenceTasks[i] = rec.TaskID
		}
	}
	return nil
}
