package gateway

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/task/execution"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/policy/membership"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/embedded"
	"github.com/aepb/aepb-gateway/translators/stream"
)

// The gateway answers an A2A caller with a task if the agent's protocol has calls only (MCP, µACP,
// AINP). This file adds what such a task needs beside the result of the call: the time of each
// status (A2A 1.0, 4.1.2, TaskStatus.timestamp), and the history that historyLength asks for (A2A
// 1.0, 3.2.4).

// history returns the history of a task that the gateway makes: the messages of the caller, and the
// questions in between. Nil: the gateway makes no task.
func (x *request) history() []canonical.Content {
	if !x.mode.MakesTask {
		return nil
	}
	var history []canonical.Content
	if x.record != nil {
		history = append(history, x.record.Task.History...)
	}
	if x.claim.Holds() {
		prior := &x.claim.Prior
		history = append(history, execution.Question(prior.Task.ID, prior.Round, stream.Inputs(&prior.Task)))
	}
	if turn := x.turn(); turn != nil {
		history = append(history, *turn)
	}
	return execution.Newest(history)
}

// turn returns the caller's message as an entry of a history; nil: it is not part of a history.
func (x *request) turn() *canonical.Content {
	invoke, ok := x.original.(*canonical.Invoke)
	if !ok || !x.mode.MakesTask || len(invoke.Turn.Parts) == 0 || len(x.in.Call.Wire.Body) > execution.MaxRequest {
		return nil
	}
	return &invoke.Turn
}

// shortened returns the newest historyLength entries of a history; without historyLength all,
// but none for a task that the gateway made itself (A2A 1.0, 3.2.4).
func (x *request) shortened(history []canonical.Content) []canonical.Content {
	most := len(history)
	switch length := x.message.Preferences.HistoryLength; {
	case length != nil && *length >= 0:
		most = min(most, *length)
	case x.mode.MakesTask:
		return nil
	}
	return history[len(history)-most:]
}

// completeTask puts the time of the status and the history into a task that the gateway makes of a
// call's result. It makes the task itself if it has a history: the codec knows the outcome alone.
func (g *Gateway) completeTask(x *request, m *canonical.Message) {
	result, ok := m.Body.(*canonical.Result)
	if !ok || !x.mode.MakesTask {
		return
	}
	copied := *result
	var history []canonical.Content
	if x.message.Preferences.HistoryLength != nil {
		history = x.shortened(x.history())
	}
	switch {
	case copied.Output != nil:
		output := *copied.Output
		if output.At.IsZero() {
			output.At = execution.Milliseconds(g.Now())
		}
		copied.Output = &output
		if len(history) > 0 {
			copied.Task, copied.Output = madeOf(m.Conversation, output, history), nil
		}
	case copied.Task != nil:
		task := *copied.Task
		if task.Status.At.IsZero() {
			task.Status.At = execution.Milliseconds(g.Now())
		}
		if task.History == nil {
			task.History = history
		}
		copied.Task = &task
	}
	m.Body = &copied
}

// madeOf makes a task of the output of a call.
func madeOf(at canonical.Conversation, output canonical.Output, history []canonical.Content) *canonical.Task {
	status := canonical.Status{State: canonical.StateCompleted, At: output.At}
	if output.Failed {
		status.State = canonical.StateFailed
	}
	output.At = time.Time{}
	return &canonical.Task{ID: at.TaskID, ContextID: at.ContextID, Status: status, Output: &output, History: history}
}

// tasking reports whether the agent shall do the message as a task, of which its caller learns in
// its own protocol, or not at all.
func (x *request) tasking() bool {
	if x.message.Op != canonical.OpInvoke || !x.mode.Converts {
		return false
	}
	tasker := x.in.Features.Tasker
	only := tasker.Tasks(x.route.Endpoint.Version) == translators.TaskingApart && x.route.Marks != nil && tasker.TaskOnly(x.route.Marks)
	return x.message.Preferences.TaskOK || x.forced || only
}

// wantsTask reports whether the agent refused the call since it does it as a task only.
func (x *request) wantsTask(reply *canonical.Message) bool {
	return x.message.Op == canonical.OpInvoke && !x.tasking() && x.mode.DemandsTask(reply)
}

// longRunning reports whether the caller asked for more than one answer, or not to wait for it. In a
// relay the agent decides about waiting.
func (x *request) longRunning() bool {
	p := x.message.Preferences
	if x.in.Call.Agent == "" || x.mode.Relay {
		return x.in.Call.Agent != "" && (p.Stream || x.tasking() || x.hasWebhook())
	}
	return p.Stream || p.NoWait || p.TaskOK || x.hasWebhook()
}

// hasWebhook reports whether a webhook gets each change of the task, so that the gateway reads the
// events of the agent also if the caller does not. An agent of the caller's own protocol that does
// not stream has no events.
func (x *request) hasWebhook() bool {
	return x.webhook != nil && x.message.Op == canonical.OpInvoke && (!x.mode.Relay || x.route.Description != nil && x.route.Description.Streams)
}

