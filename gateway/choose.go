package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/hop"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/rollback"
)

// messageTool is what a plain message is called in a protocol of calls when
// nobody named a skill (R8).
const messageTool = "message"

// choose finds the endpoint and, across protocols, the capability that the
// message is for. Without a destination the message becomes one for a tool
// named "message" (R8); the encoder knows that by the absence of a capability.
func (g *Gateway) choose(ctx context.Context, x *exchange) error {
	if x.to.Via != nil {
		return g.throughPeer(ctx, x)
	}
	if x.in.Call.Agent == "" {
		x.endpoint = transport.Endpoint{Binding: x.to.Codec.Info().Binding, Version: x.in.Call.ToVersion}
		return nil
	}
	listed, ok := x.to.Agent.EndpointOf(x.to.Codec.Info().Binding)
	if !ok {
		return &problem.NoPathError{From: string(x.in.Call.Wire.Binding), To: string(x.to.Codec.Info().Binding)}
	}
	if x.apart(listed) {
		return nil
	}
	description, endpoint, err := g.Directory.DescribeFor(ctx, x.to.Agent, listed, x.viewer())
	if err != nil {
		return err
	}
	x.endpoint, x.described = endpoint, description
	if version := x.in.Call.ToVersion; version != "" && version != endpoint.Version {
		if x.endpoint, err = g.asked(ctx, x, listed, description); err != nil {
			return err
		}
	}
	x.dress()
	within := x.kin() || x.message.Op != canonical.OpInvoke // the caller and the agent use the same words
	if within {
		g.rename(ctx, x, listed)
	}
	if err := x.mirror(x.described); err != nil {
		return err
	}
	if within {
		return g.Directory.Admits(x.to.Agent, listed, called(x.message))
	}
	if x.chosen, err = g.capability(ctx, x, listed); err != nil {
		return err
	}
	return g.Directory.Admits(x.to.Agent, listed, x.chosen.ID)
}

// throughPeer is the endpoint of a message that goes on through another gateway.
// What the agent says of itself is known only where an operator listed it.
func (g *Gateway) throughPeer(ctx context.Context, x *exchange) error {
	o := x.to.Via
	name := x.to.Agent.Name
	if name == "" {
		name = string(o.To)
	}
	x.endpoint = transport.Endpoint{
		Agent: name, ID: o.Peer.ID, Binding: o.From, Version: x.to.Codec.Info().Versions[0],
		URL: hop.Target(o.Peer.URL, o.From, o.To, o.Agent), Caller: x.in.Call.Caller.ID, Timeout: x.to.Agent.Timeout,
	}
	x.dress()
	listed, _ := x.to.Agent.EndpointOf(o.To)
	if listed.Through == "" || x.kin() || x.message.Op != canonical.OpInvoke {
		return nil
	}
	description, _, err := g.Directory.DescribeFor(ctx, x.to.Agent, listed, x.viewer())
	if err != nil {
		return err
	}
	x.described = description
	x.chosen, err = g.capability(ctx, x, listed)
	return err
}

// viewer is for whom the agent describes itself.
func (x *exchange) viewer() directory.Viewer {
	v := directory.Viewer{Caller: x.in.Call.Caller.ID, CanAnswer: x.askable(), Version: x.in.Call.ToVersion}
	if v.Version == "" && x.relay() {
		v.Version = x.message.Origin.Version
	}
	return v
}

// capability is what the message is for. The agent is asked once more what it can do
// before a name is refused: it may be newer than what is known.
func (g *Gateway) capability(ctx context.Context, x *exchange, listed directory.Endpoint) (*canonical.Capability, error) {
	found, err := x.capability(x.described)
	unknown, ok := errors.AsType[*canonical.Error](err)
	if !ok || unknown.Code != canonical.CodeSkillNotFound {
		return found, err
	}
	description, _, renewed := g.Directory.Renew(ctx, x.to.Agent, listed, x.viewer())
	if !renewed {
		return nil, err
	}
	x.described = description
	return x.capability(description)
}

// mirror judges what the header of a request repeats of its body, as soon as it
// is known what it has to repeat. Whoever came to the translate endpoint has no
// such header.
func (x *exchange) mirror(d *canonical.Description) (err error) {
	if x.to.Features.Mirrorer != nil && x.kin() {
		x.marks = x.known(d, called(x.message))
	}
	mirrorer := x.in.Features.Mirrorer
	if mirrorer == nil || !x.in.Call.Entrance.Native() || x.asked == nil {
		return nil
	}
	asked := *x.message
	asked.Body = x.asked
	x.in.Call.Wire.Header, err = mirrorer.Mirror(x.in.Call.Wire.Header, &asked, named(x.in.Features, d, called(&asked)))
	return err
}

