package routing

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/rollback"
)

// Query is the message that is to be sent.
type Query struct {
	Sides

	Body    canonical.Body // what its caller said in it; nil: it is not the caller's
	Header  http.Header    // of the caller's request
	Version string         // in which the agent was spoken to before; empty: it was not
	Skill   string         // with which the work was begun, as its caller knows it; empty: the message begins it
	Alone   string         // the session at the agent that is this message's alone; empty: none is
	Timeout time.Duration  // of agents that have none of their own
}

// Route is where and how a message is sent. It does not change.
type Route struct {
	Endpoint    transport.Endpoint
	Description *canonical.Description // of the agent, as it is known; nil: it is not
	Capability  *canonical.Capability  // what is called, across protocols; nil: both sides agree about names
	Marks       *canonical.Capability  // what is called, within a protocol that repeats arguments in its header
	Message     *canonical.Message     // under the agent's own names
	Renamed     bool                   // Message is another than that of the query
	Header      http.Header            // of the caller's request, judged
}

// Capable is the capability that a request is written for: what was chosen, or,
// where both sides agree about names, the one whose schema says what a request's header repeats.
func (r Route) Capable() *canonical.Capability {
	if r.Capability != nil {
		return r.Capability
	}
	return r.Marks
}

// Offered is what is called, under the name that its caller knows; nil: that is not known.
func (r Route) Offered(offer policy.Offer) *canonical.Capability {
	if r.Capability == nil || offer.Whole() {
		return r.Capability
	}
	shown := *r.Capability
	if name, offered := offer.Shown(shown.ID); offered {
		shown.ID = name
	}
	return &shown
}

// Called is what of the agent a message calls, as the agent names it; empty: the message does not say.
func (r Route) Called(m *canonical.Message) string {
	if r.Renamed && r.Message != nil {
		m = r.Message
	}
	invoke, ok := m.Body.(*canonical.Invoke)
	switch {
	case r.Capability != nil:
		return r.Capability.ID
	case ok && invoke.Call != nil:
		return invoke.Call.Name
	}
	return m.To.Skill
}

// Security is how the way to the destination is protected. Callers come over
// TLS 1.3 or not at all; and so do answers when nothing is forwarded.
func (r Route) Security(forwarded bool) policy.Security {
	scheme, _, _ := strings.Cut(r.Endpoint.URL, "://")
	if forwarded && (scheme == "http" || scheme == "ws" || scheme == "slim" || scheme == "uacp") {
		return policy.SecurityNone // what is known to be reached over TLS on SLIM has another scheme
	}
	return policy.SecurityTLS13
}

// Router finds routes. It is safe for concurrent use.
type Router struct{ Directory *directory.Directory }

// Resolve finds the endpoint and, across protocols, the capability that the
// message is for. Without a destination the message becomes one for a tool
// named "message" (R8); the encoder knows that by the absence of a capability. Its errors
// are *[problem.NoPathError], *[canonical.Error], *[UnnamedError] and those of the directory; with one, the
// route says what was found.
func (r Router) Resolve(ctx context.Context, q Query) (Route, error) {
	out := Route{Message: q.Message, Header: q.Header}
	if q.To.Via != nil {
		return r.throughPeer(ctx, q, out)
	}
	own := q.To.Codec.Info().Binding
	if q.In.Call.Agent == "" {
		out.Endpoint = transport.Endpoint{Binding: own, Version: q.In.Call.ToVersion}
		return out, nil
	}
	listed, ok := q.To.Agent.EndpointOf(own)
	if !ok {
		return out, &problem.NoPathError{From: string(q.In.Call.Wire.Binding), To: string(own)}
	}
	if _, apart := q.To.Codec.(*rollback.Form); apart { // its endpoint is not asked first who it is (AEPB, Checkpoint and Rollback Signal Carriage)
		out.Endpoint = q.onBehalf(transport.Endpoint{
			Agent: q.To.Agent.Name, ID: q.To.Agent.ID, Binding: listed.Binding, URL: listed.URL, Caller: q.In.Call.Caller.ID, Timeout: q.To.Agent.Timeout,
		})
		return out, nil
	}
	var err error
	if out.Description, out.Endpoint, err = r.Directory.DescribeFor(ctx, q.To.Agent, listed, q.viewer(out)); err != nil {
		return Route{Message: q.Message, Header: q.Header}, err
	}
	if version := q.In.Call.ToVersion; version != "" && version != out.Endpoint.Version {
		if out.Endpoint, err = r.inVersion(ctx, q, out, listed); err != nil {
			return out, err
		}
	}
	out.Endpoint = q.onBehalf(out.Endpoint)
	return r.resolveName(ctx, q, out, listed)
}