// target returns version, form and capability for a message to the agent.
func (x *request) target(stream bool) translators.Target {
	at := &x.route.Endpoint
	t := translators.Target{Version: at.Version, Form: at.Form, Capability: x.route.Capable(), Stream: stream}
	if asker := x.to.Features.Asker; asker != nil && !at.Sessionless && asker.Asks(at.Version, at.Form) == translators.AskStream {
		t.Answers = at.AnswerModes
	}
	return t
}

// streams reports whether the gateway asks for a stream, to follow and to cancel the work.
func (x *request) streams() bool {
	switch {
	case x.in.Call.Agent == "":
		return false
	case x.mode.Relay:
		return x.message.Preferences.Stream || x.hasWebhook()
	default:
		return x.route.Description != nil && x.route.Description.Streams && x.mode.AgentStreams == translators.StreamsTask
	}
}

// final: there is nothing to do with this answer but to pass it on.
func (x *request) final(m *canonical.Message) bool {
	result, ok := m.Body.(*canonical.Result)
	switch {
	case !ok || x.verbatim() || x.message.Op != canonical.OpInvoke && x.message.Op != canonical.OpNative:
		return true
	case result.Pending != nil:
		return x.mode.Relay && x.mode.Asking == translators.AskReply
	case result.Task == nil || x.mode.Relay:
		return true
	case x.mode.Promises(result.Task):
		return false
	case result.Task.Status.State.Terminal():
		return true
	default:
		return stream.Settled(result.Task.Status.State) && (x.mode.Asking == translators.AskNone || x.mode.Asking == translators.AskTask)
	}
}

// verbatim reports whether both sides use one protocol in one version and form, so that messages
// pass byte by byte. At the translate endpoint a message has no header fields of its protocol, so
// it is encoded anew.
func (x *request) verbatim() bool {
	return !x.unseen && x.in.Call.EntryPoint.Native() && x.mode.Relay && x.route.Endpoint.Version == x.message.Origin.Version && x.route.Endpoint.Form == x.in.Call.Wire.Form &&
		!x.route.Endpoint.Rewritten() && !x.in.Call.Tenanted && x.webhook == nil && !x.thread.Renamed() && x.in.Call.Card == nil
}

// createsTask reports whether the agent makes a task of the message, which goes on when the connection
// ends. The gateway cannot cancel it before the agent has named it.
func (x *request) createsTask() bool {
	return x.in.Call.Agent != "" && x.message.Op == canonical.OpInvoke && x.mode.AgentStreams == translators.StreamsTask
}

// subject returns the caller of the exchange, for evidence.
func (x *request) subject() attest.Subject {
	return attest.Subject{
		Caller: x.in.Call.Caller, Holder: x.in.Holder, EntryPoint: x.in.Call.EntryPoint, Version: x.settings.Version, Permit: x.in.Permit,
		Unattested: len(x.in.Evidence.Sources) == 0 && !x.attested, ByRole: x.in.ByRole, Gateway: x.in.Evidence.Path.Hops() > 0,
	}
}

// stream returns the caller's stream, for its evidence.
func (x *request) stream() attest.Stream {
	return attest.Stream{Subject: x.subject(), Workflow: x.lineage.Workflow, Pair: x.pairBack()}
}

// pair returns the protocols of requests to the agent, pairBack those of replies to the caller.
func (x *request) pair() attest.Pair {
	return attest.Pair{From: x.in.Source.Info().Binding, To: x.to.Codec.Info().Binding, HashForm: hashForm(x)}
}

func (x *request) pairBack() attest.Pair {
	p := x.pair()
	p.From, p.To = p.To, p.From
	return p
}

// afterRequest returns the parents of a later message of the execution: the latest request, else
// the tokens of the caller.
func (x *request) afterRequest() []ect.ID {
	if id := x.trail.Request(); id != "" {
		return []ect.ID{id}
	}
	return x.lineage.Parents
}

// received returns the tokens that came with a message of the agent.
func (x *request) received(tokens []string, own ect.Check) attest.Received {
	reply := membership.Reply{Workflow: x.lineage.Workflow, Agent: x.to.Agent.ID, Gateway: x.settings.rules.IsGateway}
	if x.to.Via != nil {
		reply.Agent = x.to.Via.Peer.ID
	}
	return attest.Received{Subject: x.subject(), Tokens: tokens, Check: own, Reply: reply, Agent: x.to.Agent.Name, Replier: x.replier(), Requests: x.keptRequests()}
}

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

// replier names the holder in whose share the tokens of a reply count: the agent or gateway that
// sent them, which may not be their issuer.
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

// hashForm names how messages were hashed, if not byte by byte (R5). It is that of the protocol
// with evidence inside its messages; messages of the other one are hashed as they are. If both have
// evidence inside, hashForm names both.
func hashForm(x *request) string {
	form := ""
	if h := translators.HasherOf(x.to.Codec); h != nil {
		form = h.HashForm()
	}
	if h := translators.HasherOf(x.in.Source); h != nil {
		form = h.HashForm()
	}
	if x.callerInside() || x.agentInside() {
		form = strings.TrimSpace(form + " " + embedded.HashForm)
	}
	return form
}

