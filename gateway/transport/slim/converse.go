package slim

import (
	"context"
	"encoding/json"
	"errors"
	"io"

	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/plain"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
	form "github.com/aepb/aepb-gateway/translators/slim"
)

// talk is one plain session with an agent.
type talk struct {
	d            *Dialer
	ep           transport.Endpoint
	conversation *plain.Conversation
}

// converse sends one JSON-RPC message in a session of its own: what a session
// of MCP shares, its callers must not.
func (d *Dialer) converse(ctx context.Context, ep transport.Endpoint, wire translators.Wire, metadata map[string]string) (transport.Reply, error) {
	ctx, cancel := context.WithTimeout(ctx, ep.Timeout)
	defer cancel()
	t, err := d.talk(ctx, ep)
	if err != nil {
		return transport.Reply{}, err
	}
	defer t.conversation.Close()
	if revision, ok := form.Revision(wire.Version); ok && mcp.IsLegacy(revision) {
		if _, err := t.initialize(ctx, wire.Version); err != nil {
			return transport.Reply{}, err
		}
	}
	return t.ask(ctx, wire, metadata)
}

func (d *Dialer) talk(ctx context.Context, ep transport.Endpoint) (*talk, error) {
	to, err := d.reach(ctx, ep)
	if err != nil {
		return nil, err
	}
	c, err := to.node.peer.Converse(ctx, to.name)
	if err != nil {
		return nil, failed(ctx, ep, err)
	}
	return &talk{d, ep, c}, nil
}

// ask sends a request and waits for its response. Notices on the way are not
// asked for, and a request of the agent's is not answered.
func (t *talk) ask(ctx context.Context, wire translators.Wire, metadata map[string]string) (transport.Reply, error) {
	stream, err := t.conversation.Call(ctx, wire.Body, metadata)
	if err != nil {
		return transport.Reply{}, failed(ctx, t.ep, err)
	}
	defer stream.Close()
	var last translators.Wire
	var evidence []string
	for {
		f, err := stream.Next(ctx)
		if errors.Is(err, io.EOF) {
			return transport.Reply{Wire: last, Evidence: evidence}, nil
		}
		if err != nil {
			return transport.Reply{}, failed(ctx, t.ep, err)
		}
		last = translators.Wire{Binding: form.Binding, Version: wire.Version, Media: form.Media, Body: f.Body}
		if evidence, err = t.d.evidence(f.Metadata, t.ep); err != nil {
			return transport.Reply{}, err
		}
	}
}

// inquire asks a question of ours.
func (t *talk) inquire(ctx context.Context, version string, op canonical.Op, body canonical.Body) (*canonical.Message, error) {
	wire, _, err := t.d.deps.Form.Encode(&canonical.Message{
		Op: op, Phase: canonical.PhaseRequest, Body: body,
		Correlation: canonical.Correlation{WireID: json.RawMessage(`"aepb-` + string(op) + `"`)},
	}, translators.Target{Version: version})
	if err != nil {
		return nil, err
	}
	reply, err := t.ask(ctx, wire, nil)
	if err != nil {
		return nil, err
	}
	reply.Wire.Re = op
	m, err := t.d.deps.Form.Decode(reply.Wire)
	if err != nil {
		return nil, &transport.BadReplyError{Agent: t.ep.Agent, Reason: "not a valid answer to " + string(op) + ": " + translators.Explain(err)}
	}
	if m.Phase == canonical.PhaseError {
		return nil, &transport.BadReplyError{Agent: t.ep.Agent, Reason: "it refuses " + string(op)}
	}
	return m, nil
}

// initialize begins a legacy session; it answers with who the agent is.
func (t *talk) initialize(ctx context.Context, version string) (*canonical.Message, error) {
	revision, _ := form.Revision(version)
	m, err := t.inquire(ctx, version, canonical.OpDescribe, &canonical.DescribeRequest{Versions: []string{revision}})
	if err != nil {
		return nil, err
	}
	done, err := t.conversation.Call(ctx, []byte(`{"jsonrpc":"2.0","method":"`+mcp.MethodInitialized+`"}`), nil)
	if err != nil {
		return nil, failed(ctx, t.ep, err)
	}
	done.Close()
	return m, nil
}