// resolveName finds what the message calls.
func (r Router) resolveName(ctx context.Context, q Query, out Route, listed directory.Endpoint) (Route, error) {
	within := q.SameWords(q.version(out)) || q.Message.Op != canonical.OpInvoke // the caller and the agent use the same words
	if within {
		out = r.rename(ctx, q, out, listed)
	}
	out, err := q.mirror(out)
	if err != nil {
		return out, err
	}
	if !within {
		return r.capability(ctx, q, out, listed)
	}
	if err := q.offers(out); err != nil {
		return out, err
	}
	return out, r.Directory.Admits(q.To.Agent, listed, Called(out.Message))
}

// offer is what of the agent's tools the caller may invoke.
func (q Query) offer() policy.Offer { return q.In.Permit.Offer() }

// offers refuses a call, in the agent's own words, of what is not offered: as what does not exist. A message that goes
// on with work need not name what the work was begun with. One that calls a tool and selects another skill names two.
func (q Query) offers(out Route) error {
	if q.offer().Whole() || q.Message.Op != canonical.OpInvoke {
		return nil
	}
	name := cmp.Or(Called(q.Message), q.Skill)
	if err := q.offersName(out, name); err != nil || q.Message.To.Skill == "" || q.Message.To.Skill == name {
		return err
	}
	return q.offersName(out, q.Message.To.Skill)
}

func (q Query) offersName(out Route, name string) error {
	if out.Description == nil { // of an agent behind a peer
		if _, offered := q.offer().Called(name); offered {
			return nil
		}
		return q.withheld(name, refusal(q.In.Features, &canonical.Description{}, name))
	}
	if Named(q.In.Features, out.Description, name) != nil {
		return nil
	}
	return q.withheld(name, refusal(q.In.Features, out.Description, name))
}

// withheld names the rule that does not offer a tool beside the refusal, for the evidence. It follows from the
// name alone: whether there is such a tool is not said.
func (q Query) withheld(name string, refused error) error {
	offer := q.offer()
	if rule := offer.Withheld(offer.Own(name)); rule != "" {
		return &policy.NotOfferedError{Rule: rule, Refusal: refused}
	}
	return refused
}

// throughPeer is the endpoint of a message that goes on through another gateway.
// What the agent says of itself is known only where an operator listed it.
func (r Router) throughPeer(ctx context.Context, q Query, out Route) (Route, error) {
	via := q.To.Via
	name := cmp.Or(q.To.Agent.Name, string(via.To))
	out.Endpoint = q.onBehalf(transport.Endpoint{
		Agent: name, ID: via.Peer.ID, Binding: via.From, Version: q.To.Codec.Info().Versions[0],
		URL: via.URL(), Caller: q.In.Call.Caller.ID, Timeout: q.To.Agent.Timeout,
	})
	listed, _ := q.To.Agent.EndpointOf(via.To)
	if listed.Through == "" || q.SameWords(q.version(out)) || q.Message.Op != canonical.OpInvoke {
		if err := q.offers(out); err != nil {
			return out, err
		}
		if q.Message.Op == canonical.OpInvoke {
			out = q.underOwn(out, q.offer().Own(Called(q.Message)))
		}
		return out, r.Directory.Admits(q.To.Agent, listed, Called(out.Message))
	}
	var err error
	if out.Description, _, err = r.Directory.DescribeFor(ctx, q.To.Agent, listed, q.viewer(out)); err != nil {
		return out, err
	}
	return r.capability(ctx, q, out, listed)
}

