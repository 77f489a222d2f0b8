package mcp

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"slices"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// offered is what MCP clients can do with an agent of another protocol: call its
// skills, and read what came of that.
const offered = `{"capabilities":{"tools":{},"resources":{}}}`

// inquire asks the directory who the agent is (R8: no ECT, no forwarding).
func (v *serverCall) inquire(ctx context.Context, known bool) (*canonical.Description, error) {
	q := v.asking(ctx)
	q.Known, q.Version, q.Session = known, v.message.Origin.Version, v.session
	if q.CanAnswer = v.message.Preferences.CanAnswer; q.CanAnswer == nil { // which a client of a session has said at its beginning
		q.CanAnswer = v.guest.CanAnswer
	}
	return v.handler.Describe(ctx, q)
}

// describe answers server/discover and initialize.
func (v *serverCall) describe(ctx context.Context) {
	d, err := v.inquire(ctx, true)
	if err != nil {
		v.fail(err)
		return
	}
	if err := v.beginSession(ctx); err != nil {
		v.fail(err)
		return
	}
	copied := *d
	copied.Name = cmp.Or(copied.Name, v.r.PathValue("agent"))
	copied.Version = cmp.Or(copied.Version, v.server.deps.Version)
	copied.Instructions = cmp.Or(copied.Instructions, copied.Description)
	if copied.Extensions = own(copied.Extensions); copied.Extensions == nil {
		copied.Extensions = canonical.Extensions{mcp.Binding: json.RawMessage(offered)}
	}
	v.reply(&copied)
}

// list answers tools/list, in pages where there is much.
func (v *serverCall) list(ctx context.Context) {
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
	var cursor string
	if page, ok := v.message.Body.(*canonical.Page); ok {
		cursor = page.Cursor
	}
	list, ok := pageOf(tools, cursor)
	if !ok {
		v.fail(&canonical.Error{Code: canonical.CodeBadParams, Message: "Invalid cursor: list from the beginning"})
		return
	}
	v.reply(list)
}

// Bounds of one page of tools. Most clients want no second one: some do not ask for it.
const (
	pageTools = 1000
	pageBytes = 4 << 20
)

// pageOf is the page after a cursor: the name of the last tool of the page before, which
// every replica knows. False: there is no such tool, or not any more.
func pageOf(tools []canonical.Capability, cursor string) (*canonical.CapabilityList, bool) {
	end, first := pageEnd(tools), 0
	if cursor == "" && end == len(tools) {
		return &canonical.CapabilityList{Capabilities: tools}, true
	}
	for i, name := range (*mcp.Translator)(nil).CapabilityNames(tools) {
		tools[i].ID = name // its name among all, which is not always the one among those of a page
	}
	if cursor != "" {
		first = 1 + slices.IndexFunc(tools, func(c canonical.Capability) bool { return cursorOf(c) == cursor })
		if first == 0 {
			return nil, false
		}
	}
	tools = tools[first:]
	list := &canonical.CapabilityList{Capabilities: tools[:pageEnd(tools)]}
	if n := len(list.Capabilities); n < len(tools) {
		list.Next = cursorOf(tools[n-1])
	}
	return list, true
}

func cursorOf(tool canonical.Capability) string {
	return base64.RawURLEncoding.EncodeToString([]byte(tool.ID))
}

// pageEnd is how many of the tools fit a page: at least one.
func pageEnd(tools []canonical.Capability) int {
	size := 0
	for i := range min(len(tools), pageTools) {
		if size += tools[i].Size() + len(tools[i].Extensions[mcp.Binding]); size > pageBytes && i > 0 {
			return i
		}
	}
	return min(len(tools), pageTools)
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
