package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// offered is what MCP clients can do with an agent of another protocol: call its
// skills, and read what came of that.
const offered = `{"capabilities":{"tools":{},"resources":{}}}`

// inquire asks the directory who the agent is (R8: no ECT, no forwarding).
func (v *visit) inquire(ctx context.Context, known bool) (*canonical.Description, error) {
	q := v.asking(ctx)
	q.Known, q.Version = known, v.message.Origin.Version
	if q.CanAnswer = v.message.Preferences.CanAnswer; q.CanAnswer == nil { // which a client of a session has said at its beginning
		q.CanAnswer = v.guest.Asked
	}
	return v.road.Describe(ctx, q)
}

// describe answers server/discover and initialize.
func (v *visit) describe(ctx context.Context) {
	d, err := v.inquire(ctx, true)
	if err != nil {
		v.fail(err)
		return
	}
	if err := v.welcome(ctx); err != nil {
		v.fail(err)
		return
	}
	said := *d
	if said.Name == "" {
		said.Name = v.r.PathValue("agent")
	}
	if said.Version == "" {
		said.Version = v.door.deps.Version
	}
	said.Instructions = cmp.Or(said.Instructions, said.Description)
	if said.Extensions = own(said.Extensions); said.Extensions == nil {
		said.Extensions = canonical.Extensions{mcp.Binding: json.RawMessage(offered)}
	}
	v.reply(&said)
}

// list answers tools/list. Everything fits one page, so no cursor was ever
// given out.
func (v *visit) list(ctx context.Context) {
	if page, ok := v.message.Body.(*canonical.Page); ok && page.Cursor != "" {
		v.fail(&canonical.Error{Code: canonical.CodeBadParams, Message: "Invalid cursor"})
		return
	}
	d, err := v.inquire(ctx, false)
	if err != nil {
		v.fail(err)
		return
	}
	tools := slices.Clone(d.Capabilities)
	if own(d.Extensions) != nil { // a server's prompts and resources MCP clients see as such
		tools = slices.DeleteFunc(tools, func(c canonical.Capability) bool { return c.Profile.Content() })
	}
	for i := range tools {
		tools[i].Extensions = own(tools[i].Extensions)
		if d.Tasks && v.message.Origin.Version == mcp.Legacy && slices.Contains(d.Versions, mcp.Modern) {
			tools[i].Extensions = mcp.AsTasks(tools[i].Extensions)
		}
	}
	v.reply(&canonical.CapabilityList{Capabilities: tools})
}

// own leaves what MCP itself wrote. What another protocol said about an agent,
// its security schemes and inner addresses, is not for our callers.
func own(ext canonical.Extensions) canonical.Extensions {
	raw, ok := ext[mcp.Binding]
	if !ok {
		return nil
	}
	return canonical.Extensions{mcp.Binding: raw}
}