// inVersion is the endpoint in the version that the caller asked for: one that the
// agent speaks and that its operator did not rule out (R8). It may be another
// place than that of the version which the agent prefers.
func (r Router) inVersion(ctx context.Context, q Query, out Route, listed directory.Endpoint) (transport.Endpoint, error) {
	if listed.Version != "" || !slices.Contains(out.Description.Versions, q.In.Call.ToVersion) {
		return transport.Endpoint{}, &problem.NoPathError{
			From: string(q.In.Call.Wire.Binding), To: string(listed.Binding), Detail: "unsupported_version",
		}
	}
	listed.Version = q.In.Call.ToVersion
	_, endpoint, err := r.Directory.DescribeFor(ctx, q.To.Agent, listed, q.viewer(out))
	return endpoint, err
}

// capability is what the message is for, if it may be called (R9). The agent is asked once more
// what it can do before a name is refused: it may be newer than what is known. A message that
// goes on with work need not name what the work was begun with.
func (r Router) capability(ctx context.Context, q Query, out Route, listed directory.Endpoint) (Route, error) {
	var err error
	out.Capability, err = q.capability(out.Description)
	if unknown, ok := errors.AsType[*canonical.Error](err); ok && unknown.Code == canonical.CodeSkillNotFound {
		if newer, _, renewed := r.Directory.Renew(ctx, q.To.Agent, listed, q.viewer(out)); renewed {
			out.Description = newer
			out.Capability, err = q.capability(newer)
		}
	}
	if unnamed, ok := errors.AsType[*UnnamedError](err); ok && q.In.Call.EntryPoint.Native() { // at the translate endpoint no caller goes on with a task
		unnamed.Question = r.choice(q, out.Description, listed)
	}
	if err != nil {
		return out, q.withheld(Called(q.Message), err)
	}
	out.Capability = q.owned(out.Capability)
	out = q.underOwn(out, "") // what is called has the name of the capability
	return out, r.Directory.Admits(q.To.Agent, listed, out.Capability.ID)
}

// owned is a capability under the agent's own name.
func (q Query) owned(c *canonical.Capability) *canonical.Capability {
	if c == nil || q.offer().Own(c.ID) == c.ID {
		return c
	}
	own := *c
	own.ID = q.offer().Own(c.ID)
	return &own
}

func (q Query) capability(d *canonical.Description) (*canonical.Capability, error) {
	if q.Skill != "" && Called(q.Message) == "" {
		if begun := Named(q.In.Features, d, q.Skill); begun != nil {
			return begun, nil
		}
	}
	return find(q.In.Features, d, q.Message)
}

// rename puts the agent's own name of a capability in place of the one under which
// it is listed to the caller (translators.Namer), where all else stays in the
// caller's words. The agent is asked once more what it has if the name is not known;
// one that stays unknown is for the agent to refuse.
func (r Router) rename(ctx context.Context, q Query, out Route, listed directory.Endpoint) Route {
	invoke, calls := q.Message.Body.(*canonical.Invoke)
	if q.In.Features.Namer == nil && q.offer().Whole() || !calls {
		return out
	}
	if invoke.Call == nil {
		return q.underOwn(out, "")
	}
	found := q.known(out, invoke.Call.Name)
	if found == nil {
		if newer, _, ok := r.Directory.Renew(ctx, q.To.Agent, listed, q.viewer(out)); ok {
			out.Description = newer
			found = q.known(out, invoke.Call.Name)
		}
	}
	if found = q.owned(found); found == nil {
		return q.underOwn(out, "")
	}
	return q.underOwn(out, found.ID)
}

// underOwn puts the agent's own names into a message: of the tool that it calls, where that is another, and of the
// skill that it selects. An agent may have something else under a name that is shown.
func (q Query) underOwn(out Route, called string) Route {
	skill := q.Message.To.Skill
	if skill != "" {
		skill = q.offer().Own(skill)
	}
	invoke, _ := q.Message.Body.(*canonical.Invoke)
	another := invoke != nil && invoke.Call != nil && called != "" && called != invoke.Call.Name
	if !another && skill == q.Message.To.Skill {
		return out
	}
	m := *q.Message
	m.To.Skill = skill
	if another {
		body, call := *invoke, *invoke.Call
		call.Name, body.Call = called, &call
		body.Turn.Parts = calling(body.Turn.Parts, invoke.Call.Name, called)
		m.Body = &body
	}
	out.Message, out.Renamed = &m, true
	return out
}

