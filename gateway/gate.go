package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"slices"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/approval"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/breakers"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/task"
	"github.com/aepb/aepb-gateway/gateway/task/execution"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/hitl"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// parkedError is a message for which a human has to decide, whose caller can be told by a task.
type parkedError struct{ request approval.Request }

func (*parkedError) Error() string { return "a human decides about this call" }

// approve judges whether a human has to approve the message, whose route is chosen. A message that goes on has
// what testifies to the approval among its parents. Its errors are *[problem.ApprovalError] and *parkedError, and
// those of [approval.Service.Pass] and [approval.Service.Consume].
func (g *Gateway) approve(ctx context.Context, x *request) error {
	invoke, ok := x.message.Body.(*canonical.Invoke)
	if !ok || x.in.Call.Agent == "" || x.settings.Approvals.Empty() && x.approval == "" || x.repeats() {
		return nil
	}
	call, err := x.call(invoke)
	if err != nil {
		return err
	}
	facts := x.facts(call, invoke)
	if x.settings.Approvals.NeedsLosses(facts) {
		if facts.Losses, err = x.foreseen(); err != nil {
			return err
		}
	}
	demand, needed := x.settings.Approvals.Match(facts)
	if x.approval != "" {
		a, err := g.parts.Approvals.Consume(ctx, x.approval, call, demand.Hash)
		if err == nil {
			x.lineage.Parents = behind(x.lineage.Parents, a)
		}
		return err
	}
	if !needed {
		return nil
	}
	wanted := approval.Request{Call: call, Demand: demand, Input: x.in.Input, Sign: func(ctx context.Context) (string, ect.ID, error) { return g.gated(ctx, x) }}
	if sources := x.in.Evidence.Sources; len(sources) > 0 {
		wanted.Input, wanted.Attested = sources[0].Claims().InputHash, true
	}
	if workflow, ids := x.in.Evidence.Origins(); len(ids) > 0 {
		wanted.Workflow = workflow
	}
	wanted.Text, wanted.Whole = hitl.Show(hitl.Shown{
		Call: call, Args: facts.Args, Words: x.words(invoke), Demand: demand, Losses: facts.Losses, Workflow: wanted.Workflow,
		Until: g.Now().Add(demand.Wait),
	})
	if x.parks() {
		return &parkedError{wanted}
	}
	a, err := g.parts.Approvals.Pass(ctx, wanted)
	if err != nil {
		return err
	}
	return g.follows(ctx, x, a)
}

// repeats reports whether the message makes a call once more with what its agent asked for, which was approved
// when it was made first.
func (x *request) repeats() bool { return x.claim != nil && x.claim.Prior.Resume == store.ResumeState }

// parks reports whether the caller is told by a task that its call waits. Any other caller is refused, and sends
// the call again.
func (x *request) parks() bool {
	return x.record == nil && !x.mode.Relay && (x.mode.Asking == translators.AskTask || x.mode.Insists) && len(x.in.Call.Wire.Body) <= execution.MaxRequest
}

// call is what is approved: who calls what, and a digest of all that the call says. What numbers and names a
// message is no part of it, since a caller that sends its call again numbers it anew.
func (x *request) call(invoke *canonical.Invoke) (hitl.Call, error) {
	said := *invoke
	said.Turn.ID, said.Push, said.TTL = "", nil, nil
	if said.Call != nil {
		said.Call = &canonical.Call{Name: said.Call.Name, Args: x.args(invoke)}
	}
	text, err := json.Marshal(struct {
		Skill        string
		Said         canonical.Invoke
		Conversation canonical.Conversation
		Extensions   canonical.Extensions
	}{x.message.To.Skill, said, x.message.Conversation, x.extensions()})
	if err != nil {
		return hitl.Call{}, err
	}
	call := hitl.Call{
		Caller: x.in.Call.Caller.ID, Agent: x.to.Agent.Name, Operation: string(x.message.Op), Tool: x.tool(invoke), Digest: ect.Hash(text),
	}
	if x.in.Call.Caller.Anonymous {
		call.Address = x.in.Call.Address
	}
	return call, nil
}

// extensions are those of the message, without what its sender puts into each message anew.
func (x *request) extensions() canonical.Extensions {
	if x.in.Features.Stamper == nil {
		return x.message.Extensions
	}
	return x.in.Features.Stamper.Unstamped(x.message.Extensions)
}

