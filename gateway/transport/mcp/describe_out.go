package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/mcp/oldsse"
	"github.com/aepb/aepb-gateway/gateway/transport/stdio"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// Bounds of a server's list of tools.
const (
	maxPages  = 500
	maxTools  = 10_000
	maxListed = translators.DefaultBodyLimit // of all lists together, in bytes
)

// Describe asks a server who it is and what tools it has: in the modern
// revision first, by initialize if it does not know that one (MCP, versioning). A
// program is asked the other way round: some say nothing at all to what comes before
// initialize, and the modern ones refuse that at once.
// An endpoint that names its version is asked in that one alone, and must speak
// it. The Version of the Endpoint that comes back is the one that messages are
// to be written in. A server that takes no POST is asked over HTTP with SSE, and its Transport
// is then TransportSSE (MCP 2025-11-25, Backwards Compatibility).
func (d *Dialer) Describe(ctx context.Context, ep transport.Endpoint) (*canonical.Description, transport.Endpoint, error) {
	l := &line{d: d, ep: ep}
	ways := []func(context.Context) (*canonical.Description, session, error){l.whoModern, l.whoLegacy}
	switch {
	case mcp.IsLegacy(ep.Version), ep.Transport == TransportSSE:
		ways = ways[1:]
	case ep.Version == mcp.Modern:
		ways = ways[:1]
	case stdio.IsProgram(ep.URL):
		slices.Reverse(ways)
	}
	description, s, err := ways[0](ctx)
	if _, bad := errors.AsType[*transport.BadReplyError](err); bad && len(ways) > 1 {
		description, s, err = ways[1](ctx)
	}
	if err != nil && l.mayBeOld(err) {
		description, s, err = l.whoOld(ctx, err)
	}
	if err != nil {
		if at, ok := moved(ep, err); ok {
			return d.Describe(ctx, at)
		}
		return nil, ep, err
	}
	ep.Transport = l.ep.Transport
	ep.Version, ep.Sessionless = s.version, s.version != mcp.Modern && (s.id == "" || stdio.IsShared(ep.URL))
	return d.withTools(ctx, l, ep, description)
}

// moved is the endpoint where a redirect leads that differs from its URL in the slash at the
// end alone, as a server answers that has MCP mounted there; false: it leads elsewhere, or
// was followed already. What is found is called at once: calls follow no redirect.
func moved(ep transport.Endpoint, err error) (transport.Endpoint, bool) {
	at, unreadable := url.Parse(ep.URL)
	refused, ok := errors.AsType[*transport.StatusError](err)
	if !ok || unreadable != nil || ep.Why != "" || refused.Status != http.StatusTemporaryRedirect && refused.Status != http.StatusPermanentRedirect || refused.Location == nil {
		return ep, false
	}
	to := *refused.Location
	to.Path, to.RawPath = at.Path, at.RawPath
	if to != *at || strings.TrimSuffix(refused.Location.EscapedPath(), "/") != strings.TrimSuffix(at.EscapedPath(), "/") {
		return ep, false
	}
	ep.URL, ep.Why = refused.Location.String(), "the listed URL redirects there"
	return ep, true
}

// whoModern asks who a server is in the modern revision.
func (l *line) whoModern(ctx context.Context) (*canonical.Description, session, error) {
	description, err := l.d.discover(ctx, l)
	return description, session{version: mcp.Modern}, err
}

// whoLegacy begins a session with a server, in the revision of the endpoint if it has one.
func (l *line) whoLegacy(ctx context.Context) (*canonical.Description, session, error) {
	asked := l.ep.Version
	if !mcp.IsLegacy(asked) {
		asked = mcp.Legacy
	}
	s, description, err := l.d.session(ctx, l.ep, asked)
	if err == nil && mcp.IsLegacy(l.ep.Version) && s.version != l.ep.Version {
		return nil, s, l.bad("it does not speak " + l.ep.Version)
	}
	return description, s, err
}

// TransportSSE is the Transport of endpoints that are spoken to over HTTP with SSE, the transport of
// revision 2024-11-05.
const TransportSSE = "sse"

// mayBeOld: a server that did not say who it is may do so over HTTP with SSE: it takes no
// initialize by POST, or is said to speak the revision of that transport, and then whatever
// it answered.
func (l *line) mayBeOld(err error) bool {
	if l.ep.Version == mcp.Modern || keyOf(l.ep, "").here() {
		return false
	}
	if refused, ok := errors.AsType[*transport.StatusError](err); ok {
		return refused.Status == http.StatusBadRequest || refused.Status == http.StatusNotFound || refused.Status == http.StatusMethodNotAllowed
	}
	_, bad := errors.AsType[*transport.BadReplyError](err)
	_, refused := errors.AsType[*refusedError](err)
	return bad && !refused && l.ep.Version == mcp.LegacyFirst
}