// calling puts another name into the data part that a call was read from ({"skill": …, "input": …}).
func calling(parts []canonical.Part, name, another string) []canonical.Part {
	for i := range parts {
		var members map[string]json.RawMessage
		var skill string
		if parts[i].Kind != canonical.KindData || json.Unmarshal(parts[i].Data, &members) != nil || json.Unmarshal(members["skill"], &skill) != nil || skill != name {
			continue
		}
		members["skill"], _ = json.Marshal(another) //nolint:errchkjson // a text
		data, err := json.Marshal(members)
		if err != nil {
			continue
		}
		parts = slices.Clone(parts)
		parts[i].Data = data
	}
	return parts
}

// known is the capability of that name for a caller in the agent's own words. One
// that stands for a prompt or for resources is there for callers of other protocols
// alone: others ask for those themselves.
func (q Query) known(out Route, name string) *canonical.Capability {
	found := Named(q.In.Features, out.Description, name)
	if found != nil && q.Relay(q.version(out)) && found.Profile.Content() {
		return nil
	}
	return found
}

// mirror judges what the header of a request repeats of its body, as soon as it
// is known what it has to repeat. A caller of the translate endpoint has no
// such header.
func (q Query) mirror(out Route) (Route, error) {
	if q.To.Features.Mirrorer != nil && q.SameWords(q.version(out)) {
		out.Marks = q.owned(q.known(out, Called(q.Message)))
	}
	mirrorer := q.In.Features.Mirrorer
	if mirrorer == nil || !q.In.Call.EntryPoint.Native() || q.Body == nil {
		return out, nil
	}
	own := *out.Message
	own.Body = q.Body
	var err error
	out.Header, err = mirrorer.Mirror(q.Header, &own, Named(q.In.Features, out.Description, Called(&own)))
	return out, err
}

// version is that in which the agent is spoken to.
func (q Query) version(out Route) string {
	return q.AgentVersion(cmp.Or(out.Endpoint.Version, q.Version))
}

// viewer is for whom the agent describes itself.
func (q Query) viewer(out Route) directory.Viewer {
	version := q.version(out)
	v := directory.Viewer{Caller: q.In.Call.Caller.ID, CanAnswer: q.Askable(version), Version: q.In.Call.ToVersion, Offer: q.offer()}
	if v.Version == "" && q.Relay(version) {
		v.Version = q.Message.Origin.Version
	}
	return v
}

// client is the caller's program where the message or its session names that, without what misleads
// a reader (R9).
func (q Query) client() canonical.Party {
	named := q.Message.From
	if named.Name == "" {
		named = q.In.Call.Program.Client
	}
	if named.Name == "" || named.Version == "" { // servers refuse a client without a version
		return canonical.Party{}
	}
	clean, _ := directory.Clean(canonical.Description{Name: named.Name, Version: named.Version})
	if clean.Name == "" || clean.Version == "" {
		return canonical.Party{}
	}
	return canonical.Party{Name: clean.Name, Version: clean.Version}
}

// onBehalf tells the dialer on whose behalf it asks.
func (q Query) onBehalf(e transport.Endpoint) transport.Endpoint {
	version := q.version(Route{Endpoint: e})
	e.AnswerModes, e.Client = q.Askable(version), q.client()
	if e.Timeout <= 0 {
		e.Timeout = q.Timeout
	}
	if q.Relay(version) {
		e.Session = q.In.Call.Session
		e.Beside = q.In.Call.Session == "" && len(e.AnswerModes) > 0
	}
	if q.Alone != "" { // a person cannot be asked in it
		e.Session, e.Alone, e.AnswerModes, e.Beside = q.Alone, true, nil, false
	}
	return e
}
