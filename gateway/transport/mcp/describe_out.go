package mcp

import (
	"context"
	"errors"
	"log/slog"
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
	l := &upstreamCall{d: d, ep: ep}
	if ep.Session != "" {
		description, err := d.describeSession(ctx, l)
		return description, ep, err
	}
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

// describeSession gives the tools that a server lists in the session that mirrors a caller's
// own; nil: that has not been begun, by whichever replica.
func (d *Dialer) describeSession(ctx context.Context, l *upstreamCall) (*canonical.Description, error) {
	if !mcp.IsLegacy(l.ep.Version) {
		return nil, nil
	}
	if !d.sessions.holds(keyOf(l.ep, l.ep.Version)) {
		if found, _, err := d.sessionFor(ctx, l.ep, l.ep.Version); err != nil || found.version == "" {
			return nil, err
		}
	}
	tools, err := d.tools(ctx, l, l.ep.Version)
	return &canonical.Description{Capabilities: tools.items, Omitted: tools.omitted}, err
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
func (l *upstreamCall) whoModern(ctx context.Context) (*canonical.Description, session, error) {
	description, err := l.d.discover(ctx, l)
	return description, session{version: mcp.Modern}, err
}

// whoLegacy begins a session with a server, in the revision of the endpoint if it has one.
func (l *upstreamCall) whoLegacy(ctx context.Context) (*canonical.Description, session, error) {
	version := l.ep.Version
	if !mcp.IsLegacy(version) {
		version = mcp.Legacy
	}
	s, description, err := l.d.session(ctx, l.ep, version)
	if err == nil && mcp.IsLegacy(l.ep.Version) && s.version != l.ep.Version {
		return nil, s, l.bad("it does not speak " + l.ep.Version)
	}
	return description, s, err
}

// TransportSSE is the Transport of endpoints that are spoken to over HTTP with SSE, the transport of
// revision 2024-11-05.
const TransportSSE = "sse"

// mayBeOld reports whether a server that could not be described may speak HTTP with SSE: it
// takes no initialize by POST, or its operator configured the revision of that transport, and
// then its answer does not matter.
func (l *upstreamCall) mayBeOld(err error) bool {
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
func (l *upstreamCall) whoOld(ctx context.Context, before error) (*canonical.Description, session, error) {
	l.ep.Transport = TransportSSE
	description, s, err := l.whoLegacy(ctx)
	if errors.Is(err, oldsse.ErrNoStream) {
		err = before
	}
	return description, s, err
}

// discover asks in the modern revision. A server that does not speak it is a
// *transport.BadReplyError.
func (d *Dialer) discover(ctx context.Context, l *upstreamCall) (*canonical.Description, error) {
	wire, err := d.encodeFor(l.ep.AnswerModes, &canonical.DescribeRequest{}, canonical.OpDescribe, mcp.Modern)
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

// freshness returns how long a server's description may be cached; zero: it does not say.
// said is what it says of each of them.
func freshness(description *canonical.Description, values []canonical.Extensions) time.Duration {
	least, found := mostFresh, false
	for _, ext := range values {
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

func (d *Dialer) withTools(ctx context.Context, l *upstreamCall, ep transport.Endpoint, description *canonical.Description) (*canonical.Description, transport.Endpoint, error) {
	tools, err := d.tools(ctx, l, ep.Version)
	if err != nil {
		return nil, ep, err
	}
	ep.Fresh = freshness(description, append(tools.ext, description.Extensions))
	out := *description
	out.Omitted = tools.omitted
	out.Capabilities, err = d.withContent(ctx, l, ep, description, tools.items)
	return &out, ep, err
}

// withContent adds the skills by which callers of other protocols reach what
// else a server has, as far as its operator exposes that. A tool keeps its name
// against them.
func (d *Dialer) withContent(
	ctx context.Context, l *upstreamCall, ep transport.Endpoint, description *canonical.Description, tools []canonical.Capability,
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
	ids := make(map[string]bool, len(tools)+len(more))
	for _, tool := range tools {
		ids[tool.ID] = true
	}
	for _, skill := range more {
		if !ids[skill.ID] {
			ids[skill.ID], tools = true, append(tools, skill)
		}
	}
	return tools, nil
}

// What an operator can expose, by the names that a server's capabilities have.
const (
	exposePrompts   = "prompts"
	exposeResources = "resources"
)

// request asks a server that has said who it is, and reads what it answers.
func (d *Dialer) request(ctx context.Context, l *upstreamCall, body canonical.Body, op canonical.Op, version string) (canonical.Body, error) {
	wire, err := d.encodeFor(l.ep.AnswerModes, body, op, version)
	if err != nil {
		return nil, err
	}
	var reply transport.Reply
	if version != mcp.Modern {
		reply, err = l.inSession(ctx, wire, op)
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

// listPage is one page of a list.
type listPage struct {
	items   []canonical.Capability
	omitted []canonical.Omission
	ext     canonical.Extensions // what it says besides
	next    *string              // cursor of the page after it; nil: this is the last
}

// list is a list from its beginning to its end.
type list struct {
	items   []canonical.Capability
	omitted []canonical.Omission   // the first of them
	ext     []canonical.Extensions // what each page says besides
}

// maxOmitted bounds how many entries are named that cannot be used.
const maxOmitted = 20

func (l *list) add(page listPage) {
	l.items, l.ext = append(l.items, page.items...), append(l.ext, page.ext)
	l.omitted = append(l.omitted, page.omitted[:min(len(page.omitted), maxOmitted-len(l.omitted))]...)
}

// prompts follows the list to its end.
func (d *Dialer) prompts(ctx context.Context, l *upstreamCall, version string) ([]canonical.Capability, error) {
	prompts, err := d.pages(ctx, l, "prompts", func(cursor *string) (listPage, error) {
		body, err := d.request(ctx, l, mcp.PromptsPage(cursor), canonical.OpNative, version)
		if err != nil {
			return listPage{}, err
		}
		page, ok := body.(*canonical.Native)
		if !ok {
			return listPage{}, l.bad("not a list of prompts")
		}
		items, next, err := mcp.Prompts(page)
		if err != nil {
			return listPage{}, l.bad("not a list of prompts")
		}
		return listPage{items: items, next: next}, nil
	})
	return prompts.items, err
}

// tools follows the list to its end.
func (d *Dialer) tools(ctx context.Context, l *upstreamCall, version string) (list, error) {
	tools, err := d.pages(ctx, l, "tools", func(cursor *string) (listPage, error) {
		body, err := d.request(ctx, l, mcp.ToolsPage(cursor), canonical.OpCapabilities, version)
		if err != nil {
			return listPage{}, err
		}
		page, ok := body.(*canonical.CapabilityList)
		if !ok {
			return listPage{}, l.bad("not a list of tools")
		}
		return listPage{page.Capabilities, page.Omitted, page.Extensions, mcp.NextPage(page)}, nil
	})
	for _, o := range tools.omitted {
		d.deps.Logger.WarnContext(ctx, "agent tool left out of the list", slog.String("agent", l.ep.Agent), slog.String("tool", o.Name), slog.String("reason", o.Reason))
	}
	return tools, err
}

// pages follows a list to its end, and in a server whose cursors do not advance to the first
// page or cursor that it gave before. An empty cursor is a cursor since 2026-07-28
// (Pagination); in older revisions some servers mean the end by it, and refuse it. A server
// without the method has an empty list.
func (d *Dialer) pages(ctx context.Context, l *upstreamCall, what string, read func(cursor *string) (listPage, error)) (list, error) {
	var all list
	var cursor *string
	cursors, pages := map[string]bool{}, map[string]bool{}
	for range maxPages {
		page, err := read(cursor)
		refused, ok := errors.AsType[*refusedError](err)
		switch {
		case ok && (cursor == nil && refused.failure.Code == canonical.CodeNoMethod || cursor != nil && *cursor == ""):
			return all, nil
		case err != nil:
			return list{}, err
		}
		names := page.names()
		if len(page.items) > 0 && pages[names] {
			d.deps.Logger.WarnContext(ctx, "agent sent a page of its list twice: the list ends before it", slog.String("agent", l.ep.Agent), slog.String("list", what))
			return all, nil
		}
		pages[names] = true
		if all.add(page); len(all.items) > maxTools {
			return list{}, l.bad("more than " + strconv.Itoa(maxTools) + " " + what)
		}
		if cursor = page.next; cursor == nil {
			return all, nil
		}
		if cursors[*cursor] {
			d.deps.Logger.WarnContext(ctx, "agent sent a cursor of its list twice: the list ends there", slog.String("agent", l.ep.Agent), slog.String("list", what))
			return all, nil
		}
		cursors[*cursor] = true
	}
	return list{}, l.bad("a list of " + what + " without end")
}

// names tells a page from others.
func (p listPage) names() string {
	names := make([]string, len(p.items))
	for i := range p.items {
		names[i] = strconv.Quote(p.items[i].ID)
	}
	return strings.Join(names, " ")
}
