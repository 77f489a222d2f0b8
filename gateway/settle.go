package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/approval"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/breakers"
	"github.com/aepb/aepb-gateway/gateway/idempotency"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/rollback"
	"github.com/aepb/aepb-gateway/gateway/routing"
	"github.com/aepb/aepb-gateway/gateway/task/execution"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/workflow"
	"github.com/aepb/aepb-gateway/lifecycle/schedule"
	severity "github.com/aepb/aepb-gateway/lifecycle/workflow"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/hitl"
	"github.com/aepb/aepb-gateway/policy/quota"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/embedded"
)

// fail signs an aepb:translate_error ECT for a message that came to policy (AEPB, Translation
// Failure Handling; CPAT registers no act of its own for this, R10). For earlier refusals it signs
// nothing. It returns the evidence for the caller.
func (g *Gateway) fail(ctx context.Context, x *request, answer transport.Answer, cause error) transport.Answer {
	if x.in.OneOfManyRefusals {
		return transport.Answer{Notice: routing.NoticeOf(x.to.Agent.Lifecycle)}
	}
	_, approved := errors.AsType[*problem.ApprovalError](cause) // what is approved is on record, and what was decided
	_, waits := errors.AsType[*problem.WaitingError](cause)
	if approved || waits && x.message != nil && x.message.Op == canonical.OpRollback || !x.in.LeavesEvidence { // nothing has failed so far
		return answer
	}
	ctx = context.WithoutCancel(ctx) // the caller may be gone; the evidence must not be
	g.beginStep(ctx, x)
	failure := attest.Failure{
		Subject: x.subject(), Lineage: attest.Lineage{Workflow: g.failedWorkflow(x), Parents: failedParents(x)},
		Cause: cause, Pair: attest.Pair{From: x.in.Call.Wire.Binding, To: x.toBinding()}, Input: x.in.Input, Unlisted: x.in.Foreign(),
	}
	if h := x.in.Call.Wire.Hasher; h != nil {
		failure.Pair.HashForm = h.HashForm()
	} else if x.callerInside() {
		failure.Pair.HashForm = embedded.HashForm
	}
	g.failStep(ctx, x, failure.Lineage.Workflow, cause)
	answer = transport.Answer{Notice: routing.NoticeOf(x.to.Agent.Lifecycle)}
	if g.attest.Failure(ctx, x.trail, failure) {
		answer.Losses = x.trail.Losses()
		if x.lineage.Workflow == "" { // the log names it; work that still goes on has one, and reads it meanwhile
			x.lineage.Workflow = failure.Lineage.Workflow
		}
	}
	answer.Evidence = x.trail.Proof()
	return answer
}

// beginStep makes a step of a message that failed before its lineage was known, in a workflow that has a start:
// one without a token gets the intent that it would have had. Where that fails, the failure has evidence of its
// own.
func (g *Gateway) beginStep(ctx context.Context, x *request) {
	workflow, ids := x.in.Evidence.Origins()
	if x.lineage.Workflow != "" || !x.in.Recorded || len(ids) == 0 {
		return
	}
	var err error
	if _, x.started, err = g.parts.Workflows.Started(ctx, workflow); err != nil || !x.started {
		return
	}
	x.lineage.Workflow, x.lineage.Parents = workflow, ids
	if err := g.intend(ctx, x); err != nil {
		g.Logger.WarnContext(ctx, "the intent of a message that failed is not recorded", slog.String("wid", workflow), slog.Any("error", err))
	}
}

// failStep signs the error of a step of a workflow that has a start (ATD, Error Signaling).
func (g *Gateway) failStep(ctx context.Context, x *request, wid string, cause error) {
	if !x.started || !x.in.Recorded {
		return
	}
	p := problem.From(cause)
	f := workflow.Failure{Code: p.Code, Next: p.NextGateway, Description: problem.OnRecord(cause)}
	if _, exhausted := errors.AsType[*schedule.ExhaustedError](cause); exhausted { // ATD, Unsatisfiable Resource Hints
		f.Severity = severity.SeverityCritical
	}
	g.parts.Workflows.Fail(ctx, x.failed(wid, f))
}