// rename puts the agent's own name of a capability in place of the one under which
// it is listed to the caller (translators.Namer), where all else stays in the
// caller's words. The agent is asked once more what it has if the name is not known;
// one that stays unknown is for the agent to refuse.
func (g *Gateway) rename(ctx context.Context, x *exchange, listed directory.Endpoint) {
	invoke, calls := x.message.Body.(*canonical.Invoke)
	if x.in.Features.Namer == nil || !calls || invoke.Call == nil {
		return
	}
	found := x.known(x.described, invoke.Call.Name)
	if found == nil {
		if newer, _, ok := g.Directory.Renew(ctx, x.to.Agent, listed, x.viewer()); ok {
			x.described = newer
			found = x.known(newer, invoke.Call.Name)
		}
	}
	if found == nil || found.ID == invoke.Call.Name {
		return
	}
	m, body, call := *x.message, *invoke, *invoke.Call
	call.Name, body.Call, m.Body = found.ID, &call, &body
	x.message, x.renamedCall = &m, true
}

// known is the capability of that name for a caller in the agent's own words. One
// that stands for a prompt or for resources is there for callers of other protocols
// alone: others ask for those themselves.
func (x *exchange) known(d *canonical.Description, name string) *canonical.Capability {
	found := named(x.in.Features, d, name)
	if found != nil && x.relay() && found.Profile.Content() {
		return nil
	}
	return found
}

// heed: an agent that says that it has changed is not as it is known here, nor
// is one that misses something in the header of a request.
func (g *Gateway) heed(x *exchange, heard *canonical.Message) {
	if heard == nil {
		return
	}
	changed := false
	switch said := heard.Body.(type) {
	case *canonical.Error:
		changed = said.Code == canonical.CodeHeaderMismatch
	case *canonical.Event:
		changer := x.to.Features.Changer
		changed = changer != nil && said.Native != nil && changer.Changes(said.Native)
	}
	if changed {
		g.Directory.Outdated(x.to.Agent.Name)
	}
}

// capable is the capability that a request is written for: what was chosen, or,
// where both sides agree about names, the one whose schema says what a request's header repeats.
func (x *exchange) capable() *canonical.Capability {
	if x.chosen != nil {
		return x.chosen
	}
	return x.marks
}

// kin: both sides use the words of one protocol, whoever carries them.
func (x *exchange) kin() bool {
	return spokenBy(x.in.Source, x.in.Features, x.message.Origin.Version) == spokenBy(x.to.Codec, x.to.Features, x.agentVersion())
}

func spokenBy(t translators.Translator, f *translators.Features, version string) canonical.Binding {
	if f.Carrier != nil {
		return f.Carrier.Carries(version)
	}
	return t.Info().Binding
}

// securityOf is how the way to the destination is protected. Callers come over
// TLS 1.3 or not at all; and so do answers when nothing is forwarded.
func securityOf(x *exchange) policy.Security {
	scheme, _, _ := strings.Cut(x.endpoint.URL, "://")
	if x.in.Call.Agent != "" && (scheme == "http" || scheme == "ws" || scheme == "slim" || scheme == "uacp") {
		return policy.SecurityNone // what is known to be reached over TLS on SLIM has another scheme
	}
	return policy.SecurityTLS13
}

// dress tells the dialer on whose behalf it asks.
func (x *exchange) dress() {
	x.endpoint.Asked = x.askable()
	if x.endpoint.Timeout <= 0 {
		x.endpoint.Timeout = x.settings.Timeout
	}
	if x.relay() {
		x.endpoint.Session = x.in.Call.Session
		x.endpoint.Beside = x.in.Call.Session == "" && len(x.endpoint.Asked) > 0
	}
	if x.alone != "" { // nobody can be asked in it
		x.endpoint.Session, x.endpoint.Alone, x.endpoint.Asked = x.alone, true, nil
		x.endpoint.Beside = false
	}
}

