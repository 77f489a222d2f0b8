package gateway

import (
	"context"
	"slices"

	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/mcpbridge"
	"github.com/aepb/aepb-gateway/gateway/outbound"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// pass carries what only one protocol has, and what answers or stops what is
// under way there. Across protocols it has no counterpart (R7, L13, L14).
func (g *Gateway) pass(ctx context.Context, x *request) (transport.Answer, error) {
	if reply, ok := x.message.Body.(*canonical.Reply); ok {
		if id := unquoted(reply.ID); id != "" && x.in.Call.Session != "" {
			if done, err := g.tasks.Answer(ctx, g.caller(x).QuestionKey(id), reply, x.answerWait()); done || err != nil {
				return transport.Answer{}, err
			}
		}
	}
	if abort, ok := x.message.Body.(*canonical.Abort); ok {
		if done, err := g.cancel(ctx, x, abort.Request); done || err != nil {
			return transport.Answer{}, err
		}
	}
	if x.message.Op == canonical.OpAnswer && g.asksIn(ctx, x, true) { // an answer said again, to a question of ours, which was taken
		return transport.Answer{}, nil
	}
	if answer, done, err := g.news(ctx, x); done || err != nil {
		return answer, err
	}
	if x.listens() && !g.asksIn(ctx, x, false) { // there is nothing to hear, which is no mistake
		return transport.Answer{}, nil
	}
	if !x.mode.Relay {
		if answer, done, err := g.look(ctx, x); done || err != nil {
			return answer, err
		}
		return transport.Answer{}, x.noCounterpart()
	}
	if x.message.Op == canonical.OpNative {
		var err error
		if ctx, err = g.register(ctx, x); err != nil {
			return transport.Answer{}, err
		}
		if answered, answer, err := g.resume(ctx, x); answered || err != nil {
			return answer, err
		}
	}
	sealed, _, err := g.request(ctx, x)
	if err != nil {
		return transport.Answer{}, err
	}
	if x.message.Op == canonical.OpNative {
		return g.converse(ctx, x, sealed)
	}
	reply, err := g.agent(x).Send(ctx, sealed, x.route.Endpoint.Timeout)
	outbound.CloseReply(reply)
	if err == nil {
		err = g.heeded(x, reply)
	}
	return transport.Answer{Evidence: x.trail.Tokens()}, err
}

// ownCard puts our card in place of the extended card that an agent answers with
// (A2A 3.1.11): the same skills at our URLs, cleaned as every description is (R9).
// Any other reply stays as it is; a *transport.BadReplyError: there is no card in it.
func (x *request) ownCard(m *canonical.Message) (*canonical.Message, error) {
	if x.in.Call.Card == nil {
		return m, nil
	}
	bad := &transport.BadReplyError{Agent: x.to.Agent.Name, Reason: "not a card in answer to the request for its extended card"}
	if m == nil {
		return nil, bad // it answers with a stream
	}
	said, ok := m.Body.(*canonical.Native)
	if !ok {
		return m, nil
	}
	decoded, err := x.to.Codec.Decode(translators.Wire{Binding: x.to.Codec.Info().Binding, Media: x.to.Codec.Info().Media[0], Body: said.Result, Re: canonical.OpDescribe})
	if err != nil {
		return nil, bad
	}
	description, ok := decoded.Body.(*canonical.Description)
	if !ok {
		return nil, bad
	}
	clean, _ := directory.Clean(*description)
	card, err := x.in.Call.Card(&clean)
	if err != nil {
		return nil, bad
	}
	m.Body = &canonical.Native{Result: card}
	return m, nil
}

// heeded: what an agent says of an answer, or of a wish to stop, is no refusal.
// Most protocols say nothing of such.
func (g *Gateway) heeded(x *request, reply transport.Reply) error {
	if len(x.in.WireID) == 0 || reply.Events != nil || len(reply.Wire.Body) == 0 {
		return nil
	}
	m, err := g.agent(x).decode(reply.Wire, x.message.Op)
	if err != nil {
		return err
	}
	if refused, ok := m.Body.(*canonical.Error); ok {
		return refused
	}
	return nil
}

// noCounterpart: an agent of another protocol has no such method. What nobody
// waits for is dropped without a word.
func (x *request) noCounterpart() error {
	if x.message.Op == canonical.OpAbort && len(x.in.WireID) > 0 { // somebody waits to hear that it was stopped
		return &canonical.Error{Code: canonical.CodeNotCancelable, Message: "no request of this name is under way here that could be stopped"}
	}
	if x.in.Call.Entrance.Native() && x.message.Op != canonical.OpNative {
		return nil
	}
	if x.in.Call.Entrance.Native() {
		return &canonical.Error{Code: canonical.CodeNoMethod, Message: "the agent speaks a protocol without this method"}
	}
	code := canonical.LossOperation
	if x.message.Op == canonical.OpNative {
		code = canonical.LossPrompts
	}
	loss := canonical.Loss{Code: code, Path: "/" + string(x.message.Op), Fate: canonical.Dropped}
	return x.in.Permit.Judge(attest.Judged([]canonical.Loss{loss}))
}

// snapshot is what a reply brings that its caller can read later.
type snapshot struct {
	task      string // by which it is known to its caller
	artifacts []canonical.Artifact
}

// label gives what came of a task the names under which its caller can read it
// later, and takes note of it.
func (x *request) label(m *canonical.Message) {
	librarian := x.in.Features.Librarian
	result, answers := m.Body.(*canonical.Result)
	if librarian == nil || !answers || result.Task == nil || len(result.Task.Artifacts) == 0 || x.mode.Relay || x.in.Call.Agent == "" || !x.in.Call.Entrance.Native() {
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

// look answers a caller who looks for what was made for it: itself, because only
// here is known what of an agent's work is whose. False: it asks something else.
func (g *Gateway) look(ctx context.Context, x *request) (answer transport.Answer, done bool, err error) {
	librarian := x.in.Features.Librarian
	native, asks := x.message.Body.(*canonical.Native)
	if librarian == nil || !asks || !x.in.Call.Entrance.Native() {
		return answer, false, nil
	}
	seeking, err := librarian.Seeks(native)
	if err != nil || seeking == nil {
		return answer, false, err
	}
	m := &canonical.Message{
		Op: x.message.Op, Phase: canonical.PhaseResponse, Correlation: canonical.Correlation{WireID: x.in.WireID},
		Origin: canonical.Origin{Binding: x.in.Source.Info().Binding},
	}
	g.lineage(x)
	var showing translators.Showing
	switch showing.What = seeking.What; seeking.What {
	case translators.SeekPatterns:
		showing.Holdings = mcpbridge.Patterns(x.to.Agent.Name)
	case translators.SeekOne:
		var read mcpbridge.Read
		read, err = mcpbridge.Artifacts{Tasks: g.tasks.Store}.Read(ctx, x.to.Agent.Name, seeking.URI, x.keyOf)
		if err == nil {
			showing.Contents, m.Losses = read.Contents, read.Losses
			x.lineage.Workflow, x.lineage.Parents = read.Workflow, x.behind(&store.Record{Proof: store.Proof{Last: read.Last}})
		}
	default:
		showing.Holdings, showing.Next, err = mcpbridge.Artifacts{Tasks: g.tasks.Store}.List(ctx, x.keyOf("").Group, x.to.Agent.Name, seeking.Cursor)
	}
	if err != nil {
		return answer, false, err
	}
	m.Body = librarian.Shows(showing)
	out, err := g.translate(ctx, x, g.caller(x).translation(m, x.lineage.Parents))
	return x.answer(out), true, err
}
