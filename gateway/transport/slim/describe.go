package slim

import (
	"context"
	"errors"
	"time"

	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/rpc"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
	form "github.com/aepb/aepb-gateway/translators/slim"
)

// Bounds of a description.
const (
	cardWithin = 5 * time.Second // then it is tried in MCP: who does not know SLIMRPC is silent
	maxPages   = 50
	maxTools   = 1000
)

// Describe asks an agent who it is: for its card on SLIMRPC first, then in MCP
// on a plain session; an endpoint that names a version is asked in that one
// alone. An agent on SLIMRPC without a card takes messages, as far as we know.
func (d *Dialer) Describe(ctx context.Context, ep transport.Endpoint) (*canonical.Description, transport.Endpoint, error) {
	if ep.Timeout <= 0 {
		ep.Timeout = patience
	}
	ctx, cancel := context.WithTimeout(ctx, ep.Timeout)
	defer cancel()
	to, err := d.reach(ctx, ep)
	if err != nil {
		return nil, ep, err
	}
	ep.URL = to.node.scheme() + to.node.Address + "/" + to.name.Base()
	if _, byMCP := form.Revision(ep.Version); byMCP {
		return d.describeMCP(ctx, ep, ep.Version)
	}
	card := ep
	card.Version, card.Form = form.VersionA2A, form.FormRPC
	if ep.Version == "" {
		card.Timeout = min(cardWithin, ep.Timeout)
	}
	description, err := d.card(ctx, card)
	var bad *transport.BadReplyError
	if err == nil || ep.Version != "" || errors.As(err, &bad) { // who answers on SLIMRPC is no server of MCP
		return description, card, err
	}
	ctx, stop := context.WithTimeout(ctx, cardWithin)
	defer stop()
	if description, found, err := d.describeMCP(ctx, ep, form.VersionMCP(mcp.Legacy)); err == nil {
		return description, found, nil
	}
	return nil, ep, err
}

// card reads the agent's card.
func (d *Dialer) card(ctx context.Context, ep transport.Endpoint) (*canonical.Description, error) {
	reply, err := d.call(ctx, ep, translators.Wire{Form: form.FormRPC, Path: "/" + ServiceA2A + "/" + methodCard}, map[string]string{})
	if err != nil {
		return nil, err
	}
	if reply.Wire.Status != 0 {
		return d.cardless(ep, rpc.Code(uint32(reply.Wire.Status))) //nolint:gosec // a status is small
	}
	wire := reply.Wire
	wire.Re = canonical.OpDescribe
	unframed, err := Unframe(wire)
	if err == nil {
		var m *canonical.Message
		if m, err = d.deps.Form.Decode(unframed); err == nil {
			if said, ok := m.Body.(*canonical.Description); ok {
				return said, nil
			}
		}
	}
	return nil, errors.Join(&transport.BadReplyError{Agent: ep.Agent, Reason: "its card is none"}, err)
}

// cardless is an agent that speaks A2A and has no card for us.
func (d *Dialer) cardless(ep transport.Endpoint, status rpc.Code) (*canonical.Description, error) {
	const precondition = 9
	if status != rpc.Unimplemented && status != precondition && status != rpc.NotFound {
		return nil, &transport.BadReplyError{Agent: ep.Agent, Reason: "it refuses to show its card"}
	}
	return &canonical.Description{
		Name: ep.Agent, Versions: []string{"1.0"},
		Capabilities: []canonical.Capability{{ID: "message", Title: ep.Agent, Profile: canonical.ProfileMessage}},
	}, nil
}

// describeMCP asks in MCP.
func (d *Dialer) describeMCP(ctx context.Context, ep transport.Endpoint, version string) (*canonical.Description, transport.Endpoint, error) {
	ep.Version, ep.Form = version, ""
	t, err := d.talk(ctx, ep)
	if err != nil {
		return nil, ep, err
	}
	defer t.conversation.Close()
	var m *canonical.Message
	if revision, _ := form.Revision(version); mcp.IsLegacy(revision) {
		m, err = t.initialize(ctx, version)
	} else {
		m, err = t.inquire(ctx, version, canonical.OpDescribe, &canonical.DescribeRequest{})
	}
	if err != nil {
		return nil, ep, err
	}
	said, ok := m.Body.(*canonical.Description)
	if !ok {
		return nil, ep, &transport.BadReplyError{Agent: ep.Agent, Reason: "not a description"}
	}
	out := *said
	out.Streams = false
	out.Capabilities, err = t.tools(ctx, version)
	return &out, ep, err
}

// tools follows the list to its end.
func (t *talk) tools(ctx context.Context, version string) ([]canonical.Capability, error) {
	var tools []canonical.Capability
	page := &canonical.Page{}
	for range maxPages {
		m, err := t.inquire(ctx, version, canonical.OpCapabilities, page)
		if err != nil {
			return nil, err
		}
		list, ok := m.Body.(*canonical.CapabilityList)
		if !ok {
			break
		}
		tools = append(tools, list.Capabilities...)
		if list.Next == "" && len(tools) <= maxTools {
			return tools, nil
		}
		page = &canonical.Page{Cursor: list.Next}
	}
	return nil, &transport.BadReplyError{Agent: t.ep.Agent, Reason: "a list of tools that is none, or without end"}
}