// tool is what is called, as the agent names it.
func (x *request) tool(invoke *canonical.Invoke) string {
	switch {
	case x.route.Capability != nil:
		return x.route.Capability.ID
	case x.route.Renamed && x.route.Message != nil:
		if renamed, ok := x.route.Message.Body.(*canonical.Invoke); ok && renamed.Call != nil {
			return renamed.Call.Name
		}
	case invoke.Call != nil:
		return invoke.Call.Name
	}
	return x.message.To.Skill
}

// args are the arguments of the call; nil: there are none.
func (x *request) args(invoke *canonical.Invoke) json.RawMessage {
	if invoke.Call == nil {
		return nil
	}
	return invoke.Call.Args
}

// facts are what rules are matched against.
func (x *request) facts(call hitl.Call, invoke *canonical.Invoke) hitl.Facts {
	return hitl.Facts{
		Caller: call.Caller, Agent: call.Agent, Operation: call.Operation, Tool: call.Tool, Args: x.args(invoke),
		Words: invoke.Call == nil,
	}
}

// foreseen is what the translation will lose, by code.
func (x *request) foreseen() ([]string, error) {
	losses := x.message.Losses
	if !x.verbatim() {
		message := *x.message
		_, more, err := x.to.Codec.Encode(&message, x.target(x.streams()))
		if err != nil {
			return nil, err
		}
		losses = slices.Concat(losses, more)
	}
	var codes []string
	for _, loss := range losses {
		codes = append(codes, string(loss.Code))
	}
	return codes, nil
}

// words are what a message says beside the arguments of its call, in JSON; text alone is as it is.
func (x *request) words(invoke *canonical.Invoke) string {
	said := struct {
		Parts      []canonical.Part
		Extensions []canonical.Extensions `json:",omitempty"`
	}{Parts: slices.DeleteFunc(slices.Clone(invoke.Turn.Parts), func(p canonical.Part) bool { return isCall(p, invoke.Call) })}
	for _, more := range []canonical.Extensions{x.extensions(), invoke.Extensions, invoke.Turn.Extensions} {
		if len(more) > 0 {
			said.Extensions = append(said.Extensions, more)
		}
	}
	switch {
	case len(said.Parts) == 0 && len(said.Extensions) == 0:
		return ""
	case len(said.Parts) == 1 && said.Parts[0].Kind == canonical.KindText && len(said.Extensions) == 0 && len(said.Parts[0].Extensions) == 0:
		return said.Parts[0].Text
	}
	text, err := json.Marshal(said)
	if err != nil {
		return "" // it was decoded from JSON
	}
	return string(text)
}

// isCall reports whether a part is nothing but the call, whose arguments are shown.
func isCall(p canonical.Part, call *canonical.Call) bool {
	if call == nil || p.Kind != canonical.KindData {
		return false
	}
	more := p.Name != "" || p.Title != "" || p.Description != "" || len(p.Annotations) > 0 || len(p.Extensions) > 0
	var said map[string]json.RawMessage
	if more || json.Unmarshal(p.Data, &said) != nil || len(said) != 2 || said["skill"] == nil {
		return false
	}
	return bytes.Equal(said["input"], call.Args)
}

// gated records what is to be approved: the caller's own token, or an intent that the gateway signs for it (R28).
func (g *Gateway) gated(ctx context.Context, x *request) (workflow string, id ect.ID, err error) {
	if sources := x.in.Evidence.Sources; len(sources) > 0 {
		return x.lineage.Workflow, sources[0].ID(), nil
	}
	id, err = g.attest.Statements().Intent(ctx, attest.Intent{Subject: x.subject(), Lineage: x.lineage, Input: x.in.Input})
	if err == nil {
		x.lineage.Parents, x.intended = []ect.ID{id}, true
	}
	return x.lineage.Workflow, id, err
}

