package slim

import (
	"context"

	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/rpc"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	form "github.com/aepb/aepb-gateway/translators/slim"
)

// maxTalks is how many callers' revisions are remembered.
const maxTalks = 4096

// plain answers a JSON-RPC message. A legacy session of MCP begins with
// initialize, which says in which revision it goes on.
func (v *visit) plain(ctx context.Context) error {
	evidence, err := v.admit(ctx)
	asked, m, unreadable := v.understood()
	v.wire, v.message = asked, m
	if err != nil {
		return v.refuse(ctx, err)
	}
	if unreadable != nil {
		if refused := v.door.road.Admit(ctx, v.door.asking(ctx)); refused != nil {
			unreadable = refused
		}
		return v.refuse(ctx, unreadable)
	}
	v.wire.Version = m.Origin.Version
	switch m.Op {
	case canonical.OpNotice:
		return nil
	case canonical.OpDescribe:
		v.door.agreed(v.call, m.Origin.Version)
		return v.listed(ctx, func(d *canonical.Description) canonical.Body { return d })
	case canonical.OpCapabilities:
		return v.listed(ctx, func(d *canonical.Description) canonical.Body {
			return &canonical.CapabilityList{Capabilities: d.Capabilities}
		})
	case canonical.OpPing:
		if err := v.door.road.Admit(ctx, v.door.asking(ctx)); err != nil {
			return v.refuse(ctx, err)
		}
		return v.express(ctx, &canonical.Message{Op: m.Op, Phase: canonical.PhaseResponse}, false)
	case canonical.OpAbort, canonical.OpAnswer:
		return nil // nothing here goes on for longer than its request, nor asks
	default:
		if m.Preferences.Stream { // one request, one response: that is what a plain session has
			return v.refuse(ctx, &canonical.Error{Code: canonical.CodeUnsupportedOp, Message: "streams are served on SLIMRPC"})
		}
		return v.exchange(ctx, transport.Submitted(m, evidence))
	}
}

// understood reads the message in the revision that its sender agreed on before,
// unless it is of another, or of A2A: whoever carries messages for others says
// both from one place, and MCP takes any name for a method of somebody's own.
func (v *visit) understood() (translators.Wire, *canonical.Message, error) {
	shown := v.wire
	m, err := v.door.l.deps.Form.Decode(shown)
	agreed := shown
	agreed.Version = v.door.revision(v.call)
	if agreed.Version == "" || m != nil && m.Origin.Version == form.VersionA2A {
		return shown, m, err
	}
	if said, unreadable := v.door.l.deps.Form.Decode(agreed); unreadable == nil {
		return agreed, said, nil
	}
	return shown, m, err
}

// listed answers from the directory.
func (v *visit) listed(ctx context.Context, body func(*canonical.Description) canonical.Body) error {
	said, err := v.described(ctx)
	if err != nil {
		return v.refuse(ctx, err)
	}
	if said.Instructions == "" {
		said.Instructions = said.Description
	}
	return v.express(ctx, &canonical.Message{Op: v.message.Op, Phase: canonical.PhaseResponse, Body: body(said)}, false)
}

// revision is what a caller's instance agreed on; empty: nothing yet.
func (d *door) revision(call rpc.Call) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.revisions[call.From.String()]
}

func (d *door) agreed(call rpc.Call, version string) {
	if revision, ok := form.Revision(version); !ok || revision == "" {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.revisions) >= maxTalks {
		clear(d.revisions)
	}
	d.revisions[call.From.String()] = version
}