// whoOld begins a session over HTTP with SSE. Where there is no such stream, what was wrong
// before is what is wrong.
func (l *line) whoOld(ctx context.Context, before error) (*canonical.Description, session, error) {
	l.ep.Transport = TransportSSE
	description, s, err := l.whoLegacy(ctx)
	if errors.Is(err, oldsse.ErrNoStream) {
		err = before
	}
	return description, s, err
}

// discover asks in the modern revision. A server that does not speak it is a
// *transport.BadReplyError.
func (d *Dialer) discover(ctx context.Context, l *line) (*canonical.Description, error) {
	wire, err := d.encodeFor(l.ep.Asked, &canonical.DescribeRequest{}, canonical.OpDescribe, mcp.Modern)
	if err != nil {
		return nil, err
	}
	reply, err := l.askAlone(ctx, wire, session{}, canonical.OpDescribe)
	if err != nil {
		return nil, err
	}
	description, err := d.description(l, reply.Wire.Body, mcp.Modern)
	if err == nil && !slices.Contains(description.Versions, mcp.Modern) {
		return nil, l.bad("it does not speak " + mcp.Modern)
	}
	return description, err
}

// ByCapabilities implements transport.ByCapabilities.
func (*Dialer) ByCapabilities() {}

// Revisions implements transport.ByRevision.
func (*Dialer) Revisions() []string { return mcp.Revisions() }

// Revision implements transport.ByRevision: the caller's own where the server has it.
// Callers who can be asked get the newest one with sessions: there a server asks that is
// written in either style, since the official SDKs turn a reply that asks into requests,
// and in 2026-07-28 one that asks on its session fails. A server that keeps tasks of
// 2026-07-28 asks by these. What discovery does not name is tried: some name no older ones.
func (*Dialer) Revision(d *canonical.Description, own string, can []canonical.Mode) string {
	if slices.Contains(d.Versions, own) {
		return own
	}
	if !mcp.IsLegacy(own) {
		if own = mcp.Legacy; len(can) == 0 || d.Tasks {
			return ""
		}
	}
	for _, version := range mcp.Revisions() { // the newest first
		if mcp.IsLegacy(version) && slices.Contains(d.Versions, version) {
			return version
		}
	}
	return own
}

// What is shown of a server is asked for again after so long: as it says itself
// (2026-07-28, caching), within bounds, and soon where it says that its list of
// tools changes, since the gateway has no stream of its own to be told.
const (
	leastFresh = time.Second
	mostFresh  = 5 * time.Minute
	changing   = 5 * time.Second
)

// freshness is how long a server's own words can be shown; zero: it does not say.
// said is what it says of each of them.
func freshness(description *canonical.Description, said []canonical.Extensions) time.Duration {
	least, found := mostFresh, false
	for _, ext := range said {
		if ttl, ok := mcp.TTL(ext); ok {
			least, found = min(least, ttl), true
		}
	}
	switch {
	case found:
		return max(least, leastFresh)
	case mcp.ToolsChange(description):
		return changing
	default:
		return 0
	}
}

func (d *Dialer) encodeFor(asked []canonical.Mode, body canonical.Body, op canonical.Op, version string) (translators.Wire, error) {
	id := `"aepb-` + strconv.FormatUint(d.serial.Add(1), 10) + `"`
	wire, _, err := d.deps.Form.Encode(&canonical.Message{
		Op: op, Phase: canonical.PhaseRequest, Body: body,
		Correlation: canonical.Correlation{WireID: json.RawMessage(id)}, Origin: canonical.Origin{Binding: mcp.Binding},
		Preferences: canonical.Preferences{CanAnswer: asked},
	}, translators.Target{Version: version})
	return wire, err
}

// decode reads a reply to a request of our own. An error of the server is one
// of ours: nobody else asked.
func (d *Dialer) decode(l *line, body []byte, op canonical.Op, version string) (*canonical.Message, error) {
	m, err := d.deps.Form.Decode(translators.Wire{Binding: mcp.Binding, Version: version, Media: mediaJSON, Body: body, Re: op})
	if err != nil {
		return nil, l.bad("not a valid answer to " + string(op))
	}
	if refusal, ok := m.Body.(*canonical.Error); ok {
		if op == canonical.OpDescribe {
			return nil, &refusedError{l.bad("it refuses to say who it is: is it an MCP server?"), refusal}
		}
		return nil, &refusedError{l.bad("it refuses " + string(op)), refusal}
	}
	return m, nil
}

// refusedError is a bad reply of which the server's own word is still known.
type refusedError struct {
	error
	said *canonical.Error
}

func (e *refusedError) Unwrap() error { return e.error }

func (d *Dialer) description(l *line, body []byte, version string) (*canonical.Description, error) {
	m, err := d.decode(l, body, canonical.OpDescribe, version)
	if err != nil {
		return nil, err
	}
	description, ok := m.Body.(*canonical.Description)
	if !ok {
		return nil, l.bad("not a description")
	}
	return description, nil
}