// choice returns the chosen protocol, the candidates and the reason.
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

// first returns the first known ECT of the workflow: the oldest that the caller sent, else the
// parent, else our own.
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

// callerInside reports whether messages to the caller have their tokens in the body, too.
func (x *request) callerInside() bool {
	return x.settings.rules.Embeds(x.in.Call.Caller.ID, x.in.Source, x.in.Call.Wire.Form)
}

// agentInside reports the same of messages to the agent.
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

// brief leaves out the history of a task that its caller did not ask for (A2A, historyLength).
func (x *request) brief(m *canonical.Message) {
	if x.verbatim() {
		return
	}
	shorten := func(t *canonical.Task) *canonical.Task {
		if t == nil || len(t.History) == 0 {
			return t
		}
		short := *t
		short.History = x.shortened(t.History)
		return &short
	}
	switch body := m.Body.(type) {
	case *canonical.Result:
		if task := shorten(body.Task); task != body.Task {
			short := *body
			short.Task, m.Body = task, &short
		}
	case *canonical.Event:
		if task := shorten(body.Task); task != body.Task {
			short := *body
			short.Task, m.Body = task, &short
		}
	case *canonical.TaskList:
		for i := range body.Tasks {
			body.Tasks[i] = *shorten(&body.Tasks[i])
		}
	}
}

// pose writes the questions of a task as forms, for a caller that takes forms.
func (x *request) pose(m *canonical.Message) {
	result, ok := m.Body.(*canonical.Result)
	if !ok || result.Task == nil || x.mode.Relay || x.mode.Asking == translators.AskNone || x.mode.Asking == translators.AskTask {
		return
	}
	state := result.Task.Status.State
	if !stream.Settled(state) || state.Terminal() {
		return
	}
	asks, asking := *result, *result.Task
	asking.Inputs = stream.Forms(stream.Inputs(&asking))
	asks.Task, m.Body = &asking, &asks
}

// notifier returns what encodes subscriptions; nil: the two sides share no such protocol.
func (x *request) notifier() translators.Notifier {
	notifier := x.in.Features.Notifier
	if notifier == nil || x.in.Call.Agent == "" || x.to.Via != nil || !x.in.Call.EntryPoint.Native() || !x.mode.Relay {
		return nil
	}
	return notifier
}

// hears reports whether the caller's stream is for notifications, and may be silent for long.
func (x *request) hears() bool {
	notifier, native := x.notifier(), canonical.Native{}
	if method, ok := x.message.Body.(*canonical.Native); ok {
		native = *method
	}
	if x.listens() || notifier == nil || x.message.Op != canonical.OpNative {
		return x.listens()
	}
	filter, _ := notifier.Wants(&native)
	return filter != nil && filter.Verb == translators.FilterListen
}

// listens reports whether the caller opens a stream for notifications of the agent (MCP before
// 2026-07-28), which ends when one of the two closes it. In other protocols a request may have no
// id.
func (x *request) listens() bool {
	tells := x.in.Features.Notifier != nil
	return tells && x.message.Op == canonical.OpNative && len(x.in.WireID) == 0
}

// label names an agent in metrics. All documents share one: callers can name any number.
func label(a directory.Agent) string {
	if a.Name != "" && !a.Listed() {
		return "document"
	}
	return a.Name
}

// await registers the callback of a request. The gateway posts decisions to it, and passes it on to
// an agent whose protocol has a place for it. Without an approver there are no decisions.
func (g *Gateway) await(ctx context.Context, x *request) (*canonical.Message, error) {
	m := x.message
	if m.Callback == "" {
		return m, nil
	}
	if x.in.Call.Agent != "" {
		if err := g.parts.Callbacks.Await(ctx, x.in.Call.Caller.ID, x.lineage.Workflow, m.Callback); err != nil {
			return m, err
		}
	}
	if !signalling(x.to.Features.Signaler, m.Op, x.route.Endpoint.Version, x.route.Endpoint.Form) {
		copied := *m
		copied.Callback = ""
		copied.Losses = append(slices.Clip(copied.Losses),
			canonical.Loss{Code: canonical.LossCallback, Path: "/callback", Fate: canonical.Dropped})
		return &copied, nil
	}
	return m, nil
}

// signalling reports whether a protocol has a form for a signal or, with OpInvoke, for the callback
// of a request.
func signalling(s translators.Signaler, op canonical.Op, version, wire string) bool {
	return s != nil && s.Signals(op, translators.Target{Version: version, Form: wire})
}

// oneWay marks the token of a message to which no reply is translated: the caller forwards it, or it answers or
// stops something under way.
func (x *request) oneWay() ect.Ext {
	if x.in.Call.Agent != "" && x.message.Op != canonical.OpAnswer && x.message.Op != canonical.OpAbort {
		return nil
	}
	return ect.Ext{ect.ExtOneWay: []byte("true")}
}