// failed adds to a failure what the request knows of it.
func (x *request) failed(wid string, f workflow.Failure) workflow.Failure {
	f.Workflow, f.Action, f.Upstream, f.Caller, f.Holder = wid, failedParents(x), x.trail.Failures(), x.in.Call.Caller.ID, x.in.Holder
	if id := x.trail.Request(); id != "" {
		f.Action = []ect.ID{id}
	}
	if x.made != nil {
		f.Checkpoint = x.made.ID
	}
	f.Owner, f.Cascade, f.Irreversible = x.owner(), x.cascades(), x.made.unknown()
	return f
}

// cascades reports whether a failure of the request begins a rollback: the operator's policy says it, else the caller's own token.
func (x *request) cascades() bool {
	if rule := x.settings.Constraints.Cascade; rule != "" {
		return rule == policy.CascadeAlways
	}
	return slices.ContainsFunc(x.in.Evidence.Sources, func(v ect.Verified) bool {
		wants, _ := v.Claims().Ext.Bool(ect.ExtCascade)
		return wants && v.Issuer() == x.in.Call.Caller.ID
	})
}

// escalated tells operators of a critical error of a workflow.
func (g *Gateway) escalated(ctx context.Context, wid, compact string) {
	g.Logger.ErrorContext(ctx, "a step of a workflow failed critically: look after it", slog.String("wid", wid))
	if g.Escalate != nil {
		g.Escalate(ctx, breakers.Event{Work: wid, State: "escalated", Reason: "critical", At: g.Now(), Token: compact, Replica: g.instance})
	}
}

func (g *Gateway) failedWorkflow(x *request) string {
	if x.lineage.Workflow != "" {
		return x.lineage.Workflow
	}
	if workflow, ids := x.in.Evidence.Origins(); len(ids) > 0 {
		return workflow
	}
	return string(ect.NewID())
}

// failedParents returns the source ECT, as the draft demands; without one, what we signed last,
// else the parent that the message names.
func failedParents(x *request) []ect.ID {
	switch without := len(x.in.Evidence.Sources) == 0; {
	case without && x.trail.Request() != "":
		return []ect.ID{x.trail.Request()}
	case without && x.started && len(x.lineage.Parents) > 0:
		return x.lineage.Parents
	}
	if _, ids := x.in.Evidence.Origins(); len(ids) > 0 {
		return ids
	}
	return x.lineage.Parents
}

// finish counts the exchange, and gives back what it took. Later calls do nothing.
func (g *Gateway) finish(ctx context.Context, x *request, err error) {
	x.scope.close(func() {
		result := "ok"
		if err != nil {
			result = problem.From(err).Code
		}
		took := g.Now().Sub(x.scope.began)
		g.Metrics.Translated(string(x.in.Call.Wire.Binding), string(x.toBinding()), result, took)
		reason := problem.ReasonOf(err)
		if reason != "" {
			g.Metrics.UpstreamFailed(x.agentLabel(), reason)
		}
		level := slog.LevelDebug
		if err != nil && !x.in.OneOfManyRefusals { // of those, samples are logged
			level = slog.LevelWarn
		}
		if !g.Logger.Enabled(ctx, level) { // as a rule, and the attributes are not for nothing
			return
		}
		attrs := []slog.Attr{
			slog.String("from", string(x.in.Call.Wire.Binding)), slog.String("to", string(x.toBinding())),
			slog.String("agent", x.to.Agent.Name), slog.String("caller", string(x.in.Call.Caller.ID)),
			slog.String("result", result), slog.String("wid", x.lineage.Workflow), slog.Int("losses", len(x.trail.Losses())),
			slog.Duration("took", took),
		}
		if err != nil {
			attrs = append(attrs, slog.Any("error", err))
		}
		if reason != "" {
			attrs = append(attrs, slog.String("reason", string(reason)))
		}
		if e, ok := errors.AsType[*transport.UnreachableError](err); ok && e.Err != nil { // for logs alone: it quotes no message
			attrs = append(attrs, slog.Any("cause", e.Err))
		}
		g.Logger.LogAttrs(ctx, level, "exchange", attrs...)
	})
}

