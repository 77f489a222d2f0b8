package gateway

import (
	"cmp"
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
	"github.com/aepb/aepb-gateway/translators/inbody"
	"github.com/aepb/aepb-gateway/translators/stream"
)

// A caller of A2A is answered with a task where the agent's protocol has calls alone
// (MCP, µACP, AINP). What such a task has beside the outcome of the call is given to it
// here: the time of each status (A2A 1.0, 4.1.2, TaskStatus.timestamp), and the history,
// which is told where historyLength asks for it (A2A 1.0, 3.2.4).

// history is what is kept of the talk about a task that is made here: the caller's
// messages, and what was asked in between. Empty: the task is not made here.
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

// turn is the caller's message as it stands in a history; nil: it stands in none.
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

// madeOf is the task that a call's output is.
func madeOf(at canonical.Conversation, output canonical.Output, history []canonical.Content) *canonical.Task {
	status := canonical.Status{State: canonical.StateCompleted, At: output.At}
	if output.Failed {
		status.State = canonical.StateFailed
	}
	output.At = time.Time{}
	return &canonical.Task{ID: at.TaskID, ContextID: at.ContextID, Status: status, Output: &output, History: history}
}

// tasking: the message becomes a task of the agent's that its caller is told of in
// the way that it knows, or not at all.
func (x *request) tasking() bool {
	if x.message.Op != canonical.OpInvoke || !x.mode.Converts {
		return false
	}
	tasker := x.in.Features.Tasker
	only := tasker.Tasks(x.route.Endpoint.Version) == translators.TaskingApart && x.route.Marks != nil && tasker.TaskOnly(x.route.Marks)
	return x.message.Preferences.TaskOK || x.forced || only
}

// wantsTask: the agent refuses a caller who knows of no tasks, and has done nothing.
func (x *request) wantsTask(reply *canonical.Message) bool {
	return x.message.Op == canonical.OpInvoke && !x.tasking() && x.mode.DemandsTask(reply)
}

// lasts: the request asks for more than one answer, or not to wait for it. In a
// relay the gateway that answers decides about waiting.
func (x *request) lasts() bool {
	p := x.message.Preferences
	if x.in.Call.Agent == "" || x.mode.Relay {
		return x.in.Call.Agent != "" && (p.Stream || x.tasking() || x.posts())
	}
	return p.Stream || p.NoWait || p.TaskOK || x.posts()
}

// posts: the message brings a webhook that is told each change, so that the agent is
// heard at work whatever its caller waits for. An agent of the caller's own protocol
// that does not stream shows no more than its answer.
func (x *request) posts() bool {
	return x.webhook != nil && x.message.Op == canonical.OpInvoke && (!x.mode.Relay || x.route.Description != nil && x.route.Description.Streams)
}

// target is how the agent is spoken to.
func (x *request) target(stream bool) translators.Target {
	at := &x.route.Endpoint
	t := translators.Target{Version: at.Version, Form: at.Form, Capability: x.route.Capable(), Stream: stream}
	if asker := x.to.Features.Asker; asker != nil && !at.Sessionless && asker.Asks(at.Version, at.Form) == translators.AskStream {
		t.Answers = at.AnswerModes
	}
	return t
}

// streams: the agent is asked for a stream, so that it can be seen at work, and stopped.
func (x *request) streams() bool {
	switch {
	case x.in.Call.Agent == "":
		return false
	case x.mode.Relay:
		return x.message.Preferences.Stream || x.posts()
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

// verbatim: both sides speak one version of it in one form, and what one says
// goes to the other byte by byte. At the translate endpoint a message comes
// without the fields of its protocol's header, so there it is said anew.
func (x *request) verbatim() bool {
	return !x.unseen && x.in.Call.EntryPoint.Native() && x.mode.Relay && x.route.Endpoint.Version == x.message.Origin.Version && x.route.Endpoint.Form == x.in.Call.Wire.Form &&
		!x.route.Endpoint.Rewritten() && !x.in.Call.Tenanted && x.webhook == nil && !x.thread.Renamed() && x.in.Call.Card == nil
}

// names: the agent makes a task of the message, which goes on when the connection
// ends. Until it has named that, it cannot be told to stop.
func (x *request) names() bool {
	return x.in.Call.Agent != "" && x.message.Op == canonical.OpInvoke && x.mode.AgentStreams == translators.StreamsTask
}

// subject is for whom the exchange is.
func (x *request) subject() attest.Subject {
	return attest.Subject{
		Caller: x.in.Call.Caller, Holder: x.in.Holder, EntryPoint: x.in.Call.EntryPoint, Version: x.settings.Version, Permit: x.in.Permit,
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

// hashForm names how the messages of the two protocols were hashed, where it is not byte by byte
// (R5). It is said of the protocol that has evidence inside its messages; the other one's are
// hashed as they are. Where both have, in two ways, it is both.
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

// pose says what a task asks in the way of a caller who is asked in forms.
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

// notifier is what knows how news is asked for; nil: the two sides have no such in common.
func (x *request) notifier() translators.Notifier {
	notifier := x.in.Features.Notifier
	if notifier == nil || x.in.Call.Agent == "" || x.to.Via != nil || !x.in.Call.EntryPoint.Native() || !x.mode.Relay {
		return nil
	}
	return notifier
}

// hears: the caller's stream is open for news, and may be silent for long.
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

// listens: the caller wants to hear what the agent says without being asked (MCP
// before 2026-07-28). Nothing ends that but one of the two. Other protocols have
// forms whose requests bear no id.
func (x *request) listens() bool {
	tells := x.in.Features.Notifier != nil
	return tells && x.message.Op == canonical.OpNative && len(x.in.WireID) == 0
}

// label is an agent in metrics: callers can name documents without end.
func label(a directory.Agent) string {
	if a.Name != "" && !a.Listed() {
		return "document"
	}
	return a.Name
}