// asked is the endpoint in the version that the caller asked for: one that the
// agent speaks and that its operator did not rule out (R8). It may be another
// place than that of the version which the agent prefers.
func (g *Gateway) asked(ctx context.Context, x *exchange, listed directory.Endpoint, d *canonical.Description) (transport.Endpoint, error) {
	if listed.Version != "" || !slices.Contains(d.Versions, x.in.Call.ToVersion) {
		return transport.Endpoint{}, &problem.NoPathError{
			From: string(x.in.Call.Wire.Binding), To: string(listed.Binding), Detail: "unsupported_version",
		}
	}
	listed.Version = x.in.Call.ToVersion
	_, endpoint, err := g.Directory.DescribeFor(ctx, x.to.Agent, listed, x.viewer())
	return endpoint, err
}

// capability is what the message is for. One that goes on with work need not
// name what the work was begun with.
func (x *exchange) capability(d *canonical.Description) (*canonical.Capability, error) {
	if x.record != nil && called(x.message) == "" {
		if begun := named(x.in.Features, d, x.record.Skill); begun != nil {
			return begun, nil
		}
	}
	return capability(x.in.Features, d, x.message)
}

// capability finds what the message names: a call's name, the skill that its
// sender selected, else the only one there is. A caller may know it by the
// name that its own protocol allows (R9).
func capability(source *translators.Features, d *canonical.Description, m *canonical.Message) (*canonical.Capability, error) {
	name := called(m)
	if found := named(source, d, name); found != nil {
		return found, nil
	}
	if only := sole(d); only != nil && (name == "" || name == messageTool) {
		return only, nil
	}
	if name == "" {
		return nil, &canonical.Error{
			Code:    canonical.CodeBadParams,
			Message: "this agent has several skills: name one with a data part {\"skill\": …, \"input\": …}; it has " + names(source, d),
		}
	}
	return nil, &canonical.Error{Code: canonical.CodeSkillNotFound, Message: "no such skill or tool; this agent has " + names(source, d)}
}

// sole is the only skill that there is, whatever content is handed out beside
// it; nil: there is none, or a choice.
func sole(d *canonical.Description) *canonical.Capability {
	if len(d.Capabilities) == 1 {
		return &d.Capabilities[0]
	}
	var only *canonical.Capability
	for i := range d.Capabilities {
		switch {
		case d.Capabilities[i].Profile.Content():
		case only != nil:
			return nil
		default:
			only = &d.Capabilities[i]
		}
	}
	return only
}

// called is what a message names: the tool that it calls, else a skill.
func called(m *canonical.Message) string {
	if invoke, ok := m.Body.(*canonical.Invoke); ok && invoke.Call != nil {
		return invoke.Call.Name
	}
	return m.To.Skill
}

func named(source *translators.Features, d *canonical.Description, name string) *canonical.Capability {
	for i := range d.Capabilities {
		if name != "" && d.Capabilities[i].ID == name {
			return &d.Capabilities[i]
		}
	}
	if namer := source.Namer; namer != nil && name != "" {
		if i := slices.Index(namer.CapabilityNames(d.Capabilities), name); i >= 0 {
			return &d.Capabilities[i]
		}
	}
	return nil
}

// names are those by which a caller may call the first capabilities.
func names(source *translators.Features, d *canonical.Description) string {
	const most = 16
	list := make([]string, len(d.Capabilities))
	for i := range list {
		list[i] = d.Capabilities[i].ID
	}
	if namer := source.Namer; namer != nil {
		list = namer.CapabilityNames(d.Capabilities)
	}
	if len(list) > most {
		list = append(list[:most:most], "…")
	}
	return strings.Join(list, ", ")
}

// lineage decides workflow and parents of leg 1 (R3, R4): the source's, or those
// of the token that the message names, else the conversation's, else a root of a
// fresh workflow.
func (g *Gateway) lineage(x *exchange) {
	if workflow, ids := x.in.Evidence.Origins(); len(ids) > 0 {
		x.workflow, x.parents = workflow, ids
		return
	}
	if x.record != nil { // more about the same work
		x.workflow, x.parents = x.record.Workflow, x.behind(x.record)
		return
	}
	if workflow, last, ok := x.thread.Last(); ok {
		x.workflow, x.parents = workflow, []ect.ID{last}
		return
	}
	x.workflow = g.NewID()
}

// remember makes the reply's ECT the conversation's last (R3).
func (g *Gateway) remember(ctx context.Context, x *exchange) {
	g.Conversations.Remember(ctx, x.dialogueKey(x.replyContext), x.workflow, x.trail.Reply())
}

// maxReferences bounds the tasks that one message refers to.
const maxReferences = 32