// scope is what one request takes while it is under way, and gives back once.
type scope struct {
	began   time.Time
	release func()             // counts the request out; nil: it is part of another request
	exit    func()             // counts it out at its agent; nil: it has not come so far
	once    sync.Once          // release and forget are called once
	stopped context.Context    //nolint:containedctx // ends when the caller cancels its request; nil: it cannot any more
	place   func()             // gives its place at the agent back; nil: it has none
	worker  *quota.Grant       // of the background work that the message may begin; nil: it was not reserved, or is in use
	forget  context.CancelFunc // takes the request out of the registry; nil: it is not in it
}

// close calls finish, and then gives back what the request took. Later calls do
// nothing.
func (s *scope) close(finish func()) {
	s.once.Do(func() {
		finish()
		if s.release != nil {
			s.release()
		}
		if s.exit != nil {
			s.exit()
		}
		if s.forget != nil {
			s.forget()
		}
		if s.place != nil {
			s.place()
		}
	})
}

// releaseWorker gives back the share of background work, unless work that goes on has it.
func (s *scope) releaseWorker() {
	if s.worker != nil {
		s.worker.Release()
		s.worker = nil
	}
}

// takePlace hands over the place at the agent, and returns what gives it back.
func (s *scope) takePlace() func() {
	leave := s.place
	s.place = nil
	if leave == nil {
		return func() {}
	}
	return leave
}

// takeWorker hands over the share of background work; nil: there is no share.
func (s *scope) takeWorker() *quota.Grant {
	grant := s.worker
	s.worker = nil
	return grant
}

// isCanceled reports whether the caller canceled its request.
func (s *scope) isCanceled() bool {
	return s.stopped != nil && errors.Is(context.Cause(s.stopped), execution.ErrCanceled)
}

// requestName names a request of a session.
func requestName(session string, id json.RawMessage) string { return session + "\x00" + string(id) }

// errInUse: an id names one request of a session (MCP, "Requests"). A cancellation could
// mean either of two requests with the same id.
var errInUse = &canonical.Error{
	Code: canonical.CodeInvalidRequest, Message: "a request with this id is under way in this session",
}

// register adds the message's request to the registry until its scope closes. A request
// without a session cannot be named, so it is not added.
func (g *Gateway) register(ctx context.Context, x *request) (context.Context, error) {
	x.scope.stopped = g.lifetime(ctx, x)
	session := x.in.Call.Session
	if session == "" || len(x.in.WireID) == 0 {
		return x.scope.stopped, nil
	}
	ctx, cancel := context.WithCancelCause(x.scope.stopped)
	ctx, release, free := g.cancels.Register(ctx, requestName(session, x.in.WireID), execution.ErrCanceled)
	if !free {
		cancel(nil)
		return nil, errInUse
	}
	key := x.cancelKey(x.in.WireID)
	// Most requests are over before it is worth a write to the store.
	watch := time.AfterFunc(execution.FirstEventWait, func() {
		_ = g.cancelWatchers.GoFor(key.OwnerOf(), 0, func(life context.Context) {
			ctx, end := context.WithCancel(ctx)
			defer end()
			defer context.AfterFunc(life, end)()
			g.tasks.WatchCancel(ctx, key, func() { cancel(execution.ErrCanceled) })
		})
	})
	x.scope.stopped, x.scope.forget = ctx, func() { watch.Stop(); release(); cancel(nil) }
	return ctx, nil
}

func (x *request) cancelKey(id json.RawMessage) store.EntryKey {
	return store.CancelKey(x.owner(), x.in.Call.Session, id)
}

// cancel cancels a request of a session at whichever replica it is under way. It
// reports whether a replica has said that it is.
func (g *Gateway) cancel(ctx context.Context, x *request, id json.RawMessage) (bool, error) {
	session := x.in.Call.Session
	if g.cancels.Cancel(requestName(session, id)) {
		return true, nil
	}
	if session == "" || len(id) == 0 {
		return false, nil
	}
	return g.tasks.Cancel(ctx, x.cancelKey(id))
}

// lifetime returns the context of the work. It ends with the gateway, and with the caller's
// connection if a closed connection cancels the request.
func (g *Gateway) lifetime(ctx context.Context, x *request) context.Context {
	if x.in.Call.Detached {
		return g.workers.Detach(ctx)
	}
	return ctx
}