// follows puts a message that was sent again behind its approval. One without a token gets an intent of its own,
// because its bytes may be others than those of the message that was approved.
func (g *Gateway) follows(ctx context.Context, x *request, a hitl.Approval) error {
	if len(x.in.Evidence.Sources) > 0 {
		if x.lineage.Workflow == a.Workflow {
			x.lineage.Parents = behind(x.lineage.Parents, a)
		}
		return nil
	}
	x.lineage.Workflow, x.lineage.Parents = a.Workflow, behind([]ect.ID{a.Gated}, a)
	_, _, err := g.gated(ctx, x)
	return err
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

// park answers a message that waits for a human with a task, and asks.
func (g *Gateway) park(ctx context.Context, x *request, r approval.Request) (transport.Answer, error) {
	workflow, gated, err := r.Sign(ctx)
	if err != nil {
		return transport.Answer{}, err
	}
	r.Sign = func(context.Context) (string, ect.ID, error) { return workflow, gated, nil }
	id, approvals := g.NewID(), g.parts.Approvals
	return g.tasks.Park(ctx, g.exchange(x), task.Asking{
		Approval: id, Path: approval.Path(id),
		Reserve: func(task string) error { return approvals.Reserve(ctx, id, task, r.Call) },
		Open: func(task string) error {
			_, err := approvals.Open(ctx, id, task, "", r)
			return err
		},
	})
}

// waitingTasks are those of callers that wait for an approval.
type waitingTasks struct{ *Gateway }

// Release implements [approval.Tasks].
func (w waitingTasks) Release(ctx context.Context, a hitl.Approval) error {
	g := w.Gateway
	if err := g.tasks.StartHeartbeat(ctx); err != nil { // else others would take what it consumes for lost
		return err
	}
	rec, err := g.tasks.Parked(ctx, taskOf(a), a.ID)
	if err != nil {
		return err
	}
	if rec == nil {
		return &problem.UnsentError{Reason: "its caller does not wait for it any more"}
	}
	x, err := g.released(ctx, a, rec)
	if err == nil {
		err = g.tasks.Release(ctx, g.exchange(x), rec)
		_, err = g.settle(ctx, x, transport.Answer{}, err)
	}
	if p := problem.From(err); err != nil && p.Status < http.StatusInternalServerError && p.Code != problem.CodePaused {
		err = &problem.UnsentError{Reason: p.Detail}
	}
	return err
}

// End implements [approval.Tasks].
func (w waitingTasks) End(ctx context.Context, a hitl.Approval, why string) error {
	if a.State == hitl.Consumed {
		return w.tasks.EndReleased(ctx, taskOf(a), a.ID, why, a.Replica == w.instance)
	}
	return w.tasks.EndParked(ctx, taskOf(a), a.ID, canonical.StateRejected, why)
}

// taskOf names the caller's task that waits for an approval.
func taskOf(a hitl.Approval) store.EntryKey {
	return store.TaskKey(a.Call.Owner(), a.Call.Agent, a.Task)
}

// released is the message of a task whose call was granted, as its caller sent it. Policy is asked again.
func (g *Gateway) released(ctx context.Context, a hitl.Approval, rec *store.Record) (*request, error) {
	first, _, err := g.tasks.First(rec)
	if err != nil {
		return nil, err
	}
	who := store.Principal{
		Caller: a.Call.Caller, Anonymous: a.Call.Address != "", Attested: a.Attested, Address: a.Call.Address, Version: rec.Call.Version, Form: rec.Call.Form,
	}
	x, err := g.standInFor(ctx, who, rec, rec.Call.Wire(rec.Source, ""))
	if err != nil {
		return nil, err
	}
	if x.in.Message = first; rec.Call.Tenanted {
		first.Conversation.Tenant = ""
	}
	x.admit(x.in, x.to)
	if err := x.in.Permit.Perform(string(first.Op)); err != nil {
		return nil, err
	}
	first.From = canonical.Party{ID: string(a.Call.Caller), Name: first.From.Name, Version: first.From.Version}
	x.original, x.approval = first.Body, a.ID
	x.about(rec)
	return x, nil
}

// approvalChanged tells those who have to know how an approval stands.
func (g *Gateway) approvalChanged(ctx context.Context, a hitl.Approval) {
	g.Metrics.Approvals().Changed(string(a.State))
	g.Logger.InfoContext(
		ctx, "approval", slog.String("approval", a.ID), slog.String("state", string(a.State)), slog.String("agent", a.Call.Agent),
		slog.String("tool", a.Call.Tool), slog.String("caller", string(a.Call.Caller)), slog.String("wid", a.Workflow),
	)
	if g.Escalate != nil && a.State == hitl.Pending {
		g.Escalate(ctx, breakers.Event{Agent: a.Call.Agent, State: "approval", Work: a.Workflow, At: a.Changed, Token: a.Token, Replica: g.instance, Approval: approval.Path(a.ID)})
	}
}

// approvalDecided tells those who registered a callback in the workflow (AEPB, HITL Callback Registration).
func (g *Gateway) approvalDecided(ctx context.Context, a hitl.Approval) {
	waiting, err := g.parts.Callbacks.Of(ctx, a.Workflow)
	if err != nil || len(waiting) == 0 {
		return
	}
	token, err := g.decisionOf(ctx, a)
	if err != nil {
		g.Logger.WarnContext(ctx, "a decision is not told: its token is not on record", slog.String("approval", a.ID), slog.Any("error", err))
		return
	}
	g.parts.Callbacks.Announce(ctx, &canonical.Signal{Approval: a.ID, Token: token}, waiting)
}

// decisionOf is the token of the decision that an approval rests on: the approver's own, or the gateway's.
func (g *Gateway) decisionOf(ctx context.Context, a hitl.Approval) (string, error) {
	last := a.Decisions
	if len(last) == 0 || last[len(last)-1].Token == "" {
		return a.Token, nil
	}
	d := last[len(last)-1]
	if claims, err := ect.ParseRecorded(a.Token); err == nil && claims.ID == d.Token {
		return a.Token, nil
	}
	found, err := g.Evidence.Get(ctx, ect.Ref{Workflow: a.Workflow, ID: d.Token, Issuer: d.Approver.ID})
	if err != nil {
		return "", err
	}
	if len(found) == 0 || len(found[0]) == 0 {
		return "", errNoDecision
	}
	return found[0][0].Compact, nil
}

var errNoDecision = errors.New("the evidence has no token of the decision")

// unwanted cancels the approval of a task that its caller has canceled.
func (g *Gateway) unwanted(ctx context.Context, id string) {
	if err := g.parts.Approvals.Cancel(ctx, id, "its caller has canceled the call"); err != nil {
		g.Logger.WarnContext(ctx, "an approval of a canceled call is still listed", slog.String("approval", id), slog.Any("error", err))
	}
}

// decideApproval takes a signed decision about an approval of the gateway's own; false: it is about none. The token
// is bound to the gated message by its inp_hash, so it is about the text that is shown of that, unless it says
// that its approver was shown another one.
func (g *Gateway) decideApproval(ctx context.Context, statement *canonical.Signal, token ect.Verified) (bool, error) {
	a, err := g.parts.Approvals.Show(ctx, statement.Approval)
	if _, missing := errors.AsType[*problem.NotFoundError](err); missing {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if !slices.Equal(token.Parents(), []ect.ID{a.Gated}) || token.Workflow() != a.Workflow {
		return false, &hitl.RefusedError{Reason: "the decision is about another call"}
	}
	shown := a.Shown
	if text, ok := token.Extension(ect.ExtApprovalShown); ok {
		shown = text
	}
	reason, _ := token.Extension(ect.ExtReason)
	who := g.operator(token.Issuer())
	_, err = g.parts.Approvals.Decide(ctx, a.ID, approval.Decision{
		Grant: token.Act() == ect.ActApprovalGranted, Approver: hitl.Approver{ID: token.Issuer(), Name: who.Name}, Roles: who.RoleNames(),
		Reason: reason, Shown: shown, Token: token.ID(),
	})
	return true, err
}

// Decision verifies and records the token of a decision that an approver brings itself. Its errors are those of
// [attest.Statements.Bring], and *[policy.Forbidden] for one that is not bound to what it decides about (R23).
func (g *Gateway) Decision(ctx context.Context, caller identity.Caller, holder, compact string) (ect.Verified, error) {
	token, err := g.attest.Verify(ctx, compact, ect.Check{Purpose: ect.Parent})
	if err != nil {
		return token, err
	}
	_, bound, err := g.parts.Members.Gate(ctx, token, "")
	if err != nil {
		return token, attest.Recording(err)
	}
	if !bound {
		return token, &policy.Forbidden{Reason: "the decision is not bound to what it decides, or its approver has a part in the work"}
	}
	return g.parts.Evidence.Bring(ctx, compact, caller.ID, holder)
}
