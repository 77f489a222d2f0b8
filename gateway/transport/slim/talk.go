package slim

import (
	"cmp"
	"context"

	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/rpc"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	form "github.com/aepb/aepb-gateway/translators/slim"
)

// talkKey names one session of a caller. Another session of the caller may use another
// revision, or carry messages of another party.
type talkKey struct {
	from    string
	session uint32
}

func talkOf(call rpc.Call) talkKey { return talkKey{call.From.String(), call.Session} }

// plain answers a JSON-RPC message. A legacy session of MCP begins with
// initialize, which says in which revision it goes on.
func (v *serverCall) plain(ctx context.Context) error {
	evidence, err := v.admit(ctx)
	request, m, unreadable := v.understood()
	v.wire, v.message = request, m
	if err != nil {
		return v.refuse(ctx, err)
	}
	if unreadable != nil {
		return v.refuse(ctx, cmp.Or(v.exposed.handler.Admit(ctx, v.asking(ctx)), unreadable))
	}
	v.wire.Version = m.Origin.Version
	switch m.Op {
	case canonical.OpNotice:
		return nil
	case canonical.OpDescribe:
		v.exposed.agreed(ctx, v.call, m.Origin.Version)
		return v.listed(ctx, func(d *canonical.Description) canonical.Body { return d })
	case canonical.OpCapabilities:
		return v.listed(ctx, func(d *canonical.Description) canonical.Body {
			return &canonical.CapabilityList{Capabilities: d.Capabilities}
		})
	case canonical.OpPing:
		if err := v.exposed.handler.Admit(ctx, v.asking(ctx)); err != nil {
			return v.refuse(ctx, err)
		}
		return v.express(ctx, &canonical.Message{Op: m.Op, Phase: canonical.PhaseResponse}, false)
	case canonical.OpAnswer:
		return nil // nothing here asks
	default:
		if m.Preferences.Stream { // one request, one response: that is what a plain session has
			return v.refuse(ctx, &canonical.Error{Code: canonical.CodeUnsupportedOp, Message: "streams are served on SLIMRPC"})
		}
		return v.exchange(ctx, transport.Submitted(m, evidence))
	}
}

// understood reads the message in the revision that its sender agreed on before,
// unless it is of another, or of A2A. A proxy sends messages of both protocols from one
// name, and MCP accepts any unknown method as an extension.
func (v *serverCall) understood() (translators.Wire, *canonical.Message, error) {
	shown := v.wire
	m, err := v.exposed.l.deps.Form.Decode(shown)
	agreed := shown
	agreed.Version = v.exposed.revision(v.call)
	if agreed.Version == "" || m != nil && m.Origin.Version == form.VersionA2A {
		return shown, m, err
	}
	if message, unreadable := v.exposed.l.deps.Form.Decode(agreed); unreadable == nil {
		return agreed, message, nil
	}
	return shown, m, err
}

// listed answers from the directory.
func (v *serverCall) listed(ctx context.Context, body func(*canonical.Description) canonical.Body) error {
	description, err := v.described(ctx)
	if err != nil {
		return v.refuse(ctx, err)
	}
	description.Instructions = cmp.Or(description.Instructions, description.Description)
	return v.express(ctx, &canonical.Message{Op: v.message.Op, Phase: canonical.PhaseResponse, Body: body(description)}, false)
}

// revision is what a caller agreed on in this session; empty: nothing yet.
func (d *exposedAgent) revision(call rpc.Call) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.revisions[talkOf(call)]
}

// agreed keeps that as long as the session lasts.
func (d *exposedAgent) agreed(session context.Context, call rpc.Call, version string) {
	if revision, ok := form.Revision(version); !ok || revision == "" {
		return
	}
	key := talkOf(call)
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, again := d.revisions[key]; !again {
		context.AfterFunc(session, func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			delete(d.revisions, key)
		})
	}
	d.revisions[key] = version
}