func (d *Dialer) withTools(ctx context.Context, l *line, ep transport.Endpoint, description *canonical.Description) (*canonical.Description, transport.Endpoint, error) {
	tools, said, err := d.tools(ctx, l, ep.Version)
	if err != nil {
		return nil, ep, err
	}
	ep.Fresh = freshness(description, append(said, description.Extensions))
	out := *description
	out.Capabilities, err = d.withContent(ctx, l, ep, description, tools)
	return &out, ep, err
}

// withContent adds the skills by which callers of other protocols reach what
// else a server has, as far as its operator exposes that. A tool keeps its name
// against them.
func (d *Dialer) withContent(
	ctx context.Context, l *line, ep transport.Endpoint, description *canonical.Description, tools []canonical.Capability,
) ([]canonical.Capability, error) {
	var more []canonical.Capability
	if slices.Contains(ep.Expose, exposePrompts) && mcp.Offers(description, exposePrompts) {
		var err error
		if more, err = d.prompts(ctx, l, ep.Version); err != nil {
			return nil, err
		}
	}
	if slices.Contains(ep.Expose, exposeResources) && mcp.Offers(description, exposeResources) {
		more = append(more, mcp.Reading()...)
	}
	for _, skill := range more {
		if !slices.ContainsFunc(tools, func(c canonical.Capability) bool { return c.ID == skill.ID }) {
			tools = append(tools, skill)
		}
	}
	return tools, nil
}

// What an operator can expose, by the names that a server's capabilities have.
const (
	exposePrompts   = "prompts"
	exposeResources = "resources"
)

// prompts follows the list to its end.
func (d *Dialer) prompts(ctx context.Context, l *line, version string) ([]canonical.Capability, error) {
	var prompts []canonical.Capability
	for cursor, n := "", 0; n < maxPages; n++ {
		body, err := d.request(ctx, l, mcp.PromptsPage(cursor), canonical.OpNative, version)
		if refused, ok := errors.AsType[*refusedError](err); ok && refused.said.Code == canonical.CodeNoMethod && prompts == nil {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		said, ok := body.(*canonical.Native)
		if !ok {
			return nil, l.bad("not a list of prompts")
		}
		page, next, err := mcp.Prompts(said)
		if err != nil {
			return nil, l.bad("not a list of prompts")
		}
		if prompts = append(prompts, page...); len(prompts) > maxTools {
			return nil, l.bad("more than " + strconv.Itoa(maxTools) + " prompts")
		}
		if cursor = next; cursor == "" {
			return prompts, nil
		}
	}
	return nil, l.bad("a list of prompts without end")
}

// tools follows the list to its end. said is what each page says besides.
func (d *Dialer) tools(ctx context.Context, l *line, version string) (tools []canonical.Capability, said []canonical.Extensions, err error) {
	page := canonical.Page{}
	for range maxPages {
		list, err := d.page(ctx, l, page, version)
		if refused, ok := errors.AsType[*refusedError](err); ok && refused.said.Code == canonical.CodeNoMethod && tools == nil {
			return nil, nil, nil // a server without tools
		}
		if err != nil {
			return nil, nil, err
		}
		said = append(said, list.Extensions)
		if tools = append(tools, list.Capabilities...); len(tools) > maxTools {
			return nil, nil, l.bad("more than " + strconv.Itoa(maxTools) + " tools")
		}
		if list.Next == "" {
			return tools, said, nil
		}
		page.Cursor = list.Next
	}
	return nil, nil, l.bad("a list of tools without end")
}

func (d *Dialer) page(ctx context.Context, l *line, page canonical.Page, version string) (*canonical.CapabilityList, error) {
	body, err := d.request(ctx, l, &page, canonical.OpCapabilities, version)
	if err != nil {
		return nil, err
	}
	list, ok := body.(*canonical.CapabilityList)
	if !ok {
		return nil, l.bad("not a list of tools")
	}
	return list, nil
}

// request asks a server that has said who it is, and reads what it answers.
func (d *Dialer) request(ctx context.Context, l *line, body canonical.Body, op canonical.Op, version string) (canonical.Body, error) {
	wire, err := d.encodeFor(l.ep.Asked, body, op, version)
	if err != nil {
		return nil, err
	}
	var reply transport.Reply
	if version != mcp.Modern {
		reply, err = d.inSession(ctx, l, wire, op)
		reply, err = l.settled(ctx, reply, err)
	} else {
		reply, err = l.askAlone(ctx, wire, session{}, op)
	}
	if err != nil {
		return nil, err
	}
	if l.listed += len(reply.Wire.Body); l.listed > maxListed {
		return nil, l.bad("lists of more than " + strconv.Itoa(maxListed) + " bytes")
	}
	m, err := d.decode(l, reply.Wire.Body, op, version)
	if err != nil {
		return nil, err
	}
	return m.Body, nil
}