// owned refuses a message that refers to work which is not its caller's (R2): the
// agent takes all of us for one caller, and would let it in. What is another's is
// not found, like what never was.
func (g *Gateway) owned(ctx context.Context, x *exchange) error {
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

// stampRequest gives a message bound for an agent what only the roof can mint:
// its id on the wire is the id of the ECT that testifies to it, and so is the
// name of its progress. A relay within one protocol has every other id that it needs.
func (x *exchange) stampRequest(id ect.ID) {
	m := x.message
	m.Correlation.WireID = quoted(string(id))
	if x.in.Call.Agent != "" {
		m.Preferences.CanAnswer = x.answerable(m.Preferences.CanAnswer)
	}
	if m.Preferences.CanAnswer == nil {
		m.Preferences.CanAnswer = x.endpoint.Asked // in a protocol where every request says so
	}
	if x.relay() || m.Op != canonical.OpInvoke {
		return
	}
	if m.Correlation.MessageID == "" {
		m.Correlation.MessageID = string(id)
	}
	if invoke, ok := m.Body.(*canonical.Invoke); ok && invoke.Turn.ID == "" {
		invoke.Turn.ID = m.Correlation.MessageID
	}
	if x.agentStreams() == translators.StreamsReply && x.in.Call.Agent != "" && m.Correlation.Progress == nil && x.lasts() {
		m.Correlation.Progress = m.Correlation.WireID
	}
}

// tasked is a message as an agent hears it that may answer a call with a task:
// that its caller would rather wait is our business and not the agent's, and so is
// that its caller would take a task, where the agent has not said that it has any.
func (x *exchange) tasked(m *canonical.Message) *canonical.Message {
	if m.Op != canonical.OpInvoke || x.in.Call.Agent == "" || x.described == nil || m.Preferences.TaskOK == x.described.Tasks ||
		x.agentStreams() == translators.StreamsTask || x.relay() && (m.Preferences.TaskOK || !x.tasking()) {
		return m
	}
	out := *m
	out.Preferences.TaskOK = x.described.Tasks
	return &out
}

func quoted(id string) json.RawMessage { return json.RawMessage(`"` + id + `"`) }

// stampReply gives a reply bound for the caller its own request's id, and ids
// to results that came without: an A2A task must have both.
func (g *Gateway) stampReply(x *exchange, m *canonical.Message) {
	m.Correlation.WireID = x.in.WireID
	if x.relay() {
		x.replyContext = m.Conversation.ContextID
		return
	}
	if x.record != nil { // the work has names already
		m.Conversation = x.record.CallerNames()
		if result, ok := m.Body.(*canonical.Result); ok && result.Task != nil {
			result.Task.ID, result.Task.ContextID = m.Conversation.TaskID, m.Conversation.ContextID
		}
	}
	if m.Conversation.ContextID == "" {
		m.Conversation.ContextID = x.message.Conversation.ContextID
	}
	if result, ok := m.Body.(*canonical.Result); ok && result.Output != nil {
		if m.Conversation.ContextID == "" {
			m.Conversation.ContextID = g.NewID()
		}
		if m.Conversation.TaskID == "" {
			m.Conversation.TaskID = g.NewID()
		}
	}
	x.replyContext = m.Conversation.ContextID
	g.completeTask(x, m)
}

// undoing puts the form of rollbacks over HTTP in place of a protocol that has
// none of its own, where the agent can be asked that way.
func (g *Gateway) undoing(x *exchange) {
	if x.message.Op != canonical.OpRollback || x.to.Codec == nil || x.to.Via != nil || g.Network.Rollbacks[x.to.Codec.Info().Binding] == nil {
		return
	}
	x.to.Codec = rollback.Over(x.to.Codec)
	x.to.Features = translators.FeaturesOf(x.to.Codec)
}

// apart is where an agent is asked to roll back: nobody asks its endpoint first
// who it is (AEPB, Checkpoint and Rollback Signal Carriage). false: it is asked at
// its endpoint, like anything else.
func (x *exchange) apart(listed directory.Endpoint) bool {
	if _, ok := x.to.Codec.(*rollback.Form); !ok {
		return false
	}
	x.endpoint = transport.Endpoint{
		Agent: x.to.Agent.Name, ID: x.to.Agent.ID, Binding: listed.Binding, URL: listed.URL, Caller: x.in.Call.Caller.ID, Timeout: x.to.Agent.Timeout,
	}
	x.dress()
	return true
}