// store keeps an answer, or how the message failed, under the key of each source that
// was used up.
func (g *Gateway) store(ctx context.Context, x *request, answer transport.Answer, cause error) {
	if len(x.in.Used) == 0 {
		return
	}
	reply := idempotency.Reply{Wire: answer.Wire(), Evidence: x.trail.IDs()}
	if cause != nil {
		p := problem.From(cause)
		p.Request = transport.RequestID(ctx)
		reply.Problem = &p
	}
	blob, err := reply.Encode()
	if err != nil {
		return
	}
	for _, v := range x.in.Used {
		key := ect.ReplayKey{Issuer: v.Issuer(), Workflow: v.Workflow(), ID: v.ID()}
		g.Answers.Finish(ctx, key, blob, time.Unix(v.Expires(), 0))
	}
}

func (x *request) answer(out transport.Attested) transport.Answer {
	a := out.Answer()
	a.Evidence, a.Losses, a.Notice = x.trail.Proof(), x.trail.Losses(), routing.NoticeOf(x.to.Agent.Lifecycle)
	return a
}

// unknown reports whether it is not known what a call did that cannot be undone.
func (c *made) unknown() bool { return c != nil && !c.Reversible && !(c.over && c.outcome.Failed) }

// humans decide what rollbacks cannot.
type humans struct{ g *Gateway }

// Hold implements [rollback.Humans].
func (h humans) Hold(ctx context.Context, e hitl.StandingEvent, after attest.Lineage) error {
	e.At = h.g.Now().UTC()
	_, err := h.g.parts.Levels.Change(ctx, after.Workflow, approval.Order{Event: e, After: after})
	return err
}

// Lift implements [rollback.Humans]. A workflow that is held for another reason, too, stays held.
func (h humans) Lift(ctx context.Context, wid, by, why string) error {
	if level, err := h.g.parts.Levels.Read(ctx, wid); err != nil || level.Mode != hitl.Paused || level.Why != why {
		return err
	}
	e := hitl.StandingEvent{Step: hitl.Lift, At: h.g.Now().UTC(), By: by, Reason: "an approver accepts what cannot be undone", Roles: []string{string(policy.RoleApprover)}}
	_, err := h.g.parts.Levels.Set(ctx, wid, e)
	_, refused := errors.AsType[*hitl.RefusedError](err)
	if _, runs := errors.AsType[*hitl.StandingError](err); refused || runs {
		h.g.Logger.InfoContext(ctx, "a workflow stays as it is after an approval", slog.String("wid", wid), slog.Any("error", err))
		return nil
	}
	return err
}

// Standing implements [rollback.Humans].
func (h humans) Standing(ctx context.Context, wid string) (hitl.Mode, error) {
	level, err := h.g.parts.Levels.Read(ctx, wid)
	return level.Mode, err
}

// Ask implements [rollback.Humans].
func (h humans) Ask(ctx context.Context, q rollback.Question) error {
	return approval.Ask(ctx, h.g.parts.Approvals, approval.Question{
		ID: q.ID, About: "rollback", Asker: q.Asker, Workflow: q.Workflow, Gated: q.Gated, Input: ect.Hash(q.Content), Content: q.Content,
		Subject: "These steps cannot be undone.", Grant: "the steps stay, and the workflow goes on", Deny: "the workflow is stopped",
	})
}

// Answer implements [rollback.Humans].
func (h humans) Answer(ctx context.Context, id string) (granted, over bool, err error) {
	return approval.Answer(ctx, h.g.parts.Approvals, id)
}

// plans finds the descriptors that workflows follow (R27).
type plans struct{ g *Gateway }

// Plan implements workflow.Plans.
func (p plans) Plan(ctx context.Context, name string, version int) (workflow.Bound, []byte, error) {
	v, text, err := p.g.parts.Descriptors.Get(ctx, name, version)
	return workflow.Bound{Name: v.Name, Version: v.Number, Hash: v.Hash}, text, err
}

// Names implements workflow.Plans.
func (p plans) Names(ctx context.Context, agent string) []string {
	names, _ := p.g.Directory.NamesOf(ctx, agent)
	return names
}
