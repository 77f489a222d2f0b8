package slim

import (
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

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
	maxOmitted = 20 // tools that cannot be used and are named
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
	if err == nil || ep.Version != "" || errors.As(err, new(*transport.BadReplyError)) { // who answers on SLIMRPC is no server of MCP
		return description, card, err
	}
	ctx, stop := context.WithTimeout(ctx, cardWithin)
	defer stop()
	if description, found, err := d.describeMCP(ctx, ep, form.VersionMCP(mcp.Legacy)); err == nil {
		return description, found, nil
	}
	return nil, ep, err
}

// methodOldCard is how A2A 0.3 asks for a card.
const methodOldCard = "GetAgentCard"

// skillsOfCard is the last field that cards of A2A 0.3 and 1.0 have in common.
const skillsOfCard = 12

// card reads the agent's card. Servers of SLIM's library for Python show the
// public card by the method of A2A 0.3 alone, and only if they serve 0.3
// too: A2A 1.0 asks for that card over HTTP, which an agent here need not speak.
func (d *Dialer) card(ctx context.Context, ep transport.Endpoint) (*canonical.Description, error) {
	shown, status, err := d.cardBy(ctx, ep, "/"+ServiceA2A+"/"+methodCard)
	if err != nil || status == 0 {
		return shown, err
	}
	const precondition = 9
	if status != rpc.Unimplemented && status != precondition && status != rpc.NotFound {
		return nil, &transport.BadReplyError{Agent: ep.Agent, Reason: "it refuses to send its card"}
	}
	if shown, status, err = d.cardBy(ctx, ep, "/"+ServiceA2AOld+"/"+methodOldCard); err == nil && status == 0 {
		shown.Versions = []string{"1.0"} // what it answered to
		return shown, nil
	}
	return cardless(ep), nil
}

// cardBy asks by one method. A status other than 0 is the agent's refusal.
func (d *Dialer) cardBy(ctx context.Context, ep transport.Endpoint, path string) (*canonical.Description, rpc.Code, error) {
	reply, err := d.call(ctx, ep, translators.Wire{Form: form.FormRPC, Path: path}, map[string]string{})
	if err != nil {
		return nil, 0, err
	}
	wire := reply.Wire
	if wire.Status != 0 {
		return nil, rpc.Code(uint32(wire.Status)), nil //nolint:gosec // a status is small
	}
	wire.Re = canonical.OpDescribe
	if methodIn(path) == methodOldCard {
		wire.Path = "/" + ServiceA2A + "/" + methodCard
		wire.Body, err = upgraded(wire.Body)
	}
	if err == nil {
		wire, err = Unframe(wire)
	}
	if err == nil {
		var m *canonical.Message
		if m, err = d.deps.Form.Decode(wire); err == nil {
			if shown, ok := m.Body.(*canonical.Description); ok {
				return shown, 0, nil
			}
		}
	}
	return nil, 0, errors.Join(&transport.BadReplyError{Agent: ep.Agent, Reason: "its card is malformed"}, err)
}

// upgraded makes a card of A2A 1.0 out of one of 0.3: what has the same number and
// meaning in both, from the name to the skills, without addresses (3) and security
// (8 and 9).
// Errors: *translators.MalformedError.
func upgraded(old []byte) ([]byte, error) {
	card := make([]byte, 0, len(old))
	for len(old) > 0 {
		number, _, size := protowire.ConsumeField(old)
		if size < 0 {
			return nil, &translators.MalformedError{Reason: "not a card", Syntax: true}
		}
		if number <= skillsOfCard && number != 3 && number != 8 && number != 9 {
			card = append(card, old[:size]...)
		}
		old = old[size:]
	}
	return card, nil
}

// cardless is an agent that speaks A2A and has no card for us.
func cardless(ep transport.Endpoint) *canonical.Description {
	return &canonical.Description{
		Name: ep.Agent, Versions: []string{"1.0"},
		Capabilities: []canonical.Capability{{ID: "message", Title: ep.Agent, Profile: canonical.ProfileMessage}},
	}
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
	description, ok := m.Body.(*canonical.Description)
	if !ok {
		return nil, ep, &transport.BadReplyError{Agent: ep.Agent, Reason: "not a description"}
	}
	out := *description
	out.Streams = false
	out.Capabilities, out.Omitted, err = t.tools(ctx, version)
	return &out, ep, err
}

// tools follows the list to its end, or to the first cursor that it gave before.
func (t *talk) tools(ctx context.Context, version string) (tools []canonical.Capability, omitted []canonical.Omission, err error) {
	page := &canonical.Page{}
	seen := map[string]bool{"": true}
	for range maxPages {
		m, err := t.inquire(ctx, version, canonical.OpCapabilities, page)
		if err != nil {
			return nil, nil, err
		}
		list, ok := m.Body.(*canonical.CapabilityList)
		if !ok {
			break
		}
		tools = append(tools, list.Capabilities...)
		omitted = append(omitted, list.Omitted[:min(len(list.Omitted), maxOmitted-len(omitted))]...)
		if seen[list.Next] && len(tools) <= maxTools {
			return tools, omitted, nil
		}
		seen[list.Next] = true
		page = &canonical.Page{Cursor: list.Next}
	}
	return nil, nil, &transport.BadReplyError{Agent: t.ep.Agent, Reason: "its list of tools is malformed or has no end"}
}
